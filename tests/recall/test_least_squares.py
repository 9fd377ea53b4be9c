"""Least squares: exact, recursive, faded, and against the cross-entropy map."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from jaxmem.recall.facts import facts, paraphrase
from jaxmem.recall.memories import (
    cross_entropy_map,
    least_squares,
    recursive_least_squares,
    ridge,
)
from jaxmem.reference import memories as reference


def draw(writes: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Correlated unit keys [T, 12], values [T, 5], queries [T, 12]."""
    rng = np.random.default_rng(seed)
    keys = rng.normal(size=(writes, 12)) + 0.5
    keys /= np.linalg.norm(keys, axis=1, keepdims=True)
    return keys, rng.normal(size=(writes, 5)), rng.normal(size=(writes, 12))


def error(got: Array, want: Array | np.ndarray) -> float:
    got, want = np.asarray(got), np.asarray(want)  # or JAX would subtract in float32
    return float(np.linalg.norm(got - want) / np.linalg.norm(want))


def accuracy(weights: Array, queries: Array, values: Array) -> Array:
    best = jnp.argmax(queries @ weights @ values.T, axis=-1)
    return jnp.mean(best == jnp.arange(values.shape[0]))


@jax.jit
def solved(keys: Array, values: Array, queries: Array, regulariser: Array) -> tuple:
    """(outputs, final weights) of two memories, and the exact weights."""
    results = []
    for factory in (recursive_least_squares, ridge):
        memory = factory(regulariser)
        state, outputs = memory.write_chunk(memory.init(12, 5), keys, values, queries)
        results.append((outputs, memory.read(state, np.eye(12))))
    return results, least_squares(keys, values, regulariser)


@pytest.mark.parametrize("regulariser", [0.1, 1.0, 1e-6])
def test_recursive_equals_ridge_equals_exact(regulariser: float) -> None:
    """1,024 writes; to 1e-11 at a regulariser of .1 or more, to the condition number below."""
    keys, values, queries = draw(1024)
    condition = np.linalg.norm(keys, 2) ** 2 / regulariser
    tolerance = 1e-11 if regulariser >= 0.1 else 1e-15 * condition
    with jax.enable_x64(True):
        results, exact = solved(keys, values, queries, regulariser)
    twin = reference.ridge(keys, values, queries, regulariser)[-1]
    for outputs, weights in results:
        assert error(outputs, twin) < tolerance
        assert error(weights, exact) < tolerance
    normal = keys.T @ keys + regulariser * np.eye(12)
    assert error(exact, np.linalg.solve(normal, keys.T @ values)) < 1e-12


def test_least_squares_is_the_shortest_exact_map_of_few_facts() -> None:
    keys, values, _ = draw(7)
    keys[6] = keys[5]  # of rank 6: the two values are averaged
    with jax.enable_x64(True):
        weights = least_squares(keys, values)
    assert error(weights, np.linalg.pinv(keys) @ values) < 1e-12
    assert np.array_equal(least_squares(keys[:0], values[:0]), np.zeros((12, 5)))


def test_gradients_of_least_squares() -> None:
    keys, values, _ = draw(20)
    with jax.enable_x64(True):

        def loss(keys: Array, values: Array, ridge: Array | float) -> Array:
            return jnp.sum(jnp.sin(least_squares(keys, values, ridge)))

        gradients = jax.grad(loss, argnums=(0, 1, 2))(keys, values, 0.3)
        rng, h = np.random.default_rng(1), 1e-5
        along = [rng.normal(size=np.shape(x)) for x in (keys, values, 0.3)]
        ends = [
            loss(keys + e * along[0], values + e * along[1], 0.3 + e * float(along[2]))
            for e in (h, -h)
        ]
    slope = sum(np.vdot(g, d) for g, d in zip(gradients, along))
    assert slope == pytest.approx(float(ends[0] - ends[1]) / (2 * h), rel=1e-6)


def test_interpolation_peak_and_what_ridge_does_to_it() -> None:
    """64 facts, d = 64, asked in other words, 8 seeds: least squares .42, ridge .1 1.00."""

    @jax.jit
    @jax.vmap
    def scores(key: Array) -> tuple[Array, Array]:
        key_facts, key_queries = jax.random.split(key)
        document = facts(key_facts, 64, 64)
        queries = paraphrase(key_queries, document.keys)
        plain, ridged = least_squares(*document), least_squares(*document, 0.1)
        return tuple(accuracy(w, queries, document.values) for w in (plain, ridged))

    plain, ridged = scores(jax.random.split(jax.random.key(0), 8))
    assert 0.25 < plain.mean() < 0.6
    assert ridged.min() > 0.99


def test_cross_entropy_recalls_what_least_squares_cannot() -> None:
    """512 facts, d = 64: the same 4,096 numbers give .39 by squared error, 1 by cross-entropy."""
    document = facts(jax.random.key(0), 512, 64)
    start = least_squares(*document)
    assert 0.34 < accuracy(start, *document) < 0.45
    weights = cross_entropy_map(*document, steps=200)
    assert accuracy(weights, *document) == 1
    robust = cross_entropy_map(*document, steps=200, noise=0.3, key=jax.random.key(1))
    queries = paraphrase(jax.random.key(2), document.keys)
    assert accuracy(robust, queries, document.values) > accuracy(weights, queries, document.values)


def test_bad_input_is_refused() -> None:
    keys, values, _ = draw(4)
    bad = [
        ("expected keys", lambda: least_squares(keys, values[:3])),
        ("expected keys", lambda: least_squares(keys[0], values)),
        ("ridge must be at least 0", lambda: least_squares(keys, values, -1.0)),
        ("ridge must be a scalar", lambda: least_squares(keys, values, np.ones(2))),
        ("expected keys", lambda: cross_entropy_map(keys, values[:3])),
        ("expected at least one", lambda: cross_entropy_map(keys[:0], values[:0])),
        ("steps must be", lambda: cross_entropy_map(keys, values, steps=0)),
        ("noise needs a key", lambda: cross_entropy_map(keys, values, noise=0.3)),
    ]
    for message, call in bad:
        with pytest.raises(ValueError, match=message):
            call()
