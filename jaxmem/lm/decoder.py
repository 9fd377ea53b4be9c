"""The decoder: tokens in, logits out, over its own tokens, a cache and a cartridge."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from jaxmem.lm.attention import own_read, shared_read
from jaxmem.lm.config import Config
from jaxmem.lm.layer import after_attention, embed, query_key_value, rms_norm, slots_of
from jaxmem.lm.parameters import Params, head_of
from jaxmem.lm.product import transposed_product
from jaxmem.lm.rope import angles
from jaxmem.recall.attention import merge
from jaxmem.recall.cartridges import Cartridge

# A gradient keeps what the large products made and computes the rest again: on a CPU, writing and
# reading everything costs as much as computing everything again.
_KEPT = jax.checkpoint_policies.save_only_these_names("product")


class Cache(NamedTuple):
    """Keys and values of tokens that were read, with room for more.

    keys: [L, B, S, G, K] as attention reads them, after rotation.
    values: [L, B, S, G, K].
    lengths: [B] tokens there are in each row; what lies beyond is not read.
    """

    keys: Array
    values: Array
    lengths: Array


class _Shared(NamedTuple):
    """What all layers use alike."""

    cosine: Array
    sine: Array
    seen: Array
    lengths: Array | None = None
    queries: bool = False


def init_cache(config: Config, batch: int, room: int, dtype: Any = jnp.float32) -> Cache:
    """An empty cache.

    Args:
      config: the shape.
      batch: rows, B.
      room: tokens a row, S.
      dtype: type of keys and values.

    Returns:
      The cache.
    """
    shape = (config.layers, batch, room, config.kv_heads, config.head_dim)
    return Cache(jnp.zeros(shape, dtype), jnp.zeros(shape, dtype), jnp.zeros(batch, jnp.int32))


def forward(
    params: Params,
    config: Config,
    ids: Array,
    positions: Array,
    segment_ids: Array | None = None,
    cartridge: Cartridge | None = None,
    cache: Cache | None = None,
    *,
    at: Array | None = None,
    lengths: Array | None = None,
    remat: bool = False,
) -> tuple[Array, Cache | None]:
    """Logits of the next token after each token, or after some.

    Args:
      params, config: the model.
      ids: [B, T] tokens.
      positions: [B, T] of each for its rotation; see `Cartridge.first_question`.
      segment_ids: [B, T]; a token sees those before it that have its number. None: one segment.
      cartridge: slots that every token of every row sees, keys [L, G, P, K].
      cache: tokens read before, to which these are added; segments are then not told apart.
      at: [B, N] places of the tokens whose logits are wanted, or None for all.
      lengths: [B] how many of the tokens count, for the cache; None for all.
      remat: whether a gradient computes the large products again too, instead of keeping them.

    Returns:
      Logits [B, N, V] and the cache with these tokens in it.

    Raises:
      ValueError: if the cache has no room for the tokens; under jit only its whole size is known.
    """
    hidden, cache = hidden_states(
        params, config, ids, positions, segment_ids, cartridge, cache, lengths=lengths, remat=remat
    )
    if at is not None:
        hidden = jnp.take_along_axis(hidden, at[..., None], axis=1)
    return logits(params, hidden), cache


def logits(params: Params, hidden: Array) -> Array:
    """Logits over the vocabulary.

    Args:
      params: the model's.
      hidden: [..., D] from `hidden_states`.

    Returns:
      [..., V].
    """
    return transposed_product(hidden, head_of(params))


def hidden_states(
    params: Params,
    config: Config,
    ids: Array,
    positions: Array,
    segment_ids: Array | None = None,
    cartridge: Cartridge | None = None,
    cache: Cache | None = None,
    *,
    lengths: Array | None = None,
    remat: bool = False,
) -> tuple[Array, Cache | None]:
    """What the last layer says of each token, normalised; `forward` without the head.

    Args:
      params, config, ids, positions, segment_ids, cartridge, cache, lengths, remat: see `forward`.

    Returns:
      [B, T, D], at least float32, and the cache.
    """
    shared = _Shared(*angles(config, positions), _seen(ids, segment_ids, cache))
    if cache is not None:
        _check_room(cache, ids.shape[1])
        shared = shared._replace(lengths=cache.lengths)
    hidden, kept = _run(params, config, ids, shared, cartridge, cache, remat)
    if cache is None:
        return hidden, None
    added = ids.shape[1] if lengths is None else lengths
    keys, values = kept
    return hidden, Cache(keys, values, cache.lengths + added)


def queries(
    params: Params,
    config: Config,
    ids: Array,
    positions: Array,
    segment_ids: Array | None = None,
    cartridge: Cartridge | None = None,
) -> Array:
    """With what each token asks each layer, after rotation: what a smaller cache is fitted to.

    Args:
      params, config, ids, positions, segment_ids, cartridge: see `forward`.

    Returns:
      [L, B, T, G, R, K], R query heads for each of G key and value heads.
    """
    shared = _Shared(*angles(config, positions), _seen(ids, segment_ids, None), queries=True)
    found: Array = _run(params, config, ids, shared, cartridge, None, False)[1]
    return found


def _run(
    params: Params,
    config: Config,
    ids: Array,
    shared: _Shared,
    cartridge: Cartridge | None,
    cache: Cache | None,
    remat: bool,
) -> tuple[Array, Any]:
    """Normalised states [B, T, D] of the last layer, and what each layer was asked to keep."""
    stream = embed(params, ids)
    layers: dict[str, Any] = {"params": params["layers"]}
    if cartridge is not None:
        layers["slots"] = slots_of(cartridge)
    if cache is not None:
        layers["cache"] = cache.keys, cache.values
    step = jax.checkpoint(partial(_layer, config, shared), policy=None if remat else _KEPT)
    stream, kept = jax.lax.scan(step, stream, layers)
    return rms_norm(stream, params["norm"], config.norm_eps), kept


def _layer(
    config: Config, shared: _Shared, stream: Array, layer: dict[str, Any]
) -> tuple[Array, Any]:
    """x + attention(norm(x)), then x + feed-forward(norm(x))."""
    weights = layer["params"]
    normed = rms_norm(stream, weights["attention_norm"], config.norm_eps)
    query, keys, values = query_key_value(config, weights, normed, shared.cosine, shared.sine)
    kept: Any = query if shared.queries else None
    if "cache" in layer:
        keys, values = kept = tuple(
            _write(old, new, shared.lengths) for old, new in zip(layer["cache"], (keys, values))
        )
    causal = "cache" not in layer
    read = own_read(query, keys, values, shared.seen, config.scale, causal)
    if "slots" in layer:
        read = merge([read, shared_read(query, scale=config.scale, **layer["slots"])])
    return after_attention(config, weights, stream, read.output), kept


def _check_room(cache: Cache, more: int) -> None:
    room, there = cache.keys.shape[2], 0
    if not isinstance(cache.lengths, jax.core.Tracer):
        there = int(jnp.max(cache.lengths))
    if there + more > room:
        raise ValueError(f"expected room for {there} + {more} tokens in the cache, got {room}")


def _seen(ids: Array, segment_ids: Array | None, cache: Cache | None) -> Array:
    """[B, T, S] which tokens each one sees: those before it, of its own segment."""
    batch, length = ids.shape
    if cache is not None:
        last = cache.lengths[:, None] + jnp.arange(length)  # [B, T]
        return jnp.arange(cache.keys.shape[2]) <= last[..., None]
    seen = jnp.tril(jnp.ones((length, length), bool))[None]
    if segment_ids is None:
        return jnp.broadcast_to(seen, (batch, length, length))
    return seen & (segment_ids[:, :, None] == segment_ids[:, None, :])


def _write(old: Array, new: Array, lengths: Any) -> Array:
    """Old [B, S, G, K] with new [B, T, G, K] from each row's length on."""

    def row(there: Array, more: Array, start: Array) -> Array:
        return jax.lax.dynamic_update_slice_in_dim(there, more.astype(there.dtype), start, 0)

    return jax.vmap(row)(old, new, lengths)
