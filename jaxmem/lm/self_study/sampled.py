"""Self-study: a model asks itself about a document and answers with the text in view."""

import dataclasses
import random
import re
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxmem.common import check_size, choice, progress
from jaxmem.common.safetensors_header import short
from jaxmem.lm.cartridges.prefix import prefix_cartridge
from jaxmem.lm.generation import Generated, generate
from jaxmem.lm.model import Model
from jaxmem.lm.self_study.clauses import words_for
from jaxmem.lm.self_study.conversations import Conversation
from jaxmem.lm.self_study.document import Span, chunks
from jaxmem.lm.self_study.seeds import SEED_KINDS, all_seeds, seed_prompt
from jaxmem.lm.self_study.templates import read_sources
from jaxmem.lm.tokenizer import Tokenizer
from jaxmem.recall.cartridges import Cartridge

TOP_P = 0.95
TRIES = 3
"""Questions are sampled until there are enough of them, or this many times as many as wanted."""

_FEWEST_WORDS = 4  # of a question
_TOPIC_TOKENS = 16
_END = re.compile(r"[.!?]['\"’”)]*(?=\s|$)")


class _Seen(NamedTuple):
    """A chunk of the document as the model has it in view.

    prefix: tokens of the user's turn up to the end of the chunk.
    cartridge: the model's cache of them, padded.
    """

    prefix: tuple[int, ...]
    cartridge: Cartridge


def self_study(
    model: Model,
    text: str,
    seed: int,
    count: int,
    kinds: Sequence[str] = SEED_KINDS,
    chunk_tokens: int = 256,
    batch: int = 32,
    max_question: int = 48,
    max_answer: int = 64,
    dropped: Counter[str] | None = None,
    *,
    temperature: float = 0.8,
) -> list[Conversation]:
    """Conversations about a document, both sides by the model, one chunk in view.

    Questions are drawn (nucleus 0.95) after a seed prompt that is not part of them, half of them
    about a name or a thing of the chunk; answers are greedy. A chunk's cache is computed once for
    all rows about it.

    Args:
      model: asks and answers.
      text: the document.
      seed: what is drawn from it is the same each time on the same machine.
      count: conversations wanted.
      kinds: kinds of seed prompts, in turn.
      chunk_tokens: tokens of a chunk at most.
      batch: rows at once at most.
      max_question: tokens of a question at most.
      max_answer: tokens of an answer at most; one that is longer ends with its last sentence.
      dropped: to it are added how many questions were dropped, by reason: "empty", "repeated",
        "short", "long" or "no answer".
      temperature: of the questions.

    Returns:
      Conversations with their kinds and chunks; fewer than wanted where too many were dropped.

    Raises:
      ValueError: if the document is empty, a kind is none, or the model has too few positions.
    """
    count, batch = check_size("count", count), check_size("batch", batch)
    chunk_tokens = check_size("chunk_tokens", chunk_tokens, 8)
    check_size("max_question", max_question)
    check_size("max_answer", max_answer)
    if isinstance(kinds, str) or not kinds:
        raise ValueError(f"expected kinds of seed prompts, got {kinds!r}")
    kinds = [choice(SEED_KINDS, kind, "kind of seed prompt") for kind in kinds]
    pieces = chunks(text, chunk_tokens, model.tokenizer.encode)
    if not pieces:
        raise ValueError(f"expected a document with words in it, got {short(text)}")
    dropped = Counter() if dropped is None else dropped
    study = _Study(model, pieces, kinds, batch, max_question, max_answer, temperature)
    return study.run(seed, count, dropped)


class _Study:
    """The shapes that all chunks share, so that each program is compiled once."""

    def __init__(
        self,
        model: Model,
        pieces: list[Span],
        kinds: Sequence[str],
        batch: int,
        max_question: int,
        max_answer: int,
        temperature: float,
    ) -> None:
        self.model, self.pieces, self.kinds, self.batch = model, pieces, kinds, batch
        self.max_question, self.max_answer = max_question, max_answer
        self.temperature = temperature
        self.topics = [_topics(model.tokenizer, piece.text) for piece in pieces]
        self.prefixes = [_prefix(model.tokenizer, piece.text) for piece in pieces]
        self.slots = max(len(prefix) for prefix in self.prefixes)
        tails = [
            len(self._asking(0, *pair)) for kind in sorted(set(kinds)) for pair in all_seeds(kind)
        ]
        self.asking_room = max(tails) + _TOPIC_TOKENS
        rest = len(_user_turn(model.tokenizer, pieces[0].text, "Who?")) - len(self.prefixes[0])
        self.answering_room = rest + 2 * max_question
        longest = self.slots + max(
            self.asking_room + max_question, self.answering_room + max_answer
        )
        if longest > model.config.positions:
            raise ValueError(
                f"the model's context is {model.config.positions} tokens, got chunks, questions "
                f"and answers of {longest} together"
            )

    def run(self, seed: int, count: int, dropped: Counter[str]) -> list[Conversation]:
        rng, key = random.Random(seed), jax.random.key(seed % 2**32)
        found: list[Conversation] = []
        asked: set[str] = set()
        rows = min(self.batch, -(-count // len(self.pieces)))
        plan = self._plan(rng, count, rows)
        tried = 0
        for number, (place, many) in enumerate(progress(plan, "self-study")):
            if len(found) >= count or tried >= TRIES * count:
                break
            seen = self._look(place)
            for part in range(many):
                seeds = [self._draw(rng, place, tried + row) for row in range(rows)]
                drawn = jax.random.fold_in(jax.random.fold_in(key, number), part)
                tried += rows
                questions = self._ask(drawn, place, seen, seeds)
                kept = []
                for (kind, _, _), question in zip(seeds, questions):
                    reason = _fault(question, asked)
                    if reason:
                        dropped[reason] += 1
                    else:
                        asked.add(question.lower())
                        kept.append((kind, question))
                found += self._answered(place, seen, kept, rows, dropped)
                if len(found) >= count:
                    break
        return found[:count]

    def _plan(self, rng: random.Random, count: int, rows: int) -> list[tuple[int, int]]:
        """(chunk, batches of rows) of each visit: every chunk in turn, up to three rounds."""
        plan = []
        for _ in range(TRIES):
            order = list(range(len(self.pieces)))
            rng.shuffle(order)
            plan += [(place, -(-count // (rows * len(order)))) for place in order]
        return plan

    def _draw(self, rng: random.Random, place: int, number: int) -> tuple[str, str, str]:
        kind = self.kinds[number % len(self.kinds)]
        topics = self.topics[place]
        return (kind, *seed_prompt(kind, rng, rng.choice(topics) if topics else ""))

    def _look(self, place: int) -> _Seen:
        """The cache of a chunk, padded to the length of the longest."""
        prefix = self.prefixes[place]
        ids = np.zeros(self.slots, np.int32)
        ids[: len(prefix)] = prefix
        cartridge = prefix_cartridge(self.model.params, self.model.config, jnp.asarray(ids))
        seen = jnp.arange(self.slots) < len(prefix)
        return _Seen(
            prefix,
            dataclasses.replace(
                cartridge,
                mask=jnp.broadcast_to(seen, cartridge.keys.shape[:-1]),
                first_question=jnp.asarray(len(prefix), jnp.int32),
            ),
        )

    def _asking(self, place: int, instruction: str, first_words: str) -> list[int]:
        """Tokens after the prefix that make the model ask."""
        tokenizer = self.model.tokenizer
        ids = _user_turn(tokenizer, self.pieces[place].text, instruction)
        return ids[len(self.prefixes[place]) :] + tokenizer.encode(first_words)

    def _ask(
        self, key: Array, place: int, seen: _Seen, seeds: Sequence[tuple[str, str, str]]
    ) -> list[str]:
        prompts = [self._asking(place, instruction, first) for _, instruction, first in seeds]
        draw = partial(generate, key=key, temperature=self.temperature, top_p=TOP_P)
        made = self._generate(draw, prompts, self.asking_room, self.max_question, seen)
        return [
            clean_question(f"{first}{text}", ended)
            for (_, _, first), (text, ended) in zip(seeds, made)
        ]

    def _answered(
        self,
        place: int,
        seen: _Seen,
        asked: Sequence[tuple[str, str]],
        rows: int,
        dropped: Counter[str],
    ) -> list[Conversation]:
        tokenizer, piece = self.model.tokenizer, self.pieces[place]
        prompts, kept = [], []
        for kind, question in asked:
            ids = _user_turn(tokenizer, piece.text, question)
            tail = ids[len(seen.prefix) :]
            if tuple(ids[: len(seen.prefix)]) == seen.prefix and len(tail) <= self.answering_room:
                prompts.append(tail)
                kept.append((kind, question))
            else:
                dropped["long"] += 1
        if not prompts:
            return []
        full = prompts + [prompts[0]] * (rows - len(prompts))
        made = self._generate(generate, full, self.answering_room, self.max_answer, seen)
        found = []
        for (kind, question), (text, ended) in zip(kept, made):
            answer = clean_answer(text, ended)
            if answer:
                found.append(Conversation(question, answer, kind, (piece.start, piece.end)))
            else:
                dropped["no answer"] += 1
        return found

    def _generate(
        self,
        way: Callable[..., Generated],
        prompts: Sequence[Sequence[int]],
        room: int,
        steps: int,
        seen: _Seen,
    ) -> list[tuple[str, bool]]:
        """What follows each prompt as text, and whether the model ended it itself."""
        tokenizer = self.model.tokenizer
        ids = np.zeros((len(prompts), room), np.int32)
        for row, prompt in zip(ids, prompts):
            row[: len(prompt)] = prompt
        stops = sorted({tokenizer.end, tokenizer.eos})
        made = way(
            self.model.params, self.model.config, ids,
            np.array([len(prompt) for prompt in prompts], np.int32),
            steps=steps, cartridge=seen.cartridge, stop=stops,
        )  # fmt: skip
        found = []
        for row, length in zip(np.asarray(made.ids), np.asarray(made.lengths)):
            tokens = row[:length].tolist()
            ended = bool(tokens) and tokens[-1] in stops
            readable = [token for token in tokens if token < tokenizer.vocabulary]
            found.append((tokenizer.decode(readable[:-1] if ended else readable), ended))
        return found


def clean_question(text: str, ended: bool = True) -> str:
    """The question in what a model said: one line, up to its first question mark.

    Args:
      text: what it said.
      ended: whether it came to its own end.

    Returns:
      The question, or the first sentence of what is none; "" where no sentence ends.
    """
    line = _one_line(text.strip().split("\n")[0] if "?" not in text else text)
    mark = line.find("?")
    if mark >= 0:
        return line[: mark + 1]
    stop = _END.search(line)
    if stop:
        return line[: stop.end()]
    return line if ended else ""


def clean_answer(text: str, ended: bool = True) -> str:
    """An answer on one line, without a last sentence that was cut off.

    Args:
      text: what the model said.
      ended: whether it came to its own end.

    Returns:
      The answer, or "" where no sentence ends.
    """
    line = _one_line(text)
    if ended:
        return line
    stops = list(_END.finditer(line))
    return line[: stops[-1].end()] if stops else ""


def _fault(question: str, asked: set[str]) -> str:
    """Why a question is of no use, or ""."""
    words = re.findall(r"\w+", question)
    if not words:
        return "empty"
    if len(words) < _FEWEST_WORDS:
        return "short"
    return "repeated" if question.lower() in asked else ""


def _user_turn(tokenizer: Tokenizer, chunk: str, message: str) -> list[int]:
    return tokenizer.chat([("user", f"Text: {chunk}\n\n{message}")])


def _prefix(tokenizer: Tokenizer, chunk: str) -> tuple[int, ...]:
    """Tokens of a turn up to where messages differ, whatever they are."""
    turns = [_user_turn(tokenizer, chunk, message) for message in ("Who", "9 in", '"A', "ask")]
    same = 0
    while all(len(turn) > same for turn in turns) and len({turn[same] for turn in turns}) == 1:
        same += 1
    return tuple(turns[0][:same])


def _topics(tokenizer: Tokenizer, chunk: str) -> list[str]:
    """Names and things that a chunk speaks of."""
    found = sorted(
        {
            words_for(topic, source.parts.names)
            for source in read_sources(chunk)
            for topic in source.topics
        }
    )
    return [topic for topic in found if len(tokenizer.encode(topic)) <= _TOPIC_TOKENS]


def _one_line(text: str) -> str:
    text = "".join(letter if letter.isprintable() else " " for letter in text)
    return " ".join(text.replace("\ufffd", "").split())
