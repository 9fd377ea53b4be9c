"""Reading and writing files: compressed or not, whole or not at all."""

import contextlib
import gzip
import io
import os
import tempfile
import zlib
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


def check_writable(path: str | os.PathLike[str]) -> None:
    """Refuse a path that `atomic_path` could not write, before any work is done.

    Args:
      path: the file to be; folders that are missing are not made.

    Raises:
      ValueError: if it is no name of a file, or something else is there.
      OSError: if the system does not allow it.
    """
    if not os.fspath(path) or "\0" in os.fspath(path):
        raise ValueError(f"expected a file to write, got {os.fspath(path)!r}")
    target = Path(os.path.realpath(path))
    with contextlib.suppress(FileNotFoundError):
        os.stat(target)  # a name that is too long, a folder that is a file
    if target.exists() and not target.is_file():
        raise ValueError(f"{path}: expected a file to write, this is something else")
    folder = next(one for one in target.parents if one.exists())
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        error.filename = os.fspath(path)
        raise


def open_text(path: str | os.PathLike[str]) -> TextIO:
    """Open UTF-8 text for reading, through gzip if its first bytes say so.

    Args:
      path: the file to read.

    Returns:
      A text stream. Reading a damaged gzip raises `EOFError`, bad UTF-8 `UnicodeDecodeError`.
    """
    raw = open(path, "rb")  # looked at without seeking: the path may be a pipe
    if raw.peek(2)[:2] == b"\x1f\x8b":
        return io.TextIOWrapper(_Unzipped(fileobj=raw), encoding="utf-8-sig")
    return io.TextIOWrapper(raw, encoding="utf-8-sig")


def read_text(path: str | os.PathLike[str], most: int = -1) -> str:
    """UTF-8 text of a file, through gzip if its first bytes say so.

    Args:
      path: the file to read.
      most: characters that are read; -1 for all.

    Returns:
      The text.

    Raises:
      ValueError: naming the file, if it is no UTF-8 or a damaged gzip.
      OSError: if it cannot be read.
    """
    try:
        with open_text(path) as stream:
            return stream.read(most)
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path}: expected UTF-8 text, got byte {error.object[error.start]:#x}"
        ) from error
    except EOFError as error:
        raise ValueError(f"{path}: expected a whole gzip file, got {error}") from error


class _Unzipped(gzip.GzipFile):
    """A gzip file whose damages are all one kind of error."""

    def read(self, size: int | None = -1) -> bytes:
        with _one_kind():
            return super().read(size)

    def read1(self, size: int = -1) -> bytes:
        with _one_kind():
            return super().read1(size)


@contextlib.contextmanager
def _one_kind() -> Iterator[None]:
    try:
        yield
    except (zlib.error, gzip.BadGzipFile) as error:
        raise EOFError(f"a damaged gzip file: {error}") from error


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
