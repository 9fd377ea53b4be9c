"""Checks of sizes, which fix shapes and so must be whole numbers known when tracing."""

import operator
from typing import Any

_MOST = 2**31 - 1  # what an array index holds


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
