"""Files and folders of JSON rows, and the times in them."""

import datetime
import json
import math
import os
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from jaxmem.common.files import open_text
from jaxmem.common.progress import progress

ENDINGS = (".jsonl", ".json", ".jsonl.gz", ".json.gz")


def log_files(
    path: str | os.PathLike[str], endings: tuple[str, ...] = ENDINGS
) -> list[tuple[Path, str]]:
    """The files to read.

    Args:
      path: a file, or a folder.
      endings: what files of a folder are taken, those below it too.

    Returns:
      (file, name for messages), sorted by name.

    Raises:
      ValueError: if a folder holds none.
    """
    root = Path(path)
    if not root.is_dir():
        return [(root, str(path))]
    files = sorted(f for f in root.rglob("*") if f.name.endswith(endings) and f.is_file())
    if not files:
        raise ValueError(f"{path}: no {', '.join(endings)} file in this folder")
    return [(file, str(file)) for file in files]


class Row(NamedTuple):
    """A JSON value of a file.

    Attributes:
      where: "file: line 3", for messages; "item" in a file that is one array.
      source: "file:3".
      value: what it says.
    """

    where: str
    source: str
    value: Any


def json_rows(file: Path, name: str, last_may_break: bool = False) -> Iterator[Row]:
    """The rows of a file: its lines, or the items of the array that it is; gzip too.

    Args:
      file: where it is.
      name: for messages.
      last_may_break: whether a last line cut short is left out with a warning, as of a file that
        is being written.

    Yields:
      Each row that is not blank.

    Raises:
      ValueError: for what is no JSON or no UTF-8, and damaged gzip.
    """
    number, first = 0, True
    try:
        with open_text(file) as stream:
            lines = progress(stream, f"reading {name}")
            for number, line in enumerate(lines, 1):
                if line.isspace():
                    continue
                where = f"{name}: line {number}"
                value, error = _parsed(line)
                if first and (isinstance(value, list) or (error and line.lstrip()[0] in "[{")):
                    rest = "".join(lines)
                    if error is None and rest.strip():  # lines that are arrays
                        yield Row(where, f"{name}:{number}", value)
                        for more, text in enumerate(rest.split("\n"), number + 1):
                            if text.strip():
                                yield _row(text, name, more)
                        return
                    yield from _whole(line, rest, value, error, name, number)
                    return
                first = False
                if error and last_may_break and number > 1 and not line.endswith("\n"):
                    warnings.warn(f"{where}: cut short, left out", stacklevel=3)
                    return
                if error:
                    raise ValueError(f"{where}: broken JSON: {error}")
                yield Row(where, f"{name}:{number}", value)
    except UnicodeDecodeError as error:
        raise ValueError(f"{name}: after line {number}: not UTF-8 text") from error
    except EOFError as error:
        raise ValueError(f"{name}: after line {number}: gzip is damaged: {error}") from error


def _row(text: str, name: str, number: int) -> Row:
    value, error = _parsed(text)
    if error:
        raise ValueError(f"{name}: line {number}: broken JSON: {error}")
    return Row(f"{name}: line {number}", f"{name}:{number}", value)


def _whole(
    line: str, rest: str, value: Any, error: str | None, name: str, number: int
) -> Iterator[Row]:
    """The rows of a file that is one JSON value over several lines, or one array."""
    if error is not None:
        if not rest.strip():
            raise ValueError(f"{name}: line {number}: broken JSON: {error}")
        try:
            value = json.loads(line + rest)
        except json.JSONDecodeError as whole:
            if whole.lineno == 1:
                raise ValueError(f"{name}: line {number}: broken JSON: {error}") from whole
            at = whole.lineno + number - 1
            raise ValueError(f"{name}: line {at}: broken JSON: {whole.msg}") from whole
        except (ValueError, RecursionError) as whole:
            raise ValueError(f"{name}: line {number}: broken JSON: {_reason(whole)}") from whole
    if not isinstance(value, list) or is_messages(value):
        yield Row(f"{name}: line {number}", f"{name}:{number}", value)
        return
    for index, item in enumerate(value, 1):
        yield Row(f"{name}: item {index}", f"{name}:{index}", item)


def is_messages(value: Any) -> bool:
    """Whether a JSON value is a list of chat messages.

    Args:
      value: what was read from JSON.

    Returns:
      True for a list of objects that all have a role, not empty.
    """
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(item, dict) and "role" in item for item in value)
    )


def json_object(value: Any) -> dict[str, Any] | list[Any] | None:
    """An object or a list of messages, which may stand as JSON text.

    Args:
      value: what was read from JSON.

    Returns:
      It; None for anything else.
    """
    if isinstance(value, str):
        start = value[:64].lstrip()[:1]
        if start not in ("{", "[") or not start:
            return None
        try:
            value = json.loads(value)
        except ValueError:
            return None
    if isinstance(value, dict):
        return value
    return value if is_messages(value) else None


def _parsed(text: str) -> tuple[Any, str | None]:
    """(value, None), or (None, what is wrong with the JSON)."""
    try:
        return json.loads(text), None
    except (ValueError, RecursionError) as error:
        return None, _reason(error)


def _reason(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return error.msg
    if isinstance(error, RecursionError):
        return "nested too deeply"
    return str(error).split(";")[0]  # an integer of thousands of digits


def seconds(value: Any) -> float | None:
    """A time as seconds since 1970, or as given where it counts from elsewhere.

    Args:
      value: a number or a string of one, in s, ms, us or ns (told by its size: from 1e11, 1e14,
        1e17 on), or ISO 8601, UTC where it names no zone.

    Returns:
      Seconds; None for what is no time.
    """
    if isinstance(value, str):
        text = value.strip()
        if _NUMBER.fullmatch(text):
            value = float(text)
        else:
            return _iso(text)
    if type(value) not in (int, float):
        return None
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if not 0 <= value < 1e20:
        return None
    for least, unit in ((1e17, 1e9), (1e14, 1e6), (1e11, 1e3)):
        if value >= least:
            return float(value / unit)
    return float(value)


def _iso(text: str) -> float | None:
    if not re.match(r"\d{4}-?\d\d", text):
        return None
    text = re.sub(r"\s*(UTC|GMT)$", "+00:00", text)
    text = re.sub(r"([.,]\d{6})\d+", r"\1", text)  # nanoseconds
    try:
        time = datetime.datetime.fromisoformat(text)
    except ValueError:
        return None
    if time.tzinfo is None:
        time = time.replace(tzinfo=datetime.UTC)
    try:
        return time.timestamp()
    except (OverflowError, ValueError):
        return None


_NUMBER = re.compile(r"\d{1,25}(\.\d{1,25})?([eE]\+?\d{1,2})?")
