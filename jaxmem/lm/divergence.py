"""How far a student's next-token distributions are from a teacher's: KL, never cross-entropy.

The head of a language model is its largest product (49,152 outputs for SmolLM2), so logits are
made for the predicted tokens only, in blocks, and the gradient in the same pass.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jaxmem.lm.product import transposed_product

BLOCK = 64
"""Predicted tokens whose logits are held at once."""


class Lesson(NamedTuple):
    """What a teacher says of predicted tokens: its likeliest continuations, or everything.

    ids: [..., k] tokens; k = 1 and probability 1 is a hard label.
    log_probs: [..., k] of these; what is missing to 1 is the lumped rest of the vocabulary.
    hidden: [..., D] the teacher's last states, from which its whole distribution follows, or None.
    """

    ids: Array | np.ndarray
    log_probs: Array | np.ndarray
    hidden: Array | np.ndarray | None = None


def top_k_kl(logits: Array, lesson: Lesson) -> Array:
    """KL from teacher to student over the teacher's k likeliest tokens and the lumped rest.

    sum_k p_k (ln p_k - ln q_k) + p_rest (ln p_rest - ln q_rest), at most the whole KL

    Args:
      logits: [M, V] the student's.
      lesson: ids and log_probs [M, k].

    Returns:
      Nats, [M].
    """
    rows = jnp.arange(len(logits))[:, None]
    chosen = logits[rows, lesson.ids]  # [M, k]
    others = jax.nn.logsumexp(
        logits.at[rows, lesson.ids].set(-jnp.inf, unique_indices=True), axis=-1
    )
    total = jnp.logaddexp(others, jax.nn.logsumexp(chosen, axis=-1))
    shares = jnp.exp(lesson.log_probs)
    rest = jnp.maximum(1.0 - jnp.sum(shares, axis=-1), 0.0)
    # A rest that is rounding only says nothing.
    some = rest > 1e-6
    log_rest = jnp.log(jnp.where(some, rest, 1.0))
    of_rest = jnp.where(some, rest * (log_rest - (others - total)), 0.0)
    known = jnp.where(shares > 0, lesson.log_probs, 0.0) - (chosen - total[:, None])
    return jnp.sum(shares * known, axis=-1) + of_rest


def whole_kl(logits: Array, teacher: Array) -> Array:
    """KL from teacher to student over the vocabulary.

    sum_v p_v (ln p_v - ln q_v)

    Args:
      logits: [M, V] the student's.
      teacher: [M, V] the teacher's logits.

    Returns:
      Nats, [M].
    """
    wanted, given = jax.nn.log_softmax(teacher), jax.nn.log_softmax(logits)
    return jnp.sum(jnp.exp(wanted) * (wanted - given), axis=-1)


def mean_kl(hidden: Array, head: Array, lesson: Lesson, weights: ArrayLike) -> Array:
    """Weighted mean of the KL of predicted tokens, with the gradient by `hidden` alone.

    Args:
      hidden: [M, D] the student's last states; M a multiple of `BLOCK`.
      head: [V, D].
      lesson: ids and log_probs [M, k], or hidden [M, D] for the whole vocabulary.
      weights: [M], not all 0.

    Returns:
      Nats a token, scalar.
    """
    weights = jnp.asarray(weights)
    return _weighted(hidden, head, lesson, weights / jnp.sum(weights))


@jax.custom_vjp
def _weighted(hidden: Array, head: Array, lesson: Lesson, weights: Array) -> Array:
    return _sum_and_gradient(hidden, head, lesson, weights)[0]


def _sum_and_gradient(
    hidden: Array, head: Array, lesson: Lesson, weights: Array
) -> tuple[Array, Array]:
    def block(part: tuple[Array, Lesson, Array]) -> tuple[Array, Array]:
        states, taught, share = part

        def loss(states: Array) -> Array:
            logits = transposed_product(states, head)
            if taught.hidden is None:
                kl = top_k_kl(logits, taught)
            else:
                kl = whole_kl(logits, transposed_product(jnp.asarray(taught.hidden), head))
            return jnp.sum(share * kl)

        return jax.value_and_grad(loss)(states)

    sums, gradients = jax.lax.map(block, in_blocks((hidden, lesson, weights)))
    return jnp.sum(sums), gradients.reshape(hidden.shape)


def _forward(hidden: Array, head: Array, lesson: Lesson, weights: Array) -> tuple[Array, Array]:
    return _sum_and_gradient(hidden, head, lesson, weights)


def _backward(gradient: Array, change: Array) -> tuple[Array, None, None, None]:
    return change * gradient, None, None, None


_weighted.defvjp(_forward, _backward)


def in_blocks(tree: object) -> object:
    """Arrays [M, ...] as [M / BLOCK, BLOCK, ...].

    Args:
      tree: a pytree of arrays whose first axis is a multiple of `BLOCK` long.

    Returns:
      The same tree with blocks in front.
    """
    return jax.tree.map(lambda part: part.reshape(-1, BLOCK, *part.shape[1:]), tree)


def map_blocks(function: Callable[..., object], *arrays: Array) -> object:
    """`function` of each block of rows, joined again.

    Args:
      function: from arrays [BLOCK, ...] to a pytree of arrays [BLOCK, ...].
      arrays: [M, ...] each.

    Returns:
      The pytree with arrays [M, ...].
    """
    made = jax.lax.map(lambda parts: function(*parts), in_blocks(arrays))
    return jax.tree.map(lambda part: part.reshape(-1, *part.shape[2:]), made)


class Scores(NamedTuple):
    """A student beside its teacher on predicted tokens.

    kl: [M] nats, over the whole vocabulary.
    nll: [M] the student's surprise at the token itself, nats.
    teacher_nll: [M] the teacher's.
    """

    kl: Array
    nll: Array
    teacher_nll: Array


@partial(jax.jit)
def score(hidden: Array, teacher: Array, head: Array, targets: Array) -> Scores:
    """KL and likelihoods of predicted tokens.

    Args:
      hidden: [M, D] the student's last states, M a multiple of `BLOCK`.
      teacher: [M, D] the teacher's.
      head: [V, D].
      targets: [M] the tokens.

    Returns:
      Three numbers a token.
    """

    def block(states: Array, wanted: Array, ids: Array) -> Scores:
        given = jax.nn.log_softmax(transposed_product(states, head))
        taught = jax.nn.log_softmax(transposed_product(wanted, head))
        kl = jnp.sum(jnp.exp(taught) * (taught - given), axis=-1)
        rows = jnp.arange(len(ids))
        return Scores(kl, -given[rows, ids], -taught[rows, ids])

    found: Scores = map_blocks(block, hidden, teacher, targets)  # type: ignore[assignment]
    return found
