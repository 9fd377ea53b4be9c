"""Compaction: exact oracles, what comes back whole, what each method reaches."""

import functools

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxmem.recall.cartridges.cartridge import Cartridge, whole
from jaxmem.recall.cartridges.compaction import (
    LEAST_WEIGHT,
    attention_matching,
    evict,
    nonnegative_least_squares,
    truncate,
)
from jaxmem.recall.facts import Document, facts, paraphrase
from jaxmem.reference import compaction as reference

SELECTIONS = ["attention", "omp"]


def problem(seed: int, n: int = 24, queries: int = 40) -> tuple[Document, jax.Array]:
    """A document and questions that fit it no better than chance, in double precision."""
    rng = np.random.default_rng(seed)
    keys = rng.normal(size=(n, 8))
    keys /= np.linalg.norm(keys, axis=1, keepdims=True)
    made = Document(jnp.asarray(keys), jnp.asarray(rng.normal(size=(n, 5))))
    return made, jnp.asarray(rng.normal(size=(queries, 8)))


@functools.cache
def said_often(
    n: int = 64, times: int = 8, dim: int = 64
) -> tuple[Document, Document, jax.Array, Cartridge]:
    """n facts, a document that says each so many times, questions, n slots by pursuit."""
    key_facts, key_text, key_order, key_asked = jax.random.split(jax.random.key(0), 4)
    base = facts(key_facts, n, dim)
    order = jax.random.permutation(key_order, n * times)
    keys = paraphrase(key_text, jnp.tile(base.keys, (times, 1)))[order]
    values = jnp.tile(base.values, (times, 1))[order]
    document, asked = Document(keys, values), paraphrase(key_asked, jnp.tile(base.keys, (4, 1)))
    return base, document, asked, attention_matching(document, n, asked, select="omp")


def accuracy(cartridge: Cartridge, document: Document) -> float:
    """Share of facts found by questions that no method has seen."""
    asked = paraphrase(jax.random.key(77), document.keys)
    scores = cartridge.read(asked).output @ document.values.T
    return float(jnp.mean(jnp.argmax(scores, axis=1) == jnp.arange(len(asked))))


def kkt(matrix: np.ndarray, target: np.ndarray, weights: np.ndarray, r: float, p: float) -> float:
    """How far weights are from the conditions of a minimum: w >= 0, y >= 0, w y = 0."""
    gradient = matrix.T @ (matrix @ weights - target) + r * (weights - p)
    size = np.abs(matrix.T @ target).max() + r * p + 1e-30
    broken = np.where(weights > 0, np.abs(gradient), np.maximum(-gradient, 0))
    return float(max(broken.max() / size, -weights.min()))


@given(
    seed=st.integers(0, 2**32 - 1),
    shape=st.sampled_from([(30, 12), (12, 30), (20, 20), (5, 1), (1, 5)]),
    ridge=st.sampled_from([1e-6, 1e-2]),
    prior=st.sampled_from([0.0, 1.0]),
    dense=st.sampled_from([0.1, 0.5, 1.0]),
)
@settings(max_examples=40, deadline=None)
def test_nonnegative_least_squares_is_exact(
    seed: int, shape: tuple[int, int], ridge: float, prior: float, dense: float
) -> None:
    rng = np.random.default_rng(seed)
    matrix = rng.exponential(size=shape) ** 2 * (rng.random(shape) < dense)
    target = rng.normal(size=shape[0])
    r = max(ridge * np.sum(matrix**2), 1e-30)
    with jax.enable_x64(True):
        found = np.asarray(_solve(jnp.asarray(matrix), jnp.asarray(target), ridge, prior))
    assert kkt(matrix, target, found, r, prior) < 1e-11
    if matrix.any():
        plain = reference.nonnegative_least_squares(matrix, target, ridge, prior)
        np.testing.assert_allclose(found, plain, rtol=1e-7, atol=1e-7 * (1 + plain.max()))
    single = np.asarray(_solve(jnp.float32(matrix), jnp.float32(target), ridge, prior))
    assert np.all(np.isfinite(single))
    assert kkt(matrix, target, single.astype(float), r, prior) < 1e-3


_solve = jax.jit(nonnegative_least_squares)


@pytest.mark.parametrize("ridge", [1e-6, 1e-2])
def test_nonnegative_least_squares_as_scipy_has_it(ridge: float) -> None:
    optimize = pytest.importorskip("scipy.optimize")
    for seed in range(8):
        rng = np.random.default_rng(seed)
        matrix, target = rng.exponential(size=(40, 15)) ** 2, rng.normal(size=40) + 1
        root = np.sqrt(ridge * np.sum(matrix**2))
        sides = np.concatenate([target, np.full(15, 0.5 * root)])
        wanted, _ = optimize.nnls(np.concatenate([matrix, root * np.eye(15)]), sides)
        assert np.any(wanted > 0)
        if ridge < 1e-3:
            assert np.any(wanted == 0)
        with jax.enable_x64(True):
            found = _solve(jnp.asarray(matrix), jnp.asarray(target), ridge, 0.5)
            np.testing.assert_allclose(found, wanted, rtol=1e-8, atol=1e-10)
        plain = reference.nonnegative_least_squares(matrix, target, ridge, 0.5)
        np.testing.assert_allclose(plain, wanted, rtol=1e-8, atol=1e-10)


def test_hard_systems_stay_finite() -> None:
    rng = np.random.default_rng(0)
    column = rng.random((30, 1))
    same = np.tile(column, (1, 12))  # rank 1
    for matrix in (same, np.zeros((30, 12)), 1e-20 * same, 1e12 * same, np.eye(30, 12)):
        for prior in (0.0, 1.0):
            found = _solve(jnp.float32(matrix), jnp.ones(30), 0.0, prior)
            assert np.all(np.isfinite(found))
            assert np.all(found >= 0)
    np.testing.assert_allclose(_solve(jnp.zeros((30, 12)), jnp.ones(30), 0.0, 1.0), 1, rtol=1e-5)


@pytest.mark.parametrize("select", SELECTIONS)
@pytest.mark.parametrize("slots", [1, 9])
def test_attention_matching_equals_its_definition(select: str, slots: int) -> None:
    lowest = []
    with jax.enable_x64(True):
        for seed in range(6):
            document, queries = problem(seed)
            found = attention_matching(document, slots, queries, 1.5, select=select)
            chosen, bias, values = reference.attention_matching(
                *map(np.asarray, (*document, queries)), 1.5, slots, select
            )
            np.testing.assert_array_equal(found.keys, document.keys[chosen])
            np.testing.assert_allclose(found.bias, bias, rtol=1e-9, atol=1e-9)
            np.testing.assert_allclose(found.values, values, rtol=1e-9, atol=1e-9)
            assert (found.scale, found.slots) == (1.5, slots)
            lowest.append(bias.min())
    if (select, slots) == ("attention", 9):
        assert min(lowest) == np.log(LEAST_WEIGHT)  # a weight of 0 was among them


def test_eviction_equals_its_definition() -> None:
    with jax.enable_x64(True):
        for seed in range(4):
            document, queries = problem(seed)
            attention = reference.shares(*map(np.asarray, (queries, document.keys)), 3.0)
            found = evict(document, 7, queries, 3.0)
            chosen = reference.evict(attention, 7)
            np.testing.assert_array_equal(found.keys, document.keys[chosen])
            np.testing.assert_array_equal(found.values, document.values[chosen])
            assert found.bias is None


def test_eviction_keeps_what_is_asked_about() -> None:
    document = facts(jax.random.key(1), 64, 32)
    wanted = np.array([3, 17, 40, 63])
    found = evict(document, 4, paraphrase(jax.random.key(2), document.keys[wanted]))
    np.testing.assert_array_equal(found.keys, document.keys[wanted])  # in the document's order


@pytest.mark.parametrize("select", SELECTIONS)
@pytest.mark.parametrize("queries", [3, 24])
def test_as_many_slots_as_facts_give_the_document_back(select: str, queries: int) -> None:
    document, _ = problem(0)
    asked = jax.random.normal(jax.random.key(0), (queries, 8))
    document = Document(*map(jnp.float32, document))
    for found in (
        attention_matching(document, 24, asked, 1.5, select=select),
        evict(document, 24, asked, 1.5),
        truncate(document, 24, 1.5),
    ):
        np.testing.assert_array_equal(found.keys, document.keys)
        np.testing.assert_allclose(found.values, document.values, atol=1e-4)
        if found.bias is not None:
            np.testing.assert_allclose(found.bias, 0, atol=1e-4)
        other = jax.random.normal(jax.random.key(1), (50, 8))
        new, old = found.read(other), whole(document, 1.5).read(other)
        np.testing.assert_allclose(new.output, old.output, atol=2e-4)
        np.testing.assert_allclose(new.log_sum_exp, old.log_sum_exp, atol=2e-4)


def test_random_facts_cannot_be_compacted_without_training() -> None:
    document = facts(jax.random.key(0), 512, 64)
    asked = paraphrase(jax.random.key(1), document.keys)
    assert accuracy(whole(document), document) > 0.99
    for slots in (64, 128, 256):
        share = slots / 512
        assert accuracy(truncate(document, slots), document) == pytest.approx(share, abs=0.005)
        assert accuracy(evict(document, slots, asked), document) == pytest.approx(share, abs=0.005)
        found = attention_matching(document, slots, asked)
        assert share <= accuracy(found, document) < share + 0.04
        outputs = whole(document).read(asked).output

        def error(cartridge: Cartridge, outputs: jax.Array = outputs) -> float:
            return float(jnp.sum((cartridge.read(asked).output - outputs) ** 2))

        assert error(found) < error(evict(document, slots, asked))  # what it does minimise


def test_what_is_said_often_can_be() -> None:
    base, document, asked, pursued = said_often()
    reached = {
        "truncate": accuracy(truncate(document, 64), base),
        "evict": accuracy(evict(document, 64, asked), base),
        "matching": accuracy(attention_matching(document, 64, asked), base),
        "pursuit": accuracy(pursued, base),
    }
    assert reached["pursuit"] > 0.97  # one slot a fact
    assert reached["pursuit"] > reached["matching"] > reached["evict"] - 0.02
    assert max(reached["truncate"], reached["evict"]) < 0.85


def test_biases_keep_the_share_beside_other_tokens() -> None:
    base, document, _, matched = said_often()
    held = paraphrase(jax.random.key(5), base.keys)
    wanted = whole(document).read(held).log_sum_exp
    bare = Cartridge(matched.keys, matched.values)
    assert float(jnp.mean(jnp.abs(matched.read(held).log_sum_exp - wanted))) < 0.5
    assert float(jnp.mean(wanted - bare.read(held).log_sum_exp)) > 1.0  # ln 8 = 2.1 facts in one


def test_questions_that_never_look_at_a_slot() -> None:
    document = facts(jax.random.key(1), 32, 16)
    asked = jnp.tile(document.keys[:1], (5, 1))
    for scale in (20.0, 1e4):  # at which all other weights underflow
        for select in SELECTIONS:
            found = attention_matching(document, 8, asked, scale, select=select)
            assert np.all(np.isfinite(found.bias))
            assert np.all(np.isfinite(found.values))
            np.testing.assert_allclose(found.read(asked).output[0], document.values[0], atol=1e-3)


@pytest.mark.parametrize("select", SELECTIONS)
def test_under_jit_and_vmap(select: str) -> None:
    documents = jax.vmap(lambda key: facts(key, 20, 8))(jax.random.split(jax.random.key(0), 3))
    asked = paraphrase(jax.random.key(1), documents.keys)

    @jax.jit
    @jax.vmap
    def compact(document: Document, asked: jax.Array) -> Cartridge:
        return attention_matching(document, 6, asked, 5.0, select=select)

    found = compact(documents, asked)
    assert found.keys.shape == (3, 6, 8)
    one = attention_matching(Document(*(a[1] for a in documents)), 6, asked[1], 5.0, select=select)
    np.testing.assert_array_equal(found.keys[1], one.keys)
    np.testing.assert_allclose(found.bias[1], one.bias, atol=1e-4)
    np.testing.assert_allclose(found.values[1], one.values, atol=1e-4)


@pytest.mark.parametrize("kind", [jnp.float16, ml_dtypes.bfloat16], ids=["f16", "bf16"])
def test_half_precision_is_kept(kind: type) -> None:
    document, asked = problem(0)
    half = Document(*(jnp.asarray(a, kind) for a in document))
    found = attention_matching(half, 9, jnp.asarray(asked, kind), 1.5)
    assert found.keys.dtype == found.values.dtype == kind
    assert found.bias.dtype == jnp.float32
    rounded = Document(*(jnp.float32(a) for a in half))
    wanted = attention_matching(rounded, 9, jnp.float32(jnp.asarray(asked, kind)), 1.5)
    np.testing.assert_array_equal(found.keys, wanted.keys.astype(kind))
    np.testing.assert_allclose(np.float32(found.values), wanted.values, rtol=0.01, atol=0.01)
    assert evict(half, 9, jnp.asarray(asked, kind), 1.5).keys.dtype == kind


DOCUMENT = facts(jax.random.key(0), 6, 4)
NAN = Document(DOCUMENT.keys.at[2, 1].set(jnp.nan), DOCUMENT.values)


@pytest.mark.parametrize("method", [truncate, evict, attention_matching])
@pytest.mark.parametrize(
    ("document", "slots", "asked", "message"),
    [
        (DOCUMENT, 0, jnp.ones((3, 4)), "slots must be at least 1, got 0"),
        (DOCUMENT, 7, jnp.ones((3, 4)), "at most as many slots as facts, 6, got 7"),
        (NAN, 2, jnp.ones((3, 4)), "expected finite keys, got nan in fact 2"),
        (Document(DOCUMENT.keys[:3], DOCUMENT.values), 2, jnp.ones((3, 4)), "expected keys"),
        (DOCUMENT, 2, jnp.ones((3, 5)), r"expected questions \[Q, 4\], got \(3, 5\)"),
        (DOCUMENT, 2, jnp.ones(4), r"expected questions \[Q, 4\], got \(4,\)"),
        (DOCUMENT, 2, jnp.ones((0, 4)), r"expected questions \[Q, 4\], got \(0, 4\)"),
        (DOCUMENT, 2, jnp.full((3, 4), jnp.nan), "expected finite questions, got NaN"),
    ],
    ids=range(8),
)
def test_refusals(method, document, slots, asked, message) -> None:  # type: ignore[no-untyped-def]
    if method is truncate:
        if "questions" not in message:
            with pytest.raises(ValueError, match=message):
                truncate(document, slots)
        return
    with pytest.raises(ValueError, match=message):
        method(document, slots, asked)


def test_refusals_of_options() -> None:
    with pytest.raises(ValueError, match="unknown selection of keys 'opm' .did you mean 'omp'"):
        attention_matching(DOCUMENT, 2, jnp.ones((3, 4)), select="opm")
    with pytest.raises(ValueError, match="ridge must be at least 0, got -1"):
        attention_matching(DOCUMENT, 2, jnp.ones((3, 4)), ridge=-1.0)
