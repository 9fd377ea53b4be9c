"""The tables of demo 02."""

from typing import Any

import numpy as np

from jaxmem.common import Interval, clustered_interval, smaller_run
from jaxmem.demos.dialogue_evidence import (
    CONSOLIDATE_EVERY,
    LECTURE_SIZE,
    LECTURE_SIZE_LONG,
    Evidence,
)
from jaxmem.demos.result import Table
from jaxmem.dialogue import LECTURE_KINDS, Judged, accuracy, compare, per_question
from jaxmem.dialogue.error_sweep import ALL
from jaxmem.dialogue.systems import PURPOSES
from jaxmem.results import Record


def all_tables(found: Evidence) -> list[Table]:
    """Every table that the evidence has rows for.

    Args:
      found: what was run.

    Returns:
      Tables in order.
    """
    tables = [_system_table(found), _write_table(found), _grid_table(found), _error_table(found)]
    if found.lengths:
        tables.append(_length_table(found))
    if found.slopes:
        tables.append(_slope_table(found))
    return tables


def mean_reading(judged: Judged) -> float:
    """Tokens read a question, over the lecture's kinds.

    Args:
      judged: a system.

    Returns:
      The mean.
    """
    return per_question(judged, judged.read.read_tokens, LECTURE_KINDS).mean


def mean_calls(judged: Judged) -> Interval:
    """Calls a question, over the lecture's kinds.

    Args:
      judged: a system.

    Returns:
      The mean with its 95 % interval.
    """
    return per_question(judged, judged.read.calls.sum(-1), LECTURE_KINDS)


def write_calls(judged: Judged, *purposes: str) -> Interval:
    """Calls to write a conversation.

    Args:
      judged: a system.
      purposes: of which kinds; all if none is named.

    Returns:
      The mean with its 95 % interval.
    """
    chosen = [PURPOSES.index(name) for name in purposes or PURPOSES]
    calls = np.asarray(judged.write.calls)[:, chosen].sum(1)
    return clustered_interval(calls, np.ones(len(calls)))


def row_of(rows: list[Record], rate: str, value: float, kind: str) -> Interval:
    """One entry of an error sweep.

    Args:
      rows: from `error_sweep`.
      rate, value: of the entry.
      kind: of question.

    Returns:
      Accuracy with its 95 % interval.
    """
    row = next(r for r in rows if (r["rate"], r["value"], r["kind"]) == (rate, value, kind))
    return Interval(row["accuracy"], row["low"], row["high"])


def cell(interval: Interval) -> str:
    """An accuracy and half its 95 % interval.

    Args:
      interval: of a mean.

    Returns:
      Text such as "0.895 +- 0.004".
    """
    return f"{interval.mean:.3f} +- {interval.high - interval.mean:.3f}"


def _system_table(found: Evidence) -> Table:
    rows: list[list[Any]] = []
    for name, judged in found.main.items():
        every = accuracy(judged, LECTURE_KINDS)
        band = smaller_run(every, len(judged.mask), LECTURE_SIZE)
        rows.append(
            [
                name,
                *[round(accuracy(judged, kind).mean, 3) for kind in LECTURE_KINDS],
                cell(every),
                f"{band.low:.3f} .. {min(band.high, 1.0):.3f}",
                round(accuracy(judged, "as_of").mean, 3),
                round(mean_reading(judged)),
                round(mean_calls(judged).mean, 2),
            ]
        )
    count = len(next(iter(found.main.values())).mask)
    pairs = (
        ("RAG 128 x 16", "mem0g"),
        ("MemGPT", "mem0g"),
        ("full, alpha 0.5", "mem0g"),
        ("mem0 v3", "mem0g"),
        ("mem0 v3, 20 memories", "mem0g"),
    )
    notes = [compare(found.main[a], found.main[b], LECTURE_KINDS).words for a, b in pairs]
    return Table(
        f"What is remembered, {count:,} conversations of 26,000 tokens",
        [
            "system",
            "now",
            "before",
            "two hops",
            "all three",
            "of ten, 95 %",
            "as of",
            "read",
            "calls",
        ],
        rows,
        [
            "now: what is X; before: what was X before; two hops: the home town of the partner,"
            " whose name stands elsewhere; all three: of these; as of: what X was at an earlier"
            " time; read, calls: tokens and model calls a question",
            "of ten: where the mean of ten conversations lies in 95 % of cases (the lecture's)",
            "alpha: how much of the middle of a long prompt the reader overlooks; mem0: v1, which"
            " replaces old values; v3: keeps all; mem0g: its graph, which retires old values and"
            " follows persons (a hop); Graphiti's rule: retires only what is dated (here all is);"
            " ranking retired: retired values compete for the places (which tells as conversations"
            " grow); sleep: a second look in the background every 20 messages",
            f"asked what was never said, all say so: {_abstention(found)}",
            *notes,
        ],
    )


def _abstention(found: Evidence) -> str:
    lowest = min(accuracy(judged, "unanswerable").mean for judged in found.main.values())
    return f"{lowest:.3f} at least; made-up memories (a precision below 1) change that"


def _write_table(found: Evidence) -> Table:
    rows: list[list[Any]] = []
    for name, judged in found.main.items():
        calls = np.asarray(judged.write.calls).mean(0)
        if not calls.any():
            continue
        tokens = np.asarray(judged.write.prefill_tokens).sum(1).mean()
        made = np.asarray(judged.write.generated_tokens).sum(1).mean()
        rows.append([name, *[round(float(c), 1) for c in calls[:4]], round(tokens), round(made)])
    return Table(
        "What writing one conversation costs",
        ["system", *PURPOSES[:4], "prompt tokens", "generated"],
        rows,
        [f"columns: calls by purpose; sleep: consolidation every {CONSOLIDATE_EVERY} messages"],
    )


def _grid_table(found: Evidence) -> Table:
    rows: list[list[Any]] = []
    for name, judged in found.grid.items():
        rows.append(
            [
                name,
                round(mean_reading(judged)),
                cell(accuracy(judged, LECTURE_KINDS)),
                *[round(accuracy(judged, kind).mean, 3) for kind in LECTURE_KINDS],
                *[round(share, 3) for share in failures(judged, True)],
                *[round(share, 3) for share in failures(judged, False)],
            ]
        )
    return Table(
        f"RAG by chunk size x count, {len(judged.mask):,} conversations",
        [
            "chunks", "read", "all three", "now", "before", "two hops",
            "stale", "nothing", "stale (static)", "nothing (static)",
        ],
        rows,
        [
            "stale, nothing: of the questions about a current value that has changed, the share"
            " answered with an old one and the share not found; (static): of one that has not",
            "at about 2,000 tokens 16 small chunks beat one large one many times over; accuracy"
            " rises with what is read: no U-shape, as in the lecture",
        ],
    )  # fmt: skip


def failures(judged: Judged, changed: bool) -> tuple[float, float]:
    """How questions about current values fail, of those that changed or of those that did not.

    Args:
      judged: a system.
      changed: which.

    Returns:
      (share answered with another value, share not answered).
    """
    asked = judged.mask & (judged.kind == 0) & (judged.changed == changed)
    stale = asked & ~judged.right & ~judged.nothing
    return float(stale.sum() / asked.sum()), float((asked & judged.nothing).sum() / asked.sum())


def _error_table(found: Evidence) -> Table:
    rows: list[list[Any]] = []
    usual = found.extraction_usual
    sweeps = (
        ("mem0: extraction recall", "recall", found.extraction),
        ("mem0: a change taken for known", "change_as_known", found.extraction),
        ("full context: alpha", "alpha", found.overlooking),
    )
    for label, rate, records in sweeps:
        for value in [r["value"] for r in records if (r["rate"], r["kind"]) == (rate, ALL)]:
            cells = [cell(row_of(records, rate, value, kind)) for kind in ("current", ALL)]
            if usual:
                beside = row_of(usual, rate, value, "current") if rate != "alpha" else None
                cells.append(cell(beside) if beside else "-")
            rows.append([label, value, *cells])
    return Table(
        "When parts err (all others perfect)",
        ["error", "rate", "now", "all three", *(["now, usual errors beside"] if usual else [])],
        rows,
        [
            "of mem0 under recall r alone, current values are right with probability r; under a"
            " rate e of changes taken for known, with 1 - 0.55 e, as 55 in 100 have changed",
        ],
    )


def _length_table(found: Evidence) -> Table:
    rows: list[list[Any]] = []
    for length, systems in found.lengths.items():
        for name, judged in systems.items():
            every = accuracy(judged, LECTURE_KINDS)
            rows.append(
                [
                    f"x {length}",
                    name,
                    cell(every),
                    *[round(accuracy(judged, kind).mean, 3) for kind in LECTURE_KINDS],
                    round(mean_reading(judged)),
                    round(mean_calls(judged).mean, 2),
                    round(write_calls(judged).mean),
                ]
            )
    return Table(
        f"Longer conversations, at least {len(judged.mask):,} of each; window of 128,000 tokens",
        ["length", "system", "all three", "now", "before", "two hops", "read", "calls", "to write"],
        rows,
        _length_notes(found),
    )


def _length_notes(found: Evidence) -> list[str]:
    shortest, longest = min(found.lengths), max(found.lengths)

    def lost(name: str) -> float:
        ends = [
            accuracy(found.lengths[length][name], LECTURE_KINDS).mean
            for length in (shortest, longest)
        ]
        return ends[0] - ends[1]

    text = ", ".join(
        f"{name} {lost(name):.2f}" for name in ("full context", "mem0g", "MemGPT", "RAG 128 x 16")
    )
    band = smaller_run(
        accuracy(found.lengths[longest]["mem0g"], LECTURE_KINDS),
        len(found.lengths[longest]["mem0g"].mask),
        LECTURE_SIZE_LONG,
    )
    return [
        f"lost from x {shortest} to x {longest}: {text}; of full context, mem0g and MemGPT, MemGPT"
        " falls fastest; RAG of a fixed size falls faster still",
        f"the lecture ran three conversations a length: mem0g at x {longest} would lie in"
        f" {band.low:.2f} .. {band.high:.2f}",
    ]


def _slope_table(found: Evidence) -> Table:
    kinds = (ALL, "current", "previous", "two_hop", "unanswerable")
    rows: list[list[Any]] = []
    for name, records in found.slopes.items():
        for rate in dict.fromkeys(row["rate"] for row in records):
            of_kind = {row["kind"]: row for row in records if row["rate"] == rate}
            first = of_kind[ALL]
            half = first["high"] - first["slope"]
            rows.append(
                [
                    name,
                    rate,
                    f"{first['slope']:+.2f} +- {half:.2f}",
                    *[round(of_kind[kind]["slope"], 2) + 0.0 for kind in kinds[1:]],
                ]
            )
    return Table(
        "Which judgement must be right: points of accuracy by one point more of an error",
        ["system", "error", "all three", "now", "before", "two hops", "unanswerable"],
        rows,
        [
            "on the same conversations and draws, from the rates of the first table, by 5 points",
            "recall, precision: a point less; stop_early: the agent gives up after a page",
        ],
    )
