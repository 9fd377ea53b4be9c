"""Grouped attention of rows over their own tokens and over slots that all rows share.

Each head group of each row is an `attend` of `jaxmem.recall`; here are the layouts and the tiles.
"""

import jax
import jax.numpy as jnp
from jax import Array

from jaxmem.recall.attention import Read, attend

CAUSAL_BLOCK = 64
"""Queries that share the keys they may see: what no token of a block sees is not computed."""

TILE_LOGITS = 2**21
"""Logits over shared slots that are held at once, a head group: what the caches of a core hold."""


def grouped_read(
    query: Array, keys: Array, values: Array, scale: float, mask: Array | None = None
) -> Read:
    """Attention of each row and head group over keys and values of its own.

    Args:
      query: [B, G, M, K], all queries of a head group in one piece: no product's result is then
        transposed.
      keys: [B, G, S, K].
      values: [B, G, S, K].
      scale: inverse temperature.
      mask: [B, M, S] True where a key counts, or None.

    Returns:
      Output [B, G, M, K] and log-sum-exp [B, G, M].
    """
    heads = jax.vmap(attend, (0, 0, 0, None, None, None))
    rows = jax.vmap(heads, (0, 0, 0, None, None, None if mask is None else 0))
    found: Read = rows(scale * query, keys, values, 1.0, None, mask)  # queries are the smaller
    return found


def own_read(
    query: Array, keys: Array, values: Array, seen: Array, scale: float, causal: bool
) -> Read:
    """Attention of each row over its own tokens.

    o = sum_s softmax_s(scale q . k_s) v_s over the tokens that are seen

    Args:
      query: [B, T, G, R, K], R query heads for each of G key and value heads.
      keys: [B, S, G, K].
      values: [B, S, G, K].
      seen: [B, T, S] boolean; each token sees at least itself.
      scale: inverse temperature.
      causal: whether token t sees none after t, so that blocks of them need no more keys.

    Returns:
      Output [B, T, G, R, K] and log-sum-exp [B, T, G, R].
    """
    batch, length, groups, repeats, dim = query.shape
    asked = jnp.moveaxis(query, 2, 1).reshape(batch, groups, length * repeats, dim)
    keys, values = jnp.moveaxis(keys, 2, 1), jnp.moveaxis(values, 2, 1)
    mask = jnp.repeat(seen, repeats, axis=1)
    size = CAUSAL_BLOCK if causal else length
    reads = []
    for start in range(0, length, size):
        rows = slice(start * repeats, (start + size) * repeats)
        there = slice(start + size if causal else None)
        block = mask[:, rows, there]
        reads.append(
            grouped_read(asked[:, :, rows], keys[:, :, there], values[:, :, there], scale, block)
        )
    output, log_sum_exp = (jnp.concatenate(parts, axis=2) for parts in zip(*reads))
    output = output.reshape(batch, groups, length, repeats, dim)
    log_sum_exp = log_sum_exp.reshape(batch, groups, length, repeats)
    return Read(jnp.moveaxis(output, 1, 2), jnp.moveaxis(log_sum_exp, 1, 2))


def shared_read(
    query: Array,
    keys: Array,
    values: Array,
    scale: float,
    bias: Array | None = None,
    mask: Array | None = None,
) -> Read:
    """Attention of all rows over the same slots, a cartridge's or a document's.

    Rows are taken in tiles, so that memory is bounded however long the document is.

    Args:
      query: [B, T, G, R, K].
      keys: [G, P, K].
      values: [G, P, K].
      scale: inverse temperature.
      bias: [G, P] added to the logits, or None.
      mask: [G, P] True where a slot counts, or None.

    Returns:
      Output [B, T, G, R, K] and log-sum-exp [B, T, G, R].
    """
    batch, length, groups, repeats, dim = query.shape
    rows = batch * length
    flat = query.reshape(rows, groups, repeats, dim)
    optional = (None if part is None else 0 for part in (bias, mask))
    heads = jax.vmap(attend, (0, 0, 0, None, *optional))

    def read(tile: Array) -> Read:  # [N, G, R, K]
        asked = jnp.moveaxis(tile, 1, 0).reshape(groups, -1, dim)
        found = heads(scale * asked, keys, values, 1.0, bias, mask)
        output = found.output.reshape(groups, -1, repeats, dim)
        log_sum_exp = found.log_sum_exp.reshape(groups, -1, repeats)
        return Read(jnp.moveaxis(output, 0, 1), jnp.moveaxis(log_sum_exp, 0, 1))

    size = max(16, TILE_LOGITS // (groups * repeats * keys.shape[1]))
    if rows <= size:
        found = read(flat)
    else:
        tiles = -(-rows // size)
        padded = jnp.pad(flat, ((0, tiles * size - rows), (0, 0), (0, 0), (0, 0)))
        parts = jax.lax.map(jax.checkpoint(read), padded.reshape(tiles, size, groups, repeats, dim))
        found = Read(*(part.reshape(-1, *part.shape[2:])[:rows] for part in parts))
    return Read(
        found.output.reshape(batch, length, groups, repeats, dim),
        found.log_sum_exp.reshape(batch, length, groups, repeats),
    )
