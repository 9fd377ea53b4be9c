"""Embeddings: random directions for words, and sentences that mean one or two of them."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike


class Lexicon(NamedTuple):
    """Directions of what words mean; their rows together, in this order, are the words [W, D].

    topics: [K, D].
    persons: [P, D].
    predicates: [2, D] home town and job.
    """

    topics: Array
    persons: Array
    predicates: Array


def random_signs(key: Array, rows: int, dim: int) -> Array:
    """Random vectors of length 1 whose entries are +-1 / sqrt(dim).

    They have the mean and the covariance of N(0, I / dim) and cost a bit an entry.

    Args:
      key: typed key.
      rows: how many.
      dim: their length, D.

    Returns:
      [rows, D].
    """
    bits = jax.random.bits(key, (rows, -(-dim // 32)), jnp.uint32)
    ones = (bits[:, :, None] >> jnp.arange(32, dtype=jnp.uint32)) & 1
    signs = 2.0 * ones.reshape(rows, -1)[:, :dim].astype(jnp.float32) - 1.0
    return signs / jnp.sqrt(jnp.float32(dim))


def unit(vectors: Array) -> Array:
    """Vectors scaled to length 1.

    Args:
      vectors: [..., D].

    Returns:
      [..., D]; a vector of zeros stays as it is.
    """
    square = jnp.sum(vectors**2, axis=-1, keepdims=True)
    return vectors * jax.lax.rsqrt(jnp.maximum(square, 1e-30))


def meaning(lexicon: Lexicon, first: Array, second: Array, weight: Array) -> Array:
    """What a sentence is about: unit(words[first] + weight words[second]).

    Args:
      lexicon: W words, each of length 1.
      first: [N] index of the main word; -1 for small talk, which means none of them.
      second: [N] index of the other word.
      weight: [N] of the other word; 0 for none.

    Returns:
      [N, D] vectors of length 1; zeros for small talk.
    """
    words = jnp.concatenate(lexicon)
    main = words[jnp.maximum(first, 0)] * (first >= 0)[:, None]
    return unit(main + weight[:, None] * words[second])


def embed(key: Array, meanings: Array, noise: ArrayLike) -> Array:
    """Embeddings of sentences: unit(meaning + noise s), s fresh random signs of length 1.

    Args:
      key: typed key of the wording.
      meanings: [N, D].
      noise: length of what wording adds.

    Returns:
      [N, D] vectors of length 1.
    """
    rows, dim = meanings.shape
    return unit(meanings + noise * random_signs(key, rows, dim))
