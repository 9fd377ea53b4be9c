"""Tidy records (one dict of scalars a row) to JSON and CSV and back, with where they ran."""

import csv
import io
import json
import math
import os
import platform
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from jaxmem.common.files import open_text, write_text

Record = dict[str, Any]


def stamp() -> dict[str, str]:
    """Versions and machine, to be kept with every result.

    Returns:
      Text by name: python, jax, numpy, backend, device, machine, cores.
    """
    device = jax.devices()[0]
    return {
        "python": platform.python_version(),
        "jax": jax.__version__,
        "numpy": np.__version__,
        "backend": device.platform,
        "device": device.device_kind,
        "machine": f"{platform.system()} {platform.machine()}",
        "cores": str(os.cpu_count()),
    }


def to_json(records: Sequence[Record]) -> str:
    """Records and the stamp as JSON text; a value that is not finite becomes null.

    Args:
      records: rows of scalars; numpy and jax scalars are taken as Python's.

    Returns:
      The text: {"stamp": {...}, "records": [...]}.
    """
    return document({"records": list(records)})


def document(content: Record) -> str:
    """Any nested content and the stamp as JSON text; a value that is not finite becomes null.

    Args:
      content: dicts and lists of scalars; numpy and jax scalars are taken as Python's.

    Returns:
      The text: {"stamp": {...}, **content}.
    """
    return json.dumps({"stamp": stamp(), **_plain(content)}, indent=1, allow_nan=False) + "\n"


def to_csv(records: Sequence[Record]) -> str:
    """Records as CSV text, columns in order of first appearance, nothing for a missing value.

    Args:
      records: rows of scalars.

    Returns:
      The text, with a header line.
    """
    columns = list(dict.fromkeys(key for row in records for key in row))
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: _plain(value) for key, value in row.items()} for row in records)
    return out.getvalue()


def write_records(path: str | os.PathLike[str], records: Sequence[Record]) -> None:
    """Write records to a `.json` or `.csv` file, whole or not at all.

    Args:
      path: the file; its ending chooses the format.
      records: rows of scalars.

    Raises:
      ValueError: if the ending is neither.
    """
    if str(path).endswith(".json"):
        write_text(path, to_json(records))
    elif str(path).endswith(".csv"):
        write_text(path, to_csv(records))
    else:
        raise ValueError(f"{path}: results are written to .json or .csv")


def read_records(path: str | os.PathLike[str]) -> list[Record]:
    """Read records that `write_records` wrote; numbers in CSV come back as numbers.

    Args:
      path: a `.json` or `.csv` file.

    Returns:
      The rows.

    Raises:
      ValueError: if the file is not of that form.
    """
    with open_text(path) as lines:
        text = lines.read()
    if str(path).endswith(".csv"):
        return [
            {key: _number(value) for key, value in row.items()}
            for row in csv.DictReader(io.StringIO(text))
        ]
    try:
        return list(json.loads(text)["records"])
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise ValueError(f"{path}: expected JSON with 'records', got {error!r}") from error


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, (jax.Array, np.ndarray, np.generic)):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _number(text: str | None) -> Any:
    if text is None or text == "":
        return None
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return {"True": True, "False": False}.get(text, text)
