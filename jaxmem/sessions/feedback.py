"""Unreliable feedback: how far it pollutes a playbook, with and without dropping by counters.

A rule-based stand-in for reflector and curator, not a model of one: it shows what counters can do
when the feedback that fills them is the feedback that taught the lessons.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxmem.common import check_number
from jaxmem.sessions.tasks import LECTURE, Settings, distinct, draws

KEEPING = ("all", "dropped")
"""What becomes of bullets marked harmful: all are kept, or they are dropped at refinements."""


class Pollution(NamedTuple):
    """A playbook after T tasks, for each way of `KEEPING`; all are counts of bullets, int32.

    helpful, harmful: [2] in the playbook.
    dropped_helpful, dropped_harmful: [2] dropped from it.
    """

    helpful: Array
    harmful: Array
    dropped_helpful: Array
    dropped_harmful: Array

    @property
    def harmful_share(self) -> Array:
        """[2] share of the playbook that is harmful, 0 of an empty one."""
        return self.harmful / jnp.maximum(self.helpful + self.harmful, 1)


class _Marks(NamedTuple):
    """[T] a bullet a task: whether it is in the playbook, and its harmful - helpful marks."""

    there: Array
    balance: Array


def pollution(
    key: Array,
    error: ArrayLike,
    margin: ArrayLike = 2,
    settings: Settings = LECTURE,
    tasks: int = 300,
) -> Pollution:
    """A playbook that learns from feedback which is wrong in a share of the tasks.

    The rules. A lesson drawn from wrong feedback is harmful, any other helpful. A task marks the
    bullets it uses by what they are, or by the opposite where its feedback is wrong. Every
    `refine_every` tasks, bullets with harmful - helpful >= margin are dropped. So without dropping
    the expected share is the error itself; at an error of 0.5 marks are noise and dropping by them
    cannot help; beyond, they mislead.

    Args:
      key: a scalar typed key; the caller vmaps, over errors too. Wrong tasks at a small error are
        among those at a larger one.
      error: share of tasks whose feedback is wrong, in 0..1.
      margin: harmful - helpful at which a bullet is dropped.
      settings: of them, add_share, used and refine_every.
      tasks: T.

    Returns:
      The playbook, scalars [2] in the order of `KEEPING`.

    Raises:
      ValueError: if a number is out of range.

    Source: lecture 5.3; Zhang et al. 2025, arXiv:2510.04618, which reports the effect.
    """
    check_number("error", error, 0.0, 1.0)
    check_number("margin", margin, 1.0)
    key_draws, key_wrong = jax.random.split(key)
    drawn = draws(key_draws, settings, tasks)
    wrong = jax.random.uniform(key_wrong, (tasks,), jnp.float32) < error
    return polluted(drawn.added, drawn.used, wrong, margin, settings.refine_every)


def polluted(
    added: Array, used: Array, wrong: Array, margin: ArrayLike, refine_every: ArrayLike
) -> Pollution:
    """The playbook that given draws make.

    Args:
      added: [T] whether the task adds a bullet.
      used: [T, K] uniform numbers that pick the bullets it uses.
      wrong: [T] whether its feedback is wrong.
      margin: as in `pollution`.
      refine_every: tasks between two refinements.

    Returns:
      The playbook, scalars [2] in the order of `KEEPING`.
    """
    task = jnp.arange(len(added), dtype=jnp.int32)

    def step(marks: _Marks, now: tuple) -> tuple[_Marks, None]:
        adds, picks, is_wrong, t = now
        place = jnp.cumsum(marks.there, dtype=jnp.int32)  # from 1
        picked = distinct(picks, place[-1]) + 1
        uses = marks.there & (place[:, None] == picked).any(1)
        balance = marks.balance + jnp.where(uses, jnp.where(wrong != is_wrong, 1, -1), 0)
        there = marks.there | (adds & (task == t))
        drops = ((t + 1) % refine_every == 0) & (balance >= margin)
        return _Marks(there & ~drops, balance), None

    start = _Marks(jnp.zeros(len(added), bool), jnp.zeros(len(added), jnp.int32))
    last, _ = jax.lax.scan(step, start, (added, used, wrong, task))
    there = jnp.stack([added, last.there])  # [2, T]

    def count(which: Array) -> Array:
        return which.sum(-1, dtype=jnp.int32)

    return Pollution(
        helpful=count(there & ~wrong),
        harmful=count(there & wrong),
        dropped_helpful=count(added & ~there & ~wrong),
        dropped_harmful=count(added & ~there & wrong),
    )
