"""Paragraphs, sentences and chunks: where they part, and that nothing of a text is lost."""

import re
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxmem.lm.self_study.document import (
    LONGEST,
    Span,
    chunks,
    is_heading,
    paragraphs,
    sentences,
)

ODD = st.text(
    st.sampled_from(
        ["a", "B", "é", "木", "。", "😀", "\0", " ", "\n", "\r", ".", "?", "1", '"', "-"]
    )
    | st.characters(codec="utf-8"),
    max_size=200,
) | st.lists(
    st.sampled_from(["Dr. ", "A.", " 3.5 ", "\n\n", "\r\n", "- ", "He said. ", "(No.", "word "]),
    max_size=40,
).map("".join)


def encode(text: str) -> list[int]:
    """A token a word or mark, two for each long word."""
    return [i for word in re.findall(r"\w+|[^\w\s]", text) for i in range(1 + (len(word) > 6))]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("Dr. Stone came. She left.", ["Dr. Stone came.", "She left."]),
        ("It cost 3.5 crowns. Yes.", ["It cost 3.5 crowns.", "Yes."]),
        ("J. R. Smith wrote it. He did.", ["J. R. Smith wrote it.", "He did."]),
        ('"Stop!" he said. "Now?" Yes.', ['"Stop!" he said.', '"Now?"', "Yes."]),
        ("At 6 p.m. The bell rang.", ["At 6 p.m.", "The bell rang."]),
        ("At 6 p.m. it rang, e.g. twice.", ["At 6 p.m. it rang, e.g. twice."]),
        ("See No. 5 and fig. 3. Good.", ["See No. 5 and fig. 3.", "Good."]),
        ("He (not she) left. (So it is.) End", ["He (not she) left.", "(So it is.)", "End"]),
        ("Wait... Then go. Ok", ["Wait...", "Then go.", "Ok"]),
        ("春は来た。花が咲いた。", ["春は来た。", "花が咲いた。"]),
        ("- one\n- two\n- three", ["- one", "- two", "- three"]),
        ("Roses are red\nViolets are blue", ["Roses are red", "Violets are blue"]),
        ("", []),
        (" \r\n\t\n", []),
    ],
)
def test_sentences(text: str, wanted: list[str]) -> None:
    assert [span.text for span in sentences(text)] == wanted


def test_wrapped_lines_are_one_sentence() -> None:
    text = (
        "The tower stands on the black rock two miles off the old village of\r\n"
        "Raven Point. It was finished in the year that the first steam launch\r\n"
        "came.\r\n\r\nA second paragraph."
    )
    found = [" ".join(span.text.split()) for span in sentences(text)]
    assert len(found) == 3
    assert found[0].endswith("Raven Point.")
    assert found[1].endswith("launch came.")
    assert len(paragraphs(text)) == 2


def test_headings() -> None:
    def heading(text: str) -> bool:
        return is_heading(Span(text, 0, len(text)))

    assert heading("The First Crossing")
    assert heading("## Wells and the Old Conduit")
    assert not heading("It rained.")
    assert not heading("x = f(y)")
    assert not heading("- one point")
    assert not heading("One\ntwo")


@settings(max_examples=80)
@given(ODD)
def test_every_character_but_spaces_is_in_one_sentence(text: str) -> None:
    for split in (paragraphs, sentences):
        spans = split(text)
        for span in spans:
            assert span.text == text[span.start : span.end]
            assert span.text.strip()
        assert all(a.end <= b.start for a, b in pairwise(spans))
        assert "".join("".join(span.text.split()) for span in spans) == "".join(text.split())


@settings(max_examples=60)
@given(ODD, st.integers(1, 30))
def test_chunks_hold_everything_and_fit(text: str, limit: int) -> None:
    found = chunks(text, limit, encode)
    assert "".join("".join(span.text.split()) for span in found) == "".join(text.split())
    for span in found:
        assert span.text == text[span.start : span.end]
        assert len(encode(span.text)) <= limit or len(span.text) == 1


def test_chunks_are_whole_paragraphs_where_they_fit() -> None:
    text = (
        "One two three. Four five.\n\nSix seven.\n\nEight nine ten eleven twelve. " + "So so. " * 9
    )
    found = [span.text for span in chunks(text, 12, encode)]
    assert found[0] == "One two three. Four five.\n\nSix seven."
    assert found[1].startswith("Eight")
    with pytest.raises(ValueError, match="at least 1 token"):
        chunks(text, 0, encode)


def test_a_megabyte_without_a_full_stop() -> None:
    for text in ("word " * 200_000, "x" * 1_000_000, "😀" * 250_000, "a\n" * 200_000):
        found = sentences(text)
        assert max(len(span.text) for span in found) <= LONGEST
        assert sum(len("".join(span.text.split())) for span in found) == len("".join(text.split()))
    assert len(chunks("word " * 40_000, 256, encode)) <= 40_000 / 200
