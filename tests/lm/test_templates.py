"""Questions by rule: fair to every sentence, deterministic, about any text, and none a test's."""

import json
import re
import statistics
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxmem.lm.self_study import english
from jaxmem.lm.self_study.conversations import Conversation, shared_runs
from jaxmem.lm.self_study.phrases import clauses
from jaxmem.lm.self_study.tagging import tokens
from jaxmem.lm.self_study.templates import read_sources, template_conversations

DOCUMENTS = sorted((Path(__file__).parents[2] / "examples" / "documents").glob("*.txt"))
TOWER = (
    "The granite tower is 41 metres tall and was finished in 1868 by Arthur Finch. Landing is "
    "forbidden when the swell is high, because the iron ladder cracked in 2009. The Marigold "
    "carries six passengers. Keepers clean the lens each Monday with cotton soaked in vinegar."
)


@cache
def rows_of(path: Path, seed: int) -> list[Conversation]:
    """Two thousand, drawn once."""
    return template_conversations(seed, path.read_text(encoding="utf-8"), 2000)


def content(text: str) -> set[str]:
    words = {word.lower() for word in re.findall(r"[^\W_]+", text)}
    return words - english.SMALL - english.ADVERBS - english.SUBORDINATORS


def pairs(text: str, count: int = 400, seed: int = 0) -> set[tuple[str, str]]:
    return {(row.question, row.answer) for row in template_conversations(seed, text, count)}


def test_phrases_are_left_out_and_asked_for() -> None:
    found = pairs(TOWER, 1200)
    questions = {question for question, _ in found}
    for wanted in (
        "How tall is the granite tower?",
        "What is the height of the granite tower?",
        "By whom was the granite tower finished?",
        "Who finished the granite tower in 1868?",
        "How many passengers does the Marigold carry?",
        "How often do keepers clean the lens?",
    ):
        assert wanted in questions, wanted
    for pair in (
        ("How tall is the granite tower?", "A height of 41 metres."),
        ("Who finished the granite tower in 1868?", "It was Arthur Finch."),
    ):
        assert pair in found, pair
    why = {answer for question, answer in found if question.startswith("Why is landing forbidden")}
    assert "Because the iron ladder cracked in 2009." in why


def test_clauses_of_a_sentence() -> None:
    words = tokens("A keeper who misses a watch loses the next leave, since it is rare.")
    found = [
        (clause.opener, " ".join(word.text for word in words[clause.verb : clause.end]))
        for clause in clauses(words)
    ]
    assert found == [
        ("who", "misses a watch"),
        ("", "loses the next leave"),
        ("since", "is rare"),
    ]


def test_rows_are_the_same_by_seed() -> None:
    first = template_conversations(3, TOWER, 60)
    assert first == template_conversations(3, TOWER, 60)
    assert first != template_conversations(4, TOWER, 60)
    assert all(row.kind == "template" for row in first)


@pytest.mark.parametrize(
    "text",
    [
        *(path.read_text(encoding="utf-8") for path in DOCUMENTS),
        "# Title\r\n\r\n  Red foxes run home.\r\nBlue owls sit here.\r\n",
    ],
    ids=[*(path.stem for path in DOCUMENTS), "few words"],
)
def test_a_chunk_is_the_sentence_that_is_asked_about(text: str) -> None:
    wholes = {text[slice(*source.chunk)] for source in read_sources(text)}
    for row in template_conversations(2, text, 300):
        assert row.chunk is not None
        chunk = text[slice(*row.chunk)]
        assert any(chunk.startswith(whole) for whole in wholes)
        words = set(re.findall(r"\w+", chunk.lower()))
        assert words & set(re.findall(r"\w+", row.answer.lower())), (row, chunk)


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.stem)
def test_no_row_shares_eight_words_with_a_test(path: Path, seed: int) -> None:
    questions = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))["questions"]
    texts = [
        row[part] for row in questions if row["split"] == "test" for part in ("question", "answer")
    ]
    assert len(texts) == 80
    # Counts only: the words of test questions are not shown.
    assert len(shared_runs(rows_of(path, seed), texts)) == 0


def test_sentences_take_turns() -> None:
    text = "Ants eat apples. Bees buy bread. Cows carve cheese. Dogs dig dirt."
    rows = template_conversations(0, text, 4 * 25)
    words = [set(source.text.lower().strip(".").split()) for source in read_sources(text)]
    counts = Counter(
        place
        for row in rows
        for place, own in enumerate(words)
        if own & set(re.findall(r"\w+", f"{row.question} {row.answer}".lower()))
    )
    assert min(counts.values()) >= 25


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.stem)
def test_a_document_is_covered_in_short_answers(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    rows = rows_of(path, 1)
    assert len({row.question for row in rows}) > 1830
    short = [row.answer for row in rows if len(row.answer.split()) <= 14]
    assert len(short) > 1330
    words = content(text)
    said = set().union(*map(content, short))
    assert len(words & said) > 0.92 * len(words)
    lengths = [len(row.answer.split()) for row in rows]
    assert 7 < statistics.mean(lengths) < 13
    assert sum(4 <= length <= 25 for length in lengths) > 0.8 * len(rows)


@pytest.mark.parametrize(
    "text",
    [
        "Der Turm wurde im Jahre 1868 von Arthur Finch erbaut. Er ist hoch und rot.",
        "Roses are red\nViolets are blue\nSugar is sweet",
        "- eggs\n- milk\n- two loaves of bread",
        "def f(x):\n    return x + 1\n\nprint(f(3))",
        "春は来た。花が咲いた。",
        "x",
        "One two",
        "a,b,c\n1,2,3\n4,5,6",
        "\0\0 word \0",
        "It is.",
        "word " * 3000,
        "😀 😀 smile 😀",
    ],
)
def test_any_text_gives_rows(text: str) -> None:
    rows = template_conversations(0, text, 40)
    assert len(rows) == 40
    for row in rows:
        assert row.question.strip()
        assert row.answer.strip()
        assert "\n" not in row.question + row.answer
        assert len(row.question) < 700
        assert len(row.answer) < 700


@pytest.mark.parametrize("text", ["", " \n\t", "...", "?! \0 --"])
def test_a_text_without_words_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected a document with words"):
        template_conversations(0, text, 5)


def test_bad_counts_are_refused() -> None:
    for count in (0, -1, 1.5, True):
        with pytest.raises(ValueError, match="count"):
            template_conversations(0, TOWER, count)  # type: ignore[arg-type]


PIECES = st.sampled_from(
    re.split(
        " ",
        "the a It he Which of in by , . ; ? and but because when to which who is was were carry "
        "carried boat Boats 1868 41 metres tall Arthur Finch every each than so that called ' \" "
        "( ) - \0 😀 木 running not no must 's",
    )
)


@settings(max_examples=60)
@given(st.lists(PIECES, min_size=1, max_size=40).map(" ".join) | st.text(min_size=1, max_size=80))
def test_odd_sentences_give_rows(text: str) -> None:
    if not re.search(r"\w", text):
        return
    rows = template_conversations(0, text, 12)
    assert [type(row) for row in rows] == [Conversation] * 12
    assert all(row.question.strip() and row.answer.strip() for row in rows)
