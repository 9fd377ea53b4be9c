"""Names that people type: found, or refused with the nearest known one."""

import difflib
from collections.abc import Iterable, Mapping
from typing import TypeVar

T = TypeVar("T")
S = TypeVar("S", bound=str)


def nearest(name: str, known: Iterable[str]) -> str:
    """The hint for an unknown name: " (did you mean 'x'?)", or the known names.

    Args:
      name: what was typed.
      known: the names there are.

    Returns:
      Text to append to an error message.
    """
    names = sorted(known)
    close = difflib.get_close_matches(name.lower(), [n.lower() for n in names], n=1, cutoff=0.6)
    if close:
        match = next(n for n in names if n.lower() == close[0])
        return f" (did you mean {match!r}?)"
    return f" (known: {', '.join(names)})"


def lookup(table: Mapping[str, T], name: str, what: str) -> T:
    """`table[name]`, or a `ValueError` that names the nearest entry.

    Args:
      table: entries by name.
      name: what was typed; matched exactly, then without regard to case.
      what: what the name stands for, for the message ("accelerator").

    Returns:
      The entry.

    Raises:
      ValueError: if there is no such name, or it is no text.
    """
    if not isinstance(name, str):
        raise ValueError(f"expected the name of a {what}, got {name!r}")
    if name in table:
        return table[name]
    for key, value in table.items():
        if key.lower() == name.lower():
            return value
    raise ValueError(f"unknown {what} {name!r}{nearest(name, table)}")


def choice(names: Iterable[S], name: str, what: str) -> S:
    """One of some names as it is spelt among them, or a `ValueError` that names the nearest.

    Args:
      names: what may be chosen.
      name: what was typed, as in `lookup`.
      what: what the name stands for, for the message.

    Returns:
      The name.

    Raises:
      ValueError: as `lookup`.
    """
    table: dict[str, S] = {known: known for known in names}
    return lookup(table, name, what)
