"""Stack distances against the list they are defined by."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxmem.prefix_cache import NEVER, distances, stack_distances
from jaxmem.prefix_cache.distances import reuse
from jaxmem.prefix_cache.ranks import count_before, count_smaller_before, padded_length
from jaxmem.reference import prefix_cache as reference


def random_starts(rng: np.random.Generator, n: int) -> np.ndarray:
    return np.unique(np.concatenate([[0], rng.integers(0, n, max(1, n // 6))]))


@pytest.mark.parametrize("n", [1, 33, 1023, 1024, 1025, 2049, 5000])
def test_distances_equal_the_list(n: int) -> None:
    rng = np.random.default_rng(n)
    ids = rng.integers(0, max(1, n // 8), n)
    np.testing.assert_array_equal(stack_distances(ids), reference.stack_distances(ids))
    starts = random_starts(rng, n)
    np.testing.assert_array_equal(
        stack_distances(ids, starts), reference.stack_distances(ids, starts)
    )


@given(st.lists(st.integers(-3, 12), min_size=1, max_size=200), st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None)
def test_any_ids_and_any_requests(ids: list[int], seed: int) -> None:
    starts = random_starts(np.random.default_rng(seed), len(ids))
    np.testing.assert_array_equal(stack_distances(ids), reference.stack_distances(ids))
    np.testing.assert_array_equal(
        stack_distances(ids, starts), reference.stack_distances(ids, starts)
    )


def test_rows_of_the_full_size_and_blocks_too_many_for_one_word() -> None:
    rng = np.random.default_rng(0)
    ids = rng.zipf(1.2, 150_000) % 20_000
    wanted = lru_hits_by_capacity(ids, [1, 10, 100, 1000, 10_000])
    found = np.asarray(stack_distances(ids))
    assert [int((found < c).sum()) for c in (1, 10, 100, 1000, 10_000)] == wanted
    m, k = padded_length(ids.size)
    padded = np.full(m << k, 2**22, np.int32)
    padded[: ids.size] = ids
    wide = distances._reuse(padded, None, 2**22, m, k)  # the sort of two operands
    np.testing.assert_array_equal(wide.distance[: ids.size], found)


def lru_hits_by_capacity(ids: np.ndarray, capacities: list[int]) -> list[int]:
    return [reference.lru_hits(ids.tolist(), capacity) for capacity in capacities]


def test_previous_is_the_last_touch_before_the_request() -> None:
    found = reuse(np.array([7, 7, 8, 7, 7]), np.array([0, 2]))
    np.testing.assert_array_equal(found.previous, [-1, -1, -1, 1, 1])
    np.testing.assert_array_equal(found.distance, [NEVER, NEVER, NEVER, 0, 0])


def test_sparse_and_negative_ids_are_blocks_like_others() -> None:
    ids = np.array([2**60, -5, 2**60, 0, -5])
    np.testing.assert_array_equal(stack_distances(ids), [NEVER, NEVER, 1, NEVER, 2])


def test_under_jit_and_vmap() -> None:
    rng = np.random.default_rng(3)
    ids = rng.integers(0, 40, (3, 500)).astype(np.int32) * 1_000_003
    wanted = [reference.stack_distances(row) for row in ids]
    np.testing.assert_array_equal(jax.jit(jax.vmap(stack_distances))(jnp.asarray(ids)), wanted)
    starts = random_starts(rng, 500)
    wanted = [reference.stack_distances(row, starts) for row in ids]
    found = jax.jit(jax.vmap(stack_distances, in_axes=(0, None)))(jnp.asarray(ids), starts)
    np.testing.assert_array_equal(found, wanted)


def test_one_program_serves_neighbouring_lengths() -> None:
    rng = np.random.default_rng(4)
    for n in (3000, 3050, 3072):
        stack_distances(rng.integers(0, 1000, n))
    traced = distances._reuse._cache_size()
    stack_distances(rng.integers(600, 1000, 3070))
    assert distances._reuse._cache_size() == traced


def test_padded_length_bounds_waste_and_number_of_programs() -> None:
    for n in [*range(1, 5000), 10**6, 10**7, 2**31 - 2**26]:
        m, k = padded_length(n)
        assert 32 <= m < 64
        assert k >= 5
        assert n <= m << k < 2**31
        assert (m << k) <= max(1024, n * 33 / 32)


@pytest.mark.parametrize("length", [1024, 1056, 4000, 40_000])
def test_count_smaller_before(length: int) -> None:
    m, k = padded_length(length)
    values = np.random.default_rng(length).permutation(m << k).astype(np.int32)
    wanted = []
    for chunk in range(0, m << k, 1000):  # O(n^2) in numpy
        part = values[chunk : chunk + 1000]
        earlier = (values[None, :chunk] < part[:, None]).sum(1)
        own = np.tril(part[None, :] < part[:, None], -1).sum(1)
        wanted.append(earlier + own)
    found = jax.jit(count_smaller_before, static_argnums=(1, 2))(values, m, k)
    np.testing.assert_array_equal(found, np.concatenate(wanted))
    flags = values % 3 == 0
    np.testing.assert_array_equal(count_before(jnp.asarray(flags)), np.cumsum(flags) - flags)


@pytest.mark.parametrize(
    ("ids", "starts", "message"),
    [
        (np.array([0.5, 1.0]), None, "vector of integers"),
        (np.zeros((2, 2), int), None, "vector of integers"),
        (np.array([1, 2]), np.array([1, 2]), "ascend from 0"),
        (np.array([1, 2]), np.array([0, 3]), "ascend from 0"),
        (np.array([1, 2]), np.array([0.0, 1.0]), "vector of integers"),
        (np.broadcast_to(np.int8(0), 2**31), None, "int32 positions"),
    ],
)
def test_bad_input(ids: np.ndarray, starts: np.ndarray | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        stack_distances(ids, starts)


def test_nothing_in_nothing_out() -> None:
    assert stack_distances(np.zeros(0, int)).shape == (0,)
