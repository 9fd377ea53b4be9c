"""What cartridges and their training refuse, in one line each; under jit only shapes are known."""

from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax import Array

from jaxmem.common import check_number, check_size
from jaxmem.recall.cartridges.teacher import LOSSES, OBJECTIVES, nearest_answer
from jaxmem.recall.facts import Document

if TYPE_CHECKING:
    from jaxmem.recall.cartridges.cartridge import Cartridge


def check_document(document: Document) -> None:
    """Refuse a document that no memory can be made of; under jit only its shapes are known.

    Args:
      document: keys [N, K] and values [N, V].

    Raises:
      ValueError: if the shapes do not fit together or a number is not finite.
    """
    keys, values = document
    if not all(isinstance(part, (Array, np.ndarray)) for part in document):
        raise ValueError(f"expected arrays of keys and values, got {type(keys).__name__}")
    if keys.ndim != 2 or values.ndim != 2 or len(keys) != len(values) or not len(keys):
        raise ValueError(
            f"expected keys [N, K] and values [N, V], got {keys.shape} and {values.shape}"
        )
    for name, array in (("keys", keys), ("values", values)):
        if isinstance(array, jax.core.Tracer):
            continue
        bad = np.argwhere(~np.isfinite(np.asarray(array)))
        if len(bad):
            raise ValueError(
                f"expected finite {name}, got {array[tuple(bad[0])]} in fact {bad[0][0]}"
            )


def check_cartridge(cartridge: "Cartridge") -> None:
    """Refuse a cartridge whose parts do not fit together; under jit only shapes are known.

    Args:
      cartridge: with or without leading axes.

    Raises:
      ValueError: if shapes do not fit, too many slots are frozen, or a number is not finite.
    """
    keys, values = cartridge.keys.shape, cartridge.values.shape
    if len(keys) < 2 or keys[:-1] != values[:-1]:
        raise ValueError(f"expected keys [..., P, K] and values [..., P, V], got {keys}, {values}")
    check_size("frozen", cartridge.frozen, 0, cartridge.slots)
    for name in ("bias", "mask"):
        part = getattr(cartridge, name)
        if part is not None and part.shape != keys[:-1]:
            raise ValueError(f"expected {name} {keys[:-1]}, got {part.shape}")
    positions = cartridge.positions
    if positions is not None and np.shape(positions) not in (keys[-2:-1], keys[:-1]):
        shapes = " or ".join(str(shape) for shape in dict.fromkeys((keys[-2:-1], keys[:-1])))
        raise ValueError(f"expected positions {shapes}, got {np.shape(positions)}")
    if cartridge.mask is not None and cartridge.mask.dtype != bool:
        raise ValueError(f"expected a boolean mask, got {cartridge.mask.dtype}")
    for name in ("keys", "values", "bias"):
        array = getattr(cartridge, name)
        if array is None or isinstance(array, jax.core.Tracer):
            continue
        if np.isnan(np.asarray(array, np.float32)).any() or (
            name != "bias" and not np.isfinite(np.asarray(array, np.float32)).all()
        ):
            raise ValueError(f"expected finite {name} in the cartridge, got NaN or infinity")


def fixed_scale(scale: float) -> float:
    """A scale as a Python number: it is part of a cartridge's type, as its dims are.

    Args:
      scale: a number.

    Returns:
      The number.

    Raises:
      ValueError: if it is traced, no number, or not finite.
    """
    if isinstance(scale, jax.core.Tracer):
        raise ValueError("expected a scale known when tracing, got a traced one")
    try:
        number = float(scale)
    except (TypeError, ValueError) as error:
        raise ValueError(f"expected a number for the scale, got {scale!r}") from error
    if not np.isfinite(number):
        raise ValueError(f"expected a finite scale, got {number}")
    return number


def check_training(
    cartridge: "Cartridge",
    document: Document,
    steps: int,
    batch: int,
    window: int | None,
    record_every: int,
    objective: str,
    loss: str,
) -> None:
    """Refuse what `train_cartridge` cannot train on; its arguments are described there."""
    check_document(document)
    check_cartridge(cartridge)
    keys, values = cartridge.keys.shape, cartridge.values.shape
    dims = document.keys.shape[1], document.values.shape[1]
    if len(keys) != 2 or (keys[1], values[1]) != dims:
        raise ValueError(
            f"expected slots with keys [P, {dims[0]}] and values [P, {dims[1]}] to fit the "
            f"document, got {keys} and {values}"
        )
    sizes = {"steps": steps, "batch": batch, "record_every": record_every}
    if window is not None:
        sizes["window"] = window
    for name, size in sizes.items():
        check_size(name, size)
    if steps % record_every:
        raise ValueError(f"record_every must divide steps, got {record_every} and {steps}")
    for name, known, got in (("objective", OBJECTIVES, objective), ("loss", LOSSES, loss)):
        if got not in known:
            raise ValueError(f"unknown {name} {got!r} (known: {', '.join(known)})")


def check_numbers(**numbers: Any) -> None:
    """Each a number or several, not negative; a schedule is not looked into."""
    for name, number in numbers.items():
        if not callable(number):
            check_number(name, number)


def check_vocabulary(vocabulary: Array, document: Document) -> None:
    dim = document.values.shape[1]
    if vocabulary.ndim != 2 or vocabulary.shape[1] != dim or not len(vocabulary):
        raise ValueError(f"expected a vocabulary [M, {dim}], got {vocabulary.shape}")
    if any(isinstance(part, jax.core.Tracer) for part in (vocabulary, document.values)):
        return
    # In numpy: inside someone's jit even products of known arrays would be traced.
    known, values = (np.asarray(part, np.float32) for part in (vocabulary, document.values))
    if not np.isfinite(known).all():
        raise ValueError("expected a finite vocabulary, got NaN or infinity")
    nearest = known[nearest_answer(values, known)]
    missing = np.flatnonzero(~np.isclose(nearest, values, atol=1e-3).all(axis=1))
    if len(missing):
        raise ValueError(f"expected every value in the vocabulary, fact {missing[0]}'s is not")


def check_distractors(distractors: "Cartridge", cartridge: "Cartridge") -> None:
    check_cartridge(distractors)
    for name in ("keys", "values"):
        shape, own = (getattr(part, name).shape for part in (distractors, cartridge))
        if len(shape) != 3 or shape[2] != own[1] or not shape[0]:
            raise ValueError(f"expected distractors with {name} [J, P, {own[1]}], got {shape}")
    if distractors.scale != cartridge.scale:
        raise ValueError(
            f"expected distractors of scale {cartridge.scale}, got {distractors.scale}"
        )
