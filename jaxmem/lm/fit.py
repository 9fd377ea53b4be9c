"""Whether a cartridge fits a model, and where tokens after it stand."""

import numpy as np

from jaxmem.lm.config import Config
from jaxmem.recall.cartridges import Cartridge
from jaxmem.recall.cartridges.border import check_cartridge


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


def check_fit(cartridge: Cartridge, config: Config) -> None:
    """Refuse a cartridge that this model cannot read.

    Args:
      cartridge: keys and values [L, G, P, K].
      config: the model's shape.

    Raises:
      ValueError: if it is none, its dims or its scale are not the model's, or its positions are
        beyond the model's.
    """
    if not isinstance(cartridge, Cartridge):
        raise ValueError(f"expected a cartridge, got {type(cartridge).__name__}")
    keys, values = cartridge.keys.shape, cartridge.values.shape
    ends = (config.layers, config.kv_heads), (config.head_dim,)
    if keys != values or len(keys) != 4 or (keys[:2], keys[3:]) != ends or not keys[2]:
        layers, heads, dim = config.layers, config.kv_heads, config.head_dim
        raise ValueError(
            f"expected keys and values [{layers}, {heads}, slots, {dim}] of the model's layers, "
            f"KV heads and head_dim, got {list(keys)} and {list(values)}"
        )
    check_cartridge(cartridge)
    if not np.isclose(cartridge.scale, config.scale, rtol=1e-6):
        raise ValueError(
            f"expected the model's scale of attention, {config.scale}, got {cartridge.scale}"
        )
    stands = np.asarray(0 if cartridge.positions is None else cartridge.positions)
    lowest, last, first = int(stands.min()), int(stands.max()), first_question(cartridge)
    if min(lowest, first) < 0:
        raise ValueError(f"expected positions from 0 on, got {min(lowest, first)}")
    if max(last, first) >= config.positions:
        raise ValueError(
            f"expected slots and questions within the model's {config.positions} positions, got a "
            f"slot at {last} and questions from {first}"
        )
