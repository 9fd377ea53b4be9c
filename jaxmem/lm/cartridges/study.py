"""From a document to a cartridge: reading, questions, the teacher's rows, a start, training."""

import time
import warnings
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import numpy as np
from jax import Array

from jaxmem.common import check_size, choice
from jaxmem.lm.cartridges.compaction import attention_matching, evict, reference_queries
from jaxmem.lm.cartridges.fit import check_fit
from jaxmem.lm.cartridges.prefix import first_question
from jaxmem.lm.cartridges.reading import Reading, course_of, read_document
from jaxmem.lm.cartridges.starts import STARTS, check_slots, start_cartridge
from jaxmem.lm.cartridges.training import (
    Course,
    Moment,
    Recipe,
    State,
    Status,
    Trained,
    _start,
    _status,
    evaluate,
    student,
    train,
)
from jaxmem.lm.generation import generate
from jaxmem.lm.model import Model
from jaxmem.lm.self_study.conversations import Conversation, without_shared_runs
from jaxmem.lm.self_study.loose import LOOSE, loosened
from jaxmem.lm.self_study.sampled import self_study
from jaxmem.lm.self_study.templates import template_conversations
from jaxmem.recall.cartridges import Cartridge

QUESTIONS = 600
"""Template conversations that a cartridge is trained on where nothing else is said."""

HELD_OUT = 32
"""Conversations that are not trained on and choose the best moment of a run."""

WAYS = ("matching", "attention", *STARTS)
"""Names of the starts: Attention Matching, tokens chosen by attention, and `STARTS`."""

_ANSWER_TOKENS = 64
_ANSWERS = 16  # rows at once
_FEWEST, _MOST = 64, 20_000  # template conversations of a budget
# A row costs about this many times as much to learn from as to ask the teacher about, all times
# that it is seen together.
_LEARNING = 4.0
_OVERHEAD_S = 15.0  # programs compiled, the start, the file


class Prepared(NamedTuple):
    """All that cartridges of a document are made from, of any size and start.

    reading: the document as the teacher sees it.
    course: rows to train on.
    held_out: rows that are not trained on, or None where there were too few conversations.
    asked: [L, G, Q, K] reference questions of each layer and head.
    conversations: that the rows of the course are made of.
    kept: conversations held out.
    templates: conversations that templates were asked for, as given or as a budget chose.
    seconds: what each stage took, by name.
    """

    reading: Reading
    course: Course
    held_out: Course | None
    asked: Array
    conversations: list[Conversation]
    kept: list[Conversation]
    templates: int
    seconds: dict[str, float]


def prepare(
    model: Model,
    text: str,
    *,
    seed: int = 0,
    questions: int = QUESTIONS,
    loose: float = LOOSE,
    sampled: int = 0,
    brought: Sequence[Conversation] = (),
    made: Sequence[Conversation] | None = None,
    window: int | None = None,
    held_out: int = HELD_OUT,
    apart: Sequence[Conversation] = (),
    budget_s: float | None = None,
) -> Prepared:
    """Read a document, make conversations about it and put them to the teacher.

    Args:
      model: teacher, and asker of sampled questions.
      text: the document.
      seed: of templates, samples, the choice of what is held out.
      questions: conversations from templates.
      loose: share of these whose answer is put out of order, see `loosened`.
      sampled: conversations that the model makes up.
      brought: a user's questions, trained on; one without an answer gets the teacher's greedy one.
      made: conversations of an earlier time in place of templates and samples.
      window: see `read_document`.
      held_out: conversations held out, of templates where nothing was made before; fewer where a
        text is too short for as many different questions.
      apart: test questions: no conversation that has the question of one, or shares eight words
        in a row with one, is trained on or held out.
      budget_s: seconds for everything, training included; chooses `questions` by the teacher's
        speed on what is held out.

    Returns:
      What `make` needs.

    Raises:
      ValueError: if the document is empty, or no conversation is left.
    """
    began = time.monotonic()
    seconds: dict[str, float] = {}

    def lap(name: str, since: float) -> float:
        seconds[name] = time.monotonic() - since
        return time.monotonic()

    reading = read_document(model, text, window)
    jax.block_until_ready(reading.parts[-1].prefix.keys)
    if len(reading.parts) > 1:
        warnings.warn(
            f"the document has {reading.tokens:,} tokens and is read in {len(reading.parts)} "
            "windows, each question with the one it is about in view",
            UserWarning,
            stacklevel=2,
        )
    at = lap("reading the document", began)
    brought = _answered(model, reading, brought)
    if brought:
        at = lap("answering your questions", at)
    check_size("questions", questions, 0)
    check_size("sampled", sampled, 0)
    check_size("held_out", held_out, 0)
    if made is not None:
        kept, rest = _split(_without(made, apart), seed, min(held_out, len(made) // 10))
        budget_s = None
    else:
        # Those kept do not depend on how many there are, so that a budget's run can be resumed.
        kept = _kept(seed, text, held_out, apart)
        rest = []
        if budget_s is None:
            rest = loosened(_templates(seed, text, questions, [*apart, *kept]), seed, loose)
        if sampled:
            rest += _without(self_study(model, text, seed, sampled), [*apart, *kept])
    at = lap("making conversations", at)
    held = course_of(model, reading, kept) if kept else None
    if budget_s is not None:
        if not kept:
            raise ValueError("expected a document with more to ask about for a budget of time")
        each_s = _taught_seconds(model, reading, kept) * (1.0 + _LEARNING)
        left_s = budget_s - (time.monotonic() - began) - _OVERHEAD_S
        questions = int(min(max(left_s / each_s, _FEWEST), _MOST))
        rest += loosened(_templates(seed, text, questions, [*apart, *kept]), seed, loose)
    rest = [*rest, *_without(brought, apart)]
    course = course_of(model, reading, rest)
    at = lap("the teacher's rows", at)
    asked = reference_queries(model.params, model.config, course.rows, reading.whole, seed=seed)
    jax.block_until_ready(asked)
    lap("reference questions", at)
    return Prepared(reading, course, held, asked, rest, kept, questions, seconds)


def begin(
    prepared: Prepared, model: Model, slots: int, start: str = "matching", seed: int = 0
) -> Cartridge:
    """A cartridge before any training.

    Args:
      prepared: from `prepare`.
      model: that reads it.
      slots: P.
      start: one of `WAYS`.
      seed: of what is drawn.

    Returns:
      The cartridge.

    Raises:
      ValueError: if the document has fewer tokens than slots, or there is no such start.
    """
    reading = prepared.reading
    check_slots(reading, slots)
    how = choice(WAYS, start, "start of a cartridge")
    if how == "matching":
        return attention_matching(reading.whole, slots, prepared.asked)
    if how == "attention":
        return evict(reading.whole, slots, prepared.asked)
    return start_cartridge(jax.random.key(seed), model, reading, slots, how)


def make(
    prepared: Prepared,
    model: Model,
    slots: int,
    recipe: Recipe | None = None,
    start: str | Cartridge = "matching",
    seed: int = 0,
    *,
    course: Course | None = None,
    state: State | None = None,
    report: Callable[[State], None] | None = None,
    until: float | None = None,
) -> Trained:
    """Make a cartridge of a document.

    Args:
      prepared: from `prepare`.
      model: that is to read it.
      slots: P.
      recipe: of its training; None for the start alone.
      start: one of `WAYS`, or a cartridge.
      seed: of the start and of the order of rows.
      course: rows other than those prepared.
      state: of a run that was interrupted, see `train`.
      report: called at each look, see `train`.
      until: time of `time.monotonic` at which training ends at the next look, done or not.

    Returns:
      The cartridge, with the history of its training.

    Raises:
      ValueError: as `begin` and `train`, or if a cartridge to start from has other slots.
    """
    if isinstance(start, Cartridge):
        check_fit(start, model.config)
        if start.slots != slots:
            raise ValueError(f"expected a cartridge of {slots} slots, got {start.slots}")
        cartridge = start
    else:
        cartridge = begin(prepared, model, slots, start, seed)
    rows, held_out = course or prepared.course, prepared.held_out
    if recipe is None:
        return _untrained(model, cartridge, held_out)

    def look(state: State) -> None:
        if report:
            report(state)
        done = state.history[-1].step >= recipe.steps
        if until is not None and time.monotonic() > until and not done:
            raise _Enough(state)

    params, config = model.params, model.config
    try:
        return train(
            params, config, cartridge, rows, recipe,
            seed=seed, held_out=held_out, state=state, report=look,
        )  # fmt: skip
    except _Enough as enough:
        last = enough.state
        best = student(params, cartridge, last.best)[1]
        return Trained(best, last.best, last.history, _status(last))


class _Enough(Exception):
    """The time is up."""

    def __init__(self, state: State) -> None:
        self.state = state


def _untrained(model: Model, cartridge: Cartridge, held_out: Course | None) -> Trained:
    found = float("nan")
    if held_out is not None:
        found = evaluate(model.params, model.config, cartridge, held_out)
    slots = _start(cartridge, None, Recipe())
    return Trained(cartridge, slots, (Moment(0, float("nan"), found, 0.0, 0.0),), Status.OK)


def _templates(
    seed: int, text: str, count: int, apart: Sequence[Conversation]
) -> list[Conversation]:
    """As many as wanted that are not too near to a test, if there are as many."""
    if not count:
        return []
    found = template_conversations(seed, text, count)
    lost = count - len(_without(found, apart))
    if lost:
        found = template_conversations(seed, text, count + 2 * lost)
    return _without(found, apart)[:count]


def _kept(seed: int, text: str, count: int, apart: Sequence[Conversation]) -> list[Conversation]:
    """Conversations of a draw of their own; the same however many are trained on."""
    if not count:
        return []
    pool = _without(template_conversations(seed + 1, text, 6 * count), apart)
    questions = {_plain(one.question) for one in pool}
    return _split(pool, seed, min(count, len(questions) // 3))[0]


def _without(
    conversations: Sequence[Conversation], apart: Sequence[Conversation]
) -> list[Conversation]:
    """Those that have no question of the others and share no eight words in a row with one."""
    if not apart:
        return list(conversations)
    asked = {_plain(one.question) for one in apart}
    far = without_shared_runs(conversations, [one.question for one in apart])
    return [one for one in far if _plain(one.question) not in asked]


def _plain(question: str) -> str:
    return " ".join(question.lower().split())


def _split(
    pool: Sequence[Conversation], seed: int, count: int
) -> tuple[list[Conversation], list[Conversation]]:
    """Some conversations, and those that ask something else."""
    order = np.random.default_rng([seed, 1]).permutation(len(pool))
    kept: list[Conversation] = []
    there: set[str] = set()
    for number in order:
        one = pool[number]
        if len(kept) < count and _plain(one.question) not in there:
            kept.append(one)
            there.add(_plain(one.question))
    return kept, [one for one in pool if _plain(one.question) not in there]


def _taught_seconds(model: Model, reading: Reading, some: Sequence[Conversation]) -> float:
    """What the teacher takes for a conversation whose program is compiled."""
    began = time.monotonic()
    course_of(model, reading, some)
    return (time.monotonic() - began) / len(some)


def _answered(
    model: Model, reading: Reading, brought: Sequence[Conversation]
) -> list[Conversation]:
    """The same with the teacher's greedy answers where there were none, and their windows."""
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
        if mine and first_question(prefix) + length + _ANSWER_TOKENS > model.config.positions:
            raise ValueError(f"expected shorter questions, one has about {length} tokens")
        for start in range(0, len(mine), _ANSWERS):
            some = mine[start : start + _ANSWERS]
            ids = np.zeros((_ANSWERS, length), np.int32)
            lengths = np.ones(_ANSWERS, np.int32)
            for row, number in enumerate(some):
                ids[row, : len(prompts[number])] = prompts[number]
                lengths[row] = len(prompts[number])
            made = generate(
                model.params, model.config, ids, lengths,
                steps=_ANSWER_TOKENS, cartridge=prefix, stop=ends,
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
