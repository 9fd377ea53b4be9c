"""Reading and writing files: compressed or not, whole or not at all."""

import contextlib
import gzip
import io
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO


@contextlib.contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary path beside `path`, renamed to it when the block ends well.

    Args:
      path: the file to write; its folder is made if need be.

    Yields:
      The path to write to. If the block raises, `path` is as it was before.

    Raises:
      ValueError: if `path` is there and no regular file.
    """
    target = Path(os.path.realpath(path))  # a link keeps pointing where it did
    if target.exists() and not target.is_file():
        raise ValueError(f"{path}: expected a file to write, this is something else")
    mode = target.stat().st_mode & 0o777 if target.exists() else 0o666 & ~_umask()
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        # The suffix is kept: writers such as matplotlib choose the format by it.
        handle, name = tempfile.mkstemp(
            dir=target.parent, prefix=f".{target.stem[:64]}.", suffix=target.suffix
        )
    except OSError as error:
        error.filename = str(target)
        raise
    os.close(handle)
    try:
        yield Path(name)
        os.chmod(name, mode)
        os.replace(name, target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        raise


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write `text` (UTF-8) to `path`, whole or not at all; gzip if it ends in `.gz`.

    Args:
      path: the file to write.
      text: its whole content.
    """
    with atomic_path(path) as temporary:
        if str(path).endswith(".gz"):
            temporary.write_bytes(gzip.compress(text.encode(), mtime=0))
        else:
            temporary.write_text(text, encoding="utf-8")


def open_text(path: str | os.PathLike[str]) -> TextIO:
    """Open UTF-8 text for reading, through gzip if its first bytes say so.

    Args:
      path: the file to read.

    Returns:
      A text stream. Reading a truncated gzip raises `EOFError`, bad UTF-8 `UnicodeDecodeError`.
    """
    raw = open(path, "rb")  # looked at without seeking: the path may be a pipe
    if raw.peek(2)[:2] == b"\x1f\x8b":
        return io.TextIOWrapper(gzip.GzipFile(fileobj=raw), encoding="utf-8-sig")
    return io.TextIOWrapper(raw, encoding="utf-8-sig")


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
