"""A playbook: lessons as bullets that grow by deltas, which merge in any order without an LLM.

The state is a state-based CRDT, joined by unions: bullets that only grow, keyed by (step, id),
marks that add, each counted once for the delta that brought it, and removals that stay (a removed
text cannot come back).
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property

from jaxmem.common import check_size, choice

SECTIONS = {
    "strategies": "STRATEGIES & INSIGHTS",
    "formulas": "FORMULAS & CALCULATIONS",
    "code": "CODE SNIPPETS & TEMPLATES",
    "mistakes": "COMMON MISTAKES TO AVOID",
    "heuristics": "PROBLEM-SOLVING HEURISTICS",
    "context": "CONTEXT CLUES & INDICATORS",
    "others": "OTHERS",
}
"""The seven sections of the official code, by the slug that opens their bullets' ids."""
LAYOUTS = ("appended", "sections")
COUNTERS = ("none", "front", "end")
_HASH_DIGITS = 10  # 40 bits: two of 10,000 texts share an id with probability 5e-5


@dataclass(frozen=True)
class Bullet:
    """A lesson.

    id: slug of the section and hash of section and text, so it depends on no order of arrival.
    section: a slug of `SECTIONS`.
    text: the lesson.
    helpful, harmful: how often it was marked so, duplicates merged into it included.
    step: the first step at which it was added.
    """

    id: str
    section: str
    text: str
    helpful: int = 0
    harmful: int = 0
    step: int = 0


@dataclass(frozen=True)
class Delta:
    """One change of a playbook, as a curator makes it; equal ones are one and count once.

    step: when it was made; orders what it adds.
    adds: (section, text) of new bullets, a section by its slug or name in `SECTIONS` (strategies,
      apis, ...); an unknown one is "others", as in the official code.
    counts: (helpful, harmful) marks to add, by id; ids may be of bullets that arrive later.
    removes: ids of bullets to drop, for good.
    author: who made it: two that mark the same bullets at the same step count twice only if their
      authors differ.
    merges: (duplicate, original) ids of bullets that become one.

    Raises:
      ValueError: if a field is malformed.
    """

    step: int
    adds: tuple[tuple[str, str], ...] = ()
    counts: Mapping[str, tuple[int, int]] = field(default_factory=dict, hash=False)
    removes: tuple[str, ...] = ()
    author: str = ""
    merges: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        step = check_size("step", self.step, 0)
        if not isinstance(self.author, str):
            raise ValueError(f"author must be text, got {self.author!r}")
        if not isinstance(self.counts, Mapping):
            raise ValueError(f"counts must map ids to (helpful, harmful), got {self.counts!r}")
        if isinstance(self.removes, str) or not isinstance(self.removes, Iterable):
            raise ValueError(f"removes must be ids, got {self.removes!r}")
        adds = {(_slug(section), _text(text)) for section, text in _pairs("adds", self.adds)}
        merges, removes = set(_pairs("merges", self.merges)), tuple(self.removes)
        for one in (*self.counts, *removes, *(one for pair in merges for one in pair)):
            if not isinstance(one, str) or not one:
                raise ValueError(f"an id must be text that is not empty, got {one!r}")
        counts = {}
        for one in sorted(self.counts):
            (marks,) = _pairs("counts", [self.counts[one]])
            counts[one] = tuple(check_size(f"marks of {one}", mark, 0) for mark in marks)
        for name, value in (("step", step), ("adds", tuple(sorted(adds))), ("counts", counts),
                            ("removes", tuple(sorted(set(removes)))),
                            ("merges", tuple(sorted(merges)))):  # fmt: skip
            object.__setattr__(self, name, value)

    @cached_property
    def identity(self) -> str:
        """Hash of content, author and step."""
        content = [self.step, self.author, self.adds, sorted(self.counts.items()), self.removes]
        return _digest(json.dumps([*content, self.merges]), 16)


@dataclass(frozen=True)
class Playbook:
    """What deltas have merged into; equal states are equal, whatever the order of the deltas.

    added: (step, id, section, text) of every bullet ever added, in canonical order: by (step, id).
    counts: (identity of the delta, id, helpful, harmful) of every mark.
    removed: ids that were dropped.
    merged: (duplicate, original) pairs.
    """

    added: tuple[tuple[int, str, str, str], ...] = ()
    counts: tuple[tuple[str, str, int, int], ...] = ()
    removed: tuple[str, ...] = ()
    merged: tuple[tuple[str, str], ...] = ()

    @cached_property
    def bullets(self) -> tuple[Bullet, ...]:
        """The bullets that are there, in canonical order.

        Of bullets that were merged, directly or through others, the first stands for all, with all
        their marks; it is gone once any of them was removed.
        """
        first = self._representatives
        gone = {first.get(one, one) for one in self.removed}
        marks: dict[str, tuple[int, int]] = {}
        for _, one, helpful, harmful in self.counts:
            name = first.get(one, one)
            before = marks.get(name, (0, 0))
            marks[name] = (before[0] + helpful, before[1] + harmful)
        return tuple(
            Bullet(one, section, text, *marks.get(one, (0, 0)), step)
            for step, one, section, text in self.added
            if first.get(one, one) == one and one not in gone
        )

    @property
    def step(self) -> int:
        """The last step at which a bullet was added, 0 if none was."""
        return self.added[-1][0] if self.added else 0

    @cached_property
    def _representatives(self) -> dict[str, str]:
        """First bullet, in canonical order, of the group of each that was merged.

        Of ids that are not there (yet) none stands for one that is.
        """
        order = {one: place for place, (_, one, *_) in enumerate(self.added)}
        parent: dict[str, str] = {}

        def root(one: str) -> str:
            while parent.setdefault(one, one) != one:
                one = parent[one]
            return one

        for pair in self.merged:
            early, late = sorted(map(root, pair), key=lambda one: (order.get(one, len(order)), one))
            parent[late] = early
        return {one: root(one) for one in parent}


def bullet_id(section: str, text: str) -> str:
    """The id of a bullet, as strategies-1a2b3c4d5e.

    Args:
      section: a slug or name of `SECTIONS`; any other is "others".
      text: the lesson.

    Returns:
      The id.

    Raises:
      ValueError: if the text is empty.
    """
    slug, text = _slug(section), _text(text)
    return f"{slug}-{_digest(slug + chr(0) + text, _HASH_DIGITS)}"


def merge(playbook: Playbook, *others: Delta | Playbook) -> Playbook:
    """Join deltas or whole playbooks: any order and grouping give one equal playbook.

    Args:
      playbook: what is there.
      *others: what to join; what is in it already changes nothing.

    Returns:
      The new playbook.

    Raises:
      ValueError: if what comes is neither, or two different texts have one id.
    """
    added: dict[str, tuple[int, str, str, str]] = {}
    counts: set[tuple[str, str, int, int]] = set()
    removed: set[str] = set()
    merged: set[tuple[str, str]] = set()
    for state in (playbook, *map(_state, others)):
        for row in state.added:
            old = added.get(row[1], row)
            if old[2:] != row[2:]:
                raise ValueError(f"two texts have the id {row[1]}: {old[3]!r} and {row[3]!r}")
            added[row[1]] = min(old, row)
        counts.update(state.counts)
        removed.update(state.removed)
        merged.update(state.merged)
    return Playbook(
        tuple(sorted(added.values())),
        tuple(sorted(counts)),
        tuple(sorted(removed)),
        tuple(sorted(merged)),
    )


def render(playbook: Playbook, layout: str = "appended", counters: str = "none") -> str:
    """The playbook as text for a prompt.

    Appended without counters, a newer delta that adds and counts only appends to the text: a server
    keeps its whole prefix. In sections a new bullet stands at its section's end, and counters
    change where they stand.

    Args:
      playbook: what is there.
      layout: "appended", in canonical order, or "sections", the official seven with headings.
      counters: "none"; "front", `[id] helpful=5 harmful=0 :: text`, the official line; or "end".

    Returns:
      A line a bullet; further lines of a text are indented.

    Raises:
      ValueError: if a layout or a place of counters is unknown.
    """
    layout = choice(LAYOUTS, layout, "layout")
    counters = choice(COUNTERS, counters, "place of counters")

    def line(bullet: Bullet) -> str:
        marks = f"helpful={bullet.helpful} harmful={bullet.harmful}"
        front = f" {marks}" if counters == "front" else ""
        end = f" ({marks})" if counters == "end" else ""
        return f"[{bullet.id}]{front} :: " + "\n  ".join(bullet.text.splitlines()) + end

    if layout == "appended":
        return "\n".join(map(line, playbook.bullets))
    blocks = []
    for slug, name in SECTIONS.items():
        inside = [line(bullet) for bullet in playbook.bullets if bullet.section == slug]
        blocks.append("\n".join([f"## {name}", *inside]))
    return "\n\n".join(blocks)


def to_json(playbook: Playbook) -> str:
    """The whole state as JSON text, so that a copy elsewhere can go on merging.

    Args:
      playbook: what is there.

    Returns:
      The text, one line.
    """
    return json.dumps({"playbook": 1, **asdict(playbook)}, ensure_ascii=False)


def from_json(text: str) -> Playbook:
    """A playbook from `to_json`.

    Args:
      text: JSON.

    Returns:
      The equal playbook.

    Raises:
      ValueError: if it is no JSON, a field is missing or malformed, or an id does not fit its text.
    """
    try:
        content = json.loads(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"expected a playbook as JSON, got {error}") from error
    version = content.pop("playbook", None) if isinstance(content, dict) else None
    if type(version) is not int or version != 1:
        raise ValueError('expected a playbook of version 1: {"playbook": 1, ...}')
    shapes = {"added": (int, str, str, str), "counts": (str, str, int, int), "removed": (str,),
              "merged": (str, str)}  # fmt: skip
    if set(content) != set(shapes):
        raise ValueError(f"expected the fields {', '.join(shapes)}, got {', '.join(content)}")
    fields = {name: _rows(name, content[name], kinds) for name, kinds in shapes.items()}
    for _, one, section, bullet in fields["added"]:
        if section not in SECTIONS or bullet_id(section, bullet) != one or _text(bullet) != bullet:
            raise ValueError(f"added: the id {one!r} is not that of its section and text")
    if len({row[1] for row in fields["added"]}) < len(fields["added"]):
        raise ValueError("added: expected each id once")
    if len({row[:2] for row in fields["counts"]}) < len(fields["counts"]):
        raise ValueError("counts: expected each id once a delta")
    return Playbook(**fields)


def _rows(name: str, rows: object, kinds: tuple[type, ...]) -> tuple:
    """Rows of those kinds as sorted tuples, or plain texts where there is one kind."""
    if not isinstance(rows, list):
        raise ValueError(f"{name}: expected a list, got {rows!r}")
    found = []
    for row in rows:
        cells = [row] if len(kinds) == 1 else row
        good = isinstance(cells, list) and len(cells) == len(kinds)
        if not good or not all(
            type(cell) is kind and not (isinstance(cell, int) and cell < 0)
            for cell, kind in zip(cells, kinds)
        ):
            raise ValueError(f"{name}: expected {[k.__name__ for k in kinds]}, got {row!r}")
        found.append(row if len(kinds) == 1 else tuple(cells))
    return tuple(sorted(set(found)))


def _state(other: object) -> Playbook:
    """A playbook of one delta."""
    if isinstance(other, Playbook):
        return other
    if not isinstance(other, Delta):
        raise ValueError(f"expected a Delta or a Playbook, got {other!r}")
    return Playbook(
        tuple(
            (other.step, bullet_id(section, text), section, text) for section, text in other.adds
        ),
        tuple((other.identity, one, *marks) for one, marks in other.counts.items()),
        other.removes,
        other.merges,
    )


def _slug(section: object) -> str:
    """The slug of a section given by slug or name, "others" for any other."""
    if not isinstance(section, str):
        raise ValueError(f"a section must be text, got {section!r}")
    plain = _plain(section)
    for slug, name in SECTIONS.items():
        if plain in (slug, _plain(name)):
            return slug
    return "others"


def _plain(name: str) -> str:
    """STRATEGIES & INSIGHTS, strategies_and_insights: the same."""
    return re.sub(r"[\s_-]+", " ", name.strip().lower().replace("&", "and"))


def _text(text: object) -> str:
    if not isinstance(text, str) or not text.strip():
        raise ValueError(f"the text of a bullet must not be empty, got {text!r}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"the text of a bullet must be Unicode, got {text!r}") from error
    return text.strip()


def _pairs(name: str, rows: Iterable) -> list[tuple]:
    try:
        found = [() if isinstance(row, str) else tuple(row) for row in rows]
    except TypeError:
        found = [()]
    if all(len(row) == 2 for row in found):
        return found
    raise ValueError(f"{name} must be pairs, got {rows!r}")


def _digest(text: str, digits: int) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:digits]
