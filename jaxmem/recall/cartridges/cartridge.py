"""Cartridges: a small trainable KV cache that stands for a document."""

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jaxmem.common import check_size, lookup, masked_softmax
from jaxmem.recall.attention import Read, attend, merge, slot_logits
from jaxmem.recall.cartridges.border import check_cartridge, check_document, fixed_scale
from jaxmem.recall.facts import Document, facts

SCALE = 20.0
"""The lecture's inverse temperature of attention, and of the distribution over answers."""


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["keys", "values", "bias", "mask", "positions", "first_question"],
    meta_fields=["scale", "frozen"],
)
@dataclasses.dataclass(frozen=True)
class Cartridge:
    """P slots that are read like P tokens of a KV cache.

    Every array may carry leading axes in front (layers and KV heads of a transformer, seeds,
    ratios); a slot's keys are stored as attention reads them, after any rotation.

    Attributes:
      keys: [..., P, K].
      values: [..., P, V].
      scale: inverse temperature of the attention that reads it.
      bias: [..., P] added to the logits, or None.
      mask: [..., P] True where a slot counts, or None if all do.
      positions: [P], or [..., P] if the axes in front differ: the position each key was rotated
        to, or None.
      first_question: position of the first token after it, or None.
      frozen: how many leading slots no training may change (attention sinks).
    """

    keys: Array
    values: Array
    scale: float = SCALE
    bias: Array | None = None
    mask: Array | None = None
    positions: Array | None = None
    first_question: ArrayLike | None = None
    frozen: int = 0

    @property
    def slots(self) -> int:
        """Slots that there is room for, P; those that `mask` hides included."""
        return self.keys.shape[-2]

    def read(self, query: Array) -> Read:
        """What questions find in it.

        Args:
          query: [..., K]; the cartridge must not have leading axes (vmap over them).

        Returns:
          The output [..., V] and the log-sum-exp [...].
        """
        return attend(query, self.keys, self.values, self.scale, self.bias, self.mask)


def whole(document: Document, scale: float = SCALE) -> Cartridge:
    """The cartridge of every fact: in-context learning, full attention over the document.

    Args:
      document: N facts, keys [N, K] and values [N, V].
      scale: inverse temperature.

    Returns:
      A cartridge of N slots.
    """
    check_document(document)
    return Cartridge(document.keys, document.values, fixed_scale(scale))


def init_cartridge(
    key: Array,
    document: Document,
    slots: int,
    how: str = "first",
    *,
    frozen: int = 0,
    scale: float = SCALE,
) -> Cartridge:
    """A cartridge to start training from.

    Args:
      key: PRNG key (not used by "first").
      document: N facts, keys [N, K] and values [N, V].
      slots: P, at least 1.
      how: "first" (the first P facts: truncation), "sampled" (P facts drawn without
        replacement), "random_text" (P facts of another document) or "random_vectors" (standard
        normal keys and values, about sqrt(K) long).
      frozen: leading slots that training leaves as they are.
      scale: inverse temperature.

    Returns:
      The cartridge.

    Raises:
      ValueError: if there are no slots, more slots than facts to take them from, more frozen
        slots than slots, NaN in the document, or no such start.
    """
    check_document(document)
    start = lookup(_STARTS, how, "start of a cartridge")
    facts_there = document.keys.shape[0]
    slots = check_size("slots", slots, high=2**31 // document.keys.shape[1])
    frozen = check_size("frozen", frozen, 0, slots)
    if start in (_first, _sampled) and slots > facts_there:
        raise ValueError(f"expected at most as many slots as facts, {facts_there}, got {slots}")
    keys, values = start(key, document, slots)
    return Cartridge(keys, values, fixed_scale(scale), frozen=frozen)


def pad(cartridge: Cartridge, slots: int) -> Cartridge:
    """The same cartridge with room for more slots, so that sizes can share one compiled program.

    Args:
      cartridge: of P slots.
      slots: the room wanted, at least P.

    Returns:
      A cartridge of that many slots, those beyond P masked.

    Raises:
      ValueError: if it already has more slots.
    """
    more = check_size("slots", slots) - cartridge.slots
    if more < 0:
        raise ValueError(f"expected room for at least {cartridge.slots} slots, got {slots}")

    def grow(array: Array, axis: int) -> Array:
        widths = [(0, 0)] * array.ndim
        widths[axis] = (0, more)
        return jnp.pad(array, widths)

    if cartridge.mask is None:
        everywhere = jnp.ones(cartridge.keys.shape[:-1], bool)
        cartridge = dataclasses.replace(cartridge, mask=everywhere)
    return _along_slots(cartridge, grow)


def compose(first: Cartridge, *others: Cartridge, drop_sinks: bool = True) -> Cartridge:
    """Cartridges side by side, as if their documents stood one after the other.

    Keys are taken as they are stored: none is rotated to a new position.

    Args:
      first: a cartridge.
      others: more of them, of the same dims and scale.
      drop_sinks: leave out frozen slots of the others that equal the first's at the same place:
        each document brought its own copy of one attention sink. Under jit, where numbers are
        not known, they are masked.

    Returns:
      A cartridge of all their slots; frozen are the first's.

    Raises:
      ValueError: if one is no cartridge, dims, leading axes or scales differ, or only some have
        positions.
    """
    parts = [first, *others]
    for part in parts:
        if not isinstance(part, Cartridge):
            raise ValueError(f"expected cartridges one by one, got {type(part).__name__}")
        check_cartridge(part)
    for part in others:
        if (part.keys.shape[:-2], part.keys.shape[-1], part.values.shape[-1]) != (
            first.keys.shape[:-2],
            first.keys.shape[-1],
            first.values.shape[-1],
        ):
            raise ValueError(
                f"expected cartridges of equal dims, got keys {first.keys.shape} and values "
                f"{first.values.shape} beside {part.keys.shape} and {part.values.shape}"
            )
        if not np.isclose(part.scale, first.scale):
            raise ValueError(
                f"expected cartridges of equal scale, got {first.scale} and {part.scale}"
            )
        if (part.positions is None) != (first.positions is None):
            raise ValueError("expected all cartridges with positions or all without")
    if drop_sinks:
        parts = [first] + [_without_sinks(part, first) for part in others]

    def joined(arrays: Sequence[Array | None], fill: float | bool) -> Array | None:
        kinds = [array.dtype for array in arrays if array is not None]
        if not kinds:
            return None
        everywhere = [
            jnp.full(part.keys.shape[:-1], fill, kinds[0]) if array is None else array
            for part, array in zip(parts, arrays)
        ]
        return jnp.concatenate(everywhere, axis=-1)

    positions = [part.positions for part in parts if part.positions is not None]
    if len({array.ndim for array in positions}) > 1:  # some have them for every layer and head
        positions = [
            jnp.broadcast_to(array, part.keys.shape[:-1]) for array, part in zip(positions, parts)
        ]
    questions = [part.first_question for part in parts if part.first_question is not None]
    return dataclasses.replace(
        first,
        keys=jnp.concatenate([part.keys for part in parts], axis=-2),
        values=jnp.concatenate([part.values for part in parts], axis=-2),
        bias=joined([part.bias for part in parts], 0.0),
        mask=joined([part.mask for part in parts], True),
        positions=jnp.concatenate(positions, axis=-1) if positions else None,
        first_question=reduce(jnp.maximum, questions) if questions else None,
    )


def attention_shares(cartridges: Sequence[Cartridge], query: Array) -> Array:
    """How the attention of questions is divided among cartridges that are read together.

    s_j = Z_j / sum_i Z_i

    Args:
      cartridges: J of them, without leading axes.
      query: [..., K].

    Returns:
      [J, ...] shares that sum to 1. For questions about the first document, `1 - s[0]` is the
      attention that it loses to the others' slots.
    """
    reads = [cartridge.read(query) for cartridge in cartridges]
    total = merge(reads).log_sum_exp
    total = jnp.where(total > -jnp.inf, total, 0)  # no slot anywhere: shares of 0, not NaN
    return jnp.stack([jnp.exp(read.log_sum_exp - total) for read in reads])


def slot_entropy(cartridge: Cartridge, query: Array) -> Array:
    """Entropy of the attention over slots, in nats: 0 if one slot takes all, log P if none does.

    H = -sum_i w_i log w_i

    Args:
      cartridge: without leading axes.
      query: [..., K].

    Returns:
      [...].
    """
    logits = slot_logits(query, cartridge.keys, cartridge.scale, cartridge.bias, cartridge.mask)
    mask = jnp.ones(cartridge.slots, bool) if cartridge.mask is None else cartridge.mask
    weights = masked_softmax(logits, mask)
    return -jnp.sum(weights * jnp.log(jnp.where(weights > 0, weights, 1)), axis=-1)


def _first(key: Array, document: Document, slots: int) -> Document:
    return Document(document.keys[:slots], document.values[:slots])


def _sampled(key: Array, document: Document, slots: int) -> Document:
    chosen = jax.random.permutation(key, document.keys.shape[0])[:slots]
    return Document(document.keys[chosen], document.values[chosen])


def _random_text(key: Array, document: Document, slots: int) -> Document:
    key = jax.random.fold_in(key, 1)  # the document itself may have been drawn with this key
    return facts(key, slots, document.keys.shape[1], value_dim=document.values.shape[1])


def _random_vectors(key: Array, document: Document, slots: int) -> Document:
    key_keys, key_values = jax.random.split(key)
    return Document(
        jax.random.normal(key_keys, (slots, document.keys.shape[1])),
        jax.random.normal(key_values, (slots, document.values.shape[1])),
    )


_STARTS = {
    "first": _first,
    "sampled": _sampled,
    "random_text": _random_text,
    "random_vectors": _random_vectors,
}


STARTS = tuple(_STARTS)
"""Names of the starts of a cartridge."""


def _without_sinks(cartridge: Cartridge, first: Cartridge) -> Cartridge:
    """Without the frozen slots that equal the first cartridge's at the same place."""
    count = min(first.frozen, cartridge.frozen)
    if not count:
        return cartridge
    same = jnp.ones(count, bool)
    for name in ("keys", "values"):
        mine, theirs = (getattr(part, name)[..., :count, :] for part in (cartridge, first))
        equal = jnp.all(mine == theirs, axis=-1)
        same &= jnp.all(equal.reshape(-1, count), axis=0)
    if not isinstance(same, jax.core.Tracer) and len(set(same.tolist())) == 1:
        return drop(cartridge, count) if bool(same[0]) else cartridge
    mask = jnp.ones(cartridge.keys.shape[:-1], bool) if cartridge.mask is None else cartridge.mask
    counted = jnp.concatenate([~same, jnp.ones(cartridge.slots - count, bool)])
    return dataclasses.replace(cartridge, mask=mask & counted)


def drop(cartridge: Cartridge, slots: int) -> Cartridge:
    """The cartridge without its first slots, none of the others frozen.

    Args:
      cartridge: with or without leading axes.
      slots: how many to leave out, fewer than there are.

    Returns:
      The cartridge of the others.

    Raises:
      ValueError: if none would be left.
    """
    if check_size("slots", slots, 0) >= cartridge.slots:
        raise ValueError(f"expected more slots than the {slots} left out, got {cartridge.slots}")

    def cut(array: Array, axis: int) -> Array:
        return jax.lax.slice_in_dim(array, slots, None, axis=axis)

    return dataclasses.replace(_along_slots(cartridge, cut), frozen=0)


def _along_slots(cartridge: Cartridge, change: Callable[[Array, int], Array]) -> Cartridge:
    """With `change(array, axis of the slots)` of every array there is."""
    axes = {"keys": -2, "values": -2, "bias": -1, "mask": -1, "positions": -1}
    arrays = {name: getattr(cartridge, name) for name in axes}
    changed: dict[str, Any] = {
        name: change(array, axes[name]) for name, array in arrays.items() if array is not None
    }
    return dataclasses.replace(cartridge, **changed)
