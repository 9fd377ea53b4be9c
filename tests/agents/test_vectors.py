"""Exact search against brute force in numpy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxmem.agents.vectors import VectorIndex
from jaxmem.reference.nearest import nearest


def filled(rows: int, size: int, seed: int = 0) -> tuple[VectorIndex, np.ndarray]:
    matrix = np.random.default_rng(seed).standard_normal((rows, size)).astype(np.float32)
    index = VectorIndex(size)
    index.add(np.arange(rows) + 7, matrix)
    return index, matrix


@pytest.mark.parametrize("queries", [1, 3, 32, 45])
@pytest.mark.parametrize("rows", [5, 1024, 3000])
def test_equals_numpy(rows: int, queries: int) -> None:
    index, matrix = filled(rows, 24)
    asked = np.random.default_rng(1).standard_normal((queries, 24)).astype(np.float32)
    found = index.search(asked, 10)
    scores, order = nearest(matrix, asked, 10)
    kept = scores.shape[1]
    np.testing.assert_array_equal(found.ids[:, :kept], order + 7)
    np.testing.assert_allclose(found.scores[:, :kept], scores, rtol=1e-5, atol=1e-5)
    assert (found.ids[:, kept:] == -1).all()
    assert np.isneginf(found.scores[:, kept:]).all()


def test_of_equal_ones_the_first_come_first() -> None:
    index = VectorIndex(4)
    index.add(np.arange(3000), np.ones((3000, 4)))
    for queries in (1, 4):
        found = index.search(np.ones((queries, 4)), 300)
        np.testing.assert_array_equal(found.ids, np.tile(np.arange(300), (queries, 1)))


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_any_order_of_adding_removing_and_asking(data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    index, kept, following = VectorIndex(3), dict[int, np.ndarray](), 0
    for _ in range(data.draw(st.integers(1, 6))):
        many = data.draw(st.sampled_from([0, 1, 2, 700, 1100]))
        rows = rng.integers(-3, 4, (many, 3)).astype(np.float32)  # many are equal
        index.add(np.arange(following, following + many), rows)
        kept |= dict(zip(range(following, following + many), rows))
        following += many
        if kept and data.draw(st.booleans()):
            gone = data.draw(st.sampled_from(sorted(kept)))
            assert index.remove(gone)
            assert not index.remove(gone)
            del kept[gone]
        asked = rng.integers(-3, 4, (2, 3)).astype(np.float32)
        found = index.search(asked, 9)
        matrix = np.array(list(kept.values())).reshape(-1, 3)
        scores, order = nearest(matrix, asked, 9)
        wanted = np.array(list(kept))[order] if kept else np.zeros((2, 0))
        np.testing.assert_array_equal(found.ids[:, : wanted.shape[1]], wanted)
        np.testing.assert_array_equal(found.scores[:, : wanted.shape[1]], scores)
        assert (found.ids[:, wanted.shape[1] :] == -1).all()
        assert len(index) == len(kept)


def test_bad_input() -> None:
    index, _ = filled(5, 4)
    with pytest.raises(ValueError, match="not there yet"):
        index.add(np.array([7]), np.zeros((1, 4)))
    with pytest.raises(ValueError, match="not there yet"):
        index.add(np.array([1, 1]), np.zeros((2, 4)))
    with pytest.raises(ValueError, match="1 finite vectors of 4 numbers, got shape"):
        index.add(np.array([1]), np.zeros((1, 5)))
    with pytest.raises(ValueError, match="finite"):
        index.add(np.array([1]), np.full((1, 4), np.nan))
    with pytest.raises(ValueError, match=r"queries \[Q, 4\]"):
        index.search(np.zeros(4), 1)
    with pytest.raises(ValueError, match="count must be at least 1"):
        index.search(np.zeros((1, 4)), 0)
    assert len(index) == 5
