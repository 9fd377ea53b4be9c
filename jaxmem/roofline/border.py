"""What comes in: numbers become float arrays, and bad ones are refused by name."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

Number = Array | float
"""A number that may be traced, or an array of them."""


def number(value: ArrayLike, name: str, low: float = 0.0, above: bool = False) -> Array:
    """`value` as a float array, so that no count overflows 32 bits.

    Args:
      value: a number or array of numbers; may be traced, and is then not checked.
      name: the argument's name, for the message.
      low: the smallest value allowed.
      above: whether `low` itself is refused too.

    Returns:
      The same values in the default float type.

    Raises:
      ValueError: if a value is below `low` or not a finite number.
    """
    if not isinstance(value, jax.core.Tracer):
        try:
            x = np.asarray(value, np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{name} must be a number, got {value!r}") from error
        bad = ~(np.isfinite(x) & ((x > low) if above else (x >= low)))
        if bad.any():
            bound = f"above {low:g}" if above else f"at least {low:g}"
            raise ValueError(f"{name} must be a number {bound}, got {x[bad].flat[0]:g}")
    return jnp.asarray(value, float)


def at_most(value: ArrayLike, name: str, limit: ArrayLike, limit_name: str) -> None:
    """Refuse a value above another one; nothing is checked under tracing.

    Args:
      value, limit: numbers or arrays that broadcast.
      name, limit_name: what they are called, for the message.

    Raises:
      ValueError: if any value is above its limit.
    """
    if isinstance(value, jax.core.Tracer) or isinstance(limit, jax.core.Tracer):
        return
    x, top = np.broadcast_arrays(np.asarray(value, float), np.asarray(limit, float))
    bad = x > top * (1 + 1e-6)  # one may have been rounded to float32 before
    if bad.any():
        raise ValueError(
            f"{name} must be at most {limit_name} ({top[bad].flat[0]:g}), got {x[bad].flat[0]:g}"
        )
