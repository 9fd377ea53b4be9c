"""The tables of demo 03."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from jaxmem.common import mean_interval, run_interval
from jaxmem.demos.result import Table
from jaxmem.demos.session_evidence import ERRORS, GPU, MODEL, Evidence, crossing
from jaxmem.sessions.adaptation import VARIANTS
from jaxmem.sessions.feedback import KEEPING
from jaxmem.sessions.layouts import LAYOUTS
from jaxmem.sessions.serving import COPIES
from jaxmem.sessions.session import Session

LAYOUT_NAMES = {
    "front": "working context in front (paper)",
    "last": "working context last",
    "log": "edits appended, merged at eviction",
    "frozen": "frozen until eviction",
}
ROLE_NAMES = ("generator", "reflector", "curator")


def all_tables(found: Evidence) -> list[Table]:
    """Every table.

    Args:
      found: what was run.

    Returns:
      Tables in order.
    """
    return [
        _prefill_table(found),
        _evicted_table(found),
        _layout_table(found),
        _playbook_table(found),
        _preset_table(found),
        _pollution_table(found),
        _served_table(found),
    ]


def layout(session: Session, name: str, field: str) -> np.ndarray:
    """One layout's column of a session's totals.

    Args:
      session: totals of N sessions.
      name: one of `LAYOUTS`.
      field: "prefill_tokens", say.

    Returns:
      [N] numbers.
    """
    return np.asarray(getattr(session, field))[..., LAYOUTS.index(name)]


def tokens(samples: ArrayLike) -> str:
    """A mean number of tokens with half its 95 % interval.

    Args:
      samples: [N].

    Returns:
      Text such as "509.1k +- 6.0k", or "7,213 +- 27" below 10,000.
    """
    mean, _, high = mean_interval(samples)
    if mean < 1e4:
        return f"{mean:,.0f} +- {high - mean:,.0f}"
    return f"{mean / 1e3:,.1f}k +- {(high - mean) / 1e3:.1f}k"


def plain(samples: ArrayLike, digits: int = 3) -> str:
    """A mean with half its 95 % interval.

    Args:
      samples: [N].
      digits: after the point.

    Returns:
      Text such as "0.887 +- 0.001".
    """
    mean, _, high = mean_interval(samples)
    return f"{mean:,.{digits}f} +- {high - mean:.{digits}f}"


def _run(samples: ArrayLike, unit: float = 1.0, digits: int = 0) -> str:
    _, low, high = run_interval(samples)
    return f"{low / unit:,.{digits}f} .. {high / unit:,.{digits}f}"


def _prefill_table(found: Evidence) -> Table:
    session = found.main
    whole = layout(session, "front", "prefill_tokens")
    rows: list[list[Any]] = []
    for name, field in (
        ("new", "new_tokens"),
        ("behind an edit of the working context", "memory_tokens"),
        ("behind an eviction", "eviction_tokens"),
        ("prefilled in all", "prefill_tokens"),
        ("prompts", "prompt_tokens"),
    ):
        part = layout(session, "front", field)
        rows.append([name, tokens(part), f"{np.mean(part) / np.mean(whole):.3f}", _run(part, 1e3)])
    notes = [
        f"{plain(session.calls, 0)} calls ({_run(session.calls)}), {plain(session.edits, 1)} edits,"
        f" {plain(session.evictions, 1)} evictions; the cache saves"
        f" {plain(layout(session, 'front', 'saved'))} of the prefill",
        f"the summariser reads {tokens(session.summariser_tokens)} more, in a call an eviction,"
        " which the lecture does not count",
    ]
    return Table(
        f"Where the prefill of a MemGPT session goes ({found.seeds} sessions, +- 95 % of the mean)",
        ["tokens", "a session", "of prefill", "95 % of sessions, k"],
        rows,
        notes,
    )


def _evicted_table(found: Evidence) -> Table:
    rows = [
        [
            f"{share:.0%}",
            plain(session.evictions, 1),
            tokens(layout(session, "front", "prefill_tokens")),
            tokens(layout(session, "front", "eviction_tokens")),
            tokens(layout(session, "front", "memory_tokens")),
            plain(layout(session, "front", "context_tokens"), 0),
            plain(session.edits, 1),
            tokens(layout(session, "log", "prefill_tokens")),
        ]
        for share, session in found.evicted.items()
    ]
    return Table(
        "How much to evict at a time (share of the window)",
        ["evicted", "evictions", "prefill", "by evictions", "by edits", "main context",
         "edits", "appended"],
        rows,
        ["main context: mean prompt of a call, tokens; the last column is the prefill of the layout"
         " that appends edits, with the same evictions"],
    )  # fmt: skip


def _layout_table(found: Evidence) -> Table:
    rows = [
        [f"{share:g}", plain(session.edits, 0)]
        + [tokens(layout(session, name, "prefill_tokens")) for name in LAYOUTS]
        for share, session in found.at_once.items()
    ]
    where = crossing(found)
    little = [
        share
        for share, session in found.evicted.items()
        if layout(session, "last", "prefill_tokens").mean()
        < layout(session, "front", "prefill_tokens").mean()
    ]
    last = found.main.working_tokens / found.main.calls
    return Table(
        "Layouts, by the share of facts that are saved at once: tokens prefilled",
        ["saved at once", "edits", "in front (paper)", "last", "edits appended", "frozen"],
        rows,
        [
            f"the working context last costs more than in front up to {where.mean:.2f} saved at"
            f" once ({where.low:.2f} .. {where.high:.2f}), less beyond: it recomputes"
            f" {plain(last, 0)} tokens in each call, in front thousands at each edit; at 0.2 saved"
            f" at once it costs less where {max(little, default=0):.0%} or less is evicted",
            "edits appended: each waits as a note at the tail until an eviction merges it; the"
            " cheapest of the lecture's three (in front, last, appended) at every share; frozen is"
            " ours: there the call's own record in the queue is all that shows an edit until then",
        ],
    )


def _playbook_table(found: Evidence) -> Table:
    book = found.playbook
    base = VARIANTS.index("append")
    rows = []
    for v, name in enumerate(VARIANTS):
        ratios = [gpu_s[:, v] / gpu_s[:, base] for gpu_s in found.gpu_s.values()]
        rows.append(
            [
                name,
                plain(book.reuse[:, v]),
                tokens(book.written_tokens[:, v].sum(-1)),
                *(plain(ratio, 2) for ratio in ratios),
                plain(book.bullets[:, v], 0),
                plain(book.lost[:, v], 0),
            ]
        )
    calls = found.roles.calls[:, base]
    official = ", ".join(f"{name} {calls[:, r].mean():,.0f}" for r, name in enumerate(ROLE_NAMES))
    return Table(
        f"The playbook over {book.prompt_tokens.shape[-1]} tasks",
        ["kept as", "reuse", "tokens written", "GPU time, flat", "with KV read", "bullets", "lost"],
        rows,
        [
            "append: bullets join the end of one list; counters: each bullet shows its counts;"
            " sections: the official seven, a bullet joins the end of its own; refined: duplicates"
            " leave every 50 tasks; merged: and their originals are rewritten; rewrite: all is"
            " written anew after each task; collapse: and 1 in 133 times shrinks to a summary",
            "lost: bullets that collapses have lost; GPU time over that of append: both sides count"
            " the generator's own 300 tokens an answer and no reflector, as the lecture's 11.7"
            " does; flat: each token takes the step of an empty context",
            f"calls as the official code makes them, 40 % of first answers wrong: {official}",
        ],
    )


def _preset_table(found: Evidence) -> Table:
    rows = [
        [
            name,
            plain(session.calls, 0),
            plain(session.evictions, 1),
            plain(layout(session, "front", "context_tokens"), 0),
            plain(session.edits, 0),
        ]
        + [tokens(layout(session, kind, "prefill_tokens")) for kind in ("front", "log", "frozen")]
        for name, session in found.presets.items()
    ]
    return Table(
        "Queue managers of the paper and of the code (ours)",
        ["preset", "calls", "evictions", "main context", "edits", "in front", "appended",
         "frozen"],
        rows,
        ["Letta of 2026 warns no more, so that here only facts saved at once are ever saved, where"
         " a real one saves in the background; it keeps its prompt frozen until compaction"],
    )  # fmt: skip


def _pollution_table(found: Evidence) -> Table:
    rows = [
        [f"{error:g}", *(plain(found.harmful[:, e, k]) for k in range(len(KEEPING)))]
        for e, error in enumerate(ERRORS)
    ]
    return Table(
        "Wrong feedback pollutes the playbook: share of harmful bullets (ours, a rule-based model)",
        ["feedback wrong", "all kept", "harmful ones dropped"],
        rows,
        ["dropped: every 50 tasks, bullets with at least two more harmful marks than helpful ones"],
    )


def _served_table(found: Evidence) -> Table:
    lengths = dict.fromkeys(row["playbook_tokens"] for row in found.served)
    rows = []
    for length in lengths:
        ways = {row["kv"]: row for row in found.served if row["playbook_tokens"] == length}
        own, one, once = (ways[way] for way in COPIES)
        rows.append(
            [int(length), f"{own['kept_share']:.1%}", own["users"], round(own["tokens_s"]),
             one["users"], round(one["tokens_s"]), round(once["tokens_s"])]
        )  # fmt: skip
    return Table(
        f"A longer playbook still slows decoding: {MODEL} on one {GPU} (ours)",
        ["playbook", "prefill kept", "users, own copies", "tokens/s", "users, one copy",
         "tokens/s", "tokens/s, read once a step"],
        rows,
        ["one copy that each user's attention reads is the usual server; read once a step for all"
         " users takes cascade attention"],
    )  # fmt: skip
