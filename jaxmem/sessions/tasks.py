"""Online tasks that a playbook grows with: what they are like, and what happens at each."""

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jaxmem.common import check_number, check_size, is_given

_TOKENS = ("system_tokens", "task_tokens", "answer_tokens", "bullet_tokens", "summary_tokens",
           "counter_at", "reflection_tokens")  # fmt: skip
_SHARES = ("add_share", "duplicate_share", "collapse_share", "rewrite_kept", "wrong_share",
           "corrected_share")  # fmt: skip


def _check_whole(name: str, number: ArrayLike, low: int) -> None:
    check_number(name, number, low, 1e5)
    if np.any(np.asarray(number) % 1):
        raise ValueError(f"{name} must be whole, got {number}")


@partial(
    jax.tree_util.register_dataclass,
    data_fields=[*_TOKENS, *_SHARES, "refine_every"],
    meta_fields=["used", "sections", "most_reflections"],
)
@dataclass(frozen=True)
class Settings:
    """What the tasks and the prompts are like; the lecture's numbers where it states them.

    system_tokens, task_tokens, answer_tokens: the generator's instructions, a task, an answer.
    bullet_tokens: tokens of a bullet.
    add_share: probability that a task adds a bullet.
    used: bullets that a task uses, uniform among those there and distinct (fewer while there are
      fewer); their counters change.
    counter_at: tokens of a bullet before its counters; 0 (the official line opens with them) cuts
      the prefix before the first changed bullet.
    sections: sections of the playbook, a new bullet's is uniform (an assumption). Headings have no
      tokens.
    refine_every: tasks between two refinements; the lecture is silent.
    duplicate_share: probability that a new bullet says what an earlier one says, uniform among
      those; the lecture is silent.
    rewrite_kept: share of the playbook, from its beginning, that a rewrite leaves word for word.
      Real rewrites of a cheatsheet keep 0.002 to 0.08 (Dynamic Cheatsheet's published runs).
    collapse_share: probability that a rewrite collapses; 1 of 133 real ones lost more than half.
    summary_tokens: what a collapse leaves of a longer playbook (ACE's figure 2: 122 of 18,282).
    wrong_share: probability that the first answer to a task is wrong (ACE on AppWorld: 59.4 % are
      right).
    corrected_share: probability that another answer after a reflection is right; not published.
    most_reflections: reflections on a wrong answer at most (official code: 3).
    reflection_tokens: tokens of a reflection; not published.

    Raises:
      ValueError: if a number is out of range.

    Source: lecture 5.4; Zhang et al. 2025, arXiv:2510.04618.
    """

    system_tokens: ArrayLike = 500
    task_tokens: ArrayLike = 300
    answer_tokens: ArrayLike = 300
    bullet_tokens: ArrayLike = 40
    add_share: ArrayLike = 0.6
    used: int = 3
    counter_at: ArrayLike = 0
    sections: int = 7
    refine_every: ArrayLike = 50
    duplicate_share: ArrayLike = 0.2
    rewrite_kept: ArrayLike = 0.0
    collapse_share: ArrayLike = 1 / 133
    summary_tokens: ArrayLike = 122
    wrong_share: ArrayLike = 0.4
    corrected_share: ArrayLike = 0.5
    most_reflections: int = 3
    reflection_tokens: ArrayLike = 300

    def __post_init__(self) -> None:
        check_size("used", self.used, 0, 100)
        check_size("sections", self.sections, 1, 1_000)
        check_size("most_reflections", self.most_reflections, 1, 100)
        for name in (*_TOKENS, "refine_every"):
            low = 1 if name in ("task_tokens", "answer_tokens", "bullet_tokens", "refine_every",
                                "reflection_tokens") else 0  # fmt: skip
            if is_given(getattr(self, name)):
                _check_whole(name, getattr(self, name), low)
        for name in _SHARES:
            if is_given(getattr(self, name)):
                check_number(name, getattr(self, name), 0.0, 1.0)
        at, bullet = self.counter_at, self.bullet_tokens
        if is_given(at) and is_given(bullet) and np.any(np.asarray(at) >= np.asarray(bullet)):
            raise ValueError(f"counter_at must lie in a bullet of {bullet} tokens, got {at}")


LECTURE = Settings()


class Draws(NamedTuple):
    """What happens at each of T tasks, the same for all variants.

    added: [T] whether a bullet joins the playbook after the task.
    section: [T] the section it would join.
    used: [T, K] uniform numbers that pick the bullets the task uses.
    duplicate: [T] whether it would say what an earlier one says.
    original: [T] uniform number that picks the earlier one.
    collapsed: [T] whether a rewrite after the task collapses.
    wrong: [T] whether the first answer is wrong.
    reflections: [T] reflections on it, were it wrong: until an answer is right, or the most.
    """

    added: Array
    section: Array
    used: Array
    duplicate: Array
    original: Array
    collapsed: Array
    wrong: Array
    reflections: Array


def draws(key: Array, settings: Settings = LECTURE, tasks: int = 300) -> Draws:
    """Draw what happens; a longer run begins like a shorter one.

    Args:
      key: a scalar typed key (`jax.random.key`).
      settings: what the tasks are like.
      tasks: T.

    Returns:
      The draws, arrays with a first axis [T].

    Raises:
      ValueError: if there is no task.
    """
    tasks = check_size("tasks", tasks, 1, 10_000)
    k_add, k_section, k_used, k_twin, k_original, k_collapse, k_wrong, k_right = jax.random.split(
        key, 8
    )

    def uniform(key: Array, *shape: int) -> Array:
        return jax.random.uniform(key, (tasks, *shape), jnp.float32)

    fails = uniform(k_right, settings.most_reflections - 1) >= settings.corrected_share
    return Draws(
        added=uniform(k_add) < settings.add_share,
        section=jax.random.randint(k_section, (tasks,), 0, settings.sections, jnp.int32),
        used=uniform(k_used, settings.used),
        duplicate=uniform(k_twin) < settings.duplicate_share,
        original=uniform(k_original),
        collapsed=uniform(k_collapse) < settings.collapse_share,
        wrong=uniform(k_wrong) < settings.wrong_share,
        reflections=1 + jnp.cumprod(fails, axis=1, dtype=jnp.int32).sum(1, dtype=jnp.int32),
    )


def distinct(uniform: Array, count: Array) -> Array:
    """Picks without replacement: the j-th is uniform among those that are left.

    Args:
      uniform: [..., K] numbers in [0, 1).
      count: [...] how many there are to pick from.

    Returns:
      [..., K] places; at least `count` for picks that find none left.
    """
    picks: list[Array] = []
    for j in range(uniform.shape[-1]):
        left = count - j
        pick = jnp.floor(uniform[..., j] * left).astype(jnp.int32)
        for earlier in _ascending(picks):  # step over those that are gone
            pick = pick + (pick >= earlier)
        picks.append(jnp.where(left > 0, pick, count))
    return jnp.stack(picks, -1) if picks else jnp.zeros((*count.shape, 0), jnp.int32)


def _ascending(picks: list[Array]) -> list[Array]:
    return list(jnp.sort(jnp.stack(picks), axis=0)) if picks else []


def whole(number: ArrayLike) -> Array:
    """A count of tokens as int32, so that sums are exact.

    Args:
      number: whole numbers, of any shape and type.

    Returns:
      The same numbers, of the same shape.
    """
    return jnp.asarray(number).astype(jnp.int32)
