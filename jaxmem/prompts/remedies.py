"""Remedies: the same calls with their prompts laid out otherwise, log to log.

They are also the layouts of `jaxmem.sessions`. A call follows its reference, the earlier call that
shares most with it; what waits, waits until a compaction: a call whose other segments keep less
than three quarters of its reference's as their beginning, so that the prefix breaks anyway.
"""

import dataclasses
from collections import Counter
from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

from jaxmem.common import choice, lookup
from jaxmem.prompts.log import KINDS, LogBuilder, PromptLog, common_ends
from jaxmem.prompts.reuse import reuse
from jaxmem.prompts.volatile import FIELDS, masked


def move_last(log: PromptLog, labels: Collection[str]) -> PromptLog:
    """Segments moved behind all others of their prompt.

    Args:
      log: the calls.
      labels: of the segments.

    Returns:
      The log with the others in their order, then those.

    Raises:
      ValueError: if the log has no such label.
    """
    moves = _chosen(log, labels)
    rows = [np.arange(a, b) for a, b in zip(log.starts, log.starts[1:])]
    return _arranged(log, [np.concatenate([r[~moves[r]], r[moves[r]]]) for r in rows])


def freeze(log: PromptLog, labels: Collection[str]) -> PromptLog:
    """Segments shown as they were at the last compaction.

    Args:
      log: the calls.
      labels: of the segments.

    Returns:
      The log; between compactions a call shows what its reference showed.

    Raises:
      ValueError: if the log has no such label.
    """
    return _frozen(log, labels, notes=False)


def append_edits(log: PromptLog, labels: Collection[str]) -> PromptLog:
    """Segments shown as at the last compaction, each change since then a note behind the rest.

    A note holds what the new content has and the old one lacked; it stays where it was first
    shown, and goes with the compaction that merges it.

    Args:
      log: the calls.
      labels: of the segments.

    Returns:
      The log.

    Raises:
      ValueError: if the log has no such label.
    """
    return _frozen(log, labels, notes=True)


def sort_tools(log: PromptLog) -> PromptLog:
    """Definitions of tools sorted by name, where they stand.

    Args:
      log: the calls.

    Returns:
      The log.
    """
    names = dict(zip(log.content.tolist(), log.label.tolist()))
    by_name = sorted(
        range(len(log.contents)), key=lambda k: (log.labels[names.get(k, 0)], log.contents[k])
    )
    rank = np.argsort(by_name)
    # Definitions, not what a system prompt says about tools.
    defines = np.array([text[:1] == b"{" for text in log.contents] + [False])
    defines[:-1] |= np.array([not units for units in log.units], bool)
    tools = (log.kind == KINDS.index("tools")) & defines[log.content]
    rows = []
    for a, b in zip(log.starts, log.starts[1:]):
        row = np.arange(a, b)
        places = row[tools[row]]
        row[tools[row]] = places[np.argsort(rank[log.content[places]], kind="stable")]
        rows.append(row)
    return _arranged(log, rows)


def drop_volatile(
    log: PromptLog, labels: Collection[str], fields: Collection[str] = FIELDS
) -> PromptLog:
    """Segments without their times, identifiers and numbers: each becomes one constant sign.

    Args:
      log: the calls.
      labels: of the segments.
      fields: which kinds of field, of `volatile.FIELDS`.

    Returns:
      The log.

    Raises:
      ValueError: if the log has no such label.
    """
    kinds = [choice(FIELDS, field, "field") for field in _several(fields)]
    chosen = _chosen(log, labels)
    pool = _Pool(log)
    new = np.arange(len(log.contents))
    for c in np.unique(log.content[chosen]):
        if log.units[c]:
            new[c] = pool.add(masked(log.contents[c], kinds))
    content = np.where(chosen, new[log.content], log.content).astype(np.int32)
    return pool.log(dataclasses.replace(log, content=content))


def move_lines_last(log: PromptLog, labels: Collection[str]) -> PromptLog:
    """The lines of segments that change moved behind all others of their prompt.

    A line stays where it is if more than half of the segment's forms have it. Names for texts have
    no lines, and stay.

    Args:
      log: the calls.
      labels: of the segments.

    Returns:
      The log; nothing of a text is lost, but the order of its lines.

    Raises:
      ValueError: if the log has no such label.
    """
    chosen = _chosen(log, labels)
    pool = _Pool(log)
    forms: dict[int, set[int]] = {}  # the contents of each label
    for content, label in {*zip(log.content[chosen].tolist(), log.label[chosen].tolist())}:
        if log.units[content]:
            forms.setdefault(label, set()).add(content)
    parts: dict[tuple[int, int], tuple[int, int]] = {}  # what stays and what moves
    for label, contents in forms.items():
        lines = {c: log.contents[c].splitlines(keepends=True) for c in contents}
        often = Counter(line for c in contents for line in set(lines[c]))
        for c in contents:
            stays = [2 * often[line] > len(contents) for line in lines[c]]
            head, tail = (
                b"".join(line for line, stay in zip(lines[c], stays) if stay == wanted)
                for wanted in (True, False)
            )
            if head and tail:
                parts[c, label] = pool.add(head), pool.add(tail)
    rows = []
    for a, b in zip(log.starts, log.starts[1:]):
        row = [(s, int(log.content[s])) for s in range(a, b)]
        split = [(s, *parts.get((c, int(log.label[s])), (c, -1))) for s, c in row]
        moved = [(s, tail, True) for s, _, tail in split if tail >= 0]
        rows.append([(s, head, False) for s, head, _ in split] + moved)
    flat = np.array([part for row in rows for part in row], np.int64).reshape(-1, 3)
    index = np.split(flat[:, 0], np.cumsum([len(row) for row in rows])[:-1])
    arranged = _arranged(log, index)
    still = flat[:, 2] == 0  # what moves leaves its breakpoint and its block
    return pool.log(
        dataclasses.replace(
            arranged,
            content=flat[:, 1].astype(np.int32),
            mark=arranged.mark & still,
            part=arranged.part & still,
        )
    )


class _Pool:
    """The contents of a log, and new ones."""

    def __init__(self, log: PromptLog) -> None:
        self.builder = LogBuilder(log.encoder)
        self.first = len(log.contents)
        self.known = {text: k for k, text in enumerate(log.contents) if log.units[k]}

    def add(self, text: bytes) -> int:
        if text in self.known:
            return self.known[text]
        return self.first + self.builder.intern(text, None)

    def add_name(self, name: bytes, tokens: int) -> int:
        return self.first + self.builder.intern(name, tokens)

    def log(self, log: PromptLog) -> PromptLog:
        """The log with the new contents behind its own."""
        more = self.builder.build()
        if not more.contents:
            return log
        return dataclasses.replace(
            log,
            contents=[*log.contents, *more.contents],
            units=[*log.units, *more.units],
            tokens=np.concatenate([log.tokens, more.tokens]),
        )


class _Note(NamedTuple):
    """A change that waits behind the `anchor`-th of the other segments."""

    anchor: int
    content: int
    like: int  # the segment whose label and kind it takes


class _Shown(NamedTuple):
    """What a call shows of the chosen segments: indices of some call's, and notes."""

    group: np.ndarray
    notes: tuple[_Note, ...]


def _frozen(log: PromptLog, labels: Collection[str], notes: bool) -> PromptLog:
    chosen = _chosen(log, labels)
    rows = [np.arange(a, b) for a, b in zip(log.starts, log.starts[1:])]
    others = [row[~chosen[row]] for row in rows]
    groups = [row[chosen[row]] for row in rows]
    base = reuse(_arranged(log, others))
    pool = _Pool(log)
    shown: list[_Shown] = []
    content, like = [], []
    for call, (row, rest, group) in enumerate(zip(rows, others, groups)):
        before = int(base.reference[call])
        # A quarter of what the reference held or more is no prefix any longer: an eviction, or
        # another agent. Less is a tail that changes, such as a task behind the history.
        compacted = before < 0 or 4 * base.shared[call] < 3 * base.log.prompt_tokens[before]
        if compacted or not len(group) or not len(groups[before]):
            state = _Shown(group, ())
        else:
            state = shown[before]
            if notes:
                kept = int(base.position[call])
                state = state._replace(
                    notes=tuple(n._replace(anchor=min(n.anchor, kept)) for n in state.notes)
                    + _changes(log, pool, groups[before], group, len(rest))
                )
        shown.append(state)
        place = int(np.argmax(chosen[row])) if len(group) else 0  # as many others stand before it
        parts: list[tuple[np.ndarray, int]] = []  # segments, and the content of a note or -1
        cuts = sorted({place, *(n.anchor for n in state.notes), len(rest)})
        done = 0
        for cut in cuts:
            parts.append((rest[done:cut], -1))
            if cut == place:
                parts.append((state.group, -1))
            parts += [(np.array([n.like]), n.content) for n in state.notes if n.anchor == cut]
            done = cut
        index = np.concatenate([part for part, _ in parts])
        new = np.concatenate([np.full(len(part), c) for part, c in parts])
        content.append(np.where(new < 0, log.content[index], new))
        like.append(index)
    arranged = _arranged(log, like)
    return pool.log(dataclasses.replace(arranged, content=_joined(content, np.int32)))


def _changes(
    log: PromptLog, pool: _Pool, before: np.ndarray, after: np.ndarray, anchor: int
) -> tuple[_Note, ...]:
    """A note for each content of the second group that the first lacked, and for each gone.

    A text that changed leaves the lines that are new, and those that are not there any more.
    """
    old, new = log.content[before].tolist(), log.content[after].tolist()
    gone = [(c, s) for c, s in zip(old, before.tolist()) if c not in set(new)]
    notes = []
    for content, segment in zip(new, after.tolist()):
        if content in old:
            continue
        note = content
        if gone:
            note = _difference(log, pool, gone.pop(0)[0], content)
        notes.append(_Note(anchor, note, segment))
    return (
        *notes,
        *(_Note(anchor, pool.add_name(b"no more: " + log.contents[c], int(log.tokens[c])), s)
          for c, s in gone),
    )  # fmt: skip


def _difference(log: PromptLog, pool: _Pool, old: int, new: int) -> int:
    """A note's content: lines of the new text, and those that it has no more."""
    if not (log.units[old] and log.units[new]):
        return new
    before, after = (log.contents[c].splitlines() for c in (old, new))
    had, has = set(before), set(after)
    added = [line for line in after if line not in had]
    gone = [line for line in before if line not in has]
    # A line that is an old one changed says so itself; what goes otherwise is named.
    removed = [b"no more: " + line for line in gone if not any(_like(line, new) for new in added)]
    return pool.add(b"\n".join([*added, *removed])) if added or removed else new


def _like(a: bytes, b: bytes) -> bool:
    """Whether most of the shorter of two lines is at the ends of the other."""
    return 2 * sum(common_ends(a, b)) > min(len(a), len(b))


def _chosen(log: PromptLog, labels: Collection[str]) -> np.ndarray:
    """Which segments have one of the labels, bool [S]."""
    names = _several(labels)
    known = {name: n for n, name in enumerate(log.labels)}
    ids = [lookup(known, name, "label") for name in names]
    return np.isin(log.label, ids)


def _several(names: Collection[str]) -> list[str]:
    return [names] if isinstance(names, str) else list(names)


def _arranged(log: PromptLog, rows: Sequence[np.ndarray]) -> PromptLog:
    """A log whose calls hold the given segments of this one."""
    index = _joined(list(rows), np.int64)
    return dataclasses.replace(
        log,
        starts=np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64),
        content=log.content[index],
        label=log.label[index],
        kind=log.kind[index],
        mark=log.mark[index],
        part=log.part[index],
    )


def _joined(parts: list[np.ndarray], kind: type) -> np.ndarray:
    return np.concatenate([np.empty(0, kind), *parts]).astype(kind)
