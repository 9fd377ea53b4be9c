"""Answers of a model with a cartridge, and the teacher's own to questions without any."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np

from jaxmem.lm.cartridges.reading import Reading
from jaxmem.lm.fit import first_question
from jaxmem.lm.generation import generate
from jaxmem.lm.model import Model
from jaxmem.lm.self_study.conversations import Conversation
from jaxmem.recall.cartridges import Cartridge

_TOKENS = 64  # of an answer at most
_ROWS = 16  # answered at once
_PIECE = 32  # prompts are padded to a multiple, so that few programs are compiled


class Answer(NamedTuple):
    """What a model said.

    text: without the end of the turn.
    tokens: that were generated, the end of the turn included.
    """

    text: str
    tokens: int


def answer(
    model: Model,
    cartridge: Cartridge | None,
    question: str,
    *,
    tokens: int = _TOKENS,
    temperature: float = 0.0,
    seed: int = 0,
) -> Answer:
    """Put a question to a model that reads a cartridge.

    Args:
      model: that answers.
      cartridge: in place of a document, or None.
      question: a user's turn.
      tokens: of the answer at most.
      temperature: 0 takes the likeliest token each time.
      seed: of the draws of a temperature above 0.

    Returns:
      The answer.

    Raises:
      ValueError: if the cartridge does not fit the model or leaves no room for the answer.
    """
    prompt = model.tokenizer.chat([("user", question)])
    ids = np.zeros((1, -(-len(prompt) // _PIECE) * _PIECE), np.int32)
    ids[0, : len(prompt)] = prompt
    lengths = np.array([len(prompt)])
    return _generated(model, cartridge, ids, lengths, tokens, temperature, seed)[0]


def answered(model: Model, reading: Reading, brought: Sequence[Conversation]) -> list[Conversation]:
    """Questions with the teacher's greedy answers where they have none, and with their windows.

    Args:
      model: the teacher.
      reading: the document, of which it sees the window that a question is about.
      brought: the questions.

    Returns:
      As many conversations, in the same order.

    Raises:
      ValueError: if a question leaves no room for an answer.
    """
    found = [one._replace(chunk=one.chunk or _about(one, reading)) for one in brought]
    open_ones = [number for number, one in enumerate(found) if not one.answer.strip()]
    if not open_ones:
        return found
    prompts = {n: model.tokenizer.chat([("user", found[n].question)]) for n in open_ones}
    length = -(-max(map(len, prompts.values())) // _PIECE) * _PIECE
    for part in range(len(reading.parts)):
        mine = [n for n in open_ones if reading.part_of(found[n]) == part]
        prefix = reading.parts[part].prefix
        if mine and first_question(prefix) + length + _TOKENS > model.config.positions:
            raise ValueError(f"expected shorter questions, one has about {length} tokens")
        for start in range(0, len(mine), _ROWS):
            some = mine[start : start + _ROWS]
            ids = np.zeros((_ROWS, length), np.int32)
            lengths = np.ones(_ROWS, np.int32)
            for row, number in enumerate(some):
                ids[row, : len(prompts[number])] = prompts[number]
                lengths[row] = len(prompts[number])
            made = _generated(model, prefix, ids, lengths, _TOKENS)
            for one, number in zip(made, some):
                found[number] = found[number]._replace(answer=one.text)
    return found


def _generated(
    model: Model,
    cartridge: Cartridge | None,
    ids: np.ndarray,
    lengths: np.ndarray,
    tokens: int,
    temperature: float = 0.0,
    seed: int = 0,
) -> list[Answer]:
    """Answers to prompts, rows of `ids`."""
    tokenizer = model.tokenizer
    ends = sorted({tokenizer.end, tokenizer.eos})
    made = generate(
        model.params, model.config, ids, lengths,
        steps=tokens, key=jax.random.key(seed), temperature=temperature,
        cartridge=cartridge, stop=ends,
    )  # fmt: skip
    found = []
    for row, length in zip(np.asarray(made.ids), np.asarray(made.lengths)):
        told = row[: int(length)]
        found.append(Answer(tokenizer.decode(told[~np.isin(told, ends)]).strip(), len(told)))
    return found


def _about(question: Conversation, reading: Reading) -> tuple[int, int] | None:
    """The window with most of a question's words, rare ones counting more; None for a single."""
    if len(reading.parts) == 1:
        return None
    texts = [reading.text[part.start : part.end].lower() for part in reading.parts]
    scores = np.zeros(len(texts))
    for word in set(question.question.lower().split()):
        there = np.array([word.strip(".,;:?!\"'()") in text for text in texts])
        scores = scores + there / np.maximum(there.sum(), 1)
    best = reading.parts[int(np.argmax(scores))]
    return best.start, best.end
