"""What a student learns from: rows of conversations with the teacher's word on each token."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jax import Array

from jaxmem.lm.cartridges.rows import Places, Rows, places
from jaxmem.lm.cartridges.teacher import take_rows
from jaxmem.lm.divergence import Lesson


class Course(NamedTuple):
    """Rows and what the teacher says of them.

    rows: [R, T].
    lesson: ids and log_probs [R, T, k], or hidden [R, T, D].
    """

    rows: Rows
    lesson: Lesson


def batch_of(
    course: Course, numbers: np.ndarray, batch: int, room: int
) -> tuple[Rows, Lesson, Places]:
    """Some rows, the places of their predicted tokens and the teacher's words on these.

    Args:
      course: all rows.
      numbers: which, at most `batch`.
      batch: rows there shall be.
      room: predicted tokens there shall be room for, M.

    Returns:
      Rows [batch, T], a lesson of [M, ...] arrays and the places [M].
    """
    rows = take_rows(course.rows, numbers, batch)
    there = places(rows.targets, room)

    def pick(array: Array | np.ndarray) -> Array | np.ndarray:
        flat = array[numbers].reshape(-1, array.shape[-1])
        return flat[np.minimum(there.at, len(flat) - 1)]

    ids, log_probs, hidden = course.lesson
    return rows, Lesson(pick(ids), pick(log_probs), None if hidden is None else pick(hidden)), there


def joined(courses: Sequence[Course]) -> Course:
    """Courses one after another.

    Args:
      courses: of rows of one length and lessons of one kind.

    Returns:
      One course.
    """
    rows = Rows(*map(np.concatenate, zip(*(course.rows for course in courses))))
    ids, log_probs, hidden = zip(*(course.lesson for course in courses))
    states = [part for part in hidden if part is not None]
    return Course(
        rows,
        Lesson(
            np.concatenate(ids),
            np.concatenate(log_probs),
            np.concatenate(states) if states else None,
        ),
    )
