"""All that demo 04 runs, and how its numbers are looked up."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from jaxmem.common import progress
from jaxmem.demos import cartridge_composition as pairs
from jaxmem.demos import cartridge_runs as runs
from jaxmem.demos.cartridge_runs import FACTS, LECTURE, OURS, SLOTS
from jaxmem.demos.result import Extent
from jaxmem.recall.cartridges import STARTS
from jaxmem.sweep import Sweep

LECTURE_COURSE = pairs.Course(LECTURE, 3_000, 3_000)
OURS_COURSE = pairs.Course(runs.OURS_COMPOSED, 1_000, 1_500, mixed_steps=2_500)


class Evidence(NamedTuple):
    """Every sweep that the tables are made of; None where the extent leaves it out.

    slots: sizes of cartridges.
    baselines, memories, logits: what needs no training.
    recited, studied: the lecture's recipe by size, and by start.
    long_run: p = 64 looked at on the way to its last step.
    hard: trained on the right answer alone.
    chunked, whole: the long document, by a teacher that sees a window or all of it.
    composed: two documents.
    ours, ours_long, ours_composed: our recipe.
    """

    slots: Sequence[int]
    baselines: Sweep
    memories: Sweep
    logits: Sweep
    recited: Sweep
    studied: Sweep
    long_run: Sweep
    hard: Sweep | None
    chunked: Sweep | None
    whole: Sweep | None
    composed: Sweep | None
    ours: Sweep | None
    ours_long: Sweep | None
    ours_composed: Sweep | None


def gather(extent: Extent) -> Evidence:
    """Run what an extent asks for.

    Args:
      extent: how much.

    Returns:
      The sweeps.
    """
    full = extent.full
    seeds = 4 if full else 3
    ours = (8 if full else 3) if extent.beyond else 0
    slots = SLOTS if full else SLOTS[1:3]
    first = [(p, "first") for p in slots]
    other = [(64, start) for start in (STARTS[1:] if full else STARTS[-1:])]
    train = partial(runs.trainings, LECTURE, seeds)
    parts: dict[str, Callable[[], Sweep | None]] = {
        "baselines": lambda: runs.baselines(seeds, slots),
        "memories": lambda: runs.memories(seeds),
        "logits": lambda: runs.logits(seeds, 64),
        "studied": lambda: train(first + other, 3_000),
        "recited": lambda: train(first, 3_000, objective="recitation"),
    }
    if full:
        hard = [(32, "first"), (64, "first")]
        parts |= {
            "long_run": lambda: train([(64, "first")], 8_000),
            "hard": lambda: train(hard, 3_000, loss="hard"),
            "chunked": lambda: runs.long_document(seeds, 6_000, FACTS),
            "whole": lambda: runs.long_document(seeds, 3_000, None),
            "composed": lambda: pairs.composition(LECTURE_COURSE, seeds, 64),
        }
    if ours:
        parts["ours"] = lambda: runs.trainings(OURS, ours, first, 3_000)
    if ours and full:
        parts["ours_long"] = lambda: runs.trainings(OURS, seeds, first[:2], 8_000)
        parts["ours_composed"] = lambda: pairs.composition(OURS_COURSE, ours, 64)
    found: dict[str, Any] = dict.fromkeys(Evidence._fields)
    for name, make in progress(parts.items(), "demo 04, part", len(parts)):
        found[name] = make()
    return Evidence(**{**found, "slots": slots, "long_run": found["long_run"] or found["studied"]})


def samples(sweep: Sweep, metric: str, **where: Any) -> list[float]:
    """A metric of the runs whose fields are as given.

    Args:
      sweep: where to look.
      metric: its name.
      where: fields of the setting.

    Returns:
      A value a seed.
    """
    return [
        row[metric] for row in sweep.records if all(row[name] == x for name, x in where.items())
    ]


def of_size(sweep: Sweep, metric: str, slots: int) -> list[float]:
    """A metric of the cartridges of one size that start from the first facts.

    Args:
      sweep: from `trainings`.
      metric: its name.
      slots: the size.

    Returns:
      A value a seed.
    """
    return samples(sweep, metric, slots=slots, start=0)


def marks(found: Evidence) -> list[int]:
    """The lecture's numbers of steps that the long run reaches.

    Args:
      found: what was run.

    Returns:
      Up to three of them.
    """
    reached = found.long_run.arrays["step_curve"].max()
    return [steps for steps in (1_000, 3_000, 8_000) if steps <= reached]


def after(sweep: Sweep, steps: int) -> list[float]:
    """Accuracy in other words after so many steps of p = 64, or of the only run.

    Args:
      sweep: with histories.
      steps: done by then.

    Returns:
      A value a seed.
    """
    setting = long_setting(sweep)
    at = int(np.flatnonzero(sweep.arrays["step_curve"][0, setting] == steps)[0])
    return [float(x) for x in sweep.arrays["paraphrased_curve"][:, setting, at]]


def long_setting(sweep: Sweep) -> int:
    """Which setting is the run of 64 slots that starts from the first facts.

    Args:
      sweep: with histories.

    Returns:
      Its number; 0 if there is one setting only.
    """
    rows = [row for row in sweep.records if row["seed"] == sweep.records[0]["seed"]]
    return next((i for i, row in enumerate(rows) if row.get("slots") == 64), 0)
