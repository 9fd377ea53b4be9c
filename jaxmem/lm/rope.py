"""Rotary positions: each pair of a key's numbers turns with the position, at its own speed."""

import math

import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxmem.lm.config import Config


def frequencies(config: Config) -> np.ndarray:
    """Radians a position of each pair.

    f_i = theta^(-2i / K) / factor; with Llama 3's scaling those of wavelengths w over
    original / low are divided by its factor, those under original / high stay, and between
    f (1 - s) / factor + f s with s = (original / w - low) / (high - low).

    Args:
      config: the shape.

    Returns:
      [K / 2], float64.

    Source: Su et al. 2021, arXiv:2104.09864; Llama 3.1's `apply_scaling`.
    """
    pairs = np.arange(0, config.head_dim, 2, dtype=np.float64)
    speeds = config.rope_theta ** (-pairs / config.head_dim) / config.rope_factor
    scaling = config.rope_llama3
    if scaling is None:
        return speeds
    waves = 2 * math.pi / speeds
    share = (scaling.original / waves - scaling.low) / (scaling.high - scaling.low)
    share = np.clip(share, 0.0, 1.0)
    return speeds * ((1 - share) / scaling.factor + share)


def angles(config: Config, positions: Array) -> tuple[Array, Array]:
    """Cosine and sine of each pair's angle.

    Args:
      config: the shape.
      positions: [...] integers.

    Returns:
      Two arrays [..., K / 2], at least float32.
    """
    speeds = jnp.asarray(frequencies(config))  # float32 unless x64 is enabled
    turned = positions[..., None].astype(speeds.dtype) * speeds
    return jnp.cos(turned), jnp.sin(turned)


def rotate(vectors: Array, cosine: Array, sine: Array) -> Array:
    """Turn queries or keys; the pairs are (i, i + K / 2).

    Args:
      vectors: [..., K].
      cosine, sine: [..., K / 2], broadcastable to the first half.

    Returns:
      [..., K] in the type of the vectors.
    """
    first, second = jnp.split(vectors, 2, axis=-1)
    turned = first * cosine - second * sine, second * cosine + first * sine
    return jnp.concatenate(turned, axis=-1).astype(vectors.dtype)
