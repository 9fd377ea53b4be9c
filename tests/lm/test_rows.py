"""Packing: every token of every example once, targets that are the next tokens."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxmem.lm.cartridges.rows import Example, most_places, pack, places

EXAMPLES = st.lists(
    st.tuples(
        st.lists(st.integers(1, 50), min_size=1, max_size=9),
        st.lists(st.integers(1, 50), min_size=1, max_size=12),
    ).map(lambda parts: Example(tuple(parts[0]), tuple(parts[1]))),
    min_size=1,
    max_size=20,
)


@settings(max_examples=100, deadline=None)
@given(EXAMPLES, st.integers(10, 24))
def test_packed_rows_hold_every_example(examples: list[Example], length: int) -> None:
    rows = pack(examples, length)
    assert all(part.shape == rows.ids.shape for part in rows)
    for number, example in enumerate(examples):
        row, column = np.nonzero(rows.segments == number)
        tokens = np.array([*example.prompt, *example.answer])[:length]
        assert len(set(row)) == 1
        np.testing.assert_array_equal(column, np.arange(column[0], column[0] + len(tokens)))
        np.testing.assert_array_equal(rows.ids[row, column], tokens)
        np.testing.assert_array_equal(rows.offsets[row, column], np.arange(len(tokens)))
        targets = rows.targets[row, column]
        first = len(example.prompt) - 1
        np.testing.assert_array_equal(targets[:first], -1)
        np.testing.assert_array_equal(targets[first:-1], tokens[first + 1 :])
        assert targets[-1] == -1
    assert (rows.targets[rows.segments < 0] == -1).all()


def test_places_are_the_predicted_tokens() -> None:
    rows = pack([Example((1, 2), (3, 4, 5)), Example((6,), (7,))], 8)
    there = places(rows.targets, 8)
    assert there.at[:4].tolist() == [1, 2, 3, 5]
    assert there.targets.tolist() == [3, 4, 5, 7, 0, 0, 0, 0]
    assert there.weights.tolist() == [1, 1, 1, 1, 0, 0, 0, 0]
    assert most_places(rows.targets, 1, 4) == 4
    assert most_places(rows.targets, 1, 64) == 64


def test_bad_examples_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one example"):
        pack([], 8)
    with pytest.raises(ValueError, match="prompt of 1 to 7 tokens and an answer, got 8 and 1"):
        pack([Example(tuple(range(8)), (1,))], 8)
    with pytest.raises(ValueError, match="got 1 and 0 in example 0"):
        pack([Example((1,), ())], 8)
