"""Demo 04: a small KV cache trained to stand for a document of random facts."""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from jaxmem.common import Interval, mean_interval, run_interval
from jaxmem.demos import cartridge_pictures as pictures
from jaxmem.demos import cartridge_runs as runs
from jaxmem.demos.cartridge_runs import FACTS, LECTURE, OURS, SLOTS
from jaxmem.demos.lecture import Figure, beside_lecture
from jaxmem.demos.result import DemoResult, Extent, Table
from jaxmem.recall import limits
from jaxmem.recall.cartridges import STARTS, Status
from jaxmem.sweep import Sweep

COSINE = 1 / np.sqrt(1 + runs.NOISE**2)
FLOATS = 2 * runs.DIM  # of a slot
EQUAL_SLOTS = 32  # as many floats as a 64 x 64 matrix

CHOICES = (
    "keys and values are random unit vectors of 64 numbers; 512 facts, each with its own answer",
    "a question is its key + 0.3 of a random unit vector, scaled back to length 1: cosine 0.958",
    "attention and output distribution have inverse temperature 20; batches of 64 questions",
    "Adam at 0.002, constant, no weight decay: the only rate tried here; the lecture gives none",
    "recitation asks with the document's own keys, self-study in other words; KL to the teacher",
    "accuracy is over all facts, in words that training never used",
    "2,048 facts: the answers are all 2,048 values; the teacher sees the chunk of 512 that"
    " holds the answer",
    "composition: A and B split a vocabulary of 1,024; answers are chosen among all of it, in"
    " training too; accuracy is over the questions of both",
    "figures are means over seeds, with the interval that holds one more run in 95 % of cases,"
    " since the lecture's are one run each; tables have the 95 % interval of the mean",
)


class _Evidence(NamedTuple):
    """Every sweep that the tables are made of; None where the extent leaves it out."""

    baselines: Sweep
    memories: Sweep
    gaussian: Sweep
    logits: Sweep
    recited: Sequence[Sweep]
    studied: Sequence[Sweep]
    long_run: Sweep
    starts: Sweep
    hard: Sweep
    chunked: Sweep | None
    whole: Sweep | None
    composed: Sweep | None
    ours: Sequence[Sweep]
    ours_composed: Sweep | None


def cartridge_recall(extent: Extent) -> DemoResult:
    """Run demo 04 and exercise 6.

    Args:
      extent: 4 seeds and every table if full (8 seeds of ours), else 2 and the tables on one
        document; beyond adds our recipe in the same tables.

    Returns:
      The result; figures of tables that were left out are missing.
    """
    evidence = _run(extent)
    tables = [_ratio_table(evidence), _memory_table(evidence), _ablation_table(evidence)]
    if evidence.chunked is not None:
        tables.append(_long_table(evidence))
    if evidence.composed is not None:
        tables.append(_composition_table(evidence))
    tables.append(_logit_table(evidence))
    draw = {
        "recall_by_size.png": partial(_draw_ratios, evidence),
        "training.png": partial(pictures.draw_training, evidence.long_run, _ours_curves(evidence)),
    }
    if evidence.composed is not None:
        draw["composition.png"] = partial(
            pictures.draw_composition, evidence.composed, evidence.ours_composed
        )
    notes = CHOICES + (() if extent.full else ("quick preset: 2 seeds, tables 4 and 5 left out",))
    return DemoResult(tables, _figures(evidence), draw, notes)


def _run(extent: Extent) -> _Evidence:
    seeds = 4 if extent.full else 2
    ours = (8 if extent.full else 2) if extent.beyond else 0
    small, large = SLOTS[:3], SLOTS[3:]
    train = partial(runs.trainings, LECTURE, seeds)
    return _Evidence(
        baselines=runs.baselines(seeds, SLOTS),
        memories=runs.memories(max(seeds, 4)),
        gaussian=runs.memories(max(seeds, 4), unit_values=False),
        logits=runs.logits(seeds, 64),
        recited=[train(p, 3_000, objective="recitation") for p in (small, large)],
        studied=[train(p, 3_000) for p in (small, large)],
        long_run=train((64,), 8_000),
        starts=train((64,), 3_000, STARTS[1:]),
        hard=train((32, 64), 3_000, loss="hard"),
        chunked=runs.long_document(seeds, 6_000, FACTS) if extent.full else None,
        whole=runs.long_document(seeds, 3_000, None) if extent.full else None,
        composed=runs.composition(LECTURE, seeds, 64, 3_000) if extent.full else None,
        ours=[runs.trainings(OURS, ours, p, 3_000) for p in (small, large)] if ours else [],
        ours_composed=(
            runs.composition(OURS, ours, 64, 1_500, mix=0.7) if ours and extent.full else None
        ),
    )


def _samples(sweep: Sweep, metric: str, **where: Any) -> list[float]:
    """A metric of the runs whose fields are as given, a value a seed."""
    return [
        row[metric] for row in sweep.records if all(row[name] == x for name, x in where.items())
    ]


def _of_size(sweeps: Sequence[Sweep], metric: str, slots: int) -> list[float]:
    return [x for sweep in sweeps for x in _samples(sweep, metric, slots=slots)]


def _cell(samples: Sequence[float]) -> str:
    """Mean and half the width of its 95 % interval."""
    mean, _, high = mean_interval(samples)
    half = high - mean
    return f"{mean:.3f} ± {half:.3f}" if np.isfinite(half) else f"{mean:.3f}"


def _ratio_table(found: _Evidence) -> Table:
    rows: list[list[Any]] = [
        ["ICL, all facts", FACTS, 1.0]
        + [_cell(_samples(found.baselines, f"icl {kind}")) for kind in ("verbatim", "paraphrased")]
    ]
    for p in SLOTS:
        ratio = FACTS / p
        for name, label in (
            ("truncated", "truncation, the first facts"),
            ("evicted", "eviction of what is looked at least"),
            ("matched", "Attention Matching"),
        ):
            cells = [
                _cell(_samples(found.baselines, f"{name} {p} {kind}"))
                for kind in ("verbatim", "paraphrased")
            ]
            rows.append([label, p, ratio, *cells])
        for label, sweeps in (
            ("cartridge, recitation", found.recited),
            ("cartridge, self-study", found.studied),
            ("cartridge, ours", found.ours),
        ):
            if sweeps:
                cells = [_cell(_of_size(sweeps, kind, p)) for kind in ("verbatim", "paraphrased")]
                rows.append([label, p, ratio, *cells])
    bounds = limits.information_accuracy(
        FLOATS * np.array(SLOTS), FACTS, FACTS, limits.EMPIRICAL_BITS
    )
    text = ", ".join(f"{p}: {bound:.3f}" for p, bound in zip(SLOTS, np.asarray(bounds)))
    return Table(
        "1. Recall of 512 facts by slots (asked verbatim, and in other words), 3,000 steps",
        ["memory", "slots", "compression", "verbatim", "paraphrased"],
        rows,
        [f"most that 2 bits a float can hold (an empirical ceiling), by slots: {text}"]
        + _divergence(found),
    )


def _divergence(found: _Evidence) -> list[str]:
    sweeps = [*found.recited, *found.studied, found.long_run, found.starts, found.hard, *found.ours]
    bad = sum(status != Status.OK for sweep in sweeps for status in _samples(sweep, "status"))
    total = sum(len(sweep.records) for sweep in sweeps)
    return [f"{bad} of {total} trainings ended above the loss they started from, or not finite"]


def _memory_table(found: _Evidence) -> Table:
    names = [
        name.removesuffix(" verbatim") for name in found.memories.metrics if "verbatim" in name
    ]
    rows: list[list[Any]] = []
    for name in names:
        cells = [
            _cell(_samples(sweep, f"{name} {kind}"))
            for sweep in (found.memories, found.gaussian)
            for kind in ("verbatim", "paraphrased")
        ]
        rows.append([name, *cells])
    for label, sweeps in (
        (f"cartridge, self-study, p = {EQUAL_SLOTS}", found.studied),
        (f"cartridge, ours, p = {EQUAL_SLOTS}", found.ours),
    ):
        if sweeps:
            cells = [
                _cell(_of_size(sweeps, kind, EQUAL_SLOTS)) for kind in ("verbatim", "paraphrased")
            ]
            rows.append([label, *cells, None, None])
    theory = [
        float(limit(FACTS, runs.DIM, cosine=cosine))
        for limit in (limits.sum_accuracy, limits.least_squares_accuracy)
        for cosine in (1.0, COSINE)
    ]
    return Table(
        "2. Memories of 4,096 floats: a 64 x 64 matrix, written once in order, and 32 slots",
        ["memory", "verbatim", "paraphrased", "verbatim, Gaussian values", "paraphrased"],
        rows,
        [
            "theory, unit values: sum {:.3f} / {:.3f}, least squares {:.3f} / {:.3f}".format(
                *theory
            ),
            "the cross-entropy maps are trained on all pairs at once: the same floats hold more"
            " than squared error can use",
        ],
    )


def _ablation_table(found: _Evidence) -> Table:
    rows: list[list[Any]] = [
        ["first facts, distilled", 64, 3_000, _cell(_of_size(found.studied, "paraphrased", 64))]
    ]
    rows += [
        [f"start: {start}", 64, 3_000, _cell(_samples(found.starts, "paraphrased", start=i))]
        for i, start in enumerate(STARTS)
        if i
    ]
    for p in (32, 64):
        hard = _samples(found.hard, "paraphrased", slots=p)
        rows.append(["hard labels", p, 3_000, _cell(hard)])
    rows.append(
        ["first facts, distilled", 32, 3_000, _cell(_of_size(found.studied, "paraphrased", 32))]
    )
    rows += [
        ["first facts, distilled", 64, steps, _cell(_after(found.long_run, steps))]
        for steps in (1_000, 3_000, 8_000)
    ]
    return Table(
        "3. Ablations, asked in other words",
        ["training", "slots", "steps", "paraphrased"],
        rows,
        ["the rows by steps are one run of 8,000, looked at on the way"],
    )


def _after(sweep: Sweep, steps: int) -> list[float]:
    """Paraphrased accuracy after so many steps of a run, a value a seed."""
    at = int(np.flatnonzero(sweep.arrays["step_curve"][0, 0] == steps)[0])
    return [float(x) for x in sweep.arrays["paraphrased_curve"][:, 0, at]]


def _long_table(found: _Evidence) -> Table:
    assert found.chunked is not None
    assert found.whole is not None
    rows = [
        ["ICL, the first 512 facts", 512, None, _cell(_samples(found.chunked, "icl"))],
        ["p = 256, teacher sees 512 facts", 256, 3_000, _cell(_after(found.chunked, 3_000))],
        ["p = 256, teacher sees 512 facts", 256, 6_000, _cell(_after(found.chunked, 6_000))],
        ["p = 256, teacher sees all", 256, 3_000, _cell(_after(found.whole, 3_000))],
    ]
    return Table(
        "4. 2,048 facts and a window of 512, asked in other words",
        ["memory", "slots", "steps", "paraphrased"],
        rows,
    )


def _composition_table(found: _Evidence) -> Table:
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
                *[_cell(_samples(sweep, prefix + name)) for name in ("composed", "leak", "only_a")],
                *[_cell(_samples(sweep, name)) for name in ("joint", "icl")],
            ]
        )
    return Table(
        "5. Documents A and B, 64 slots each, read side by side; asked about both in other words",
        ["recipe", "composed", "attention lost", "only A", "joint, p = 128", "truncated ICL"],
        rows,
        ["mixed: trained on beside slots of four other documents; A and B never meet in training"],
    )


def _logit_table(found: _Evidence) -> Table:
    rows = [
        [
            start,
            *[
                round(float(np.mean(_samples(found.logits, name, start=i))), 2)
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


def _figures(found: _Evidence) -> dict[str, Figure]:
    entries = [
        _figure("cart-icl", _samples(found.baselines, "icl paraphrased")),
        _figure("cart-recite-verbatim-p32", _of_size(found.recited, "verbatim", 32)),
        _figure("cart-recite-paraphrase", _of_size(found.recited, "paraphrased", 32)),
        _figure("cart-self-8x", _of_size(found.studied, "paraphrased", 64), _ours(found, 64)),
        beside_lecture("cart-truncate", _mean(_samples(found.baselines, "truncated 64 verbatim"))),
        _figure(
            "lin-hebb",
            _samples(found.memories, "outer_product paraphrased"),
            {"Gaussian values": _mean(_samples(found.gaussian, "outer_product paraphrased"))},
        ),
        _figure(
            "lin-lstsq",
            _samples(found.memories, "least squares paraphrased"),
            {"Gaussian values": _mean(_samples(found.gaussian, "least squares paraphrased"))},
        ),
        _figure(
            "cart-init-random",
            _samples(found.starts, "paraphrased", start=STARTS.index("random_vectors")),
        ),
        *[_figure(f"cart-{steps}", _after(found.long_run, steps)) for steps in (1000, 3000, 8000)],
    ]
    if found.chunked is not None and found.whole is not None:
        entries += [
            _figure("cart-2048-icl", _samples(found.chunked, "icl")),
            _figure("cart-2048-3000", _after(found.chunked, 3_000)),
            _figure("cart-2048-6000", _after(found.chunked, 6_000)),
            _figure("cart-2048-whole", _after(found.whole, 3_000)),
        ]
    if found.composed is not None:
        names = {"concat": "composed", "icl": "icl", "only-a": "only_a", "joint": "joint"}
        entries += [
            _figure(f"comp-{id}", _samples(found.composed, name), _ours_composed(found, name))
            for id, name in {**names, "leak": "leak"}.items()
        ]
    first, random = (STARTS.index(name) for name in ("first", "random_vectors"))
    entries += [
        beside_lecture("ex6-own-logit", _mean(_samples(found.logits, "own", start=first))),
        beside_lecture("ex6-other-logit", _mean(_samples(found.logits, "other", start=first))),
        beside_lecture("ex6-random-logit", _mean(_samples(found.logits, "other", start=random))),
    ]
    return {figure.id: figure for figure in entries}


def _mean(samples: Sequence[float]) -> float:
    return float(np.mean(samples))


def _figure(id: str, samples: Sequence[float], beside: dict[str, float] | None = None) -> Figure:
    spread: Interval = run_interval(samples)
    return beside_lecture(id, *spread, beside=beside)


def _ours(found: _Evidence, slots: int) -> dict[str, float]:
    return {"ours": _mean(_of_size(found.ours, "paraphrased", slots))} if found.ours else {}


def _ours_composed(found: _Evidence, name: str) -> dict[str, float]:
    if found.ours_composed is None:
        return {}
    mixed = f"mixed_{name}"
    metric = mixed if mixed in found.ours_composed.metrics else name
    return {"ours": _mean(_samples(found.ours_composed, metric))}


def _ours_curves(found: _Evidence) -> Sweep | None:
    return found.ours[0] if found.ours else None


def _draw_ratios(found: _Evidence) -> Any:
    def line(sweeps: Sequence[Sweep], kind: str) -> list[Interval]:
        return [mean_interval(_of_size(sweeps, kind, p)) for p in SLOTS]

    lines = {
        "recitation, asked verbatim": line(found.recited, "verbatim"),
        "recitation, in other words": line(found.recited, "paraphrased"),
        "self-study, in other words": line(found.studied, "paraphrased"),
    }
    if found.ours:
        lines["ours, in other words"] = line(found.ours, "paraphrased")
    lines["Attention Matching, in other words"] = [
        mean_interval(_samples(found.baselines, f"matched {p} paraphrased")) for p in SLOTS
    ]
    matrices = {
        "sum": _mean(_samples(found.memories, "outer_product paraphrased")),
        "least squares": _mean(_samples(found.memories, "least squares paraphrased")),
    }
    return pictures.draw_ratios(SLOTS, lines, matrices)
