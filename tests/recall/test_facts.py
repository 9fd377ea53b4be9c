"""Random facts and their paraphrases."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmem.recall.facts import facts, paraphrase, unit


def test_keys_and_values_have_length_one() -> None:
    document = facts(jax.random.key(0), 100, 24, value_dim=7)
    assert document.keys.shape == (100, 24)
    assert document.values.shape == (100, 7)
    np.testing.assert_allclose(jnp.linalg.norm(document.keys, axis=1), 1, rtol=1e-6)
    np.testing.assert_allclose(jnp.linalg.norm(document.values, axis=1), 1, rtol=1e-6)
    assert facts(jax.random.key(0), 3, 5).values.shape == (3, 5)


def test_gaussian_values_are_standard_normal() -> None:
    document = facts(jax.random.key(0), 1000, 64, unit_values=False)
    assert float(jnp.mean(document.values)) == pytest.approx(0, abs=0.02)
    assert float(jnp.var(document.values)) == pytest.approx(1, abs=0.02)
    scaled = facts(jax.random.key(0), 1000, 64)
    np.testing.assert_allclose(unit(document.values), scaled.values, rtol=1e-6)
    np.testing.assert_array_equal(document.keys, scaled.keys)


def test_keys_are_uniform_on_the_sphere_and_independent_of_values() -> None:
    document = facts(jax.random.key(1), 4000, 16)
    covariance = document.keys.T @ document.keys / 4000
    np.testing.assert_allclose(covariance, np.eye(16) / 16, atol=0.006)
    assert float(jnp.abs(jnp.mean(document.keys, axis=0)).max()) < 0.016
    cross = document.keys.T @ document.values / 4000
    assert float(jnp.abs(cross).max()) < 0.006


@pytest.mark.parametrize("unit_values", [True, False])
def test_fewer_facts_are_a_prefix(unit_values: bool) -> None:
    key = jax.random.key(3)
    whole = facts(key, 300, 8, value_dim=5, unit_values=unit_values)
    for n in (1, 7, 256):
        part = facts(key, n, 8, value_dim=5, unit_values=unit_values)
        # To the last bit but one: the vector units round the tail of an array otherwise.
        np.testing.assert_allclose(part.keys, whole.keys[:n], rtol=1e-6)
        np.testing.assert_allclose(part.values, whole.values[:n], rtol=1e-6)


@pytest.mark.parametrize("noise", [0.0, 1.0])
def test_paraphrases_have_the_stated_cosine(noise: float) -> None:
    keys = facts(jax.random.key(0), 2000, 64).keys
    questions = paraphrase(jax.random.key(1), keys, noise)
    np.testing.assert_allclose(jnp.linalg.norm(questions, axis=1), 1, rtol=1e-6)
    cosine = float(jnp.mean(jnp.sum(questions * keys, axis=1)))
    # The disturbance is not orthogonal to the key, which moves the mean by less than noise^2 / d.
    assert cosine == pytest.approx(1 / np.sqrt(1 + noise**2), abs=0.002 + noise**2 / 64)


def test_default_noise_gives_958() -> None:
    keys = facts(jax.random.key(0), 2000, 64).keys
    cosine = jnp.sum(paraphrase(jax.random.key(1), keys) * keys, axis=1)
    assert float(jnp.mean(cosine)) == pytest.approx(0.958, abs=0.001)


def test_paraphrases_of_one_key_and_of_batches() -> None:
    keys = facts(jax.random.key(0), 6, 4).keys
    assert paraphrase(jax.random.key(1), keys[0]).shape == (4,)
    assert paraphrase(jax.random.key(1), keys.reshape(2, 3, 4)).shape == (2, 3, 4)
    once, again = (paraphrase(jax.random.key(k), keys) for k in (1, 2))
    assert not np.allclose(once, again)


def test_unit_keeps_zero() -> None:
    np.testing.assert_array_equal(unit(jnp.zeros((2, 3))), np.zeros((2, 3)))
    np.testing.assert_allclose(unit(jnp.array([3.0, 4.0])), [0.6, 0.8], rtol=1e-6)
    with jax.enable_x64(True):
        assert facts(jax.random.key(0), 2, 3).keys.dtype == jnp.float64


@pytest.mark.parametrize("name", ["n", "dim", "value_dim"])
def test_sizes_must_be_positive(name: str) -> None:
    sizes = {"n": 2, "dim": 2, "value_dim": 2, name: 0}
    with pytest.raises(ValueError, match=f"{name} must be at least 1, got 0"):
        facts(jax.random.key(0), **sizes)
