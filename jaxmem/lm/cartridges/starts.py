"""Cartridges to start training from, other than those that attention chooses."""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxmem.common import check_size, lookup
from jaxmem.lm.cartridges.prefix import prefix_cartridge, take
from jaxmem.lm.cartridges.reading import Reading
from jaxmem.lm.config import Config
from jaxmem.lm.fit import first_question
from jaxmem.lm.model import Model
from jaxmem.lm.rope import angles, rotate
from jaxmem.recall.cartridges import Cartridge

_CHUNK = 64  # tokens of a sampled chunk


def start_cartridge(key: Array, model: Model, reading: Reading, slots: int, how: str) -> Cartridge:
    """A packed cartridge: slots at positions 0 .. P - 1, questions from P on.

    Args:
      key: PRNG key (not used by "first").
      model: that reads it.
      reading: the document.
      slots: P.
      how: "first" (the first P tokens of the document: truncation, and the start of the official
        recipe), "sampled_chunks" (P tokens in stretches of 64 from all over the document, read
        one after another), "random_text" (P tokens drawn from the vocabulary) or
        "random_vectors" (standard normal keys and values).

    Returns:
      The cartridge, keys and values [L, G, P, K], its first slot frozen.

    Raises:
      ValueError: if the document has fewer tokens than slots, or there is no such start.

    Source: Eyuboglu et al. 2025 (Cartridges), arXiv:2506.06266; sampled chunks: arXiv:2508.17032.
    """
    return lookup(_STARTS, how, "start of a cartridge")(
        key, model, reading, check_slots(reading, slots)
    )


def check_slots(reading: Reading, slots: int) -> int:
    """The number of slots, if the document has as many tokens.

    Args:
      reading: the document.
      slots: P.

    Returns:
      P.

    Raises:
      ValueError: if it has fewer, naming both.
    """
    if check_size("slots", slots) > reading.tokens:
        raise ValueError(
            f"expected at most as many slots as the document has tokens, {reading.tokens}, "
            f"got {slots}: a document this short is best kept whole"
        )
    return slots


def reposition(config: Config, cartridge: Cartridge, shift: Array | int) -> Cartridge:
    """The cartridge with its keys turned to other positions, questions moved along.

    Rotations add up, R(a + b) = R(a) R(b), so keys need not be computed again.

    Args:
      config: the model's shape.
      cartridge: with positions.
      shift: by how much each slot moves: a number, or [P] or [L, G, P] numbers.

    Returns:
      The cartridge; its first question moves by the shift of the last slot.

    Raises:
      ValueError: if its positions are not stored, or a position would be negative or beyond the
        model's.
    """
    if cartridge.positions is None:
        raise ValueError("expected a cartridge with positions to move, this one has none")
    moved = np.asarray(cartridge.positions) + np.asarray(shift)
    if moved.dtype.kind not in "iu":
        raise ValueError(f"expected a shift of whole positions, got {np.asarray(shift).dtype}")
    question = first_question(cartridge) + int(np.asarray(shift).reshape(-1)[-1])
    if moved.min() < 0 or max(int(moved.max()), question) >= config.positions:
        raise ValueError(
            f"expected positions in 0..{config.positions - 1}, got {int(moved.min())} to "
            f"{max(int(moved.max()), question)}"
        )
    keys = _turn(config, cartridge.keys, jnp.asarray(shift))
    positions = jnp.asarray(moved)
    return dataclasses.replace(cartridge, keys=keys, positions=positions, first_question=question)


def packed(config: Config, cartridge: Cartridge) -> Cartridge:
    """The cartridge with its slots at positions 0 .. P - 1 and questions from P on.

    Args:
      config: the model's shape.
      cartridge: with positions.

    Returns:
      The cartridge, its keys turned.

    Raises:
      ValueError: if its positions are not stored.
    """
    if cartridge.positions is None:
        raise ValueError("expected a cartridge with positions to pack, this one has none")
    shift = jnp.arange(cartridge.slots) - jnp.asarray(cartridge.positions)
    moved = reposition(config, cartridge, shift)
    return dataclasses.replace(
        moved, positions=jnp.arange(cartridge.slots), first_question=cartridge.slots
    )


def _turn(config: Config, keys: Array, shift: Array) -> Array:
    cosine, sine = angles(
        config, jnp.broadcast_to(shift, keys.shape[-2:-1]) if shift.ndim < 2 else shift
    )
    return rotate(keys.astype(jnp.float32), cosine, sine).astype(keys.dtype)


def _first(key: Array, model: Model, reading: Reading, slots: int) -> Cartridge:
    kept = take(reading.whole, jnp.arange(slots))
    if len(reading.parts) > 1:
        return packed(model.config, kept)
    return dataclasses.replace(kept, first_question=slots)


def _sampled_chunks(key: Array, model: Model, reading: Reading, slots: int) -> Cartridge:
    ids = np.concatenate([part.ids for part in reading.parts])
    pieces = -(-slots // _CHUNK)
    size = -(-slots // pieces)
    starts = np.sort(np.asarray(jax.random.randint(key, (pieces,), 0, len(ids) - size + 1)))
    chosen = np.concatenate([ids[start : start + size] for start in starts])[:slots]
    chosen[0] = ids[0]
    return prefix_cartridge(model.params, model.config, chosen)


def _random_text(key: Array, model: Model, reading: Reading, slots: int) -> Cartridge:
    ids = jax.random.randint(key, (slots,), 0, model.tokenizer.vocabulary)
    return prefix_cartridge(model.params, model.config, ids.at[0].set(reading.parts[0].ids[0]))


def _random_vectors(key: Array, model: Model, reading: Reading, slots: int) -> Cartridge:
    config = model.config
    shape = (2, config.layers, config.kv_heads, slots, config.head_dim)
    keys, values = jax.random.normal(key, shape)
    return Cartridge(
        keys, values, config.scale, positions=jnp.arange(slots), first_question=slots, frozen=1
    )


_STARTS: dict[str, Callable[[Array, Model, Reading, int], Cartridge]] = {
    "first": _first,
    "sampled_chunks": _sampled_chunks,
    "random_text": _random_text,
    "random_vectors": _random_vectors,
}

STARTS = tuple(_STARTS)
"""Names of the starts that need no questions."""
