"""What the strips of the doctor's report show: calls, what became of their tokens, and why."""

import re
from typing import Any, NamedTuple

import numpy as np

from jaxmem.prompts.doctor import Diagnosis
from jaxmem.prompts.findings import HOW_SAID
from jaxmem.prompts.log import KINDS, PromptLog
from jaxmem.prompts.reuse import HOW

PARTS = ("reused", "rounding", "expired", "broken", "fresh")
SAID = {
    "reused": "reused",
    "rounding": "too few for a block",
    "expired": "expired",
    "broken": "computed again after a break",
    "fresh": "new",
}
_CALLS = 5000  # strips on a page
_RUNS = 200_000  # runs of segments of one kind on a page
_GRAIN = 1000  # a run shorter than the longest prompt over this is no pixel wide
NAME = 120  # characters of a name that are shown


class Kept(NamedTuple):
    """The calls on the page by session, those sessions first that lose most."""

    session: int
    calls: np.ndarray  # all of the session
    shown: int


def kept_calls(diagnosis: Diagnosis) -> list[Kept]:
    """As many sessions as a page holds; the last of them may be cut."""
    log = diagnosis.log
    lost = np.bincount(log.session, diagnosis.reuse.broken, len(log.sessions))
    sizes = np.array([len(runs) for runs in _runs(log)], np.int64)
    by_session = np.split(
        np.argsort(log.session, kind="stable"),
        np.cumsum(np.bincount(log.session, minlength=len(log.sessions)))[:-1],
    )
    kept, calls_left, runs_left = [], _CALLS, _RUNS
    for session in np.argsort(-lost, kind="stable").tolist():
        calls = by_session[session]
        fits = int(np.searchsorted(np.cumsum(sizes[calls]), runs_left, "right"))
        shown = min(len(calls), calls_left, fits)
        if shown == 0:
            break
        kept.append(Kept(session, calls, shown))
        calls_left -= shown
        runs_left -= int(sizes[calls[:shown]].sum())
    return kept


def _runs(log: PromptLog) -> list[list[tuple[int, int]]]:
    """(kind, tokens) of each call from front to back, neighbours of one kind as one."""
    least = int(log.prompt_tokens.max(initial=0)) // _GRAIN
    kinds, tokens = log.kind.tolist(), log.segment_tokens.tolist()
    found = []
    for start, end in zip(log.starts[:-1].tolist(), log.starts[1:].tolist()):
        runs: list[tuple[int, int]] = []
        for kind, size in zip(kinds[start:end], tokens[start:end]):
            if runs and (runs[-1][0] == kind or size < least):
                runs[-1] = (runs[-1][0], runs[-1][1] + size)
            elif size:
                runs.append((kind, size))
        found.append(runs)
    return found


def payload(diagnosis: Diagnosis, names: list[str], kept: list[Kept]) -> dict[str, Any]:
    """What the script draws: rows of plain numbers, and names looked up in lists."""
    log, now = diagnosis.log, diagnosis.reuse
    calls = np.concatenate([np.empty(0, np.int64), *(k.calls[: k.shown] for k in kept)])
    parts = np.stack([getattr(now, part) for part in PARTS], 1)  # [C, parts]
    finding, how = _finding_of(diagnosis)
    runs = _runs(log)
    causes = sorted({int(c) for c in now.cause[calls.astype(int)] if c >= 0})
    number = {label: n for n, label in enumerate(causes)}
    words = list(HOW_SAID)
    rows = [
        [
            call + 1,
            int(log.session[call]) + 1,
            place(log.source[call]),
            parts[call].tolist(),
            words.index(how[call]),
            number.get(int(now.cause[call]), -1),
            int(now.reference[call]) + 1,
            finding[call],
            [x for run in runs[call] for x in run],
        ]
        for call in calls.astype(int).tolist()
    ]
    prompt = log.prompt_tokens
    sessions = [
        [
            k.session + 1,
            len(k.calls),
            int(prompt[k.calls].sum()),
            int(now.reused[k.calls].sum()),
            int(now.broken[k.calls].sum()),
            k.shown,
        ]
        for k in kept
    ]
    return {
        "parts": PARTS,
        "said": [SAID[part] for part in PARTS],
        "kinds": KINDS,
        "how": list(HOW_SAID.values()),
        "names": [names[label] for label in causes],
        "sessions": sessions,
        "calls": rows,
    }


def _finding_of(diagnosis: Diagnosis) -> tuple[list[int], list[str]]:
    """The finding of each call, -1 for none, and what happened, "rewritten" among it."""
    finding = [-1] * diagnosis.log.calls
    how = [HOW[h] for h in diagnosis.reuse.how]
    for n, one in enumerate(diagnosis.findings):
        for call in one.broke.tolist():
            finding[call], how[call] = n, one.how
    return finding, how


def shown_names(log: PromptLog, with_text: bool) -> list[str]:
    """What a report calls each label: labels may quote headings of the prompts.

    Args:
      log: the calls.
      with_text: whether the labels may be shown.

    Returns:
      A name for each of `log.labels`: the label, or its most frequent kind and a number in the
      order of first appearance ("memory 1").
    """
    if with_text:
        return list(log.labels)
    names = [""] * len(log.labels)
    counts = np.zeros((len(log.labels), len(KINDS)), np.int64)  # [labels, kinds]
    np.add.at(counts, (log.label, log.kind), 1)
    used = dict.fromkeys(KINDS, 0)
    present, first = np.unique(log.label, return_index=True)
    absent = np.setdiff1d(np.arange(len(log.labels)), present)
    for label in [*present[np.argsort(first)].tolist(), *absent.tolist()]:
        kind = KINDS[int(counts[label].argmax())]
        used[kind] += 1
        names[label] = f"{kind} {used[kind]}"
    return names


def place(source: str) -> str:
    """The last name of a path, and the line."""
    return clean(re.split(r"[/\\]", source)[-1])[:NAME]


def clean(text: str) -> str:
    """A line that can be encoded: no control characters, no halves of pairs."""
    whole = str(text).encode("utf-8", "replace").decode("utf-8")
    return "".join(c if c.isprintable() else " " for c in whole)
