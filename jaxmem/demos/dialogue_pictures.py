"""The pictures of demo 02."""

from typing import TYPE_CHECKING, Any

import numpy as np

from jaxmem import plots
from jaxmem.common import Interval
from jaxmem.demos.dialogue_evidence import GRID, Evidence
from jaxmem.demos.dialogue_prices import GPU, MODEL, prices
from jaxmem.demos.dialogue_tables import ALL, mean_reading, row_of, write_calls
from jaxmem.dialogue import LECTURE_KINDS, accuracy

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Picture

COLOURS = dict(
    zip(
        ("full context", "RAG 128 x 16", "mem0", "mem0g", "MemGPT", "mem0 v3, 20 memories"),
        plots.COLOURS,
    )
)
NOT_DRAWN = (  # lines hold the first two; the others lie on mem0g
    "RAG 2048 x 1", "RAG 128 x 16", "mem0g, Graphiti's rule", "mem0g, ranking retired",
)  # fmt: skip
LABELS = {  # where names stand beside their points
    "mem0 v3": (-10, 8),
    "mem0g": (8, -4), "mem0g, no hop": (8, -4), "mem0": (8, -4), "MemGPT": (-6, -16),
    "mem0 v3, 20 memories": (8, -12), "MemGPT + sleep": (-40, 10), "mem0 + sleep": (8, 2),
    "mem0g + sleep": (8, 2), "full context": (-30, -16), "full, alpha 0.5": (-44, -16),
    "full, alpha 1": (-40, -16), "RAG, 48 messages": (-40, 10),
}  # fmt: skip


def draw_frontier(found: Evidence) -> "Picture":
    """Accuracy against tokens read a question.

    Args:
      found: what was run.
    """
    picture, (panel,) = plots.figure(width=8.6, height=5.2)
    sizes: dict[int, list[tuple[float, Interval, int]]] = {}
    for size, count in GRID:
        judged = found.grid[f"{size} x {count}"]
        point = mean_reading(judged), accuracy(judged, LECTURE_KINDS), count
        sizes.setdefault(size, []).append(point)
    greys = dict(zip(sizes, ("#a4283c", "#c9566a", "#dd8794", "#e8a9b2")))
    for size, points in sizes.items():
        read = [tokens for tokens, _, _ in points]
        intervals = [interval for _, interval, _ in points]
        mean, low, high = np.array(intervals).T
        panel.errorbar(
            read, mean, [mean - low, high - mean], marker="o", ms=4, color=greys[size], lw=1.2,
            label=f"RAG, x chunks of {size:,} tokens",
        )  # fmt: skip
        for at, interval, count in points:
            panel.annotate(
                f"x {count}", (at, interval.mean), (5, -9), textcoords="offset points",
                fontsize=7, color=greys[size],
            )  # fmt: skip
    for name, judged in found.main.items():
        if name in NOT_DRAWN:
            continue
        x = mean_reading(judged)
        mean, low, high = accuracy(judged, LECTURE_KINDS)
        colour = _colour(name)
        panel.errorbar([x], [mean], [[mean - low], [high - mean]], marker="D", ms=5, color=colour)
        panel.annotate(
            name, (x, mean), LABELS.get(name, (8, -4)), textcoords="offset points", fontsize=8,
            color=colour,
        )  # fmt: skip
    panel.set_xscale("log")
    panel.set_xlim(100, 45_000)
    panel.set(
        title=f"{len(judged.mask):,} conversations of 26,000 tokens (95 % by conversation)",
        xlabel="tokens read a question",
        ylabel="right: now, before, two hops",
        ylim=(0, 1.04),
    )
    panel.legend(frameon=False, fontsize=8, loc="lower right")
    return picture


def _colour(name: str) -> str:
    stem = name.replace("full, alpha 0.5", "full context").replace("full, alpha 1", "full context")
    stem = stem.replace("RAG, 48 messages", "RAG 128 x 16").replace(", no hop", "")
    return COLOURS.get(stem.removesuffix(" + sleep"), plots.COLOURS[-1])


def draw_errors(found: Evidence) -> "Picture":
    """Accuracy by the rate of one error, all others perfect.

    Args:
      found: what was run.
    """
    picture, panels = plots.figure(columns=3, width=3.4, height=3.5)
    parts = (
        (found.extraction, "recall", "mem0", "facts that extraction finds"),
        (found.extraction, "change_as_known", "mem0", "changes taken for known"),
        (found.overlooking, "alpha", "full context", "alpha: lost in the middle"),
    )
    kinds = {ALL: "all three", "current": "now", "previous": "before", "two_hop": "two hops"}
    lecture = {"recall": (0.7, 0.674), "change_as_known": (0.6, 0.681)}
    for panel, (rows, rate, title, xlabel) in zip(panels, parts):
        values = sorted({row["value"] for row in rows if row["rate"] == rate})
        for colour, (kind, label) in zip(plots.COLOURS, kinds.items()):
            line = [row_of(rows, rate, value, kind) for value in values]
            _band(panel, values, line, colour, label)
        marks, what = [(0.5, 0.877), (1.0, 0.689)], "all three"
        if rate in lecture:
            marks, what = [lecture[rate]], "now"
        panel.plot(*zip(*marks), "k*", ms=8, label=f"lecture ({what})")
        panel.set(title=title, xlabel=xlabel, ylim=(-0.02, 1.03))
        if rate == "recall":
            panel.invert_xaxis()
        panel.legend(frameon=False, fontsize=8, loc="lower left")
    panels[0].set_ylabel("right (band: 95 %)")
    return picture


def draw_lengths(found: Evidence) -> "Picture":
    """Accuracy, tokens read and calls to write, by length of the conversation.

    Args:
      found: what was run.
    """
    picture, panels = plots.figure(columns=3, width=3.4, height=3.5)
    lengths = sorted(found.lengths)
    for name in found.lengths[1]:
        judged = [found.lengths[length][name] for length in lengths]
        style = "--" if "retired" in name else "-"
        colour = COLOURS.get(name.split(", ranking")[0], "0.4")
        _band(panels[0], lengths, [accuracy(j, LECTURE_KINDS) for j in judged], colour, name, style)
        panels[1].plot(
            lengths, [mean_reading(j) for j in judged], style, marker="o", ms=3, color=colour
        )
        if "retired" not in name and write_calls(judged[0]).mean:
            calls = [write_calls(j).mean for j in judged]
            panels[2].plot(lengths, calls, style, marker="o", ms=3, color=colour)
    titles = (
        "right: now, before, two hops",
        "tokens read a question",
        "calls to write (or none)",
    )
    for panel, title in zip(panels, titles):
        panel.set_xscale("log", base=2)
        panel.set_xticks(lengths, [f"x {n}\n{26 * n}k" for n in lengths])
        panel.set_title(title, fontsize=11)
        panel.set_xlabel("length, tokens")
    panels[0].set_ylim(0, 1.03)
    panels[1].set_yscale("log")
    panels[2].set_yscale("log")
    panels[0].legend(frameon=False, fontsize=7.5, loc="lower left", handlelength=2.6)
    return picture


def draw_slopes(found: Evidence) -> "Picture":
    """What a point of each error costs.

    Args:
      found: what was run.
    """
    picture, panels = plots.figure(columns=len(found.slopes), width=3.4, height=3.6)
    most = max(sum(row["kind"] == ALL for row in rows) for rows in found.slopes.values())
    for panel, (name, records) in zip(panels, found.slopes.items()):
        rows = [row for row in records if row["kind"] == ALL][::-1]
        mean, low, high = (np.array([row[k] for row in rows]) for k in ("slope", "low", "high"))
        panel.barh(
            [row["rate"] for row in rows], mean, xerr=[mean - low, high - mean],
            color=_colour(name), height=0.6, capsize=2,
        )  # fmt: skip
        panel.set(title=name, xlim=(-1.5, 0.5), ylim=(len(rows) - most - 0.5, len(rows) - 0.5))
        panel.set_xlabel("points of accuracy a point", fontsize=9)
    return picture


def draw_cost(found: Evidence) -> "Picture":
    """GPU seconds of a conversation by the number of questions, without and with kept prefixes.

    Args:
      found: what was run.
    """
    picture, panels = plots.figure(columns=2, width=5.0, height=4.0)
    questions = np.geomspace(1, 3_000, 60)
    for panel, cached in zip(panels, (False, True)):
        for row in prices(found):
            if row["system"] not in COLOURS:
                continue
            end = "_cached" if cached else ""
            total = row["write_s" + end] + questions * row["read_s" + end]
            style = "--" if row["system"] == "full context" else "-"
            front = 3 if style == "--" else 2
            colour = COLOURS[row["system"]]
            panel.plot(questions, total, style, color=colour, label=row["system"], zorder=front)
        panel.set_xscale("log")
        panel.set_yscale("log")
        panel.set_ylim(0.03, 3_000)
        title = "prefixes kept between questions" if cached else "nothing kept"
        panel.set(title=title, xlabel="questions about a conversation")
    panels[0].set_ylabel(f"GPU seconds in all\n({MODEL.name}, {GPU.name})")
    panels[0].legend(frameon=False, fontsize=8, handlelength=2.6)
    return picture


def _band(
    panel: "Axes", x: Any, line: list[Interval], colour: str, label: str, style: str = "-"
) -> None:
    mean, low, high = np.array(line).T
    panel.plot(x, mean, style, marker="o", ms=3, color=colour, label=label)
    panel.fill_between(x, np.maximum(low, 0), np.minimum(high, 1), color=colour, alpha=0.2, lw=0)
