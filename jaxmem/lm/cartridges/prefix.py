"""A text's whole KV cache as a cartridge: full context, and what smaller ones are made of."""

import dataclasses

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jaxmem.common import check_size
from jaxmem.lm.config import Config
from jaxmem.lm.generation import prefill
from jaxmem.lm.parameters import Params
from jaxmem.recall.cartridges import Cartridge


def prefix_cartridge(params: Params, config: Config, ids: ArrayLike) -> Cartridge:
    """The cartridge of every token of a text: reading it is reading the text in context.

    Args:
      params, config: the model.
      ids: [N] tokens.

    Returns:
      N slots, keys [L, G, N, K] at positions 0 .. N - 1, questions from N on.

    Raises:
      ValueError: if there is no token, or more than the model has positions.
    """
    count = check_size("tokens of the text", np.size(ids), 1, config.positions)
    cache = prefill(params, config, np.reshape(ids, (1, -1)))
    keys, values = (jnp.swapaxes(part[:, 0], 1, 2) for part in (cache.keys, cache.values))
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
