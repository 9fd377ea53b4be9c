"""Parameters of a decoder as a pytree of arrays, those of its layers stacked."""

import hashlib
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import DTypeLike

from jaxmem.lm.config import Config

DTYPES = ("bfloat16", "float32")
"""Types that a model is read in."""

Params = dict[str, Any]
"""{"embedding": [V, D], "norm": [D], "layers": {"query": [L, D, H K], ...}}: `Config.shapes`."""


def init_params(key: Array, config: Config, dtype: DTypeLike = jnp.float32) -> Params:
    """Random parameters, for tests and trials of speed.

    Args:
      key: PRNG key.
      config: the shape.
      dtype: type of the numbers.

    Returns:
      Products normal with deviation 1 / sqrt(in), norms near 1, biases small.
    """
    drawn = {}
    for number, (name, shape) in enumerate(config.shapes.items()):
        noise = jax.random.normal(jax.random.fold_in(key, number), shape)
        if name.endswith("norm"):
            noise = 1.0 + 0.1 * noise
        elif name.endswith("bias"):
            noise = 0.1 * noise
        elif name.startswith("layers."):
            noise = noise / np.sqrt(shape[-2])
        drawn[name] = noise.astype(dtype)
    return nested(drawn)


def nested(flat: Mapping[str, Any]) -> Params:
    """Parameters as the decoder takes them, from arrays by their full names.

    Args:
      flat: arrays by the names of `Config.shapes`.

    Returns:
      The pytree.
    """
    params: Params = {"layers": {}}
    for name, array in flat.items():
        inside = name.startswith("layers.")
        (params["layers"] if inside else params)[name.removeprefix("layers.")] = array
    return params


def flat(params: Params) -> dict[str, Any]:
    """Arrays by their full names, the inverse of `nested`.

    Args:
      params: the pytree.

    Returns:
      Arrays by the names of `Config.shapes`.
    """
    outside = {name: array for name, array in params.items() if name != "layers"}
    return outside | {f"layers.{name}": array for name, array in params["layers"].items()}


def head_of(params: Params) -> Array:
    """What makes logits of the last states: the model's head, or its embedding where they are tied.

    Args:
      params: the pytree.

    Returns:
      [V, D].
    """
    head: Array = params["head"] if "head" in params else params["embedding"]
    return head


def check_params(params: Params, config: Config) -> None:
    """Refuse parameters that do not fit a shape.

    Args:
      params: the pytree.
      config: the shape.

    Raises:
      ValueError: naming the parameter that is missing, too much, or of another shape.
    """
    got, wanted = flat(params), config.shapes
    for name in sorted(set(got) ^ set(wanted)):
        which = "expected" if name in wanted else "did not expect"
        raise ValueError(f"{which} the parameter {name}")
    for name, shape in wanted.items():
        if got[name].shape != shape:
            raise ValueError(f"expected {name} {list(shape)}, got {list(got[name].shape)}")


def fingerprint(params: Params, config: Config) -> str:
    """A short name for exactly this model, for files that fit no other.

    Args:
      params: the pytree.
      config: the shape.

    Returns:
      16 hexadecimal digits of a SHA-256 over the shape and all parameters, rounded to bfloat16.
    """
    digest = hashlib.sha256(repr(config).encode())
    for name, array in sorted(flat(params).items()):
        digest.update(f"{name}{array.shape}".encode())
        digest.update(np.asarray(jnp.asarray(array, jnp.bfloat16)).tobytes())
    return digest.hexdigest()[:16]
