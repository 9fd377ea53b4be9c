"""A progress line for work that takes a while, on a terminal only."""

import sys
import time
from collections.abc import Iterable, Iterator, Sized
from typing import TypeVar

T = TypeVar("T")


def progress(items: Iterable[T], label: str, total: int | None = None) -> Iterator[T]:
    """Iterate over `items`, showing on a terminal how far it is after two seconds.

    Args:
      items: what to iterate over.
      label: a word or two on what is done.
      total: how many items there are, if `items` has no length.

    Yields:
      Each item in turn. Nothing is written if standard error is not a terminal.
    """
    if total is None and isinstance(items, Sized):
        total = len(items)
    if not sys.stderr.isatty():
        yield from items
        return
    start = time.monotonic()
    shown = start + 1.75  # first line after 2 s, then four a second
    drawn = False
    for done, item in enumerate(items):
        now = time.monotonic()
        if now - shown >= 0.25:
            part = f"{done}/{total} ({100 * done // total} %)" if total else f"{done}"
            sys.stderr.write(f"\r\033[K{label} {part}, {now - start:.0f} s so far")
            sys.stderr.flush()
            shown, drawn = now, True
        yield item
    if drawn:
        sys.stderr.write("\r\033[K")
        sys.stderr.flush()
