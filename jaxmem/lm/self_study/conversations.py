"""Conversations about a document: rows to train a cartridge on, in files and compared."""

import json
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from jaxmem.common import lookup, write_text
from jaxmem.common.files import read_text

FORMAT = "jaxmem.conversations"
VERSION = 1
KINDS = ("template", "structuring", "summarising", "question", "use", "creative", "user")
"""Where a conversation comes from: rules, one of five seed prompts, or a user's own questions."""

_WORD = re.compile(r"[^\W_]+")


class Conversation(NamedTuple):
    """A question about a document, and its answer.

    question: what the user says.
    answer: what the assistant says; "" where a user's question has none.
    kind: one of `KINDS`.
    chunk: range of the document's characters that it is about, or None for all of it.
    """

    question: str
    answer: str
    kind: str
    chunk: tuple[int, int] | None = None


def save_conversations(
    path: str | os.PathLike[str],
    conversations: Iterable[Conversation],
    provenance: Mapping[str, Any],
) -> None:
    """Write conversations as JSON lines, whole or not at all; the first line says what they are.

    Args:
      path: the file to write; gzip if it ends in `.gz`.
      conversations: what to write.
      provenance: what JSON can hold on how they were made: sha256 of the document's text, name
        and fingerprint of the model, seed.

    Raises:
      ValueError: if a conversation is none, or the provenance is nothing for JSON.
    """
    rows = [_checked(row, f"conversation {number}") for number, row in enumerate(conversations)]
    header = {"format": FORMAT, "version": VERSION, "rows": len(rows), **provenance}
    if len(header) != 3 + len(provenance):
        raise ValueError("expected provenance without format, version and rows, got one of them")
    try:
        lines = [json.dumps(header, allow_nan=False)]
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"expected a provenance that JSON can hold: {error}") from error
    lines += [json.dumps(row._asdict()) for row in rows]
    write_text(path, "\n".join(lines) + "\n")


def load_conversations(
    path: str | os.PathLike[str],
) -> tuple[list[Conversation], dict[str, Any]]:
    """Read what `save_conversations` wrote.

    Args:
      path: the file.

    Returns:
      The conversations, and the provenance.

    Raises:
      ValueError: naming the line that is not as it should be.
    """
    lines = read_text(path).rstrip("\n").split("\n")
    header = _json(lines[0] if lines else "", f"{path}, line 1")
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise ValueError(f"{path}, line 1: expected the header of {FORMAT}, got {_short(header)}")
    if header.get("version") != VERSION:
        raise ValueError(
            f"{path}, line 1: expected version {VERSION}, got {_short(header.get('version'))}"
        )
    rows = []
    for number, line in enumerate(lines[1:], start=2):
        where = f"{path}, line {number}"
        row = _json(line, where)
        if not isinstance(row, dict) or set(row) != set(Conversation._fields):
            raise ValueError(
                f"{where}: expected {', '.join(Conversation._fields)}, got {_short(row)}"
            )
        chunk = row["chunk"]
        row["chunk"] = tuple(chunk) if isinstance(chunk, list) else chunk
        rows.append(_checked(Conversation(**row), where))
    if header.get("rows") != len(rows):
        raise ValueError(
            f"{path}: expected {_short(header.get('rows'))} conversations, got {len(rows)}"
        )
    provenance = {k: v for k, v in header.items() if k not in ("format", "version", "rows")}
    return rows, provenance


def read_questions(path: str | os.PathLike[str]) -> list[Conversation]:
    """Questions that a user brings.

    Args:
      path: a JSON list or JSON lines of {"question": ..., "answer": ...}, the answer optional,
        or plain text, one question a line.

    Returns:
      Conversations of kind "user"; the answer is "" where there is none.

    Raises:
      ValueError: if there are no questions, or naming what is none.
    """
    text = read_text(path)
    body = text.lstrip()
    items: list[tuple[str, Any]]
    if body.startswith("["):
        listed = _json(text, str(path))
        items = [(f"{path}, item {number}", item) for number, item in enumerate(listed, start=1)]
    else:
        plain = not body.startswith("{")
        items = [
            (where, line.strip() if plain else _json(line, where))
            for number, line in enumerate(text.split("\n"), start=1)
            if line.strip()
            for where in [f"{path}, line {number}"]
        ]
    found = []
    for where, item in items:
        row = {"question": item} if isinstance(item, str) else item
        if not isinstance(row, dict) or "question" not in row:
            raise ValueError(f'{where}: expected {{"question": ...}} or a text, got {_short(item)}')
        answer = row.get("answer")
        found.append(
            _checked(Conversation(row["question"], "" if answer is None else answer, "user"), where)
        )
    if not found:
        raise ValueError(f"{path}: expected questions, got none")
    return found


def shared_runs(
    conversations: Sequence[Conversation], texts: Sequence[str], words: int = 8
) -> list[tuple[int, int, str]]:
    """Where conversations and other texts share a run of words, for example test questions.

    A conversation's question and answer are compared each for itself; case and punctuation do
    not count.

    Args:
      conversations: to look in.
      texts: to look for.
      words: length of a run.

    Returns:
      (place of the conversation, place of the text, a run that they share) of each pair.

    Raises:
      ValueError: if `words` is below 1.
    """
    if words < 1:
        raise ValueError(f"expected runs of at least 1 word, got {words}")
    where: dict[tuple[str, ...], set[int]] = defaultdict(set)
    for place, text in enumerate(texts):
        for run in _runs(text, words):
            where[run].add(place)
    found: dict[tuple[int, int], str] = {}
    for place, row in enumerate(conversations):
        for run in [*_runs(row.question, words), *_runs(row.answer, words)]:
            for other in sorted(where.get(run, ())):
                found.setdefault((place, other), " ".join(run))
    return [(place, other, run) for (place, other), run in found.items()]


def without_shared_runs(
    conversations: Sequence[Conversation], texts: Sequence[str], words: int = 8
) -> list[Conversation]:
    """Those conversations that share no run of words with the texts; see `shared_runs`.

    Args:
      conversations: to choose from.
      texts: what they must not share a run with.
      words: length of a run.

    Returns:
      The others, in their order.
    """
    shared = {place for place, _, _ in shared_runs(conversations, texts, words)}
    return [row for place, row in enumerate(conversations) if place not in shared]


def _runs(text: str, length: int) -> list[tuple[str, ...]]:
    found = [word.lower() for word in _WORD.findall(text)]
    return [tuple(found[i : i + length]) for i in range(len(found) - length + 1)]


def _checked(row: Any, where: str) -> Conversation:
    if not isinstance(row, Conversation):
        raise ValueError(f"{where}: expected a Conversation, got {_short(row)}")
    for name, value in (("question", row.question), ("answer", row.answer)):
        if not isinstance(value, str):
            raise ValueError(f"{where}: expected a text as {name}, got {_short(value)}")
        if any("\ud800" <= letter <= "\udfff" for letter in value):
            raise ValueError(f"{where}: expected Unicode in the {name}, got half a character")
    if not row.question.strip():
        raise ValueError(f"{where}: expected a question, got a blank one")
    try:
        lookup({kind: kind for kind in KINDS}, row.kind, "kind of conversation")
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error
    chunk = row.chunk
    if chunk is not None and not (
        isinstance(chunk, tuple)
        and len(chunk) == 2
        and all(type(edge) is int for edge in chunk)
        and 0 <= chunk[0] <= chunk[1]
    ):
        raise ValueError(f"{where}: expected a chunk as (start, end) or none, got {_short(chunk)}")
    return row


def _json(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where}: expected JSON, got {_short(text)} ({error})") from error


def _short(value: Any) -> str:
    return ascii(value)[:60]
