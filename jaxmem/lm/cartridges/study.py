"""From a document to a cartridge: reading, questions, the teacher's rows, a start, training."""

import time
import warnings
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
from jax import Array

from jaxmem.common import check_size, choice
from jaxmem.lm.cartridges.answers import answered
from jaxmem.lm.cartridges.compaction import attention_matching, evict, reference_queries
from jaxmem.lm.cartridges.course import Course
from jaxmem.lm.cartridges.reading import Reading, check_reader, course_of, read_document
from jaxmem.lm.cartridges.recipe import Recipe
from jaxmem.lm.cartridges.starts import STARTS, check_slots, start_cartridge
from jaxmem.lm.cartridges.state import Moment, State, Status, Trained
from jaxmem.lm.cartridges.training import evaluate, init_state, train
from jaxmem.lm.fit import check_fit
from jaxmem.lm.model import Model
from jaxmem.lm.self_study.apart import draw_apart, hold_out, split_apart, without
from jaxmem.lm.self_study.conversations import Conversation
from jaxmem.lm.self_study.loose import LOOSE, loosened
from jaxmem.lm.self_study.sampled import self_study
from jaxmem.recall.cartridges import Cartridge

QUESTIONS = 600
"""Template conversations that a cartridge is trained on where nothing else is said."""

HELD_OUT = 32
"""Conversations that are not trained on and choose the best moment of a run."""

WAYS = ("matching", "attention", *STARTS)
"""Names of the starts: Attention Matching, tokens chosen by attention, and `STARTS`."""

_FEWEST, _MOST = 16, 20_000  # template conversations of a budget
# A row costs about this many times as much to learn from as to ask the teacher about, all times
# that it is seen together.
_LEARNING = 4.0
_OVERHEAD_S = 15.0  # programs compiled, the file
_READINGS = 2.0  # reference questions and the start take so many times a document's reading


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
    brought = answered(model, reading, brought)
    if brought:
        at = lap("answering your questions", at)
    check_size("questions", questions, 0)
    check_size("sampled", sampled, 0)
    check_size("held_out", held_out, 0)
    if made is not None:
        kept, rest = split_apart(without(made, apart), seed, min(held_out, len(made) // 10))
        budget_s = None
    else:
        # Those kept do not depend on how many there are, so that a budget's run can be resumed.
        kept = hold_out(seed, text, held_out, apart)
        rest = []
        if budget_s is None:
            rest = loosened(draw_apart(seed, text, questions, [*apart, *kept]), seed, loose)
        if sampled:
            rest += without(self_study(model, text, seed, sampled), [*apart, *kept])
    at = lap("making conversations", at)
    held = course_of(model, reading, kept) if kept else None
    if budget_s is not None:
        if not kept:
            raise ValueError("expected a document with more to ask about for a budget of time")
        each_s = _taught_seconds(model, reading, kept) * (1.0 + _LEARNING)
        left_s = budget_s - (time.monotonic() - began) - _OVERHEAD_S
        left_s -= _READINGS * seconds["reading the document"]
        questions = int(min(max(left_s / each_s, _FEWEST), _MOST))
        rest += loosened(draw_apart(seed, text, questions, [*apart, *kept]), seed, loose)
    rest = [*rest, *without(brought, apart)]
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
    check_reader(model, reading)
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
      until: see `train`.

    Returns:
      The cartridge, with the history of its training.

    Raises:
      ValueError: as `begin` and `train`, or if a cartridge to start from has other slots.
    """
    check_reader(model, prepared.reading)
    if isinstance(start, Cartridge):
        check_fit(start, model.config)
        if start.slots != slots:
            raise ValueError(f"expected a cartridge of {slots} slots, got {start.slots}")
        cartridge = start
    else:
        cartridge = begin(prepared, model, slots, start, seed)
    rows, held_out = course or prepared.course, prepared.held_out
    params, config = model.params, model.config
    if recipe is not None:
        return train(
            params, config, cartridge, rows, recipe,
            seed=seed, held_out=held_out, state=state, report=report, until=until,
        )  # fmt: skip
    found = float("nan")
    if held_out is not None:
        found = evaluate(params, config, cartridge, held_out)
    alone = init_state(cartridge, Recipe()).slots
    return Trained(cartridge, alone, (Moment(0, float("nan"), found, 0.0, 0.0),), Status.OK)


def _taught_seconds(model: Model, reading: Reading, some: Sequence[Conversation]) -> float:
    """What the teacher takes for a conversation whose program is compiled."""
    began = time.monotonic()
    course_of(model, reading, some)
    return (time.monotonic() - began) / len(some)
