"""What breaks a prefix: each kind of break, how it looks, and which remedies may help."""

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from jaxmem.prompts import remedies
from jaxmem.prompts.log import KINDS, PromptLog, common_ends, common_prefix
from jaxmem.prompts.reuse import HOW, Reuse, in_common
from jaxmem.prompts.volatile import differing_fields, field_at

HOW_SAID = {
    "first": "no earlier call to reuse",
    "extended": "continues call",
    "edited": "edited in place",
    "grown": "grown in place",
    "replaced": "put in place of another segment",
    "inserted": "inserted",
    "removed": "removed",
    "reordered": "moved",
    "rewritten": "written anew",
}
REMEDY_SAID = {
    "sort_tools": "sort the tools",
    "drop_volatile": "drop the volatile fields",
    "append_edits": "append the edits",
    "move_lines_last": "move the changing lines last",
    "move_last": "move last",
    "freeze": "freeze until compaction",
}
FIELD_SAID = {"time": "time stamp", "id": "identifier", "number": "counter"}
EXCERPT = 60  # characters of a change that are shown, old and new together
_LOOKED_AT = 40  # breaks of a finding whose texts are compared
_MOST_HARM = 0.02  # of all prompt tokens: a remedy may cost so much, for what it uncovers
_MOST_GROWTH = 1.25  # of all prompts: without compactions notes pile up, which is no remedy
_REWRITTEN_TOKENS = 64  # a smaller segment that is replaced whole is no finding


class Remedied(NamedTuple):
    """What one remedy does, by replay of the whole log.

    Attributes:
      name: the function of `jaxmem.prompts.remedies`.
      prompt_tokens: tokens of all prompts so laid out: notes make them longer.
      recomputed_tokens: tokens that calls would compute.
      saved_tokens: fewer than now; negative where it makes things worse.
      reused_share: reused tokens over all prompt tokens.
      log: the calls with their prompts so laid out.
    """

    name: str
    prompt_tokens: int
    recomputed_tokens: int
    saved_tokens: int
    reused_share: float
    log: PromptLog


class Finding(NamedTuple):
    """One kind of break: a segment and what happens to it.

    Attributes:
      label: the segment; "tools" stands for all definitions of tools.
      labels: those that broke the prefix.
      kind: its kind, of `KINDS`.
      how: as in `HOW`, or "rewritten": replaced by a text that has little of the old one.
      field: the volatile field that changes first ("time", "id", "number"), or "".
      fields: all volatile fields that change, if nothing else does.
      calls: how many calls break so.
      broke: which, int64.
      tokens: tokens computed again because of it; of a rewritten segment its new text.
      worst: the call that loses most.
      old, new: what changed there, at most `EXCERPT` characters together; text of the log.
      remedies: what was tried, the one to choose first; empty where no layout helps.
      advice: one thing to do.
    """

    label: str
    labels: tuple[str, ...]
    kind: str
    how: str
    field: str
    fields: tuple[str, ...]
    calls: int
    broke: np.ndarray
    tokens: int
    worst: int
    old: str
    new: str
    remedies: tuple[Remedied, ...]
    advice: str


def groups(found: Reuse) -> list[tuple[str, str, np.ndarray, int]]:
    """Breaks that are of one kind: of a label, and what happens to it.

    Args:
      found: the reuse of a log.

    Returns:
      (label, how, calls, tokens) of each kind of break and rewrite, the costliest first.
    """
    log = found.log
    kinds = _kinds(log)
    groups: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for call in np.flatnonzero(found.cause >= 0):
        how, tokens = HOW[found.how[call]], int(found.broken[call])
        if how in ("edited", "replaced"):
            own, new = _new_text(found, int(call))
            if new >= own / 2 >= _REWRITTEN_TOKENS / 2 and new > tokens:
                how, tokens = "rewritten", new
        if tokens > 0:
            cause = found.cause[call]
            label = "tools" if kinds[cause] == "tools" else log.labels[cause]
            groups.setdefault((label, how), []).append((int(call), tokens))
    merged = [
        (label, how, np.array(rows)[:, 0], sum(tokens for _, tokens in rows))
        for (label, how), rows in groups.items()
    ]
    return sorted(merged, key=lambda group: (-group[3], *group[:2]))


def finding_of(found: Reuse, label: str, how: str, calls: np.ndarray, tokens: int) -> Finding:
    """What changes in the breaks of one group.

    Args:
      found: the reuse of a log.
      label, how, calls, tokens: from `groups`.

    Returns:
      The finding, without remedies.
    """
    log = found.log
    worst = int(calls[np.argmax(found.broken[calls])])
    first: Counter[str] = Counter()
    alone: Counter[tuple[str, ...]] = Counter()
    looked_at = calls[:: max(1, len(calls) // _LOOKED_AT)]
    for call in looked_at:
        old, new = _texts(found, int(call))
        if not _are_texts(found, int(call)):
            continue
        begins = common_prefix(old, new)
        field = field_at(new, min(begins, max(len(new) - 1, 0)))
        if how in ("edited", "grown", "rewritten") and field and field_at(old, field[1]):
            first[field[0]] += 1
        alone[differing_fields(old, new) if how == "edited" else ()] += 1
    name, often = max(first.items(), key=lambda item: item[1], default=("", 0))
    before, after = _excerpts(*_texts(found, worst), how)
    causes = sorted(set(found.cause[calls].tolist()))
    return Finding(
        label=label,
        labels=tuple(log.labels[cause] for cause in causes),
        kind=_kinds(log)[causes[0]],
        how=how,
        field=name if 2 * often >= len(looked_at) else "",
        fields=max(alone, key=lambda fields: (alone[fields], fields), default=()),
        calls=len(calls),
        broke=calls,
        tokens=tokens,
        worst=worst,
        old=before,
        new=after,
        remedies=(),
        advice="",
    )


def _new_text(found: Reuse, call: int) -> tuple[int, int]:
    """Tokens of a changed memory, and those that its old form had not."""
    log, place = found.log, found.position[call]
    here = log.starts[call] + place
    if KINDS[log.kind[here]] != "memory":  # another system prompt is another agent's
        return 0, 0
    old, new = int(log.content[log.starts[found.reference[call]] + place]), int(log.content[here])
    own = int(log.tokens[new])
    return own, own - max(in_common(log, old, new), log.shared_tokens(old, new))


def _kinds(log: PromptLog) -> list[str]:
    """The kind that each label has most often."""
    counts = np.zeros((len(log.labels), len(KINDS)), np.int64)
    np.add.at(counts, (log.label, log.kind), 1)
    return [KINDS[kind] for kind in counts.argmax(axis=1)]


def _texts(found: Reuse, call: int) -> tuple[bytes, bytes]:
    """The contents that stand where the prefix of a call and of its reference ends."""
    log, place = found.log, found.position[call]
    old, new = log.starts[found.reference[call]] + place, log.starts[call] + place
    if KINDS[log.kind[old]] == KINDS[log.kind[new]] == "tools":
        names = [log.labels[log.label[s]] for s in (old, new)]
        if names[0] != names[1]:  # which tools, not how their JSON begins
            return names[0].encode(), names[1].encode()
    return log.contents[log.content[old]], log.contents[log.content[new]]


def _are_texts(found: Reuse, call: int) -> bool:
    """Whether both are texts, and not names for one."""
    log, place = found.log, found.position[call]
    both = (log.starts[found.reference[call]] + place, log.starts[call] + place)
    return all(bool(log.units[log.content[s]]) for s in both)


def _excerpts(old: bytes, new: bytes, how: str) -> tuple[str, str]:
    """The changed part of two texts, in characters that a terminal can show."""
    if how == "inserted":
        old = b""
    if how == "removed":
        new = b""
    begins = ends = 0
    if how in ("edited", "grown", "rewritten"):
        begins, ends = common_ends(old, new)
    start = max(0, begins - 8)
    fields = [field_at(text, begins) for text in (old, new)]
    if all(fields):
        start = min(field[1] for field in fields if field)
    most = EXCERPT // 2
    parts = []
    for text, field in zip((old, new), fields):
        stop = max(len(text) - ends, field[2] if field else start)
        part = text[start : start + 4 * most] if stop - start > 4 * most else text[start:stop]
        # Cut bytes of a character at the ends are left out.
        shown = "".join(c if c.isprintable() else " " for c in part.decode(errors="ignore"))
        parts.append(shown if len(shown) <= most else shown[: most - 1] + "…")
    return parts[0], parts[1]


def candidates(finding: Finding) -> list[str]:
    """Which remedies to try.

    Args:
      finding: from `finding_of`.

    Returns:
      Names in order of preference.
    """
    only = set(finding.fields)
    if finding.kind == "history" and only and "number" not in only:
        return ["drop_volatile"]  # a time stamp in a message that was sent before
    if finding.how == "rewritten" or finding.kind in ("history", "summary"):
        return []
    if finding.kind in ("task", "retrieved"):
        return ["move_last"]
    if finding.kind == "tools":
        return ["sort_tools", "freeze"]
    names = ["move_lines_last", "move_last"]
    if finding.kind == "memory":
        names.insert(0, "append_edits")
    if only or finding.field:
        names.append("drop_volatile")
    return [*names, "freeze"]


def remedy(name: str, finding: Finding) -> Callable[[PromptLog], PromptLog]:
    """A remedy for a finding.

    Args:
      name: one of its candidates.
      finding: what it is for.

    Returns:
      From log to log.
    """
    if name == "sort_tools":
        return remedies.sort_tools
    if name == "drop_volatile":
        fields = finding.fields or (finding.field,)
        return partial(remedies.drop_volatile, labels=finding.labels, fields=fields)
    function: Callable[..., PromptLog] = getattr(remedies, name)
    return partial(function, labels=finding.labels)


_DO = {
    "sort_tools": "send the tools in one order, sorted by name",
    "drop_volatile": "drop the {field} from it, or pass it in the newest message",
    "append_edits": "leave it as it is and append each edit as a message; merge at compaction",
    "move_lines_last": "move the lines of it that change behind the history",
    "move_last": "move it behind the history",
    "freeze": "keep it as it was until the next compaction",
}
_NONE = {
    "rewritten": "append to it or change single entries instead of writing it anew",
    "removed": "evict more at a time: each eviction computes the rest of the history again",
    "history": "do not change earlier messages: append to them",
    "tools": "change them less often, or all at once where the history is compacted",
    "other": "change it less often, or all at once where the history is compacted",
}


def advised(finding: Finding, tried: list[Remedied], log: PromptLog) -> Finding:
    """A finding with its remedies, the one to choose first, and what to do.

    Args:
      finding: from `finding_of`.
      tried: its candidates, replayed.
      log: the calls.

    Returns:
      The finding; without remedies if no layout helps.
    """
    largest = _MOST_GROWTH * log.prompt_tokens.sum()
    tried = [r for r in tried if r.prompt_tokens <= largest]
    # Some withhold what the model may need: the newest state, or a number to be remembered.
    safe = {"sort_tools", "append_edits", "move_lines_last", "move_last"}
    if finding.fields and finding.kind != "memory":  # where it may be what is remembered
        safe.add("drop_volatile")
    whole = [r for r in tried if r.name in safe and r.saved_tokens > 0]
    if not whole and finding.kind in ("system", "task", "retrieved"):
        # What stands behind it may be next; a segment that had better stay is no such case.
        least = -_MOST_HARM * log.prompt_tokens.sum()
        whole = [r for r in tried if r.name == "move_last" and r.saved_tokens > least]
    if not whole:
        return finding._replace(advice=_without_remedy(finding))
    # The first in order of preference that comes near the best.
    most = max(r.saved_tokens for r in whole)
    best = next(r for r in whole if r.saved_tokens >= min(0.95 * most, most))
    changes = finding.fields or ((finding.field,) if finding.field else ())
    field = " and the ".join(FIELD_SAID[name] for name in changes) or "part that changes"
    advice = _DO[best.name].format(field=field)
    if most <= 0:
        alone = f"costs {-most:,} tokens more" if most else "saves nothing"
        advice += f", with what else changes behind it: alone it {alone}"
    rest = sorted((r for r in tried if r is not best), key=lambda r: -r.saved_tokens)
    return finding._replace(remedies=(best, *rest), advice=advice)


def _without_remedy(finding: Finding) -> str:
    if finding.how == "rewritten":
        return _NONE["rewritten"]
    if finding.kind == "summary" or finding.how == "removed":
        return _NONE["removed"]
    if finding.kind == "tools":
        return _NONE["tools"]
    return _NONE["history" if finding.kind in ("history", "task") else "other"]
