"""The pictures of demo 04."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from jaxmem import plots
from jaxmem.common import Interval
from jaxmem.demos.cartridge_runs import COSINE, DIM, FACTS
from jaxmem.recall import limits
from jaxmem.sweep import Sweep

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

METHODS = dict(
    zip(
        (
            "recitation, asked verbatim",
            "recitation, in other words",
            "self-study, in other words",
            "ours, in other words",
            "Attention Matching, in other words",
        ),
        plots.COLOURS,
    )
)


def draw_ratios(
    slots: Sequence[int], lines: Mapping[str, Sequence[Interval]], matrices: Mapping[str, float]
) -> "Picture":
    """Recall by size, with the limits that theory sets.

    Args:
      slots: sizes.
      lines: accuracy at each size, by label.
      matrices: accuracy of linear memories of 4,096 floats, by label.
    """
    picture, (panel,) = plots.figure(width=8.2, height=5.0)
    fine = np.geomspace(slots[0] * 0.9, slots[-1] * 1.1, 100)
    for bits, word, style in (
        (limits.EMPIRICAL_BITS, "2 bits (empirical ceiling)", ":"),
        (1.0, "1 bit", "-."),
    ):
        bound = limits.information_accuracy(2 * DIM * fine, FACTS, FACTS, bits)
        label = f"information at {word} a float"
        panel.plot(fine, bound, style, color="0.45", label=label)
    panel.plot(fine, np.minimum(fine / FACTS, 1), "--", color="0.65", label="truncation, p / N")
    for i, (label, points) in enumerate(lines.items()):
        colour = METHODS[label]
        mean, low, high = np.array(points).T
        error = [mean - np.maximum(low, 0), np.minimum(high, 1) - mean]
        beside = np.array(slots) * 1.02 ** (i - 2)  # so that bars do not hide each other
        panel.errorbar(beside, mean, error, marker="o", capsize=3, color=colour, label=label)
    theory = {"sum": limits.sum_accuracy, "least squares": limits.least_squares_accuracy}
    for marker, style, (name, value) in zip("sD", ("-", "--"), matrices.items()):
        # A square matrix of as many floats as the slots; its side need not be whole in theory.
        line = theory[name](FACTS, np.sqrt(2 * DIM * fine), cosine=COSINE)
        panel.plot(fine, line, style, color="k", lw=0.8, label=f"matrix, {name}: theory")
        panel.plot([DIM / 2], [value], marker, color="k", ms=5, label=f"64 x 64 matrix, {name}")
    panel.set_xscale("log", base=2)
    panel.set_xticks(slots, [f"{p}\n{FACTS / p:g}x" for p in slots])
    panel.set(
        title=f"Recall of {FACTS} facts (mean and 95 % interval over seeds)",
        xlabel="slots, and compression",
        ylabel="share recalled",
        ylim=(0, 1.03),
    )
    panel.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return picture


def draw_training(lecture: Sweep, setting: int, ours: Sweep | None) -> "Picture":
    """Accuracy, length of the keys and entropy of the attention over training.

    Args:
      lecture: runs with histories.
      setting: number of the one with p = 64.
      ours: runs of ours, of several sizes, or None.
    """
    picture, panels = plots.figure(columns=3, width=4.2, height=3.6)
    titles = {
        "paraphrased_curve": "recalled, in other words",
        "key_norm_curve": "mean length of the slots' keys",
        "entropy_curve": "entropy of the attention, nats",
    }
    for panel, (name, title) in zip(panels, titles.items()):
        steps = lecture.arrays["step_curve"][0, setting]
        _band(panel, steps, lecture.arrays[name][:, setting], plots.COLOURS[0], "lecture, p = 64")
        if ours is not None:
            sizes = [row["slots"] for row in ours.records if row["seed"] == ours.records[0]["seed"]]
            for i, p in enumerate(sizes):
                steps = ours.arrays["step_curve"][0, i]
                _band(panel, steps, ours.arrays[name][:, i], plots.COLOURS[i + 1], f"ours, p = {p}")
        panel.set(title=title, xlabel="steps (band: lowest to highest seed)")
        panel.set_ylim(bottom=0)
    panels[0].legend(frameon=False, fontsize=8)
    return picture


def draw_composition(lecture: Sweep, ours: Sweep | None) -> "Picture":
    """How much attention questions keep on their own document's slots.

    Args:
      lecture: the composition under the lecture's recipe.
      ours: under ours, or None.
    """
    picture, (panel,) = plots.figure(width=7.0)
    lines = {"lecture, trained apart": (lecture, "own_share_curve", "composed", "leak")}
    if ours is not None:
        lines["ours, trained apart"] = (ours, "own_share_curve", "composed", "leak")
        lines["ours, mixed with others"] = (
            ours, "mixed_own_share_curve", "mixed_composed", "mixed_leak",
        )  # fmt: skip
    for colour, (label, (sweep, curve, right, leak)) in zip(plots.COLOURS, lines.items()):
        shares = sweep.arrays[curve][:, 0]  # [seeds, questions], sorted
        at = np.linspace(0, 100, shares.shape[1])
        recalled, lost = (np.mean([row[name] for row in sweep.records]) for name in (right, leak))
        panel.plot(
            at, shares.mean(0), color=colour,
            label=f"{label}: recalls {recalled:.2f}, loses {lost:.2f}",
        )  # fmt: skip
    panel.axhline(0.5, color="0.6", lw=0.8, ls=":")
    panel.set(
        title="Where the attention goes when A and B are read together",
        xlabel="questions, % (sorted)",
        ylabel="share on the slots of its own document",
        ylim=(0, 1.02),
    )
    panel.legend(frameon=False, fontsize=8, loc="lower right")
    return picture


def _band(panel: object, steps: np.ndarray, runs: np.ndarray, colour: str, label: str) -> None:
    """A line for the mean of runs [seeds, R] and a band from the lowest to the highest."""
    panel.plot(steps, runs.mean(0), color=colour, label=label)  # type: ignore[attr-defined]
    panel.fill_between(steps, runs.min(0), runs.max(0), color=colour, alpha=0.2, lw=0)  # type: ignore[attr-defined]
