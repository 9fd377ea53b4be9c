"""Closed forms of recall against simulation, the anchor's tables and plain sums."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from jaxmem.recall import limits
from jaxmem.recall.facts import facts, paraphrase
from jaxmem.reference import limits as reference

NOISY = 1 / np.sqrt(1 + 0.3**2)
FORMS = {"sum": limits.sum_accuracy, "least_squares": limits.least_squares_accuracy}


@partial(jax.jit, static_argnums=(1, 2, 3))
def simulate(keys: Array, n: int, dim: int, vocabulary: int) -> Array:
    """Recall seed by seed: [S, sum or least squares, keys or paraphrases]."""

    def once(key: Array) -> Array:
        key_facts, key_noise = jax.random.split(key)
        document = facts(key_facts, vocabulary, dim)
        stored, values = document.keys[:n], document.values[:n]
        weights = stored.T @ values
        weights = jnp.stack([weights, jnp.linalg.solve(stored.T @ stored, weights)])
        questions = jnp.stack([stored, paraphrase(key_noise, stored)])
        scores = jnp.einsum("qnk,wkv,mv->wqnm", questions, weights, document.values)
        return jnp.mean(jnp.argmax(scores, axis=-1) == jnp.arange(n), axis=-1)

    return jax.lax.map(once, keys)


@pytest.mark.parametrize(
    ("n", "dim", "vocabulary"),
    [(96, 64, 96), (256, 64, 512), (1024, 64, 1024), (320, 96, 320)],
)
def test_closed_forms_agree_with_simulation(n: int, dim: int, vocabulary: int) -> None:
    found = np.mean(simulate(jax.random.split(jax.random.key(1), 20), n, dim, vocabulary), axis=0)
    cosines = jnp.array([1.0, NOISY])
    wanted = [form(n, dim, vocabulary, cosines) for form in FORMS.values()]
    np.testing.assert_allclose(found, wanted, atol=0.015)


@pytest.mark.parametrize(
    ("method", "theory"),
    [
        ("sum", [0.992, 0.967, 0.855, 0.706, 0.454, 0.298, 0.083]),
        ("least_squares", [1.0, 0.998, 0.952, 0.825, 0.538, 0.346, 0.091]),
    ],
)
def test_rows_of_the_literature_study(method: str, theory: list[float]) -> None:
    """Paraphrases at d = 64 and V = n: shared/anchors/linear_memory.md, section 4."""
    n = jnp.array([96, 128, 192, 256, 384, 512, 1024])
    np.testing.assert_allclose(FORMS[method](n, 64, None, NOISY), theory, atol=0.01)


def test_larger_vocabularies_are_harder() -> None:
    """40 simulated seeds at n = 512, V = 1024: sum and least squares, clean and noisy."""
    found = [FORMS[m](512, 64, 1024, c) for c in (1.0, NOISY) for m in FORMS]
    np.testing.assert_allclose(found, [0.282, 0.345, 0.249, 0.291], atol=0.01)
    sizes = limits.sum_accuracy(512, 64, jnp.array([512, 1024, 4096, 10**6]))
    assert np.all(np.diff(sizes) < 0)
    assert float(sizes[-1]) > 0


@pytest.mark.parametrize(
    ("n", "dim", "vocabulary", "cosine"),
    [(96, 16, 128, 1.0), (20, 8, 20, 0.9), (300, 48, 300, 1.0)],
)
def test_closed_forms_equal_plain_sums(n: int, dim: int, vocabulary: int, cosine: float) -> None:
    with jax.enable_x64(True):
        found = float(limits.sum_accuracy(n, dim, vocabulary, cosine))
        least = float(limits.least_squares_accuracy(n, dim, vocabulary, cosine))
    wanted = reference.recall_of_weights(n, dim, vocabulary, cosine, (n - 1) / dim)
    assert found == pytest.approx(wanted, abs=1e-3)
    h = dim / n
    others = cosine**2 * h * (1 - h) + (1 - cosine**2) * dim / (n - dim - 1)
    wanted = reference.recall_of_weights(n, dim, vocabulary, cosine * h, others)
    assert least == pytest.approx(wanted, abs=1e-3)


@pytest.mark.parametrize("dim", [3, 8, 64])
def test_cdf_of_a_coordinate(dim: int) -> None:
    u = np.array([-0.9, -0.3, -0.01, 0.02, 0.2, 0.5, 0.8])
    with jax.enable_x64(True):
        found = limits._log_cdf(jnp.array(u**2), jnp.sign(jnp.array(u)), jnp.array(float(dim)))
    wanted = [np.exp(reference.log_coordinate_cdf(x, dim)) for x in u]
    np.testing.assert_allclose(np.exp(found), wanted, atol=3e-4)


def test_cdf_of_a_coordinate_in_the_sample() -> None:
    draws = facts(jax.random.key(3), 20_000, 8).keys[:, 0]
    for u in (-0.4, 0.1, 0.6):
        found = jnp.exp(limits._log_cdf(jnp.array(u**2), jnp.sign(u), jnp.array(8.0)))
        assert float(found) == pytest.approx(float(jnp.mean(draws < u)), abs=0.012)


def test_single_and_double_precision_agree() -> None:
    n = np.array([1, 2, 96, 1024, 10**6])
    single = [form(n, 64, None, NOISY) for form in FORMS.values()]
    with jax.enable_x64(True):
        double = [form(n, 64, None, NOISY) for form in FORMS.values()]
    np.testing.assert_allclose(single, double, atol=2e-5)


@pytest.mark.parametrize("method", FORMS)
def test_gradients_are_slopes(method: str) -> None:
    def recall(x: Array) -> Array:
        return FORMS[method](x[0], x[1], 1024.0, x[2])

    slope = jax.jit(jax.grad(recall))
    with jax.enable_x64(True):
        at, steps = jnp.array([300.0, 64.0, 0.9]), 1e-4 * jnp.diag(jnp.array([300.0, 64.0, 1]))
        slopes = [(recall(at + s) - recall(at - s)) / (2 * s.sum()) for s in steps]
        np.testing.assert_allclose(slope(at), slopes, rtol=1e-5)
    edges = [(1, 64, 1), (50, 64, 1), (64, 64, 1), (64, 64, 0.9), (512, 64, 0), (300, 2, 0.5)]
    for edge in edges:
        assert np.isfinite(slope(jnp.array(edge, float))).all()


def test_few_facts() -> None:
    assert float(limits.sum_accuracy(1, 64)) == pytest.approx(1, abs=1e-5)
    n = jnp.array([1, 2, 32, 63, 64])
    np.testing.assert_allclose(limits.least_squares_accuracy(n, 64, 512), 1, atol=1e-5)
    # The interpolation peak: the formula stays below simulation.
    noisy = limits.least_squares_accuracy(jnp.array([32, 48, 60, 64, 72, 80]), 64, 512, NOISY)
    np.testing.assert_allclose(np.asarray(noisy)[[0, 1, 4, 5]], 1, atol=0.02)
    assert float(noisy[3]) == pytest.approx(1 / 512)
    assert float(noisy[2]) < 0.99


def test_no_facts_are_known_without_a_cosine() -> None:
    assert float(limits.sum_accuracy(512, 64, 512, 0.0)) == pytest.approx(1 / 512, rel=0.5)


BOUND = {  # floats: accuracy at 1 bit, at 2 bits, and facts at 2 bits; vocabularies 512 and 1024
    2048: ((0.554, 0.500), (0.930, 0.859), (455, 410)),
    4096: ((0.930, 0.859), (1, 1), (910, 819)),
    8192: ((1, 1), (1, 1), (1820, 1638)),
    16384: ((1, 1), (1, 1), (3641, 3277)),
    32768: ((1, 1), (1, 1), (7282, 6554)),
}


@pytest.mark.parametrize("floats", BOUND)
def test_information_table(floats: int) -> None:
    vocabulary = jnp.array([512, 1024])
    one, two, facts_at_two = BOUND[floats]
    found = limits.information_accuracy(floats, 512, vocabulary, 1.0)
    np.testing.assert_allclose(found, one, atol=6e-4)  # .5545 was printed as .554
    np.testing.assert_allclose(
        limits.information_accuracy(floats, 512, vocabulary), two, atol=5.1e-4
    )
    np.testing.assert_allclose(limits.information_facts(floats, vocabulary), facts_at_two, atol=0.5)


@pytest.mark.parametrize(("floats", "n", "vocabulary"), [(0, 5, 7), (3, 40, 2), (900, 512, 10**6)])
def test_information_accuracy_is_the_inverse_of_the_rate(
    floats: int, n: int, vocabulary: int
) -> None:
    wanted = reference.information_accuracy(floats * 2.0 / n, vocabulary)
    with jax.enable_x64(True):
        found = limits.information_accuracy(floats, n, vocabulary)
        assert float(found) == pytest.approx(wanted, abs=1e-6)
        if floats:
            held = limits.information_facts(floats, vocabulary, 2.0, float(found))
            assert float(held) == pytest.approx(n, rel=1e-6)
    single = limits.information_accuracy(floats, n, vocabulary)
    assert float(single) == pytest.approx(wanted, abs=1e-3)


def test_information_gradient() -> None:
    slope = jax.grad(limits.information_accuracy)(2048.0, 512.0, 512.0, 1.0)
    with jax.enable_x64(True):
        high, low = (limits.information_accuracy(f, 512, 512, 1.0) for f in (2049.0, 2047.0))
    assert float(slope) == pytest.approx(float(high - low) / 2, rel=1e-3)
    assert float(jax.grad(limits.information_accuracy)(1e6, 512.0, 512.0, 1.0)) == 0
    assert np.isfinite(jax.grad(limits.information_accuracy)(0.0, 512.0, 512.0, 1.0))


def test_facts_at_chance_cost_nothing() -> None:
    assert limits.information_facts(100, 10, accuracy=0.1) == jnp.inf
    assert float(limits.information_facts(100, 10, accuracy=0.5)) > 100


def test_truncation() -> None:
    found = limits.truncation_accuracy(jnp.array([0, 16, 32, 512, 600]), 512)
    np.testing.assert_allclose(found, [0, 1 / 32, 1 / 16, 1, 1])


def test_capacities() -> None:
    found = limits.linear_capacity(jnp.array([32, 64, 128, 256]))
    np.testing.assert_allclose(found, [109, 350, 1161, 3956], atol=0.6)
    for dim in (1, 2, 7, 10_000):
        assert float(limits.linear_capacity(dim)) == pytest.approx(
            reference.linear_capacity(dim), rel=1e-5
        )
    assert float(limits.softmax_capacity(20.0, 64, NOISY)) == pytest.approx(16, abs=0.1)
    assert float(limits.softmax_capacity(1e4, 64, NOISY)) == pytest.approx(29.4, abs=0.1)
    scales = limits.softmax_capacity(jnp.linspace(0, 200, 50), 64)
    assert np.all(np.diff(scales) >= 0)


def test_softmax_capacity_in_a_simulation() -> None:
    """d = 12 at its best scale: e^{d/2} = 403 facts; far fewer are recalled, far more are lost."""
    document = facts(jax.random.key(0), 40_000, 12)
    right = []
    for n in (40, 40_000):
        weights = jax.nn.softmax(12 * document.keys[:200] @ document.keys[:n].T)
        right.append(float(jnp.mean(jnp.diag(weights) > 0.5)))
    assert right[0] > 0.9
    assert right[1] < 0.1
    assert np.exp(limits.softmax_capacity(12.0, 12)) == pytest.approx(np.exp(6), rel=1e-5)


def test_delta_rule() -> None:
    rates = jnp.array([1.0, 0.5, 0.2])
    np.testing.assert_allclose(limits.delta_recalled(64, rates, 512), [62, 105, 146], atol=0.6)
    assert float(limits.delta_recalled(64, 1.0, 512, NOISY)) < 62
    assert float(limits.delta_recalled(4, 1.0, 10**6)) == 0
    counts = jnp.array([1.0, 2.0, 511.0])  # 0 and 1 / sqrt(pi) are exact
    np.testing.assert_allclose(limits._largest_normal(counts), [0, np.pi**-0.5, 3.043], atol=1e-3)


def test_delta_rule_in_a_simulation() -> None:
    """After 512 writes at rate 1 about 64 of d = 64 facts are left, the newest ones."""

    @jax.jit
    def newest_first(key: Array) -> Array:
        document = facts(key, 512, 64)

        def write(weights: Array, pair: tuple[Array, Array]) -> tuple[Array, None]:
            key, value = pair
            return weights + jnp.outer(key, value - key @ weights), None

        weights, _ = jax.lax.scan(write, jnp.zeros((64, 64)), document)
        scores = document.keys @ weights @ document.values.T
        return (jnp.argmax(scores, axis=1) == jnp.arange(512))[::-1]

    right = jax.lax.map(newest_first, jax.random.split(jax.random.key(0), 10)).mean(axis=0)
    assert float(right.sum()) == pytest.approx(float(limits.delta_recalled(64, 1.0, 512)), abs=6)
    assert float(right[:32].mean()) > 0.9
    assert float(right[128:].mean()) < 0.03


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: limits.sum_accuracy(0, 64), "n must be in 1..inf, got 0"),
        (lambda: limits.sum_accuracy(8, 1), "dim must be in 2..inf"),
        (lambda: limits.sum_accuracy(8, 64, 4), "vocabulary - n must be in 0..inf"),
        (lambda: limits.least_squares_accuracy(8, 64, None, 1.5), "cosine must be in 0..1"),
        (lambda: limits.sum_accuracy(8, 64, None, float("nan")), "cosine must be in 0..1"),
        (lambda: limits.information_accuracy(-1, 8), "floats must be in 0..inf"),
        (lambda: limits.information_accuracy(1, 1), "vocabulary must be in 2..inf"),
        (lambda: limits.information_facts(1, 8, accuracy=2), "accuracy must be in 0..1"),
        (lambda: limits.truncation_accuracy(-1, 8), "slots must be in 0..inf"),
        (lambda: limits.softmax_capacity(-1.0, 8), "scale must be in 0..inf"),
        (lambda: limits.linear_capacity(0), "dim must be in 1..inf"),
        (lambda: limits.delta_recalled(64, 2.0, 512), "rate must be between 0..2"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_bad_numbers(call, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=message):
        call()
