"""The teacher's own answers to questions that a user brings without any."""

from collections.abc import Sequence

import numpy as np

from jaxmem.lm.cartridges.reading import Reading
from jaxmem.lm.fit import first_question
from jaxmem.lm.generation import generate
from jaxmem.lm.model import Model
from jaxmem.lm.self_study.conversations import Conversation

_TOKENS = 64  # of an answer at most
_ROWS = 16  # answered at once


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
    tokenizer, ends = model.tokenizer, sorted({model.tokenizer.end, model.tokenizer.eos})
    prompts = {n: tokenizer.chat([("user", found[n].question)]) for n in open_ones}
    length = -(-max(map(len, prompts.values())) // 32) * 32
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
            made = generate(
                model.params, model.config, ids, lengths,
                steps=_TOKENS, cartridge=prefix, stop=ends,
            )  # fmt: skip
            for row, number in enumerate(some):
                told = np.asarray(made.ids[row, : int(made.lengths[row])])
                answer = tokenizer.decode(told[~np.isin(told, ends)]).strip()
                found[number] = found[number]._replace(answer=answer)
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
