"""The pictures of demo 03."""

from typing import TYPE_CHECKING

import numpy as np

from jaxmem import plots
from jaxmem.common import mean_interval
from jaxmem.demos.session_evidence import Evidence, crossing
from jaxmem.demos.session_tables import LAYOUT_NAMES, layout
from jaxmem.sessions.adaptation import VARIANTS
from jaxmem.sessions.layouts import LAYOUTS

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

CAUSES = {
    "new": "new",
    "memory": "behind an edit of the working context",
    "eviction": "behind an eviction",
}
LAYOUT_COLOURS = dict(zip(LAYOUTS, plots.COLOURS))
SMOOTHED = 25  # calls


def draw_causes(found: Evidence) -> "Picture":
    """Prefill by cause, for each evicted share.

    Args:
      found: what was run.

    Returns:
      The picture.
    """
    picture, (panel,) = plots.figure(width=7.2, height=4.2)
    names = [f"{share:.0%}" for share in found.evicted]
    bottom = np.zeros(len(names))
    for (cause, label), colour in zip(CAUSES.items(), plots.COLOURS):
        parts = [layout(s, "front", f"{cause}_tokens").mean() / 1e3 for s in found.evicted.values()]
        panel.bar(names, parts, bottom=bottom, color=colour, width=0.6, label=label)
        bottom += parts
    half = [
        (lambda i: (i.high - i.mean) / 1e3)(
            mean_interval(layout(s, "front", "prefill_tokens"))
        )
        for s in found.evicted.values()
    ]  # fmt: skip
    panel.errorbar(names, bottom, half, fmt="none", ecolor="black", capsize=3, lw=1)
    for x, top in enumerate(bottom):
        panel.annotate(f"{top:,.0f}k", (x, top), (0, 5), textcoords="offset points", ha="center")
    panel.set(
        title="One session of 600 rounds in a window of 8,000 tokens",
        xlabel="evicted at a time, share of the window",
        ylabel="thousand tokens prefilled",
    )
    panel.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    panel.legend(frameon=False)
    return picture


def draw_reuse(found: Evidence) -> "Picture":
    """Share of each prompt that is reused, over the calls of one session.

    Args:
      found: what was run.

    Returns:
      The picture.
    """
    picture, (panel,) = plots.figure(width=9, height=4)
    trace, made = found.trace, found.trace.made.reshape(-1)
    evicted = trace.evicted.reshape(-1)[made]
    for name in ("front", "last", "log"):
        k = LAYOUTS.index(name)
        total, *parts = (
            x.reshape(-1, len(LAYOUTS))[made, k]
            for x in (
                trace.prompt_tokens,
                trace.new_tokens,
                trace.memory_tokens,
                trace.eviction_tokens,
            )
        )
        window = np.ones(SMOOTHED)
        computed, prompts = (np.convolve(x, window, "valid") for x in (np.sum(parts, 0), total))
        panel.plot(
            np.arange(len(computed)) + SMOOTHED // 2,
            1 - computed / prompts,
            color=LAYOUT_COLOURS[name],
            label=LAYOUT_NAMES[name],
            lw=1.4,
        )
    for n, call in enumerate(np.flatnonzero(evicted).tolist()):
        label = "eviction" if n == 0 else None
        panel.axvline(call, color=plots.COLOURS[5], lw=0.7, ls=":", label=label)
    panel.set(
        title=f"Reuse over one session, mean of {SMOOTHED} calls",
        xlabel="call",
        ylabel="reused of the prompt",
        ylim=(0.5, 1),
    )
    panel.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    panel.legend(frameon=True, framealpha=0.9, loc="lower right", fontsize=8)
    return picture


def draw_history(found: Evidence) -> "Picture":
    """Prefill against the history that is kept, and the layouts against how often facts are saved.

    Args:
      found: what was run.

    Returns:
      The picture.
    """
    picture, (kept, saved) = plots.figure(columns=2, width=6, height=4.4)
    for name in LAYOUTS:
        x = [layout(s, name, "context_tokens").mean() for s in found.evicted.values()]
        y = [layout(s, name, "prefill_tokens").mean() / 1e3 for s in found.evicted.values()]
        kept.plot(x, y, "o-", color=LAYOUT_COLOURS[name], label=LAYOUT_NAMES[name], ms=4)
        if name == "front":
            for share, point in zip(found.evicted, zip(x, y)):
                kept.annotate(
                    f"{share:.0%}", point, (0, 7), textcoords="offset points", ha="center"
                )
        shares = list(found.at_once)
        intervals = [
            mean_interval(layout(s, name, "prefill_tokens") / 1e3) for s in found.at_once.values()
        ]
        mean, low, high = np.array(intervals).T
        saved.errorbar(
            shares, mean, [mean - low, high - mean], fmt="o-", ms=4, color=LAYOUT_COLOURS[name],
            label=LAYOUT_NAMES[name],
        )  # fmt: skip
    where = crossing(found)
    saved.axvspan(where.low, where.high, color=plots.COLOURS[5], alpha=0.25, lw=0)
    saved.annotate(
        f"last costs less\nfrom {where.mean:.2f} on", (where.high, 60), (6, 0),
        textcoords="offset points", fontsize=8, color=plots.COLOURS[5],
    )  # fmt: skip
    kept.set(
        title="Cost against history kept (labels: evicted at a time)",
        xlabel="mean main context, tokens",
        ylabel="thousand tokens prefilled",
        yscale="log",
        ylim=(70, 2_200),
    )
    kept.set_yticks([100, 200, 500, 1_000, 2_000])
    kept.minorticks_off()
    kept.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    kept.xaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    saved.set(
        title="Layouts (evicted: 50 %)",
        xlabel="share of facts saved at once",
        ylabel="thousand tokens prefilled",
        ylim=(0, None),
    )
    saved.legend(
        frameon=True, framealpha=1, fontsize=8, loc="center right", bbox_to_anchor=(1, 0.4)
    )
    return picture


def draw_playbook(found: Evidence) -> "Picture":
    """Reuse over the tasks for each way to keep the playbook.

    Args:
      found: what was run.

    Returns:
      The picture.
    """
    picture, (panel,) = plots.figure(width=8.4, height=4.4)
    book = found.playbook
    tasks = np.arange(book.prompt_tokens.shape[-1])
    shown = ("append", "refined", "sections", "counters", "rewrite")
    for name, colour in zip(shown, plots.COLOURS):
        v = VARIANTS.index(name)
        share = book.reused_tokens[:, v] / book.prompt_tokens[:, v]
        half = 1.96 * share.std(0) / np.sqrt(found.seeds)
        mean = share.mean(0)[1:]
        panel.plot(tasks[1:], mean, color=colour, lw=1.3)
        panel.fill_between(
            tasks[1:], mean - half[1:], mean + half[1:], color=colour, alpha=0.2, lw=0
        )
        panel.annotate(
            f"{name}: {book.reuse[:, v].mean():.1%}", (tasks[-1], share.mean(0)[-20:].mean()),
            (6, -12 if name == "refined" else -3), textcoords="offset points", color=colour,
        )  # fmt: skip
    panel.set(
        title="How much of each prompt is reused (mean, 95 %)",
        xlabel="task",
        ylabel="reused of the prompt",
        ylim=(0, 1.02),
        xlim=(0, len(tasks) * 1.22),
        xticks=range(0, len(tasks) + 1, 50),
    )
    panel.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    return picture
