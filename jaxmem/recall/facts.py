"""The document of the toy: random associations, and questions about them in other words."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxmem.common import check_number, check_size


class Document(NamedTuple):
    """A document of N facts, each one token of a KV cache.

    keys: [N, K] unit vectors.
    values: [N, V] one value a fact; the values are also the vocabulary of answers.
    """

    keys: Array
    values: Array


def unit(vectors: Array) -> Array:
    """Vectors scaled to length 1; a zero vector stays zero.

    Args:
      vectors: [..., D].

    Returns:
      [..., D].
    """
    square = jnp.sum(vectors**2, axis=-1, keepdims=True)
    return vectors / jnp.sqrt(jnp.where(square > 0, square, 1))


def facts(
    key: Array, n: int, dim: int, *, value_dim: int | None = None, unit_values: bool = True
) -> Document:
    """A document of n random associations.

    k_i uniform on the unit sphere; v_i likewise, or standard normal

    Args:
      key: PRNG key. The first m facts of n are the document of m facts under the same key.
      n: facts.
      dim: length of a key.
      value_dim: length of a value; `dim` if not given.
      unit_values: whether values have length 1 (otherwise they are standard normal).

    Returns:
      The document, keys [n, dim] and values [n, value_dim].

    Raises:
      ValueError: if a size is no positive whole number, or the document beyond 2^31 floats.
    """
    dim = check_size("dim", dim)
    value_dim = dim if value_dim is None else check_size("value_dim", value_dim)
    n = check_size("n", n, high=2**31 // max(dim, value_dim))
    key_keys, key_values = jax.random.split(key)
    values = jax.random.normal(key_values, (n, value_dim))
    keys = unit(jax.random.normal(key_keys, (n, dim)))
    return Document(keys, unit(values) if unit_values else values)


def paraphrase(key: Array, keys: Array, noise: ArrayLike = 0.3) -> Array:
    """Questions that say the same in other words.

    q = (k + noise u) / |k + noise u|, u uniform on the unit sphere

    Args:
      key: PRNG key.
      keys: [..., K] unit vectors.
      noise: length of the disturbance; 0.3 gives a cosine of 1 / sqrt(1 + 0.3^2) = 0.958.

    Returns:
      [..., K] unit vectors.

    Raises:
      ValueError: if the noise is negative or NaN.
    """
    check_number("noise", noise)
    return unit(keys + noise * unit(jax.random.normal(key, keys.shape, keys.dtype)))
