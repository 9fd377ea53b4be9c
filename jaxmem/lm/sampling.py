"""The choice of a token from logits over a vocabulary."""

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

_BLOCK = 256  # tokens of the vocabulary that are summed before one is looked for among them


def choose_tokens(
    scores: Array, key: Array | None, temperature: ArrayLike, top_p: ArrayLike | None
) -> tuple[Array, Array]:
    """A token of each row: the likeliest, or drawn.

    Args:
      scores: [B, V] logits.
      key: PRNG key, or None for the likeliest (the first of equal ones).
      temperature: by which logits are divided before one is drawn; a scalar above 0.
      top_p: share of the probability that is drawn from, a scalar below 1, or None for all.

    Returns:
      Tokens [B] and their log-probabilities [B] at temperature 1.
    """
    top = jnp.max(scores, axis=-1, keepdims=True)
    if key is None:
        token = _first(scores == top)
    else:
        weights = jnp.exp((scores - top) / temperature)
        if top_p is not None:
            weights = _nucleus(weights, top_p)
        token = _draw(key, weights)
    chosen = jnp.take_along_axis(scores, token[:, None], axis=-1)[:, 0]
    return token.astype(jnp.int32), chosen - jax.nn.logsumexp(scores, axis=-1)


def _blocks(weights: Array) -> Array:
    """[B, V] -> [B, V / block, block], filled up with zeros."""
    more = -weights.shape[-1] % _BLOCK
    return jnp.pad(weights, ((0, 0), (0, more))).reshape(len(weights), -1, _BLOCK)


def _first(found: Array) -> Array:
    """[B] place of the first True of each row [B, V]."""
    blocks = _blocks(found)
    block = jnp.argmax(jnp.any(blocks, axis=-1), axis=-1)
    inside = jnp.take_along_axis(blocks, block[:, None, None], axis=1)[:, 0]
    return block * _BLOCK + jnp.argmax(inside, axis=-1)


def _draw(key: Array, weights: Array) -> Array:
    """[B] places drawn in proportion to the weights [B, V]: where their running sum passes a point.

    One random number a row; Gumbel noise would take one for each token of the vocabulary.
    """
    blocks = _blocks(weights)
    sums = jnp.sum(blocks, axis=-1)
    share = jax.random.uniform(key, (len(weights),), weights.dtype)
    block, rest = _passed(sums, share * jnp.sum(sums, axis=-1))
    inside, _ = _passed(jnp.take_along_axis(blocks, block[:, None, None], axis=1)[:, 0], rest)
    return block * _BLOCK + inside


def _passed(weights: Array, point: Array) -> tuple[Array, Array]:
    """First place of each row [B, N] where the running sum passes a point, and how far into it.

    Never one of weight 0, however sums are rounded.
    """
    sums = jnp.cumsum(weights, axis=-1)
    last = jnp.max(jnp.where(weights > 0, sums, 0), axis=-1)
    point = jnp.minimum(point, last * (1 - jnp.finfo(sums.dtype).eps))[:, None]
    place = jnp.argmax((sums > point) & (weights > 0), axis=-1)[:, None]
    before = jnp.take_along_axis(sums - weights, place, axis=-1)
    return place[:, 0], (point - before)[:, 0]


def _nucleus(weights: Array, top_p: ArrayLike) -> Array:
    """Weights [B, V], 0 outside of the fewest tokens that have the share top_p together.

    The least weight among them is halved in on, in the logarithm: sorting 49,152 tokens costs ten
    times as much. Tokens within 1e-6 of the least are not told apart.
    """
    total = jnp.sum(weights, axis=-1)
    # Those below this are together less than what is left out.
    low = jnp.log(total * (1 - top_p) / weights.shape[-1])
    scores = jnp.log(weights)

    def halve(_: int, bounds: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bounds
        middle = (low + high) / 2
        inside = jnp.where(scores >= middle[:, None], weights, 0)
        enough = jnp.sum(inside, axis=-1) >= top_p * total
        return jnp.where(enough, middle, low), jnp.where(enough, high, middle)

    low, _ = jax.lax.fori_loop(0, 24, halve, (jnp.minimum(low, 0), jnp.zeros_like(low)))
    return jnp.where(scores >= low[:, None], weights, 0)
