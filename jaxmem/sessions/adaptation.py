"""A playbook that grows over online tasks: what of each prompt a server has kept from the last.

The lecture's experiment (5.4). The generator reads system | playbook | task; after the task a
bullet joins the playbook with some probability. All variants of layout see the same tasks.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxmem.common import check_number
from jaxmem.sessions.tasks import LECTURE, Draws, Settings, distinct, draws, whole

VARIANTS = ("append", "counters", "sections", "sections+counters", "refined", "merged", "rewrite",
            "collapse")  # fmt: skip
"""How the playbook is kept in the prompt.

append: a list that new bullets join at its end; counters are kept elsewhere.
counters: the same with each bullet's counters in its text: those of the used ones change.
sections: new bullets stand at the end of their section, as in the official code.
sections+counters: both, the official layout.
refined: append; every few tasks the duplicates since the last time are removed.
merged: the same, but an LLM writes the text of a duplicate and its original anew in the original's
  place, as the official code does.
rewrite: an LLM writes the whole playbook anew after each task.
collapse: the same, and sometimes it leaves a short summary only.
"""
_FAR = 2**30  # a position after every playbook


class Adaptation(NamedTuple):
    """A run of T tasks in each of the V variants of `VARIANTS`; all are tokens, int32.

    prompt_tokens: [V, T] of the generator's prompt.
    reused_tokens: [V, T] of them, those before the first that differs from the last prompt.
    written_tokens: [V, T] what is generated after the task to change the playbook.
    playbook_tokens: [V, T + 1] the playbook at each task, and after the last.
    kept_tokens: [V, T + 1] of them, those at its beginning that were there a task before.
    bullets: [V] lessons in the playbook after the last task.
    lost: [V] lessons that collapses have lost.
    reflections: [T] reflections on the answer, 0 where it is right.
    """

    prompt_tokens: Array
    reused_tokens: Array
    written_tokens: Array
    playbook_tokens: Array
    kept_tokens: Array
    bullets: Array
    lost: Array
    reflections: Array

    @property
    def reuse(self) -> Array:
        """[V] share of all prompt tokens that are reused."""
        return self.reused_tokens.sum(-1, dtype=float) / self.prompt_tokens.sum(-1, dtype=float)


def adapt(key: Array, settings: Settings = LECTURE, tasks: int = 300) -> Adaptation:
    """One run of online adaptation in all variants, from one draw.

    reused = system + playbook before its first change, for every prompt but the first

    Args:
      key: a scalar typed key; the caller vmaps.
      settings: what the tasks are like; numbers may be traced.
      tasks: T.

    Returns:
      The run.

    Raises:
      ValueError: if there is no task.
    """
    return adapted(draws(key, settings, tasks), settings)


def adapted(drawn: Draws, settings: Settings = LECTURE) -> Adaptation:
    """The run that given draws make.

    Args:
      drawn: what happens at each task, [T] and [T, K].
      settings: what the prompts are like.

    Returns:
      The run.
    """
    size, kept, written, bullets, lost = (
        jnp.stack(rows)
        for rows in zip(
            *_lists(drawn, settings),
            *_refined(drawn, settings),
            _rewritten(drawn, settings, jnp.zeros_like(drawn.collapsed)),
            _rewritten(drawn, settings, drawn.collapsed),
        )
    )
    kept = jnp.concatenate([jnp.zeros_like(kept[:, :1]), kept], axis=1)  # [V, T + 1]
    system = whole(settings.system_tokens)
    later = jnp.arange(size.shape[1] - 1) > 0  # the first prompt finds nothing
    return Adaptation(
        prompt_tokens=system + size[:, :-1] + whole(settings.task_tokens),
        reused_tokens=jnp.where(later, system + kept[:, :-1], 0),
        written_tokens=written,
        playbook_tokens=size,
        kept_tokens=kept,
        bullets=bullets,
        lost=lost,
        reflections=jnp.where(drawn.wrong, drawn.reflections, 0),
    )


def first_edit(edits: ArrayLike) -> Array:
    """Expected place of the first of some uniform edits, as a share of the text (exercise 5).

    E[min of n uniform] = 1 / (n + 1)

    Args:
      edits: how many, broadcast.

    Returns:
      The share.

    Raises:
      ValueError: if a number is negative.
    """
    check_number("edits", edits)
    return 1.0 / (jnp.asarray(edits, float) + 1.0)


def estimated_reuse(
    playbook_tokens: ArrayLike = 3_400.0, edits: ArrayLike = 3, settings: Settings = LECTURE
) -> Array:
    """Exercise 5's estimate of the reuse with counters in the prompt.

    (system + playbook / (edits + 1)) / (system + playbook + task)

    Args:
      playbook_tokens: the mean playbook, broadcast.
      edits: uniform edits between two prompts.
      settings: tokens of the rest of the prompt.

    Returns:
      The share of prompt tokens that are reused.

    Raises:
      ValueError: if a number is negative.
    """
    check_number("playbook_tokens", playbook_tokens)
    kept = settings.system_tokens + first_edit(edits) * playbook_tokens
    return jnp.asarray(kept) / (
        settings.system_tokens + jnp.asarray(playbook_tokens) + settings.task_tokens
    )


# Size [T + 1], kept [T] at the next prompt, written [T], bullets and lost at the end.
_Parts = tuple[Array, Array, Array, Array, Array]


def _lists(drawn: Draws, settings: Settings) -> list[_Parts]:
    """append, counters, sections, sections+counters: nothing is ever removed."""
    bullet, at = whole(settings.bullet_tokens), whole(settings.counter_at)
    tasks = len(drawn.added)
    count = _before(drawn.added)  # [T + 1] bullets at each prompt
    now = count[:-1]
    mine = (drawn.section[:, None] == jnp.arange(settings.sections)) & drawn.added[:, None]
    inside = _before(mine)[:-1]  # [T, S] bullets in each section
    ends = jnp.cumsum(inside, axis=1)
    end = jnp.take_along_axis(ends, drawn.section[:, None], 1)[:, 0]  # where a new one goes
    kept_in_sections = jnp.where(drawn.added, bullet * end, bullet * now)

    picks = distinct(drawn.used, now)  # [T, K]
    valid = picks < now[:, None]
    task = jnp.arange(tasks, dtype=jnp.int32)
    at_place = jnp.where(drawn.added, now, tasks)
    step = jnp.zeros(tasks, jnp.int32).at[at_place].set(task, mode="drop")  # [T] of bullet i
    came = step[jnp.where(valid, picks, 0)]  # [T, K]
    section = drawn.section[came]
    place = jnp.take_along_axis(inside, drawn.section[:, None], 1)[:, 0]  # [T] in its section
    begins = jnp.take_along_axis(ends - inside, section, 1)  # [T, K]

    def changed(places: Array) -> Array:  # [T, K] -> [T] tokens before the first changed counter
        return jnp.where(valid, bullet * places + at, _FAR).min(1, initial=_FAR)

    size = bullet * count
    rest = (bullet * drawn.added.astype(jnp.int32), count[-1], jnp.zeros_like(count[-1]))
    return [
        (size, kept, *rest)
        for kept in (
            bullet * now,
            jnp.minimum(bullet * now, changed(picks)),
            kept_in_sections,
            jnp.minimum(kept_in_sections, changed(begins + place[came])),
        )
    ]


def _refined(drawn: Draws, settings: Settings) -> list[_Parts]:
    """refined, merged: duplicates since the last refinement go at the next."""
    bullet, every = whole(settings.bullet_tokens), whole(settings.refine_every)
    tasks = len(drawn.added)
    task = jnp.arange(tasks + 1, dtype=jnp.int32)
    count = _before(drawn.added)
    twin = drawn.added & drawn.duplicate & (count[:-1] > 0)
    twins = _before(twin)  # [T + 1]
    gone = twins[(task // every) * every]  # removed so far
    size = count - gone  # bullets at each prompt
    period = task[:-1] // every  # [T]
    refines = (task[1:] % every) == 0  # after task t
    originals = count - twins

    def earliest(places: Array) -> Array:  # [T] -> [T] first place of the period that changes
        of_twins = jnp.where(twin, places, _FAR)
        return jax.ops.segment_min(of_twins, period, tasks)[period]

    first = jnp.minimum(size[:-1], jnp.where(refines, earliest(size[:-1]), _FAR))
    # Where its original stands; duplicates of this period may stand before, but then the first
    # of them stands before both and decides.
    place = jnp.floor(drawn.original * originals[:-1]).astype(jnp.int32)
    rewritten = jnp.minimum(first, jnp.where(refines, earliest(place), _FAR))

    new = bullet * drawn.added.astype(jnp.int32)
    merges = jnp.where(refines, bullet * (twins[1:] - gone[:-1]), 0)
    rest = (size[-1], jnp.zeros_like(size[-1]))
    return [
        (bullet * size, bullet * first, new, *rest),
        (bullet * size, bullet * rewritten, new + merges, *rest),
    ]


def _rewritten(drawn: Draws, settings: Settings, collapsed: Array) -> _Parts:
    """rewrite, collapse: all of it is written after each task."""
    bullet, summary = whole(settings.bullet_tokens), whole(settings.summary_tokens)
    count = _before(drawn.added)
    at_last = jax.lax.cummax(jnp.where(collapsed, count[1:], 0))  # bullets at the last collapse
    at_last = jnp.concatenate([jnp.zeros_like(at_last[:1]), at_last])  # [T + 1]
    lost = jnp.where(bullet * at_last > summary, at_last, 0)  # a short playbook is no longer cut
    size = bullet * (count - lost) + jnp.where(lost > 0, summary, 0)
    uncut = size[:-1] + bullet * drawn.added
    kept = jnp.floor(jnp.asarray(settings.rewrite_kept, jnp.float32) * size[:-1])
    kept = jnp.where(collapsed & (uncut > summary), 0, kept.astype(jnp.int32))
    return size, kept, size[1:], count[-1] - lost[-1], lost[-1]


def _before(happens: Array) -> Array:
    """How often before each step, and after the last: [T, ...] -> [T + 1, ...]."""
    total = jnp.cumsum(happens, axis=0, dtype=jnp.int32)
    return jnp.concatenate([jnp.zeros_like(total[:1]), total])
