"""Reading documents and grading students, on a tiny model with a byte-level tokenizer."""

import jax
import numpy as np
import pytest

pytest.importorskip("tokenizers", reason="needs jaxmem[lm]")

from jaxmem.lm import Config, Model, tiny
from jaxmem.lm.cartridges.evaluation import closed, exam, grade, off_topic, perplexity_change
from jaxmem.lm.cartridges.prefix import take
from jaxmem.lm.cartridges.reading import course_of, read_document, recitation
from jaxmem.lm.cartridges.training import evaluate
from jaxmem.lm.self_study.conversations import Conversation

pytestmark = pytest.mark.usefixtures("unoptimised")
TEXT = "The tower has 9 bells.\n\nA cat sleeps on the stair.\n\nMara keeps the keys."
QUESTIONS = [
    Conversation("How many bells?", "9 bells.", "user", (0, 22)),
    Conversation("Who keeps keys?", "Mara.", "user", (52, 72)),
    Conversation("Where is a cat?", "On the stair.", "user", (24, 50)),
]


@pytest.fixture(scope="module")
def model() -> Model:
    return tiny(jax.random.key(0))


def test_the_whole_document_is_the_teacher(model: Model) -> None:
    reading = read_document(model, TEXT)
    assert len(reading.parts) == 1
    paper = exam(model, QUESTIONS, reading, row_tokens=64, batch=2)
    whole, nothing = grade(model, paper, reading.whole), grade(model, paper, None)
    assert whole.answer_tokens.sum() == sum(len(q.answer.encode()) for q in QUESTIONS)
    np.testing.assert_allclose(whole.kl, 0, atol=1e-5)
    np.testing.assert_allclose(whole.nll, nothing.teacher_nll, rtol=1e-5)
    assert (nothing.kl > 0).all()
    assert closed(whole, nothing).mean == pytest.approx(1)
    few = grade(model, paper, take(reading.whole, np.arange(4)))
    share = closed(few, nothing)
    assert share.mean == pytest.approx(1 - few.kl.sum() / nothing.kl.sum())
    assert share.low <= share.mean <= share.high
    # A question's row is its own: in another order the same sums.
    other = grade(model, exam(model, QUESTIONS[::-1], reading, 64, 2), None)
    np.testing.assert_allclose(other.kl[::-1], nothing.kl, rtol=1e-4)


def test_nothing_changes_other_questions_where_there_is_no_cartridge(model: Model) -> None:
    paper = off_topic(model)
    assert perplexity_change(grade(model, paper, None)) == pytest.approx(0, abs=1e-6)


def test_windows_of_a_document(model: Model) -> None:
    reading = read_document(model, TEXT, window=48)
    assert len(reading.parts) > 1
    assert "".join(TEXT[part.start : part.end] for part in reading.parts).replace(
        "\n", ""
    ) == TEXT.replace("\n", "")
    assert all(len(part.ids) <= 48 for part in reading.parts)
    for question in QUESTIONS:
        part = reading.parts[reading.part_of(question)]
        assert part.start <= question.chunk[0] < question.chunk[1] <= part.end + 1
    assert reading.whole.slots == reading.tokens - len(reading.parts) + 1  # one sink
    course = course_of(model, reading, QUESTIONS, row_tokens=64, top_k=5)
    # Each row was taught with its own window in view.
    number = reading.part_of(QUESTIONS[0])
    alone = course_of(model, reading, QUESTIONS[:1], row_tokens=64, top_k=5)
    assert abs(evaluate(model.params, model.config, reading.parts[number].prefix, alone)) < 1e-5
    assert evaluate(model.params, model.config, reading.parts[0].prefix, course) > 1e-4


def test_recitation_holds_the_text(model: Model) -> None:
    reading = read_document(model, TEXT)
    course = recitation(model, reading, row_tokens=32)
    ids = model.tokenizer.encode(TEXT)
    told = course.rows.targets[course.rows.targets >= 0]
    assert set(told) == set(ids[1:])
    assert (course.lesson.log_probs == 0).all()


@pytest.mark.parametrize("text", ["", " \n "])
def test_an_empty_document_is_refused(model: Model, text: str) -> None:
    with pytest.raises(ValueError, match="words in it, got an empty one"):
        read_document(model, text)


def test_a_window_is_bounded(model: Model) -> None:
    with pytest.raises(ValueError, match="window must be at"):
        read_document(model, TEXT, window=10**6)


def test_a_shape_may_be_chosen() -> None:
    config = Config(300, 16, 1, 2, 1, 8, 16, 128)
    assert tiny(jax.random.key(1), config).config is config
