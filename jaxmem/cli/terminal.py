"""What a terminal shows: notices as lines, and texts of files without what it would obey."""

import contextlib
import sys
import warnings
from collections.abc import Iterator


@contextlib.contextmanager
def notices() -> Iterator[None]:
    """Print the warnings of a block as lines on standard error, unless it ends in an error.

    Yields:
      Nothing.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        yield
    for notice in caught:
        print(f"jaxmem: notice: {printable(str(notice.message))}", file=sys.stderr)


def printable(text: str) -> str:
    """A text that a terminal shows and does not obey.

    Args:
      text: what may come from a file; lines stay.

    Returns:
      The text with a dot for each control character and each mark of direction.
    """
    return "".join(c if c.isprintable() or c == "\n" else "·" for c in text)
