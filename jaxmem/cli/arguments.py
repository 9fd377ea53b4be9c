"""Numbers as people type them on the command line."""

import argparse
import math
import re

_TOKENS = {"": 1, "k": 1_000, "m": 1_000_000}
_BYTES = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}


def positive_int(text: str) -> int:
    """A whole number of 1 to 10^15.

    Args:
      text: what was typed.

    Returns:
      The number.

    Raises:
      argparse.ArgumentTypeError: if it is anything else.
    """
    try:
        value = int(text)
    except ValueError:
        value = 0
    if not 1 <= value <= 10**15:
        what = "at most 10^15" if value > 1 else "at least 1"
        raise argparse.ArgumentTypeError(f"expected a whole number of {what}, got {text!r}")
    return value


def tokens(text: str) -> int:
    """A number of tokens, 0 or more: 128000, 128k or 1.5M.

    Args:
      text: what was typed.

    Returns:
      Tokens; k is 1,000.

    Raises:
      argparse.ArgumentTypeError: if it is anything else.
    """
    return _scaled(text, _TOKENS, "tokens, such as 128000 or 128k")


def some_tokens(text: str) -> int:
    """A number of tokens of at least 1, as `tokens`.

    Args:
      text: what was typed.

    Returns:
      Tokens.

    Raises:
      argparse.ArgumentTypeError: if it is anything else.
    """
    value = tokens(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"expected at least 1 token, got {text!r}")
    return value


def memory_bytes(text: str) -> int:
    """An amount of memory, more than 0: 40GB is 40 * 10^9 bytes, 40GiB is 40 * 2^30.

    Args:
      text: what was typed.

    Returns:
      Bytes.

    Raises:
      argparse.ArgumentTypeError: if it is anything else.
    """
    value = _scaled(text, _BYTES, "memory, such as 40GB or 40GiB")
    if value < 1:
        raise argparse.ArgumentTypeError(f"expected memory of at least 1 byte, got {text!r}")
    return value


def rate(text: str) -> float:
    """A number of 0 or more, such as queries a week.

    Args:
      text: what was typed.

    Returns:
      The number.

    Raises:
      argparse.ArgumentTypeError: if it is anything else.
    """
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= 1e15:
        raise argparse.ArgumentTypeError(f"expected a number of 0 to 10^15, got {text!r}")
    return value


def share(text: str) -> float:
    """A share of 0 to 1: 0.05 or 5%.

    Args:
      text: what was typed.

    Returns:
      The share.

    Raises:
      argparse.ArgumentTypeError: if it is anything else.
    """
    number, percent = text.strip().removesuffix("%"), text.strip().endswith("%")
    try:
        value = float(number) / (100 if percent else 1)
    except ValueError:
        value = math.nan
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"expected a share, 0.05 or 5%, got {text!r}")
    return value


def _scaled(text: str, units: dict[str, int], what: str) -> int:
    # Commas only between thousands: "1,5k" is no fifteen thousand.
    match = re.fullmatch(r"(\d{1,3}(?:,\d{3})+|\d+)(\.\d+)?\s*([A-Za-z]*)", text.strip())
    if not match or match[3].lower() not in units:
        raise argparse.ArgumentTypeError(f"expected {what}, got {text!r}")
    value = float(match[1].replace(",", "") + (match[2] or "")) * units[match[3].lower()]
    if not value <= 1e15 or value != math.floor(value):
        raise argparse.ArgumentTypeError(f"expected {what}, got {text!r}")
    return int(value)
