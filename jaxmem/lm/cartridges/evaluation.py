"""What a student knows of a document: KL to the full-context teacher on answers it never saw."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np

from jaxmem.common import Interval, clustered_bootstrap
from jaxmem.lm.cartridges.reading import Reading, example
from jaxmem.lm.cartridges.rows import Places, Rows, most_places, pack, places
from jaxmem.lm.cartridges.teacher import states_at, take_rows
from jaxmem.lm.divergence import BLOCK, score
from jaxmem.lm.model import Model
from jaxmem.lm.parameters import head_of
from jaxmem.lm.self_study.conversations import Conversation
from jaxmem.recall.cartridges import Cartridge


class Exam(NamedTuple):
    """Questions with the answers whose tokens are predicted.

    batches: rows with the places of the answers' tokens and the teacher's last states there.
    questions: [M] number of the question of each predicted token, in the order of the batches.
    asked: number of questions, Q.
    """

    batches: tuple[tuple[Rows, Places, jax.Array], ...]
    questions: np.ndarray
    asked: int


class Grade(NamedTuple):
    """How a student did, a sum over answer tokens for each of Q questions.

    answer_tokens: [Q].
    kl: [Q] KL from the full-context teacher, nats.
    nll: [Q] surprise at the answer, nats.
    teacher_nll: [Q] the teacher's.
    """

    answer_tokens: np.ndarray
    kl: np.ndarray
    nll: np.ndarray
    teacher_nll: np.ndarray

    @property
    def mean_kl(self) -> float:
        """KL, nats an answer token."""
        return float(self.kl.sum()) / float(self.answer_tokens.sum())

    @property
    def mean_nll(self) -> float:
        """Surprise at the answer, nats a token."""
        return float(self.nll.sum()) / float(self.answer_tokens.sum())


def exam(
    model: Model,
    questions: Sequence[Conversation],
    reading: Reading | None,
    row_tokens: int = 128,
    batch: int = 8,
) -> Exam:
    """Put questions to the teacher.

    Args:
      model: the teacher.
      questions: with answers, of which every token is predicted, the end of the turn excepted.
      reading: the document, all of which the teacher sees; None for a teacher without one.
      row_tokens: tokens a row.
      batch: rows at once.

    Returns:
      The exam.

    Raises:
      ValueError: if there is no question, or one does not fit in a row.
    """
    rows = pack([example(model, question, end=False) for question in questions], row_tokens)
    whole = None if reading is None else reading.whole
    batches, numbers = [], []
    room = most_places(rows.targets, batch, BLOCK)
    for start in range(0, len(rows.ids), batch):
        part = take_rows(rows, np.arange(start, min(start + batch, len(rows.ids))), batch)
        there = places(part.targets, room)
        batches.append((part, there, states_at(model.params, model.config, part, there, whole)))
        numbers.append(part.segments.reshape(-1)[there.at[there.weights > 0]])
    return Exam(tuple(batches), np.concatenate(numbers), len(questions))


def grade(model: Model, paper: Exam, cartridge: Cartridge | None) -> Grade:
    """Put questions to a student.

    Args:
      model: the student, with adapters where it has some.
      paper: questions and what the teacher says.
      cartridge: in place of the document, or None.

    Returns:
      Sums a question.
    """
    params, config = model.params, model.config
    head = head_of(params)
    found = []
    for rows, there, teacher in paper.batches:
        states = states_at(params, config, rows, there, cartridge)
        scores = score(states, teacher, head, there.targets)
        found.append(np.stack([np.asarray(part)[there.weights > 0] for part in scores]))
    columns = np.concatenate(found, axis=1)
    sums = [
        np.bincount(paper.questions, weights, paper.asked)
        for weights in (np.ones(columns.shape[1]), *columns)
    ]
    return Grade(*sums)


def closed(student: Grade, nothing: Grade) -> Interval:
    """Share of the gap between no context and full context that a student closes.

    1 - sum KL / sum KL(no context), over all answer tokens

    Args:
      student: its grade.
      nothing: the grade of the model without any context on the same questions.

    Returns:
      The share with a 95 % interval by bootstrap over questions.
    """
    return clustered_bootstrap(nothing.kl - student.kl, nothing.kl)


OFF_TOPIC = (
    ("What is the capital of France?", "The capital of France is Paris."),
    ("How many days are there in a week?", "There are seven days in a week."),
    ("What do bees make?", "Bees make honey from the nectar of flowers."),
    ("Why is the sky blue?", "Because air scatters blue light more than red light."),
    ("What is water made of?", "Water is made of hydrogen and oxygen."),
    ("Who wrote Romeo and Juliet?", "William Shakespeare wrote Romeo and Juliet."),
    ("What is the largest ocean on Earth?", "The Pacific Ocean is the largest."),
    ("How do plants make food?", "They use sunlight, water and carbon dioxide."),
    ("What is the boiling point of water?", "Water boils at 100 degrees Celsius at sea level."),
    ("Which planet is closest to the sun?", "Mercury is the closest planet to the sun."),
    ("What is a noun?", "A noun is a word that names a person, place or thing."),
    ("How many legs does a spider have?", "A spider has eight legs."),
    ("What is the opposite of hot?", "The opposite of hot is cold."),
    ("What do you call a baby dog?", "A baby dog is called a puppy."),
    ("Write a short sentence about rain.", "The rain fell softly on the roof all night."),
    ("What is two plus two?", "Two plus two is four."),
    ("What is the main language of Brazil?", "Most people in Brazil speak Portuguese."),
    ("Why do we sleep?", "Sleep lets the body and the brain rest and recover."),
    ("What is a computer program?", "It is a list of instructions that a computer follows."),
    ("Give me a tip for saving money.", "Make a budget and write down what you spend."),
)
"""Questions that no document of a user is about, to see what a cartridge does to the rest."""


def off_topic(model: Model) -> Exam:
    """The exam of `OFF_TOPIC`, the teacher being the model without any context.

    Args:
      model: the teacher.

    Returns:
      The exam.
    """
    return exam(model, [Conversation(q, a, "user", None) for q, a in OFF_TOPIC], None)


def perplexity_change(student: Grade) -> float:
    """By what factor a cartridge changes the perplexity of answers to other questions, less 1.

    Args:
      student: its grade on `off_topic`.

    Returns:
      0 for no change.
    """
    return float(
        np.exp((student.nll - student.teacher_nll).sum() / student.answer_tokens.sum()) - 1.0
    )
