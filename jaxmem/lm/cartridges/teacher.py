"""The teacher: the model with the document in its context, asked once for every row."""

from functools import partial

import jax
import numpy as np
from jax import Array

from jaxmem.common import check_size, progress
from jaxmem.lm.cartridges.rows import Places, Rows, as_read, most_places, places
from jaxmem.lm.config import Config
from jaxmem.lm.decoder import hidden_states, logits
from jaxmem.lm.divergence import BLOCK, Lesson, map_blocks
from jaxmem.lm.fit import first_question
from jaxmem.lm.parameters import Params
from jaxmem.recall.cartridges import Cartridge


def teach(
    params: Params,
    config: Config,
    rows: Rows,
    cartridge: Cartridge | None,
    *,
    top_k: int | None = 32,
    batch: int = 8,
) -> Lesson:
    """What a reader of a document says of every predicted token of some rows.

    Args:
      params, config: the model.
      rows: [R, T].
      cartridge: the document, as a rule its whole prefix; None for a reader without one.
      top_k: likeliest tokens that are kept, k; None keeps the last states instead.
      batch: rows at once.

    Returns:
      ids and log_probs [R, T, k], or hidden [R, T, D]; what is not predicted is not set.

    Raises:
      ValueError: if top_k is not in 1..V.
    """
    count, length = rows.ids.shape
    if top_k is not None:
        check_size("top_k", top_k, 1, config.vocabulary)
    room = most_places(rows.targets, batch, BLOCK)
    wide = config.hidden if top_k is None else top_k
    ids = np.zeros((count, length, 1 if top_k is None else wide), np.int32)
    numbers = np.zeros((count, length, wide), np.float32)
    for start in progress(range(0, count, batch), "asking the teacher, row"):
        part = take_rows(rows, np.arange(start, min(start + batch, count)), batch)
        there = places(part.targets, room)
        states = states_at(params, config, part, there, cartridge)
        some = there.weights > 0
        row, column = np.divmod(there.at[some], length)
        if top_k is None:
            numbers[start + row, column] = np.asarray(states)[some]
        else:
            log_probs, likeliest = _top(params, states, top_k)
            numbers[start + row, column] = np.asarray(log_probs)[some]
            ids[start + row, column] = np.asarray(likeliest)[some]
    if top_k is None:
        return Lesson(ids, np.zeros_like(ids, np.float32), numbers)
    return Lesson(ids, numbers)


def hard(rows: Rows) -> Lesson:
    """The tokens themselves as a lesson: what cross-entropy learns from.

    Args:
      rows: [R, T].

    Returns:
      ids [R, T, 1] with probability 1.
    """
    ids = np.maximum(rows.targets, 0)[..., None]
    return Lesson(ids, np.zeros(ids.shape, np.float32))


def take_rows(rows: Rows, numbers: np.ndarray, batch: int) -> Rows:
    """Some rows, with empty ones behind them up to a batch.

    Args:
      rows: [R, T].
      numbers: which, at most `batch`.
      batch: rows there shall be.

    Returns:
      [batch, T].
    """
    more = batch - len(numbers)
    fills = Rows(0, 0, -1, -1)  # type: ignore[arg-type]
    return Rows(
        *(
            np.pad(part[numbers], ((0, more), (0, 0)), constant_values=fill)
            for part, fill in zip(rows, fills)
        )
    )


def states_at(
    params: Params, config: Config, rows: Rows, there: Places, cartridge: Cartridge | None
) -> Array:
    """Last states of the predicted tokens.

    Args:
      params, config: the model.
      rows: [B, T].
      there: their places, M of them.
      cartridge: what the rows see in front of them.

    Returns:
      [M, D].
    """
    return _states(params, config, rows, there.at, cartridge, first_question(cartridge))


@partial(jax.jit, static_argnames="config")
def _states(
    params: Params,
    config: Config,
    rows: Rows,
    at: Array,
    cartridge: Cartridge | None,
    first: int,
) -> Array:
    hidden, _ = hidden_states(params, config, *as_read(rows, first), cartridge)
    return hidden.reshape(-1, config.hidden)[at]


@partial(jax.jit, static_argnames="top_k")
def _top(params: Params, hidden: Array, top_k: int) -> tuple[Array, Array]:
    def block(states: Array) -> tuple[Array, Array]:
        return jax.lax.top_k(jax.nn.log_softmax(logits(params, states)), top_k)

    found: tuple[Array, Array] = map_blocks(block, hidden)  # type: ignore[assignment]
    return found
