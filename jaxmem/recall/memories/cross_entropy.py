"""A linear memory trained to pick the right value, and not to come near it."""

from functools import partial

import jax
import jax.numpy as jnp
import optax
from jax import Array, lax
from jax.typing import ArrayLike

from jaxmem.recall.facts import paraphrase
from jaxmem.recall.memories.least_squares import least_squares
from jaxmem.recall.memories.memory import check_factory


def cross_entropy_map(
    keys: ArrayLike,
    values: ArrayLike,
    *,
    steps: int = 3000,
    learning_rate: ArrayLike = 0.02,
    logit_scale: ArrayLike = 20.0,
    noise: ArrayLike = 0.0,
    key: Array | None = None,
) -> Array:
    """The linear map under which each key scores its own value over all others.

    W = argmin -sum_i log softmax_j(logit_scale k_i W . v_j)[i]

    by full-batch Adam with a cosine schedule, from the least-squares map. Not a streaming memory:
    it sees every pair in every step, and shows what the K V numbers of a linear memory can hold.

    Args:
      keys: [N, K] unit vectors, N >= 1.
      values: [N, V], all of them the vocabulary.
      steps: of Adam; static.
      learning_rate: at the first step.
      logit_scale: inverse temperature.
      noise: length of the disturbance of `paraphrase`; needs `key`.
      key: PRNG key; if given, every step asks for fresh paraphrases of all keys.

    Returns:
      Weights [K, V]; read q @ W.

    Raises:
      ValueError: if the shapes do not fit, a number is no scalar or negative, steps < 1, or
        there is noise without a key.
    """
    keys, values = jnp.asarray(keys, float), jnp.asarray(values, float)
    if keys.ndim != 2 or values.ndim != 2 or keys.shape[0] != values.shape[0]:
        raise ValueError(
            f"expected keys [N, K] and values [N, V], got {keys.shape} and {values.shape}"
        )
    if 0 in keys.shape:
        raise ValueError(f"expected at least one key of at least one number, got {keys.shape}")
    if steps < 1:
        raise ValueError(f"steps must be at least 1, got {steps}")
    check_factory(learning_rate=learning_rate, logit_scale=logit_scale, noise=noise)
    if key is None and (isinstance(noise, jax.core.Tracer) or noise != 0):
        raise ValueError("noise needs a key")
    return _train(key, keys, values, learning_rate, logit_scale, noise, steps)


@partial(jax.jit, static_argnames="steps")
def _train(
    key: Array | None,
    keys: Array,
    values: Array,
    learning_rate: ArrayLike,
    logit_scale: ArrayLike,
    noise: ArrayLike,
    steps: int,
) -> Array:
    optimiser = optax.adam(optax.cosine_decay_schedule(learning_rate, steps))
    each = None if key is None else jax.random.split(key, steps)

    def loss(weights: Array, queries: Array) -> Array:
        logits = logit_scale * (queries @ weights) @ values.T  # [N, N]
        right = jnp.arange(logits.shape[0])
        return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(logits, right))

    def step(carry: tuple, key: Array | None) -> tuple[tuple, None]:
        weights, state = carry
        queries = keys if key is None else paraphrase(key, keys, noise)
        updates, state = optimiser.update(jax.grad(loss)(weights, queries), state, weights)
        return (optax.apply_updates(weights, updates), state), None

    start = least_squares(keys, values)
    (weights, _), _ = lax.scan(step, (start, optimiser.init(start)), each, length=steps)
    return weights
