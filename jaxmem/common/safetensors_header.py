"""The header of a safetensors file, checked against the file's size before it is believed."""

import json
import math
import os
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO, NamedTuple

import numpy as np

_AXES = 8


class UnfitError(ValueError):
    """What was expected and what came, in one line."""


class StoredTensor(NamedTuple):
    """Where a tensor lies in a safetensors file.

    code: its type as the file has it ("BF16").
    shape: sizes, each above 0.
    start, end: its bytes, counted from the end of the header.
    """

    code: str
    shape: tuple[int, ...]
    start: int
    end: int


def read_json(file: BinaryIO, most_bytes: int) -> tuple[dict[str, Any], int]:
    """The header's JSON, if it is no longer than the file and than what is allowed.

    Args:
      file: opened in binary at its start.
      most_bytes: that the header may have.

    Returns:
      Its content by name, and the bytes that follow it, which are the tensors'.

    Raises:
      UnfitError: if it is no such header, or has a name twice.
      ValueError: if it is no JSON.
    """
    size = os.fstat(file.fileno()).st_size
    first = file.read(8)
    length = int.from_bytes(first, "little")
    if len(first) < 8 or not 2 <= length <= min(size - 8, most_bytes):
        raise UnfitError(
            f"expected a safetensors file with a header of 2 to {most_bytes} bytes, got "
            f"{size} bytes that start with {first!r}"
        )
    header = json.loads(file.read(length).decode(), object_pairs_hook=_unique)
    if not isinstance(header, dict):
        raise UnfitError(f"expected a header of tensors by name, got {short(header)}")
    return header, size - 8 - length


def layout(
    header: Mapping[str, Any], room: int, kinds: Callable[[str], Mapping[str, np.dtype]]
) -> dict[str, StoredTensor]:
    """Where the tensors lie, if they fill the rest of the file without gap or overlap.

    Args:
      header: its entries by name, without those of __metadata__.
      room: bytes that follow the header.
      kinds: the types that a tensor of a name may have, by the file's codes.

    Returns:
      The tensors by name, in the order of the header.

    Raises:
      UnfitError: naming the entry that is wrong; what `kinds` raises for unknown names.
    """
    found = {}
    for name, entry in header.items():
        allowed = kinds(name)
        what = short(name)[1:-1]
        if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
            raise UnfitError(
                f"expected dtype, shape and data_offsets of {what}, got {short(entry)}"
            )
        shape, offsets, kind = entry["shape"], entry["data_offsets"], entry["dtype"]
        if not _counts(shape) or len(shape) > _AXES or 0 in shape:
            raise UnfitError(
                f"expected a shape of 1 to {_AXES} sizes for {what}, got {short(shape)}"
            )
        if not isinstance(kind, str) or kind not in allowed:
            raise UnfitError(f"expected {what} as {' or '.join(allowed)}, got {short(kind)}")
        if not _counts(offsets) or len(offsets) != 2:
            raise UnfitError(f"expected two data_offsets of {what}, got {short(offsets)}")
        needed = math.prod(shape) * allowed[kind].itemsize
        if offsets[1] - offsets[0] != needed:
            raise UnfitError(f"expected {needed} bytes of {what}, got offsets {short(offsets)}")
        found[name] = StoredTensor(kind, tuple(shape), *offsets)
    ends = sorted((tensor.start, tensor.end) for tensor in found.values())
    ideal = [0, *(end for _, end in ends)]
    if [start for start, _ in ends] != ideal[:-1] or ideal[-1] != room:
        raise UnfitError(f"expected {ideal[-1]} bytes of tensors side by side, got {room}")
    return found


def short(thing: Any) -> str:
    """Something out of a file for a message: ASCII, in one line.

    Args:
      thing: what was found.

    Returns:
      At most 80 characters.
    """
    text = " ".join(ascii(thing).splitlines())
    return text if len(text) <= 80 else f"{text[:77]}..."


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        twice = next(name for name, count in counts.items() if count > 1)
        raise UnfitError(f"expected names that differ, got {short(twice)} twice")
    return found


def _counts(numbers: Any) -> bool:
    """Whether it is a list of whole numbers of 0 or more."""
    return (
        isinstance(numbers, list)
        and bool(numbers)
        and all(type(n) is int and 0 <= n < 2**63 for n in numbers)
    )
