"""A text's whole KV cache as a cartridge: full context, and what smaller ones are made of."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxmem.common import check_size
from jaxmem.lm.config import Config
from jaxmem.lm.decoder import Cache, hidden_states, init_cache
from jaxmem.lm.parameters import Params
from jaxmem.recall.cartridges import Cartridge


def prefix_cartridge(params: Params, config: Config, ids: Array, chunk: int = 512) -> Cartridge:
    """The cartridge of every token of a text: reading it is reading the text in context.

    Args:
      params, config: the model.
      ids: [N] tokens.
      chunk: tokens that are read at once; bounds the memory.

    Returns:
      N slots, keys [L, G, N, K] at positions 0 .. N - 1, questions from N on.

    Raises:
      ValueError: if there is no token, or more than the model has positions.
    """
    count = check_size("tokens of the text", len(ids), 1, config.positions)
    chunk = min(check_size("chunk", chunk), count)
    parts = -(-count // chunk)
    padded = jnp.zeros(parts * chunk, jnp.int32).at[:count].set(jnp.asarray(ids, jnp.int32))
    cache = init_cache(config, 1, parts * chunk)
    for part in padded.reshape(parts, chunk):
        cache = _read(params, config, part, cache)
    return _as_cartridge(config, cache, count)


@partial(jax.jit, static_argnames="config", donate_argnames="cache")
def _read(params: Params, config: Config, ids: Array, cache: Cache) -> Cache:
    positions = cache.lengths[:, None] + jnp.arange(len(ids))
    more = hidden_states(params, config, ids[None], positions, cache=cache)[1]
    assert more is not None
    return more


@partial(jax.jit, static_argnames=("config", "count"))
def _as_cartridge(config: Config, cache: Cache, count: int) -> Cartridge:
    keys, values = (
        jnp.swapaxes(part[:, 0, :count], 1, 2) for part in (cache.keys, cache.values)
    )  # [L, N, G, K] -> [L, G, N, K]
    return Cartridge(
        keys, values, config.scale, positions=jnp.arange(count), first_question=count, frozen=1
    )


def take(cartridge: Cartridge, chosen: Array) -> Cartridge:
    """The cartridge of some slots, each at its own position.

    Args:
      cartridge: keys [L, G, N, K], with positions [N].
      chosen: [P] numbers of slots, or [L, G, P], those of each layer and head.

    Returns:
      P slots with the same first question; positions [P] or [L, G, P].
    """
    everywhere = jnp.broadcast_to(chosen, (*cartridge.keys.shape[:2], chosen.shape[-1]))
    keys, values = (
        jnp.take_along_axis(part, everywhere[..., None], axis=2)
        for part in (cartridge.keys, cartridge.values)
    )
    positions = jnp.asarray(cartridge.positions)[chosen]
    return dataclasses.replace(cartridge, keys=keys, values=values, positions=positions)


def first_question(cartridge: Cartridge | None) -> int:
    """Position of the first token after a cartridge.

    Args:
      cartridge: or None.

    Returns:
      The position; 0 without a cartridge, the number of slots where none is stored.
    """
    if cartridge is None:
        return 0
    if cartridge.first_question is None:
        return cartridge.slots
    return int(np.asarray(cartridge.first_question))
