"""Checks of what a caller types: sizes, which must be known when tracing, and other numbers."""

import math
import operator
from typing import Any

import jax
import numpy as np

_MOST = 2**31 - 1  # what an array index holds


def is_given(number: object) -> bool:
    """Whether a field is a user's value and not a placeholder that a transformation puts there.

    Args:
      number: the field.

    Returns:
      False for traced values and for what stands for one.
    """
    return type(number) is not object and not isinstance(
        number, (jax.core.Tracer, jax.ShapeDtypeStruct, jax.stages.ArgInfo, type(None))
    )


def check_size(name: str, size: Any, low: int = 1, high: int = _MOST) -> int:
    """A size as a Python integer.

    Args:
      name: what it is, for the message.
      size: any integer type; not a bool, a float or a traced value.
      low, high: its bounds, both allowed.

    Returns:
      The size.

    Raises:
      ValueError: if it is no whole number, or out of bounds.
    """
    try:
        number = None if isinstance(size, bool) else operator.index(size)
    except TypeError:
        number = None
    if number is None:
        raise ValueError(f"{name} must be a whole number, got {size!r}")
    if number < low:
        raise ValueError(f"{name} must be at least {low}, got {number}")
    if number > high:
        raise ValueError(f"{name} must be at most {high}, got {number}")
    return number


def check_number(
    name: str, number: Any, low: float = 0.0, high: float = math.inf, *, scalar: bool = False
) -> None:
    """Refuse what is no number, NaN, or out of bounds; a traced one has no value to check.

    Args:
      name: what it is, for the message.
      number: a scalar or an array of real numbers.
      low, high: its bounds, both allowed.
      scalar: whether an array is refused.

    Raises:
      ValueError: naming what was expected and what came.
    """
    if scalar and np.shape(number) != ():
        raise ValueError(f"{name} must be a scalar, got shape {np.shape(number)}")
    if isinstance(number, jax.core.Tracer):
        return
    array = np.asarray(number)
    if array.dtype.kind not in "biuf" and array.dtype.name != "bfloat16":
        raise ValueError(f"{name} must be a number, got {number!r}")
    if not np.all((array >= low) & (array <= high)):
        bounds = f"at least {low:g}" if high == math.inf else f"in {low:g}..{high:g}"
        raise ValueError(f"{name} must be {bounds}, got {number}")


def check_flag(name: str, flag: Any) -> None:
    """Refuse what is neither True nor False.

    Args:
      name: what it is, for the message.
      flag: what was given.

    Raises:
      ValueError: naming what was expected and what came.
    """
    if not isinstance(flag, (bool, np.bool_)):
        raise ValueError(f"{name} must be True or False, got {flag!r}")
