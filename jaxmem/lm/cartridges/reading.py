"""A document as the teacher reads it: whole, or window by window where it is too long."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jaxmem.common import check_size
from jaxmem.lm.cartridges.course import Course, joined
from jaxmem.lm.cartridges.prefix import prefix_cartridge
from jaxmem.lm.cartridges.rows import Example, pack
from jaxmem.lm.cartridges.teacher import hard, teach
from jaxmem.lm.model import Model
from jaxmem.lm.self_study.conversations import Conversation
from jaxmem.lm.self_study.document import chunks
from jaxmem.recall.cartridges import Cartridge, compose

ROW_TOKENS = 128
_ROOM = 256  # positions that questions and answers have behind a window


class Part(NamedTuple):
    """A stretch of a document that the teacher has in view at once.

    start, end: characters of the text.
    ids: its tokens, a system turn.
    prefix: the model's cache of them.
    """

    start: int
    end: int
    ids: list[int]
    prefix: Cartridge


class Reading(NamedTuple):
    """A document that a model has read.

    text: the document.
    parts: one, or one a window.
    fingerprint: of the model.
    """

    text: str
    parts: tuple[Part, ...]
    fingerprint: str

    @property
    def whole(self) -> Cartridge:
        """The cache of everything: of several windows side by side, each at its own positions."""
        return compose(*(part.prefix for part in self.parts))

    @property
    def tokens(self) -> int:
        """Tokens of all parts."""
        return sum(len(part.ids) for part in self.parts)

    def part_of(self, conversation: Conversation) -> int:
        """Number of the part that holds most of what a conversation is about.

        Args:
          conversation: with a chunk, or the first part is taken.

        Returns:
          The number.
        """
        if conversation.chunk is None:
            return 0
        low, high = conversation.chunk
        shared = [min(high, part.end) - max(low, part.start) for part in self.parts]
        return int(np.argmax(shared))


def read_document(model: Model, text: str, window: int | None = None) -> Reading:
    """Have a model read a document, in a system turn.

    Args:
      model: the reader.
      text: the document.
      window: tokens that it can see at once; by default what its positions allow.

    Returns:
      The document's parts: one if it fits.

    Raises:
      ValueError: if it holds no word, or the window no text.
    """
    most = model.config.positions - _ROOM
    window = most if window is None else check_size("window", window, 32, most)
    if not isinstance(text, str):
        raise ValueError(f"expected a document's text, got {type(text).__name__}")
    if not text.strip():
        raise ValueError("expected a document with words in it, got an empty one")
    around = len(model.tokenizer.chat([("system", "")], open=False)) + 2
    whole = model.tokenizer.chat([("system", text)], open=False)
    if len(whole) <= window:
        spans = [(0, len(text))]
    else:
        pieces = chunks(text, window - around, model.tokenizer.encode)
        spans = [(piece.start, piece.end) for piece in pieces]
    parts = []
    for start, end in spans:
        ids = model.tokenizer.chat([("system", text[start:end])], open=False)
        parts.append(
            Part(start, end, ids, prefix_cartridge(model.params, model.config, np.array(ids)))
        )
    return Reading(text, tuple(parts), model.fingerprint)


def check_reader(model: Model, reading: Reading) -> None:
    """Refuse a document that another model has read.

    Args:
      model: that is to use it.
      reading: from `read_document`.

    Raises:
      ValueError: with both fingerprints.
    """
    if reading.fingerprint != model.fingerprint:
        raise ValueError(
            f"expected a document read by {model.name} (fingerprint {model.fingerprint}), got one "
            f"read by {reading.fingerprint}"
        )


def example(model: Model, conversation: Conversation, end: bool = True) -> Example:
    """A conversation as tokens.

    Args:
      model: whose tokenizer and turns.
      conversation: question and answer.
      end: whether the end of the answer's turn is predicted too.

    Returns:
      The user's turn and the answer.
    """
    prompt = model.tokenizer.chat([("user", conversation.question)])
    answer = model.tokenizer.encode(conversation.answer)
    return Example(tuple(prompt), tuple([*answer, model.tokenizer.end] if end else answer))


def course_of(
    model: Model,
    reading: Reading,
    conversations: Sequence[Conversation],
    *,
    top_k: int | None = 32,
    row_tokens: int = ROW_TOKENS,
    labels: str = "teacher",
) -> Course:
    """Rows of conversations with what the teacher says of their answers.

    Args:
      model: the teacher.
      reading: the document; each conversation is taught with its part in view.
      conversations: questions and answers.
      top_k: see `teach`.
      row_tokens: tokens a row, T.
      labels: "teacher", or "hard": the answers' own tokens and no teacher.

    Returns:
      The course.

    Raises:
      ValueError: if there is no conversation, or one too long for a row.
    """
    check_reader(model, reading)
    groups: dict[int, list[Example]] = {}
    for conversation in conversations:
        made = example(model, conversation)
        if len(made.prompt) >= row_tokens:  # a long question keeps its end, and its turn's opening
            made = Example(made.prompt[-(row_tokens // 2) :], made.answer)
        groups.setdefault(reading.part_of(conversation), []).append(made)
    if not groups:
        raise ValueError("expected at least one conversation to learn from, got none")
    courses = []
    for number, examples in sorted(groups.items()):
        rows = pack(examples, row_tokens)
        prefix = reading.parts[number].prefix
        lesson = (
            hard(rows)
            if labels == "hard"
            else teach(model.params, model.config, rows, prefix, top_k=top_k)
        )
        courses.append(Course(rows, lesson))
    return joined(courses)


def recitation(model: Model, reading: Reading, row_tokens: int = ROW_TOKENS) -> Course:
    """The document's own text as rows of next tokens: the baseline that learns to recite.

    Args:
      model: whose tokens.
      reading: the document.
      row_tokens: tokens a row.

    Returns:
      A course of hard labels, half a row of new text a row.
    """
    ids = model.tokenizer.encode(reading.text)
    step = max(2, row_tokens // 2)
    pieces = [ids[start : start + row_tokens] for start in range(0, max(1, len(ids) - 1), step)]
    examples = [Example(tuple(p[:1]), tuple(p[1:])) for p in pieces if len(p) > 1]
    rows = pack(examples, row_tokens)
    return Course(rows, hard(rows))
