"""The file beside the results of an unfinished sweep: a line a finished batch, safe to kill."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any, BinaryIO

import jax
import numpy as np

from jaxmem.common.files import write_text

Header = dict[str, Any]


def digest(tree: Any) -> str:
    """A hash of the structure, types, shapes and values of a pytree of arrays.

    Args:
      tree: dicts, lists and tuples of arrays of any shape, or text.

    Returns:
      Sixteen hexadecimal digits.
    """
    found = hashlib.sha256()
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        found.update(jax.tree_util.keystr(path).encode())
        if isinstance(leaf, str):
            found.update(leaf.encode())
            continue
        array = np.ascontiguousarray(leaf)
        found.update(f"{array.dtype}{array.shape}".encode() + array.tobytes())
    return found.hexdigest()[:16]


def load(
    path: Path, data: bytes, header: Header, values: dict[str, np.ndarray]
) -> tuple[np.ndarray, int]:
    """Take over the finished batches of an earlier, killed run of the same sweep.

    Args:
      path: where `data` was read, for the message.
      data: content of the file; empty if there is none.
      header: what identifies this sweep.
      values: each metric's array [seeds, settings, ...], filled in place.

    Returns:
      Which runs are done, [seeds, settings], and how many bytes of `data` are whole lines.

    Raises:
      ValueError: if the file is of another sweep, naming what differs.
    """
    done = np.zeros(next(iter(values.values())).shape[:2], bool)
    if not data:
        return done, 0
    lines = data.split(b"\n")
    try:
        found = json.loads(lines[0] if len(lines) > 1 else "")["sweep"]
        differs = [name for name in header if found.get(name) != header[name]]
    except (ValueError, TypeError, KeyError, AttributeError):
        raise ValueError(f"{path}: expected the file of an unfinished sweep") from None
    if differs:
        raise ValueError(
            f"{path}: is of another sweep, with other {', '.join(differs)}; delete it to start anew"
        )
    length = len(lines[0]) + 1
    for line in lines[1:-1]:  # what follows the last newline was torn by the kill
        try:
            batch = json.loads(line)
            rows, columns = slice(*batch["seeds"]), slice(*batch["settings"])
            for name, array in values.items():
                part = np.asarray(batch["metrics"][name], array.dtype)
                if part.shape != array[rows, columns].shape:  # it would be spread over all of them
                    raise ValueError
                array[rows, columns] = part
        except (ValueError, TypeError, KeyError, RecursionError):
            break
        done[rows, columns] = True
        length += len(line) + 1
    return done, length


def resume(path: Path, header: Header, length: int) -> BinaryIO:
    """Open the file to append after its first `length` bytes, or begin it.

    Args:
      path: the file.
      header: what identifies this sweep.
      length: bytes to keep, 0 to begin anew.

    Returns:
      The open file.
    """
    if not length:
        write_text(path, json.dumps({"sweep": header, "jax": jax.__version__}) + "\n")
    file = open(path, "r+b")
    if length:
        file.truncate(length)
    file.seek(0, os.SEEK_END)
    return file


def append(file: BinaryIO, seeds: slice, settings: slice, values: dict[str, np.ndarray]) -> None:
    """Add a finished batch and see it to the disk.

    Args:
      file: as `resume` returned it.
      seeds: which rows of `values` the batch filled.
      settings: which columns.
      values: each metric's array [seeds, settings, ...].
    """
    # Decimal digits of a Python float give the same 16, 32 or 64 bits back, NaN and infinity too.
    metrics = {name: array[seeds, settings].tolist() for name, array in values.items()}
    line = {
        "seeds": [seeds.start, seeds.stop],
        "settings": [settings.start, settings.stop],
        "metrics": metrics,
    }
    file.write(json.dumps(line).encode() + b"\n")
    file.flush()
    os.fsync(file.fileno())
