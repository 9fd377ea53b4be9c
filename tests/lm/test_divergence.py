"""KL to a teacher against float64 numpy, and its gradient against central differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmem.lm.divergence import BLOCK, Lesson, mean_kl, score, top_k_kl, whole_kl

pytestmark = pytest.mark.usefixtures("unoptimised")


def log_softmax(logits: np.ndarray) -> np.ndarray:
    top = logits.max(axis=-1, keepdims=True)
    return logits - top - np.log(np.exp(logits - top).sum(axis=-1, keepdims=True))


def lumped_kl(student: np.ndarray, teacher: np.ndarray, k: int) -> np.ndarray:
    """By the definition, token by token."""
    found = []
    for mine, theirs in zip(np.exp(log_softmax(student)), np.exp(log_softmax(teacher))):
        best = np.argsort(-theirs)[:k]
        p = np.append(theirs[best], 1 - theirs[best].sum())
        q = np.append(mine[best], 1 - mine[best].sum())
        found.append(sum(a * np.log(a / b) for a, b in zip(p, q) if a > 1e-9))
    return np.array(found)


@pytest.mark.parametrize("k", [1, 5, 30])
def test_top_k_kl_is_the_kl_with_a_lumped_rest(k: int) -> None:
    rng = np.random.default_rng(k)
    student, teacher = rng.normal(size=(2, 7, 31)) * 3
    log_probs = log_softmax(teacher)
    ids = np.argsort(-log_probs)[:, :k]
    lesson = Lesson(jnp.asarray(ids), jnp.asarray(np.take_along_axis(log_probs, ids, 1)))
    got = np.asarray(jax.jit(top_k_kl)(jnp.asarray(student), lesson))
    np.testing.assert_allclose(got, lumped_kl(student, teacher, k), rtol=2e-5, atol=2e-6)
    whole = np.asarray(jax.jit(whole_kl)(jnp.asarray(student), jnp.asarray(teacher)))
    assert (got <= whole + 1e-5).all()  # lumping loses information, never adds


def test_a_hard_label_is_cross_entropy() -> None:
    logits = np.random.default_rng(0).normal(size=(6, 19))
    ids = np.arange(6)[:, None]
    got = jax.jit(top_k_kl)(logits.astype(np.float32), Lesson(ids, np.zeros((6, 1), np.float32)))
    want = -log_softmax(logits)[np.arange(6), ids[:, 0]]
    np.testing.assert_allclose(got, want, rtol=1e-5)


@pytest.mark.parametrize("whole", [False, True])
def test_gradient_of_the_mean_kl(whole: bool) -> None:
    with jax.enable_x64(True):
        rng = np.random.default_rng(3)
        hidden, teacher = rng.normal(size=(2, 2 * BLOCK, 6))
        head = rng.normal(size=(23, 6))
        weights = rng.integers(0, 2, 2 * BLOCK).astype(float)
        shares = log_softmax(np.asarray(teacher @ head.T))
        ids = np.argsort(-shares)[:, :4]
        log_probs = np.take_along_axis(shares, ids, 1)
        lesson = Lesson(ids, log_probs, teacher if whole else None)
        step = 1e-5 * rng.normal(size=hidden.shape)
        value = jax.jit(jax.value_and_grad(lambda states: mean_kl(states, head, lesson, weights)))
        slope = (value(hidden + step)[0] - value(hidden - step)[0]) / 2
        gradient = np.asarray(value(hidden)[1])
        np.testing.assert_allclose(np.sum(gradient * step), slope, rtol=1e-6)
        assert not np.any(gradient[weights == 0])
        if whole:
            np.testing.assert_allclose(value(teacher)[0], 0, atol=1e-12)


def test_scores_of_a_student() -> None:
    rng = np.random.default_rng(5)
    hidden, teacher = rng.normal(size=(2, BLOCK, 6)).astype(np.float32)
    head = rng.normal(size=(23, 6)).astype(np.float32)
    targets = rng.integers(0, 23, BLOCK)
    got = score(*(jnp.asarray(part) for part in (hidden, teacher, head, targets)))
    mine, theirs = log_softmax(hidden @ head.T), log_softmax(teacher @ head.T)
    np.testing.assert_allclose(got.kl, (np.exp(theirs) * (theirs - mine)).sum(1), rtol=1e-4)
    np.testing.assert_allclose(got.nll, -mine[np.arange(BLOCK), targets], rtol=1e-5)
    np.testing.assert_allclose(got.teacher_nll, -theirs[np.arange(BLOCK), targets], rtol=1e-5)
