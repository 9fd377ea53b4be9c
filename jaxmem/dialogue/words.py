"""Embeddings: random directions for words, and sentences that mean one or two of them."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array


class Lexicon(NamedTuple):
    """What words mean, and how sentences are put into words.

    topics: [K, D] directions of length 1, as all.
    persons: [P, D].
    predicates: [2, D] home town and job.
    noise: length of what the wording adds to a meaning of length 1.
    predicate_weight: of a predicate beside a name or a role.
    """

    topics: Array
    persons: Array
    predicates: Array
    noise: Array
    predicate_weight: Array

    @property
    def words(self) -> Array:
        """[W, D] topics, persons and predicates."""
        return jnp.concatenate([self.topics, self.persons, self.predicates])


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


def uniforms(key: Array, *shapes: tuple[int, ...]) -> list[Array]:
    """Uniform draws of several shapes from one call: each call of its own takes long to compile.

    Args:
      key: typed key.
      shapes: of the arrays.

    Returns:
      Arrays of these shapes with entries in [0, 1).
    """
    ends = np.cumsum([math.prod(shape) for shape in shapes])
    flat = jax.random.uniform(key, (int(ends[-1]),), jnp.float32)
    return [part.reshape(shape) for part, shape in zip(jnp.split(flat, ends[:-1]), shapes)]


def whole(uniform: Array, count: int) -> Array:
    """Whole numbers 0 .. count - 1 from uniform draws.

    Args:
      uniform: [...] in [0, 1).
      count: how many numbers there are.

    Returns:
      [...] of int32.
    """
    return jnp.minimum((uniform * count).astype(jnp.int32), count - 1)


def unit(vectors: Array) -> Array:
    """Vectors scaled to length 1.

    Args:
      vectors: [..., D].

    Returns:
      [..., D]; a vector of zeros stays as it is.
    """
    square = jnp.sum(vectors**2, axis=-1, keepdims=True)
    return vectors * jax.lax.rsqrt(jnp.maximum(square, 1e-12))


def meaning(lexicon: Lexicon, first: Array, second: Array, weight: Array) -> Array:
    """What a sentence is about: unit(words[first] + weight words[second]).

    Args:
      lexicon: W words, each of length 1.
      first: [N] index of the main word.
      second: [N] index of the other word.
      weight: [N] of the other word; 0 for none.

    Returns:
      [N, D] vectors of length 1.
    """
    place = jnp.arange(lexicon.words.shape[0])
    # A product with a few words is cheaper than gathering long rows.
    mixture = (first[:, None] == place) + weight[:, None] * (second[:, None] == place)
    return unit(mixture @ lexicon.words)


def embed(key: Array, meanings: Array, lexicon: Lexicon) -> Array:
    """Embeddings of sentences: unit(meaning + noise s), s fresh random signs of length 1.

    Args:
      key: typed key of the wording.
      meanings: [N, D].
      lexicon: gives the noise.

    Returns:
      [N, D] vectors of length 1.
    """
    return unit(meanings + lexicon.noise * random_signs(key, *meanings.shape))
