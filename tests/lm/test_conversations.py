"""Conversations in files, read with errors that name the line, and compared by runs of words."""

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxmem.lm.self_study.conversations import (
    KINDS,
    Conversation,
    load_conversations,
    read_questions,
    save_conversations,
    shared_runs,
    without_shared_runs,
)

ROWS = [
    Conversation("Who?\u2028 \0", "Arthur Finch.", "template"),
    Conversation("Où? 木", "", "user", None),
    Conversation("Why is it so?", "Because.", "creative", (3, 40)),
]
PROVENANCE = {"sha256": "ab", "model": "tiny", "fingerprint": "cd", "seed": 3}


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.jsonl.gz"])
def test_what_is_saved_is_loaded(tmp_path: Path, name: str) -> None:
    save_conversations(tmp_path / name, ROWS, PROVENANCE)
    assert load_conversations(tmp_path / name) == (ROWS, PROVENANCE)
    assert [path.name for path in tmp_path.iterdir()] == [name]


@settings(max_examples=40)
@given(
    st.lists(
        st.builds(
            Conversation,
            st.text(st.characters(codec="utf-8"), min_size=1).filter(str.strip),
            st.text(st.characters(codec="utf-8")),
            st.sampled_from(KINDS),
            st.none() | st.tuples(st.integers(0, 9), st.integers(9, 99)),
        ),
        max_size=4,
    )
)
def test_any_text_is_loaded_as_saved(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Conversation]
) -> None:
    path = tmp_path_factory.mktemp("any") / "rows"
    save_conversations(path, rows, {})
    assert load_conversations(path) == (rows, {})


def test_nothing_is_written_of_bad_rows(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    save_conversations(path, ROWS, {})
    before = path.read_bytes()
    bad: list[tuple[list, dict, str]] = [
        ([("a", "b")], {}, "conversation 0: expected a Conversation"),
        ([*ROWS, Conversation(" ", "a", "user")], {}, "conversation 3: expected a question"),
        ([Conversation("a", "b", "usr")], {}, "did you mean 'user'"),
        ([Conversation("a", "b", "user", (5, 2))], {}, "expected a chunk"),
        ([Conversation("a\ud800", "b", "user")], {}, "half a character"),
        ([Conversation("a", None, "user")], {}, "expected a text as answer"),  # type: ignore[arg-type]
        (ROWS, {"model": object()}, "that JSON can hold"),
        (ROWS, {"rows": 3}, "without format, version and rows"),
    ]
    for rows, provenance, message in bad:
        with pytest.raises(ValueError, match=message):
            save_conversations(path, rows, provenance)
        assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda lines: [], "line 1: expected JSON"),
        (lambda lines: lines[1:], "line 1: expected the header of jaxmem.conversations"),
        (lambda lines: ["[" * 9999], "line 1: expected JSON"),
        (lambda lines: [lines[0].replace('"version": 1', '"version": 2')], "expected version 1"),
        (lambda lines: lines[:-1], "expected 3 conversations, got 2"),
        (lambda lines: [*lines[:2], "{", *lines[3:]], "line 3: expected JSON"),
        (lambda lines: [*lines[:3], "{}"], "line 4: expected question, answer, kind, chunk"),
        (lambda lines: [*lines[:3], lines[3].replace("creative", "c")], "line 4: unknown kind"),
        (
            lambda lines: [*lines[:3], lines[3].replace("[3, 40]", "[3]")],
            "line 4: expected a chunk",
        ),
        (
            lambda lines: [*lines[:3], lines[3].replace('"Because."', "7")],
            "line 4: expected a text",
        ),
    ],
)
def test_errors_name_the_line(tmp_path: Path, change, message: str) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "rows"
    save_conversations(path, ROWS, {})
    path.write_text("\n".join(change(path.read_text().splitlines())))
    with pytest.raises(ValueError, match=message):
        load_conversations(path)


def test_files_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match="expected UTF-8"):
        load_conversations(path)
    path.write_bytes(gzip.compress(b"x" * 9000)[:20])
    with pytest.raises(ValueError, match="expected a whole gzip file"):
        read_questions(path)


@pytest.mark.parametrize(
    "text",
    [
        "Who?\n\n  Why? \r\n",
        '["Who?", {"question": "Why?", "answer": null}]',
        '{"question": "Who?"}\n{"question": "Why?", "id": 5}\n',
        '\ufeff[{"question": "Who?"},\n "Why?"]',
    ],
)
def test_questions_of_a_user(tmp_path: Path, text: str) -> None:
    path = tmp_path / "questions"
    path.write_text(text, encoding="utf-8")
    found = read_questions(path)
    assert found == [Conversation("Who?", "", "user"), Conversation("Why?", "", "user")]


def test_answers_of_a_user_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "questions"
    path.write_text(json.dumps([{"question": "Who?", "answer": "Me."}]))
    assert read_questions(path)[0].answer == "Me."


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected questions, got none"),
        ("[]", "expected questions, got none"),
        ("[1]", "item 1: expected"),
        ('{"question": "a"}\n{"answer": "a"}', "line 2: expected"),
        ('{"question": "a"}\n{', "line 2: expected JSON"),
        ('[{"question": 5}]', "item 1: expected a text as question"),
        ("[", "expected JSON"),
    ],
)
def test_bad_questions(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "questions"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        read_questions(path)


def test_shared_runs() -> None:
    rows = [
        Conversation("Is it so: One, TWO three?", "No.", "user"),
        Conversation("Why?", "Because one-two three, four five.", "user"),
        Conversation("one two", "three four", "user"),  # question and answer are not joined
        Conversation("où est la", "été 木 ß", "user"),
    ]
    texts = ["and one two three", "Où est LA", "three four five"]
    found = shared_runs(rows, texts, words=3)
    assert found == [
        (0, 0, "one two three"),
        (1, 0, "one two three"),
        (1, 2, "three four five"),
        (3, 1, "où est la"),
    ]
    assert without_shared_runs(rows, texts, words=3) == [rows[2]]
    assert shared_runs(rows, texts) == []
    with pytest.raises(ValueError, match="at least 1 word"):
        shared_runs(rows, texts, words=0)
