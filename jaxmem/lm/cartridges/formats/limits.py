"""What other formats can hold of a cartridge."""

import numpy as np

from jaxmem.lm.fit import first_question
from jaxmem.recall.cartridges import Cartridge


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
            f"expected a cartridge without bias, {form} holds keys and values only: start "
            'from "attention" instead of "matching", or save it as jaxmem\'s own file'
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
            f'{form} has them, got {where} and questions from {first}: start from "first", or save '
            "it as jaxmem's own file or as a Hugging Face cache"
        )
