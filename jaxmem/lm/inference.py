"""The decoder for text that grows: prompts read in pieces, then a token of each row at a time."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import DTypeLike

from jaxmem.lm.attention import grouped_read, shared_read
from jaxmem.lm.config import Config
from jaxmem.lm.layer import after_attention, embed, query_key_value, rms_norm, slots_of
from jaxmem.lm.parameters import Params
from jaxmem.lm.rope import angles
from jaxmem.recall.attention import Read, merge
from jaxmem.recall.cartridges import Cartridge


class KeysValues(NamedTuple):
    """Keys and values of tokens, a row's and a head's in one piece, as a token reads them.

    keys: [L, B, G, S, K] after rotation; without L in a layer.
    values: [L, B, G, S, K].
    """

    keys: Array
    values: Array


def no_keys_values(config: Config, batch: int, room: int, dtype: DTypeLike) -> KeysValues:
    """Room for keys and values.

    Args:
      config: the model's shape.
      batch: rows, B.
      room: tokens of each, S.
      dtype: their type.

    Returns:
      Zeros [L, B, G, S, K].
    """
    shape = (config.layers, batch, config.kv_heads, room, config.head_dim)
    return KeysValues(jnp.zeros(shape, dtype), jnp.zeros(shape, dtype))


def read_token(
    params: Params,
    config: Config,
    ids: Array,
    positions: Array,
    prompt: KeysValues,
    lengths: Array,
    grown: KeysValues,
    count: Array,
    cartridge: Cartridge | None,
) -> tuple[Array, KeysValues]:
    """Read one more token of each row.

    The prompts' keys are only read and new tokens stand at one place in all rows, so that no step
    copies a cache.

    Args:
      params, config: the model.
      ids: [B, 1] tokens.
      positions: [B] of each for its rotation.
      prompt: keys and values of the prompts, S tokens.
      lengths: [B] how many of them count.
      grown: those of the tokens after the prompts, with room for N.
      count: how many there are in every row, a scalar.
      cartridge: that every row reads, or None.

    Returns:
      The state [B, D] of the token, and `grown` with its key and value.
    """
    shape = len(ids), config.heads // config.kv_heads
    of_prompt = jnp.arange(prompt.keys.shape[3]) < lengths[:, None, None]  # [B, 1, S]
    of_grown = jnp.arange(grown.keys.shape[3]) < count  # [N]
    of_prompt, of_grown = (
        jnp.broadcast_to(part, (*shape, part.shape[-1])) for part in (of_prompt, of_grown)
    )

    def read(query: Array, own: KeysValues, before: tuple[KeysValues, KeysValues]) -> Read:
        return merge(
            [
                grouped_read(query, *before[0], config.scale, of_prompt),
                grouped_read(query, *before[1], config.scale, of_grown),
                grouped_read(query, *own, config.scale),
            ]
        )

    stream, own = _layers(params, config, ids, positions[:, None], cartridge, (prompt, grown), read)
    return stream[:, 0], _put(grown, own, count)


def read_prompts(
    params: Params,
    config: Config,
    ids: Array,
    lengths: Array,
    first: Array,
    cartridge: Cartridge | None,
    chunk: int,
) -> tuple[KeysValues, Array]:
    """Read prompts in pieces: each reads itself and, piece by piece, all before it.

    Args:
      params, config: the model.
      ids: [B, T] prompts, padded on the right, so that what stands before a token is none.
      lengths: [B] tokens of each.
      first: position of the first token, a scalar.
      cartridge: that every row reads, or None.
      chunk: tokens of a row in a piece.

    Returns:
      Keys and values of the T tokens, and the state [B, D] of each row's last one.
    """
    batch, length = ids.shape
    pieces = -(-length // chunk)
    ids = jnp.pad(ids, ((0, 0), (0, pieces * chunk - length)))
    dtype = jnp.promote_types(params["embedding"].dtype, jnp.float32)
    causal = jnp.tile(
        jnp.tril(jnp.ones((chunk, chunk), bool)), (batch, config.heads // config.kv_heads, 1)
    )  # [B, R T, T]

    def piece(carry: tuple[KeysValues, Array], number: Array) -> tuple[Any, None]:
        found, last = carry
        start = number * chunk
        tokens = jax.lax.dynamic_slice_in_dim(ids, start, chunk, 1)
        positions = jnp.broadcast_to(first + start + jnp.arange(chunk), (batch, chunk))

        def read(query: Array, own: KeysValues, before: KeysValues) -> Read:
            def more(other: Array, so_far: Read) -> Read:
                keys, values = (
                    jax.lax.dynamic_slice_in_dim(part, other * chunk, chunk, 2) for part in before
                )
                return merge([so_far, grouped_read(query, keys, values, config.scale)])

            alone = grouped_read(query, *own, config.scale, causal)
            return alone if pieces == 1 else jax.lax.fori_loop(0, number, more, alone)

        stream, own = _layers(params, config, tokens, positions, cartridge, found, read)
        at = jnp.clip(lengths - 1 - start, 0, chunk - 1)[:, None, None]
        here = jnp.take_along_axis(stream, at, axis=1)[:, 0]
        last = jnp.where((lengths > start)[:, None], here, last)
        return (_put(found, own, start), last), None

    found = no_keys_values(config, batch, pieces * chunk, dtype)
    start = found, jnp.zeros((batch, config.hidden), dtype)
    (found, last), _ = jax.lax.scan(piece, start, jnp.arange(pieces))
    return KeysValues(*(part[:, :, :, :length] for part in found)), last


def _layers(
    params: Params,
    config: Config,
    ids: Array,
    positions: Array,
    cartridge: Cartridge | None,
    before: Any,
    read: Callable[[Array, KeysValues, Any], Read],
) -> tuple[Array, KeysValues]:
    """`hidden_states` of tokens [B, T] with another attention, and their own keys and values.

    read: from queries [B, G, R T, K], the tokens' keys and values [B, G, T, K] and a layer of
    what was before, [B, G, R T, K] and [B, G, R T].
    """
    stream = embed(params, ids)
    layers: dict[str, Any] = {"params": params["layers"], "before": before}
    if cartridge is not None:
        layers["slots"] = slots_of(cartridge)
    cosine, sine = angles(config, positions)

    def step(stream: Array, layer: dict[str, Any]) -> tuple[Array, KeysValues]:
        weights = layer["params"]
        normed = rms_norm(stream, weights["attention_norm"], config.norm_eps)
        query, keys, values = query_key_value(config, weights, normed, cosine, sine)
        own = KeysValues(jnp.swapaxes(keys, 1, 2), jnp.swapaxes(values, 1, 2))  # [B, G, T, K]
        # The queries of a head group in one piece: then the products need no transposed copies.
        batch, length, groups, repeats, dim = query.shape
        together = jnp.moveaxis(query, 1, 3).reshape(batch, groups, repeats * length, dim)
        found = read(together, own, layer["before"])
        output, log_sum_exp = (
            jnp.moveaxis(part.reshape(batch, groups, repeats, length, *part.shape[3:]), 3, 1)
            for part in found
        )
        found = Read(output, log_sum_exp)
        if "slots" in layer:
            found = merge([found, shared_read(query, scale=config.scale, **layer["slots"])])
        return after_attention(config, weights, stream, found.output), own

    stream, own = jax.lax.scan(step, stream, layers)
    return rms_norm(stream, params["norm"], config.norm_eps), own


def _put(there: KeysValues, new: KeysValues, place: Array) -> KeysValues:
    """New keys and values from a place on."""
    keys, values = (
        jax.lax.dynamic_update_slice_in_dim(old, more.astype(old.dtype), place, 3)
        for old, more in zip(there, new)
    )
    return KeysValues(keys, values)
