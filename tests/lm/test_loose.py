"""Answers put out of order."""

import pytest

from jaxmem.lm.self_study.conversations import Conversation
from jaxmem.lm.self_study.loose import loosened

ROWS = [
    Conversation(f"Question {n}?", f"The keeper {n} cleans the lamp each Monday.", "template", None)
    for n in range(400)
]


def test_some_answers_change_and_no_question() -> None:
    got = loosened(ROWS, 0, 0.5)
    assert [one.question for one in got] == [one.question for one in ROWS]
    changed = sum(one.answer != row.answer for one, row in zip(got, ROWS))
    assert 150 < changed < 250
    assert got == loosened(ROWS, 0, 0.5) != loosened(ROWS, 1, 0.5)
    known = {word.lower().strip(".") for row in ROWS for word in row.answer.split()}
    new = {w.lower().strip(".") for one in got for w in one.answer.split()} - known
    assert len(new) < 20  # openings only


def test_none_or_all() -> None:
    assert loosened(ROWS, 0, 0.0) == ROWS
    short = [Conversation("Q?", answer, "template", None) for answer in ("Yes.", "No", "In 5.")]
    assert all(len(one.answer) > 1 for one in loosened(short * 20, 3, 1.0))
    with pytest.raises(ValueError, match=r"share must be in 0..1, got 1\.5"):
        loosened(ROWS, 0, 1.5)
