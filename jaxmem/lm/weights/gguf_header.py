"""The header of a GGUF file, checked against the file's size before it is believed.

Every count and length is compared with the bytes that are left, so a lying header makes an error
and no large allocation. Source: the GGUF specification of ggml; versions 2 and 3, little-endian.
"""

import itertools
import math
import os
import struct
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from jaxmem.common.safetensors_header import short

MAGIC = b"GGUF"
"""First bytes of the file."""

TYPES: dict[int, tuple[str, int, int]] = {
    0: ("F32", 1, 4),
    1: ("F16", 1, 2),
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34),
    12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210),
    30: ("BF16", 1, 2),
}
"""Tensor types that are read: name, weights a block, bytes a block."""

_NUMBERS: dict[int, np.dtype] = {
    0: np.dtype("u1"),
    1: np.dtype("i1"),
    2: np.dtype("<u2"),
    3: np.dtype("<i2"),
    4: np.dtype("<u4"),
    5: np.dtype("<i4"),
    6: np.dtype("<f4"),
    10: np.dtype("<u8"),
    11: np.dtype("<i8"),
    12: np.dtype("<f8"),
}
_BOOL, _STRING, _ARRAY = 7, 8, 9
_HEADER_BYTES = 2**26  # of names, numbers and the tokenizer: real ones take about ten million
_ENTRIES = 2**16  # keys or tensors: real ones are dozens and thousands
_AXES = 4


class GgufTensor(NamedTuple):
    """Where a tensor lies in a GGUF file.

    kind: its type, a name of `TYPES`.
    shape: sizes, the one that varies fastest last (the file has it first).
    offset: of its first byte in the file.
    bytes: that it takes.
    """

    kind: str
    shape: tuple[int, ...]
    offset: int
    bytes: int


class GgufHeader(NamedTuple):
    """What a GGUF file says about itself.

    metadata: numbers, flags, strings, lists of strings and arrays of numbers, by key.
    tensors: by name, in the order of the file.
    """

    metadata: dict[str, Any]
    tensors: dict[str, GgufTensor]


class _Reader:
    """Reads forward, never past the end."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self.file, self.at, self.end = file, 0, min(size, _HEADER_BYTES)

    def take(self, count: int, what: str) -> bytes:
        content = self.file.read(count) if count <= self.end - self.at else b""
        if len(content) != count:
            raise ValueError(f"expected {count} bytes of {what} at byte {self.at}, got fewer")
        self.at += count
        return content

    def number(self, code: str, what: str) -> Any:
        return struct.unpack(code, self.take(struct.calcsize(code), what))[0]

    def text(self, what: str) -> str:
        content = self.take(self.number("<Q", f"the length of {what}"), what)
        try:
            return content.decode()
        except UnicodeDecodeError as error:
            raise ValueError(f"expected {what} in UTF-8, got {short(content)}") from error


def read_header(file: BinaryIO) -> GgufHeader:
    """Read the header of a GGUF file and check all it says about the file.

    Args:
      file: opened in binary at its start.

    Returns:
      The header; tensors lie within the file and do not overlap.

    Raises:
      ValueError: one line with what was expected and what came.
    """
    size = os.fstat(file.fileno()).st_size
    reader = _Reader(file, size)
    magic = file.read(4)
    reader.at = 4
    if magic != MAGIC:
        raise ValueError(f"expected a GGUF file, got one that starts with {magic!r}")
    version = reader.number("<I", "the version")
    if version not in (2, 3):
        hint = " (a big-endian file)" if version % 2**16 == 0 else ""
        raise ValueError(f"expected GGUF version 2 or 3, got {version}{hint}")
    tensor_count = reader.number("<Q", "the count of tensors")
    key_count = reader.number("<Q", "the count of keys")
    if max(key_count, tensor_count) > _ENTRIES:
        raise ValueError(
            f"expected at most {_ENTRIES} keys and tensors, got {key_count} and {tensor_count}"
        )
    metadata: dict[str, Any] = {}
    for _ in range(key_count):
        key = reader.text("a key")
        if key in metadata:
            raise ValueError(f"expected keys that differ, got {short(key)} twice")
        metadata[key] = _value(reader, reader.number("<I", f"the type of {short(key)}"), key)
    alignment = metadata.get("general.alignment", 32)
    if type(alignment) is not int or not 0 < alignment <= 2**20 or alignment & (alignment - 1):
        raise ValueError(f"expected a power of two for general.alignment, got {short(alignment)}")
    entries = _entries(reader, tensor_count)
    start = -(-reader.at // alignment) * alignment
    return GgufHeader(metadata, _placed(entries, start, alignment, size))


def tensor_content(file: BinaryIO, name: str, tensor: GgufTensor) -> np.ndarray:
    """The bytes of a tensor.

    Args:
      file: the file that the header was read from.
      name: of the tensor, for the message.
      tensor: its entry in the header.

    Returns:
      uint8 [..., bytes of a row].

    Raises:
      ValueError: if the file has become shorter.
    """
    file.seek(tensor.offset)
    content = np.fromfile(file, np.uint8, tensor.bytes)
    if content.size < tensor.bytes:
        raise ValueError(f"expected {tensor.bytes} bytes of {name}, got {content.size}")
    return content.reshape(*tensor.shape[:-1], -1)


def _value(reader: _Reader, kind: int, key: str) -> Any:
    what = short(key)
    if kind in _NUMBERS:
        return np.frombuffer(reader.take(_NUMBERS[kind].itemsize, what), _NUMBERS[kind])[0].item()
    if kind == _BOOL:
        return _flags(reader.take(1, what), what)[0].item()
    if kind == _STRING:
        return reader.text(what)
    if kind != _ARRAY:
        raise ValueError(f"expected a type of 0 to 12 for {what}, got {kind}")
    inner = reader.number("<I", what)
    count = reader.number("<Q", what)
    if inner == _STRING:
        if 8 * count > reader.end - reader.at:
            raise ValueError(
                f"expected as many strings for {what} as the file can hold, got {count}"
            )
        return [reader.text(what) for _ in range(count)]
    if inner == _BOOL:
        return _flags(reader.take(count, what), what)
    if inner not in _NUMBERS:
        raise ValueError(f"expected an array of numbers or strings for {what}, got type {inner}")
    return np.frombuffer(reader.take(count * _NUMBERS[inner].itemsize, what), _NUMBERS[inner])


def _flags(content: bytes, what: str) -> np.ndarray:
    flags = np.frombuffer(content, np.uint8)
    if np.any(flags > 1):
        raise ValueError(f"expected true or false for {what}, got bytes other than 0 and 1")
    return flags.astype(bool)


def _entries(reader: _Reader, count: int) -> dict[str, tuple[str, tuple[int, ...], int, int]]:
    """Type, shape, offset in the data and bytes of each tensor."""
    found: dict[str, tuple[str, tuple[int, ...], int, int]] = {}
    for _ in range(count):
        name = reader.text("the name of a tensor")
        what = short(name)
        if name in found:
            raise ValueError(f"expected names that differ, got {what} twice")
        axes = reader.number("<I", f"the axes of {what}")
        if not 1 <= axes <= _AXES:
            raise ValueError(f"expected 1 to {_AXES} axes of {what}, got {axes}")
        sizes = struct.unpack(f"<{axes}Q", reader.take(8 * axes, f"the shape of {what}"))
        kind = reader.number("<I", f"the type of {what}")
        if kind not in TYPES:
            known = ", ".join(name for name, _, _ in TYPES.values())
            raise ValueError(f"expected {what} as one of {known}, got {_type_name(kind)}")
        label, block, block_bytes = TYPES[kind]
        if 0 in sizes or sizes[0] % block:
            raise ValueError(
                f"expected rows of {what} in blocks of {block} for {label}, got {[*sizes[::-1]]}"
            )
        offset = reader.number("<Q", f"the offset of {what}")
        found[name] = (label, sizes[::-1], offset, math.prod(sizes) // block * block_bytes)
    return found


def _placed(
    entries: dict[str, tuple[str, tuple[int, ...], int, int]],
    start: int,
    alignment: int,
    size: int,
) -> dict[str, GgufTensor]:
    """The tensors, if they lie within the file and apart from each other."""
    found = {}
    for name, (kind, shape, offset, count) in entries.items():
        if offset % alignment:
            raise ValueError(
                f"expected an offset of {short(name)} in steps of {alignment}, got {offset}"
            )
        if start + offset + count > size:
            raise ValueError(
                f"expected {short(name)} within {size} bytes, got {[*shape]} {kind} at "
                f"{start + offset}"
            )
        found[name] = GgufTensor(kind, shape, start + offset, count)
    ordered = sorted(found, key=lambda name: found[name].offset)
    for one, other in itertools.pairwise(ordered):
        if found[one].offset + found[one].bytes > found[other].offset:
            raise ValueError(
                f"expected tensors apart from each other, got {short(one)} across {short(other)}"
            )
    return found


def _type_name(kind: int) -> str:
    try:
        from gguf import GGMLQuantizationType

        return GGMLQuantizationType(kind).name
    except (ImportError, ValueError):
        return f"type {kind}"
