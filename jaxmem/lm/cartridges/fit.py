"""Whether a cartridge fits a model, and what other formats can hold of it."""

import numpy as np

from jaxmem.lm.cartridges.prefix import first_question
from jaxmem.lm.config import Config
from jaxmem.recall.cartridges import Cartridge
from jaxmem.recall.cartridges.border import check_cartridge


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
    last = 0 if cartridge.positions is None else int(np.max(np.asarray(cartridge.positions)))
    first = first_question(cartridge)
    if max(last, first) >= config.positions:
        raise ValueError(
            f"expected slots and questions within the model's {config.positions} positions, got a "
            f"slot at {last} and questions from {first}"
        )


def check_plain(cartridge: Cartridge, form: str) -> None:
    """Refuse a cartridge that is more than keys and values.

    Args:
      cartridge: keys [L, G, P, K].
      form: the format that holds nothing else, for the message.

    Raises:
      ValueError: if it has a bias other than 0, or a mask that hides a slot.
    """
    if cartridge.bias is not None and np.any(np.asarray(cartridge.bias)):
        raise ValueError(
            f"expected a cartridge without bias, {form} holds keys and values only: train it "
            "further with bias None, or save it as jaxmem's own file"
        )
    if cartridge.mask is not None and not np.all(np.asarray(cartridge.mask)):
        raise ValueError(
            f"expected a cartridge whose slots all count, {form} holds no mask: leave out the "
            "masked slots, or save it as jaxmem's own file"
        )


def check_packed(cartridge: Cartridge, form: str) -> None:
    """Refuse a cartridge whose slots do not stand where the format has them.

    Args:
      cartridge: P slots.
      form: the format, for the message.

    Raises:
      ValueError: if its slots are not at positions 0 to P - 1 with questions from P on.
    """
    slots, first = cartridge.slots, first_question(cartridge)
    there = cartridge.positions
    kept = there is not None and not np.array_equal(
        np.asarray(there), np.broadcast_to(np.arange(slots), np.shape(there))
    )
    if first != slots or kept:
        where = "kept positions" if kept else f"{slots} slots"
        raise ValueError(
            f"expected {slots} slots at positions 0 to {slots - 1} and questions from {slots}, as "
            f"{form} has them, got {where} and questions from {first}: rotate its keys to those "
            "positions, or save it as jaxmem's own file or as a Hugging Face cache"
        )
