"""A run of training as it stands: slots, optimiser, the best moment, and looks at it so far."""

import dataclasses
import enum
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from jaxmem.lm.cartridges.adapters import Adapters, adapted
from jaxmem.lm.parameters import Params
from jaxmem.recall.cartridges import Cartridge


class Slots(NamedTuple):
    """What is trained: the slots of a cartridge, or low-rank changes of the model's products.

    keys: [L, G, P, K] or None.
    values: [L, G, P, K] or None.
    bias: [L, G, P] or None.
    adapters: from `lora`, or None.
    """

    keys: Array | None
    values: Array | None
    bias: Array | None
    adapters: Adapters | None = None


class Moment(NamedTuple):
    """A look at a run.

    step: steps done.
    loss: mean KL of the steps since the last look, nats a token.
    held_out: KL on rows held out, NaN where there are none.
    seconds: since the start, of all sessions of the run together.
    tokens_s: tokens of rows trained on a second, since the last look.
    """

    step: int
    loss: float
    held_out: float
    seconds: float
    tokens_s: float


class State(NamedTuple):
    """All that a run needs to go on.

    slots: as they are now.
    optimizer: the optimiser's state.
    best: the slots that were best on held-out rows so far.
    history: looks at the run, the first before its first step.
    """

    slots: Slots
    optimizer: Any
    best: Slots
    history: tuple[Moment, ...]


class Status(enum.Enum):
    """How a run ended: fine, worse on held-out rows than at its start, or not finite."""

    OK = "ok"
    WORSE = "worse than its start"
    NOT_FINITE = "not finite"


class Trained(NamedTuple):
    """What training gives.

    cartridge: the best on held-out rows, or the last one where there are none; None if there
      was none to train.
    slots: the trained numbers themselves, adapters among them (see `student`).
    history: looks at the run.
    status: how it ended.
    """

    cartridge: Cartridge | None
    slots: Slots
    history: tuple[Moment, ...]
    status: Status


def student(
    params: Params, cartridge: Cartridge | None, slots: Slots
) -> tuple[Params, Cartridge | None]:
    """The model and the cartridge that a trained state stands for.

    Args:
      params: the model's.
      cartridge: that training started from, or None.
      slots: what was trained.

    Returns:
      Parameters with the adapters added, and the cartridge with the trained slots.
    """
    if slots.adapters is not None:
        params = adapted(params, slots.adapters)
    if cartridge is None or slots.keys is None or slots.values is None:
        return params, cartridge
    return params, dataclasses.replace(
        cartridge, keys=slots.keys, values=slots.values, bias=slots.bias
    )


def outcome(params: Params, cartridge: Cartridge | None, state: State) -> Trained:
    """What a run has come to.

    Args:
      params: the model's.
      cartridge: that it started from, or None.
      state: its last one.

    Returns:
      The best moment of its history.
    """
    first, last = state.history[0].held_out, state.history[-1].held_out
    status = Status.WORSE if last > first else Status.OK
    if not is_finite(state.slots):
        status = Status.NOT_FINITE
    best = student(params, cartridge, state.best)[1]
    return Trained(best, state.best, state.history, status)


def is_finite(slots: Slots) -> bool:
    """Whether all numbers of some slots are finite.

    Args:
      slots: to look at.

    Returns:
      Whether they are.
    """
    return all(bool(jnp.all(jnp.isfinite(part))) for part in jax.tree.leaves(slots))
