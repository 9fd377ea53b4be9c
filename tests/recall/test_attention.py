"""Attention against plain loops, and merged reads against one read."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import Array
from jax.test_util import check_grads

from jaxmem.recall.attention import Read, attend, merge, slot_logits
from jaxmem.reference import attention as reference

attend_jit = jax.jit(attend)


def problem(seed: int, slots: int, queries: tuple[int, ...] = (5,)) -> tuple[np.ndarray, ...]:
    """Queries, keys, values, bias and mask (mostly True)."""
    rng = np.random.default_rng(seed)
    return (
        rng.normal(size=(*queries, 6)),
        rng.normal(size=(slots, 6)),
        rng.normal(size=(slots, 4)),
        rng.normal(size=slots),
        rng.random(slots) < 0.7,
    )


@pytest.mark.parametrize(("slots", "queries"), [(1, ()), (7, (5,)), (33, (2, 3))], ids=str)
@pytest.mark.parametrize(("with_bias", "with_mask"), [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_attend_equals_the_sums(
    slots: int, queries: tuple[int, ...], with_bias: int, with_mask: int
) -> None:
    query, keys, values, bias, mask = problem(slots, slots, queries)
    mask[0] = True
    some = (bias if with_bias else None, mask if with_mask else None)
    wanted = reference.attend(query, keys, values, 1.7, *some)
    with jax.enable_x64(True):
        found = attend_jit(query, keys, values, 1.7, *some)
        np.testing.assert_allclose(found.output, wanted[0], rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(found.log_sum_exp, wanted[1], rtol=1e-12, atol=1e-12)
    single = attend_jit(query, keys, values, 1.7, *some)
    assert single.output.dtype == jnp.float32
    np.testing.assert_allclose(single.output, wanted[0], rtol=2e-5, atol=2e-5)


def test_gradients_by_differences() -> None:
    query, keys, values, bias, mask = problem(0, 9)
    with jax.enable_x64(True):
        arguments = tuple(map(jnp.asarray, (query, keys, values, bias)))
        for some in (None, jnp.asarray(mask)):
            check_grads(
                jax.jit(lambda q, k, v, b, some=some: attend(q, k, v, 0.8, b, some)),
                arguments,
                order=1,
                atol=1e-6,
                rtol=1e-6,
            )


@pytest.mark.parametrize("seed", range(4))
def test_jit_keeps_gradients_finite(seed: int) -> None:
    """The gradient of max was NaN where XLA rounded the recomputed logits otherwise."""
    query, keys, values, bias, mask = problem(seed, 9)

    def read(q, k, v, b):  # type: ignore[no-untyped-def]
        halves = [np.arange(9) < 4, np.arange(9) >= 4]
        return merge([attend(q, k, v, 0.8, b, mask & half) for half in halves])

    with jax.enable_x64(True):
        arguments = tuple(map(jnp.asarray, (query, keys, values, bias)))
        found = jax.jit(lambda *a: jax.jvp(read, a, a))(*arguments)
        for leaf in jax.tree.leaves(found):
            assert np.all(np.isfinite(leaf))


def test_gradients_of_merged_reads_are_those_of_one_read() -> None:
    query, keys, values, bias, mask = problem(1, 12)
    with jax.enable_x64(True):
        arguments = tuple(map(jnp.asarray, (query, keys, values, bias)))
        some = jnp.asarray(mask).at[:4].set(False)

        def loss(read: Read) -> jax.Array:
            return jnp.sum(jnp.sin(read.output)) + jnp.sum(read.log_sum_exp**2)

        def one(q, k, v, b):  # type: ignore[no-untyped-def]
            return loss(attend(q, k, v, 0.8, b, some))

        def split(q, k, v, b):  # type: ignore[no-untyped-def]
            parts = [slice(0, 4), slice(4, 5), slice(5, 5), slice(5, 12)]
            return loss(merge([attend(q, k[p], v[p], 0.8, b[p], some[p]) for p in parts]))

        wanted, found = (jax.jit(jax.grad(f, (0, 1, 2, 3)))(*arguments) for f in (one, split))
        for a, b in zip(wanted, found, strict=True):
            np.testing.assert_allclose(b, a, rtol=1e-11, atol=1e-12)
        rest = np.asarray(found[1])[~np.asarray(some)]
        np.testing.assert_array_equal(rest, 0)


@jax.jit
def split_read(parts: Array, *arguments: Array) -> tuple[Read, Read, Read, list[Read]]:
    """One read, the merge of three, and a merge of a merge; slot i belongs to part parts[i]."""
    query, keys, values, size, bias, mask = arguments
    whole = attend(query, keys, values, size, bias, mask)
    reads = [attend(query, keys, values, size, bias, mask & (parts == j)) for j in range(3)]
    return whole, merge(reads), merge([reads[0], merge(reads[1:])]), reads


@given(
    seed=st.integers(0, 2**32 - 1),
    parts=st.lists(st.integers(0, 2), min_size=12, max_size=12),
    size=st.sampled_from([0.1, 3.0, 100.0]),
    share=st.sampled_from([0.0, 0.5, 1.0]),
)
@settings(max_examples=60, deadline=None)
def test_merged_reads_equal_one_read(
    seed: int, parts: list[int], size: float, share: float
) -> None:
    query, keys, values, bias, _ = problem(seed, 12, (3,))
    mask = np.random.default_rng(seed + 1).random(12) < share
    with jax.enable_x64(True):
        whole, *merged, reads = split_read(
            np.array(parts), query, keys, values, np.float64(size), bias, mask
        )
        plain = reference.merge([(np.asarray(o), np.asarray(z)) for o, z in reads])
    for output, log_sum_exp in [*merged, plain]:
        np.testing.assert_allclose(output, whole.output, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(log_sum_exp, whole.log_sum_exp, rtol=1e-12, atol=1e-12)


def test_merge_in_single_precision_rounds_to_a_millionth() -> None:
    query, keys, values, bias, mask = problem(3, 60, (8,))
    for cut in (1, 17, 59):
        parts = np.digitize(np.arange(60), [cut, 59])
        whole, found, nested, _ = split_read(
            parts, *map(jnp.float32, (query / 6, keys, values, 1.0, bias)), mask
        )
        for merged in (found, nested):
            np.testing.assert_allclose(merged.output, whole.output, atol=1e-6)
            np.testing.assert_allclose(merged.log_sum_exp, whole.log_sum_exp, rtol=1e-6)


@pytest.mark.parametrize("slots", [0, 5])
def test_no_slot_counts(slots: int) -> None:
    query, keys, values, bias, _ = problem(2, slots)
    arguments = tuple(map(jnp.float32, (query, keys, values, bias)))
    mask = jnp.zeros(slots, bool)

    def read(q, k, v, b):  # type: ignore[no-untyped-def]
        return attend(q, k, v, 1.0, b, mask)

    for found in (read(*arguments), merge([read(*arguments), read(*arguments)])):
        np.testing.assert_array_equal(found.output, np.zeros((5, 4)))
        np.testing.assert_array_equal(found.log_sum_exp, np.full(5, -np.inf))

    def loss(*a):  # type: ignore[no-untyped-def]
        merged = merge([read(*a), read(*a)])
        return jnp.sum(merged.output) + jnp.sum(jnp.exp(merged.log_sum_exp))

    for gradient in jax.jit(jax.grad(loss, (0, 1, 2, 3)))(*arguments):
        np.testing.assert_array_equal(gradient, np.zeros(gradient.shape))


def test_a_part_without_slots_changes_nothing() -> None:
    query, keys, values, _, _ = problem(4, 7)
    whole = attend(*map(jnp.float32, (query, keys, values)), 1.0)
    nothing = Read(jnp.zeros((5, 4)), jnp.full(5, -jnp.inf))
    for reads in ([whole], [nothing, whole], [whole, nothing, nothing]):
        found = merge(reads)
        np.testing.assert_allclose(found.output, whole.output, rtol=1e-7)
        np.testing.assert_allclose(found.log_sum_exp, whole.log_sum_exp, rtol=1e-7)


def test_masks_and_biases_are_what_they_say() -> None:
    query, keys, values, bias, mask = problem(5, 9)
    q, k, v, b = map(jnp.float32, (query, keys, values, bias))
    kept = attend(q, k[mask], v[mask], 1.0, b[mask])
    for found in (
        attend(q, k, v, 1.0, b, jnp.asarray(mask)),
        attend(q, k, v, 1.0, jnp.where(mask, b, -jnp.inf)),
    ):
        np.testing.assert_allclose(found.output, kept.output, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(found.log_sum_exp, kept.log_sum_exp, rtol=1e-6)
    twice = attend(jnp.tile(q, 1), jnp.concatenate([k, k]), jnp.concatenate([v, v]), 1.0)
    biased = attend(q, k, v, 1.0, jnp.full(9, np.log(2.0)))  # ln 2 is a slot held twice
    np.testing.assert_allclose(biased.output, twice.output, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(biased.log_sum_exp, twice.log_sum_exp, rtol=1e-6)
    each = np.random.default_rng(0).random((5, 9)) < 0.5  # a mask a query
    found = attend(q, k, v, 1.0, b, jnp.asarray(each))
    wanted = [reference.attend(query[i], keys, values, 1.0, bias, each[i])[0] for i in range(5)]
    np.testing.assert_allclose(found.output, wanted, rtol=1e-5, atol=1e-5)
    logits = slot_logits(q, k, 1.0, b, jnp.asarray(mask))
    assert np.all(np.isfinite(logits))


@pytest.mark.parametrize("size", [1e4, 1e30, -1e30])
def test_huge_logits(size: float) -> None:
    query, keys, values, _, _ = problem(6, 8)
    q, k, v = map(jnp.float32, (query, keys, values))
    found = attend(q, k, v, size)
    winner = np.argmax(np.sign(size) * (query @ keys.T), axis=1)
    np.testing.assert_allclose(found.output, np.asarray(v)[winner], rtol=1e-5)
    parts = merge([attend(q, k[:3], v[:3], size), attend(q, k[3:], v[3:], size)])
    np.testing.assert_allclose(parts.output, found.output, rtol=1e-5)
    gradients = jax.grad(lambda *a: jnp.sum(attend(*a, 1e4).output), (0, 1, 2))(q, k, v)
    assert all(np.isfinite(g).all() for g in gradients)


def test_masked_slots_below_all_logits_still_do_not_count() -> None:
    """A very negative bias on every slot that counts: the masked ones may not win."""
    query, keys, values, _, _ = problem(7, 4)
    q, k, v = map(jnp.float32, (query, keys, values))
    mask = jnp.array([True, False, True, False])
    found = attend(q, k, v, 1.0, jnp.full(4, -1e30), mask)
    assert np.all(np.isfinite(found.output))
    np.testing.assert_allclose(found.output, np.tile((v[0] + v[2]) / 2, (5, 1)), rtol=1e-5)


def test_transforms() -> None:
    query, keys, values, bias, mask = problem(8, 6)
    q, k, v, b, m = map(jnp.asarray, (query, keys, values, bias, mask))
    whole = attend(q, k, v, 1.0, b, m)
    each = jax.jit(jax.vmap(lambda one: attend(one, k, v, 1.0, b, m)))(q)
    np.testing.assert_allclose(each.output, whole.output, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(each.log_sum_exp, whole.log_sum_exp, rtol=1e-6)


def test_bad_shapes() -> None:
    q, k, v = jnp.ones((2, 3)), jnp.ones((4, 3)), jnp.ones((4, 5))
    with pytest.raises(ValueError, match="expected keys"):
        attend(q, k, v[:3], 1.0)
    with pytest.raises(ValueError, match="expected queries"):
        attend(q[:, :2], k, v, 1.0)
    with pytest.raises(ValueError, match="expected bias"):
        attend(q, k, v, 1.0, jnp.ones(3))
    with pytest.raises(ValueError, match="expected mask"):
        attend(q, k, v, 1.0, None, jnp.ones(5, bool))
    with pytest.raises(ValueError, match="at least one read"):
        merge([])
    with pytest.raises(ValueError, match="one shape"):
        merge([attend(q, k, v, 1.0), attend(q[:1], k, v, 1.0)])
