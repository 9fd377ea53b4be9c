"""The tables of demo 04."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxmem.common import mean_interval
from jaxmem.demos import cartridge_runs as runs
from jaxmem.demos.cartridge_evidence import Evidence, after, marks, of_size, samples
from jaxmem.demos.cartridge_runs import FACTS
from jaxmem.demos.result import Table
from jaxmem.recall import limits
from jaxmem.recall.cartridges import STARTS, Status
from jaxmem.recall.memories import state_floats

FLOATS = 2 * runs.DIM  # of a slot
EQUAL_SLOTS = 32  # as many floats as a 64 x 64 matrix


def all_tables(found: Evidence) -> list[Table]:
    """The tables for which there are runs, in the lecture's order.

    Args:
      found: what was run.

    Returns:
      Four tables, or six.
    """
    tables = [_ratio_table(found), _memory_table(found), _ablation_table(found)]
    if found.chunked is not None:
        tables.append(_long_table(found))
    if found.composed is not None:
        tables.append(_composition_table(found))
    return [*tables, _logit_table(found)]


def _cell(values: Sequence[float]) -> str:
    """Mean and half the width of its 95 % interval."""
    mean, _, high = mean_interval(values)
    half = high - mean
    return f"{mean:.3f} ± {half:.3f}" if np.isfinite(half) else f"{mean:.3f}"


def _ratio_table(found: Evidence) -> Table:
    rows: list[list[Any]] = [
        ["ICL, all facts", FACTS, 1.0]
        + [_cell(samples(found.baselines, f"icl {kind}")) for kind in ("verbatim", "paraphrased")]
    ]
    for p in found.slots:
        ratio = FACTS / p
        for name, label in (
            ("truncated", "truncation, the first facts"),
            ("evicted", "eviction of what is looked at least"),
            ("matched", "Attention Matching"),
        ):
            cells = [
                _cell(samples(found.baselines, f"{name} {p} {kind}"))
                for kind in ("verbatim", "paraphrased")
            ]
            rows.append([label, p, ratio, *cells])
        for label, trained in (
            ("cartridge, recitation", found.recited),
            ("cartridge, self-study", found.studied),
            ("cartridge, ours", found.ours),
        ):
            if trained is not None:
                cells = [_cell(of_size(trained, kind, p)) for kind in ("verbatim", "paraphrased")]
                rows.append([label, p, ratio, *cells])
        if found.ours_long is not None and of_size(found.ours_long, "verbatim", p):
            cells = [
                _cell(of_size(found.ours_long, kind, p)) for kind in ("verbatim", "paraphrased")
            ]
            rows.append(["cartridge, ours, 8,000 steps", p, ratio, *cells])
    bounds = limits.information_accuracy(
        FLOATS * np.array(found.slots), FACTS, FACTS, limits.EMPIRICAL_BITS
    )
    text = ", ".join(f"{p}: {bound:.3f}" for p, bound in zip(found.slots, np.asarray(bounds)))
    return Table(
        "1. Recall of 512 facts by slots (asked verbatim, and in other words), 3,000 steps",
        ["memory", "slots", "compression", "verbatim", "paraphrased"],
        rows,
        [f"most that 2 bits a float can hold (an empirical ceiling), by slots: {text}"]
        + _divergence(found),
    )


def _divergence(found: Evidence) -> list[str]:
    runs_of = [
        found.recited,
        found.studied,
        found.long_run,
        found.hard,
        found.ours,
        found.ours_long,
    ]
    sweeps = {id(sweep): sweep for sweep in runs_of if sweep is not None}.values()
    bad = sum(status != Status.OK for sweep in sweeps for status in samples(sweep, "status"))
    total = sum(len(sweep.records) for sweep in sweeps)
    return [f"{bad} of {total} trainings ended above the loss they started from, or not finite"]


def _memory_table(found: Evidence) -> Table:
    metrics = found.memories.metrics
    names = [name.removesuffix(" verbatim") for name in metrics if "verbatim" in name]
    kinds = ("verbatim", "paraphrased")
    rows: list[list[Any]] = [
        [
            name,
            _floats(name),
            *[_cell(samples(found.memories, f"{name} {kind}")) for kind in kinds],
        ]
        for name in names
    ]
    for label, trained in (
        (f"cartridge, self-study, p = {EQUAL_SLOTS}", found.studied),
        (f"cartridge, ours, p = {EQUAL_SLOTS}", found.ours),
    ):
        if trained is not None:
            cells = [_cell(of_size(trained, kind, EQUAL_SLOTS)) for kind in kinds]
            rows.append([label, EQUAL_SLOTS * FLOATS, *cells])
    theory = [
        float(limit(FACTS, runs.DIM, cosine=cosine))
        for limit in (limits.sum_accuracy, limits.least_squares_accuracy)
        for cosine in (1.0, runs.COSINE)
    ]
    return Table(
        "2. Memories of a 64 x 64 matrix, written once in order, and 32 slots of as many floats",
        ["memory", "floats", "verbatim", "paraphrased"],
        rows,
        [
            "theory, unit values: sum {:.3f} / {:.3f}, least squares {:.3f} / {:.3f}".format(
                *theory
            ),
            "the cross-entropy maps are trained on all pairs at once: the same floats hold more"
            " than squared error can use",
        ],
    )


def _floats(name: str) -> int:
    """Floats of the state of a memory of the table; maps and solves keep the matrix alone."""
    memory = runs.MATRICES.get(name)
    return runs.DIM**2 if memory is None else state_floats(memory, runs.DIM, runs.DIM)


def _ablation_table(found: Evidence) -> Table:
    rows: list[list[Any]] = [
        ["first facts, distilled", 64, 3_000, _cell(of_size(found.studied, "paraphrased", 64))]
    ]
    rows += [
        [f"start: {start}", 64, 3_000, _cell(samples(found.studied, "paraphrased", start=i))]
        for i, start in enumerate(STARTS)
        if i and samples(found.studied, "paraphrased", start=i)
    ]
    if found.hard is not None:
        for p in (32, 64):
            hard = samples(found.hard, "paraphrased", slots=p)
            rows.append(["hard labels", p, 3_000, _cell(hard)])
    rows.append(
        ["first facts, distilled", 32, 3_000, _cell(of_size(found.studied, "paraphrased", 32))]
    )
    rows += [
        ["first facts, distilled", 64, steps, _cell(after(found.long_run, steps))]
        for steps in marks(found)
    ]
    return Table(
        "3. Ablations, asked in other words",
        ["training", "slots", "steps", "paraphrased"],
        rows,
        ["the last rows, by steps, are one run looked at on the way, asked about every fact once"],
    )


def _long_table(found: Evidence) -> Table:
    assert found.chunked is not None
    assert found.whole is not None
    rows = [
        ["ICL, the first 512 facts", 512, None, _cell(samples(found.chunked, "icl"))],
        ["p = 256, teacher sees 512 facts", 256, 3_000, _cell(after(found.chunked, 3_000))],
        ["p = 256, teacher sees 512 facts", 256, 6_000, _cell(after(found.chunked, 6_000))],
        ["p = 256, teacher sees all", 256, 3_000, _cell(after(found.whole, 3_000))],
    ]
    return Table(
        "4. 2,048 facts and a window of 512, asked in other words",
        ["memory", "slots", "steps", "paraphrased"],
        rows,
    )


def _composition_table(found: Evidence) -> Table:
    rows: list[list[Any]] = []
    parts = [("lecture", found.composed, "")]
    if found.ours_composed is not None:
        parts += [
            ("ours, apart", found.ours_composed, ""),
            ("ours, mixed", found.ours_composed, "mixed_"),
        ]
    for label, sweep, prefix in parts:
        assert sweep is not None
        rows.append(
            [
                label,
                *[_cell(samples(sweep, prefix + name)) for name in ("composed", "leak", "only_a")],
                *[_cell(samples(sweep, name)) for name in ("joint", "icl")],
            ]
        )
    return Table(
        "5. Documents A and B, 64 slots each, read side by side; asked about both in other words",
        ["recipe", "composed", "attention lost", "only A", "joint, p = 128", "truncated ICL"],
        rows,
        ["mixed: trained on beside slots of four other documents; A and B never meet in training"],
    )


def _logit_table(found: Evidence) -> Table:
    rows = [
        [
            start,
            *[
                round(float(np.mean(samples(found.logits, name, start=i))), 2)
                for name in ("own", "other", "entropy", "slots_in_use")
            ],
        ]
        for i, start in enumerate(STARTS)
    ]
    return Table(
        "Exercise 6. Logits of questions on 64 slots before training",
        ["start", "own slot, mean", "others, rms", "entropy, nats", "slots in use"],
        rows,
        [
            "own slot: question i on slot i, which holds its fact only under the start 'first'",
            "random vectors are 8 long: one slot takes nearly all, and the others get no gradient",
        ],
    )
