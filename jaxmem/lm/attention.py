"""Grouped attention of rows over their own tokens and over slots that all rows share."""

import jax
import jax.numpy as jnp
from jax import Array

from jaxmem.recall.attention import Read

TILE_LOGITS = 2**21
"""Logits over shared slots that are held at once, a head group: what the caches of a core hold."""


def own_read(query: Array, keys: Array, values: Array, seen: Array, scale: float) -> Read:
    """Attention of each row over its own tokens.

    o = sum_s softmax_s(scale q . k_s) v_s over the tokens that are seen

    Args:
      query: [B, T, G, R, K], R query heads for each of G key and value heads.
      keys: [B, S, G, K].
      values: [B, S, G, K].
      seen: [B, T, S] boolean; each token sees at least itself.
      scale: inverse temperature.

    Returns:
      Output [B, T, G, R, K] and log-sum-exp [B, T, G, R], at least float32.
    """
    batch, length, groups, repeats, dim = query.shape
    # A head group's queries in one piece: a product's result then needs no transposition.
    asked = jnp.moveaxis(scale * query, 2, 1).reshape(batch, groups, length * repeats, dim)
    logits = _einsum("bgmk,bsgk->bgms", asked, keys)
    logits = logits.reshape(batch, groups, length, repeats, -1)
    logits = jnp.where(seen[:, None, :, None], logits, jnp.finfo(logits.dtype).min)
    weights, total, log_sum_exp = _softmax(logits)
    weights = weights.reshape(batch, groups, length * repeats, -1)
    output = _einsum("bgms,bsgk->bgmk", weights, values)
    output = output.reshape(batch, groups, length, repeats, dim) / total
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
      Output [B, T, G, R, K] and log-sum-exp [B, T, G, R], at least float32.
    """
    batch, length, groups, repeats, dim = query.shape
    rows = batch * length
    flat = query.reshape(rows, groups, repeats, dim)

    def read(tile: Array) -> tuple[Array, Array]:  # [N, G, R, K]
        logits = _einsum("ngrk,gpk->gnrp", scale * tile, keys)
        if bias is not None:
            logits = logits + bias[:, None, None]
        if mask is not None:
            logits = jnp.where(mask[:, None, None], logits, jnp.finfo(logits.dtype).min)
        weights, total, log_sum_exp = _softmax(logits)
        output = _einsum("gnrp,gpk->gnrk", weights, values) / total
        return jnp.moveaxis(output, 0, 1), jnp.moveaxis(log_sum_exp, 0, 1)

    size = max(16, TILE_LOGITS // (groups * repeats * keys.shape[1]))
    if rows <= size:
        output, log_sum_exp = read(flat)
    else:
        tiles = -(-rows // size)
        padded = jnp.pad(flat, ((0, tiles * size - rows), (0, 0), (0, 0), (0, 0)))
        parts = jax.lax.map(jax.checkpoint(read), padded.reshape(tiles, size, groups, repeats, dim))
        output, log_sum_exp = (part.reshape(-1, *part.shape[2:])[:rows] for part in parts)
    return Read(
        output.reshape(batch, length, groups, repeats, dim),
        log_sum_exp.reshape(batch, length, groups, repeats),
    )


def both(first: Read, second: Read) -> Read:
    """The read over the slots of both.

    Args:
      first, second: by the same queries; [..., K] and [...].

    Returns:
      [..., K] and [...].
    """
    share = jax.nn.sigmoid(first.log_sum_exp - second.log_sum_exp)[..., None]
    output = share * first.output + (1 - share) * second.output
    return Read(output, jnp.logaddexp(first.log_sum_exp, second.log_sum_exp))


def _softmax(logits: Array) -> tuple[Array, Array, Array]:
    """Weights that are not normalised, their sum [..., 1] and the log-sum-exp [...]."""
    top = jax.lax.stop_gradient(jnp.max(logits, axis=-1, keepdims=True))
    weights = jnp.exp(logits - top)
    total = jnp.sum(weights, axis=-1, keepdims=True)
    return weights, total, (top + jnp.log(total))[..., 0]


def _einsum(what: str, first: Array, second: Array) -> Array:
    """In at least single precision: small products gain little from less, and logits lose."""
    kind = jnp.promote_types(second.dtype, jnp.float32)
    return jnp.einsum(what, first.astype(kind), second.astype(kind))
