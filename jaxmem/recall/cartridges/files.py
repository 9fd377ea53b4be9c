"""Cartridges on disk: one safetensors file, checked before it is believed; never a pickle."""

import json
import math
import os
import stat
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

import jax.numpy as jnp
import ml_dtypes
import numpy as np

from jaxmem.common import check_size
from jaxmem.common.files import atomic_path
from jaxmem.recall.cartridges.border import fixed_scale
from jaxmem.recall.cartridges.cartridge import Cartridge

FORMAT = "jaxmem-cartridge"
"""Value of the metadata field `format`."""

VERSION = 1
"""Newest version of the format that is written and read."""

_FLOATS = {
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "F16": np.dtype("<f2"),
    "F32": np.dtype("<f4"),
    "F64": np.dtype("<f8"),
}
_KINDS: dict[str, dict[str, np.dtype]] = {
    "keys": _FLOATS,
    "values": _FLOATS,
    "bias": _FLOATS,
    "mask": {"BOOL": np.dtype(bool)},
    "positions": {"I32": np.dtype("<i4"), "I64": np.dtype("<i8")},
}
_OWN = ("format", "version", "scale", "dims", "frozen", "first_question")
_HEADER_BYTES = 2**20  # of JSON: five tensors and what the caller wants to remember
_AXES = 8
_INT_MAX = 2**31 - 1


def save_cartridge(
    path: str | os.PathLike[str], cartridge: Cartridge, metadata: Mapping[str, str] | None = None
) -> None:
    """Write a cartridge to one safetensors file, whole or not at all.

    Tensors keys [..., P, K] and values [..., P, V], bias and mask [..., P] and positions [P] where
    there are any, in the float type they have; scale, dims, frozen and first_question as metadata.

    Args:
      path: the file, by custom with the suffix .safetensors.
      cartridge: its scale and first_question single numbers.
      metadata: the caller's own strings by name (seed, model, tokenizer).

    Raises:
      ValueError: if the library safetensors is not installed, or the cartridge or the metadata
        is such that the file could not be loaded again.
    """
    try:
        from safetensors.numpy import save_file
    except ImportError as error:
        raise ValueError(
            "writing cartridges needs safetensors: pip install 'jaxmem[lm]'"
        ) from error
    if not isinstance(cartridge, Cartridge):
        raise ValueError(f"expected a cartridge to save, got {type(cartridge).__name__}")
    if metadata is not None and not isinstance(metadata, Mapping):
        raise ValueError(f"expected metadata by name, got {type(metadata).__name__}")
    frozen = check_size("frozen", cartridge.frozen, 0, cartridge.slots)
    parts = {name: getattr(cartridge, name) for name in _KINDS}
    tensors = {
        name: np.ascontiguousarray(np.asarray(part))
        for name, part in parts.items()
        if part is not None
    }
    kinds = {name: _code(name, tensor.dtype) for name, tensor in tensors.items()}
    _check_kinds(kinds, {name: tensor.shape for name, tensor in tensors.items()})
    for name, tensor in tensors.items():
        _check_numbers(name, tensor)
    strings = {
        "format": FORMAT,
        "version": str(VERSION),
        "scale": repr(fixed_scale(cartridge.scale)),
        "dims": _dims(tensors["keys"].shape, tensors["values"].shape),
        "frozen": str(frozen),
    }
    if cartridge.first_question is not None:
        strings["first_question"] = str(_position("first_question", cartridge.first_question))
    strings |= _callers(metadata or {})
    if len(json.dumps(strings)) > _HEADER_BYTES - 4096:  # room for the tensors' own entries
        raise ValueError(
            f"expected at most {_HEADER_BYTES - 4096} bytes of metadata, got "
            f"{len(json.dumps(strings))}"
        )
    with atomic_path(path) as temporary:
        save_file(tensors, temporary, metadata=strings)


def load_cartridge(path: str | os.PathLike[str]) -> tuple[Cartridge, dict[str, str]]:
    """Read a cartridge that `save_cartridge` wrote. Needs no extra.

    The size of the file and its header are checked first, so a damaged or hostile file takes no
    more memory than its own length. float64 becomes float32 unless JAX has x64 enabled.

    Args:
      path: the file.

    Returns:
      The cartridge, keys [..., P, K], and the caller's metadata.

    Raises:
      ValueError: if it is no such file, is damaged, or comes from a newer version.
      OSError: if it cannot be read.
    """
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise ValueError(f"{path}: expected a cartridge file, got something that is no file")
    try:
        with open(path, "rb") as file:
            return _load(file)
    except (ValueError, RecursionError) as error:
        reason = str(error) if isinstance(error, _Unfit) else f"expected a JSON header, got {error}"
        raise ValueError(f"{path}: {reason}") from error


class _Unfit(ValueError):
    """What was expected and what came, in one line."""


def _load(file: BinaryIO) -> tuple[Cartridge, dict[str, str]]:
    size = os.fstat(file.fileno()).st_size
    first = file.read(8)
    length = int.from_bytes(first, "little")
    if len(first) < 8 or not 2 <= length <= min(size - 8, _HEADER_BYTES):
        raise _Unfit(
            f"expected a safetensors file with a header of 2 to {_HEADER_BYTES} bytes, got "
            f"{size} bytes that start with {first!r}"
        )
    header = json.loads(file.read(length).decode(), object_pairs_hook=_unique)
    if not isinstance(header, dict):
        raise _Unfit(f"expected a header of tensors by name, got {_short(header)}")
    strings = _strings(header.pop("__metadata__", {}))
    kinds, shapes = _layout(header, size - 8 - length)
    _check_kinds(kinds, shapes)
    dims = _dims(shapes["keys"], shapes["values"])
    if strings["dims"] != dims:
        raise _Unfit(f"expected dims {dims} of the tensors, got {_short(strings['dims'])}")
    settings: dict[str, Any] = {
        "scale": _parsed("scale", strings["scale"], float),
        "frozen": _frozen(_parsed("frozen", strings["frozen"], int), shapes["keys"][-2]),
    }
    if "first_question" in strings:
        asked = _parsed("first_question", strings["first_question"], int)
        settings["first_question"] = _position("first_question", asked)
    parts: dict[str, Any] = {}
    for name, content in _contents(file, header):
        kind = _KINDS[name][kinds[name]]
        if name == "mask" and np.any(np.frombuffer(content, np.uint8) > 1):
            raise _Unfit("expected bytes 0 and 1 in mask, got others")
        tensor = np.frombuffer(content, kind).reshape(shapes[name])
        _check_numbers(name, tensor)
        with np.errstate(over="ignore"):
            parts[name] = jnp.asarray(tensor)
        if parts[name].dtype != tensor.dtype:  # a double may be too large for a single
            _check_numbers(name, np.asarray(parts[name]))
    own = {name: text for name, text in strings.items() if name not in _OWN}
    return Cartridge(**parts, **settings), own


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise _Unfit(f"expected names that differ, got {_short(twice)} twice")
    return found


def _strings(metadata: Any) -> dict[str, str]:
    """The metadata, if it is that of a cartridge of a known version."""
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise _Unfit(f"expected metadata of strings by name, got {_short(metadata)}")
    if metadata.get("format") != FORMAT:
        raise _Unfit(f"expected format {FORMAT!r}, got {_short(metadata.get('format'))}")
    version = metadata.get("version", "")
    if version != str(VERSION):
        newer = version.isascii() and version.isdigit() and int(version[:9]) > VERSION
        hint = ", written by a newer jaxmem" if newer else ""
        raise _Unfit(f"expected version {VERSION}, got {_short(version)}{hint}")
    missing = [name for name in _OWN[2:5] if name not in metadata]
    if missing:
        raise _Unfit(f"expected metadata {', '.join(_OWN[:5])}, got none for {missing[0]}")
    return metadata


def _layout(header: dict[str, Any], room: int) -> tuple[dict[str, str], dict[str, tuple[int, ...]]]:
    """Types and shapes of the tensors, if they fill the rest of the file without gap or overlap."""
    kinds, shapes, ends = {}, {}, []
    for name, entry in header.items():
        _known(name)
        if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
            raise _Unfit(f"expected dtype, shape and data_offsets of {name}, got {_short(entry)}")
        shape, offsets, kind = entry["shape"], entry["data_offsets"], entry["dtype"]
        if not _counts(shape) or len(shape) > _AXES or 0 in shape:
            raise _Unfit(f"expected a shape of 1 to {_AXES} sizes for {name}, got {_short(shape)}")
        if not isinstance(kind, str) or kind not in _KINDS[name]:
            raise _Unfit(f"expected {name} as {' or '.join(_KINDS[name])}, got {_short(kind)}")
        if not _counts(offsets) or len(offsets) != 2:
            raise _Unfit(f"expected two data_offsets of {name}, got {_short(offsets)}")
        needed = math.prod(shape) * _KINDS[name][kind].itemsize
        if offsets[1] - offsets[0] != needed:
            raise _Unfit(f"expected {needed} bytes of {name}, got offsets {_short(offsets)}")
        kinds[name], shapes[name] = kind, tuple(shape)
        ends.append(offsets)
    ends.sort()
    ideal = [0, *(end for _, end in ends)]
    if [start for start, _ in ends] != ideal[:-1] or ideal[-1] != room:
        raise _Unfit(f"expected {ideal[-1]} bytes of tensors side by side, got {room}")
    return kinds, shapes


def _contents(file: BinaryIO, header: dict[str, Any]) -> Iterator[tuple[str, bytes]]:
    """Bytes of each tensor, in the order of the file."""
    for name in sorted(header, key=lambda name: header[name]["data_offsets"]):
        start, end = header[name]["data_offsets"]
        content = file.read(end - start)
        if len(content) < end - start:
            raise _Unfit(f"expected {end - start} bytes of {name}, got {len(content)}")
        yield name, content


def _check_kinds(kinds: Mapping[str, str], shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Shapes that belong together."""
    for name in ("keys", "values"):
        if name not in kinds:
            raise _Unfit(f"expected tensors keys and values, got {', '.join(kinds) or 'none'}")
    keys, values = shapes["keys"], shapes["values"]
    if not 2 <= len(keys) <= _AXES or keys[:-1] != values[:-1] or 0 in (*keys, *values):
        raise _Unfit(f"expected keys [..., P, K] and values [..., P, V], got {keys} and {values}")
    for name, shape in (("bias", keys[:-1]), ("mask", keys[:-1]), ("positions", keys[-2:-1])):
        if name in shapes and shapes[name] != shape:
            raise _Unfit(f"expected {name} {shape} beside keys {keys}, got {shapes[name]}")


def _check_numbers(name: str, tensor: np.ndarray) -> None:
    if name == "mask":
        return
    if name == "positions":
        fits = (tensor >= 0) & (tensor <= _INT_MAX)
        wanted = f"0 to {_INT_MAX}"
    elif name == "bias":  # of minus infinity: a slot that does not count
        fits, wanted = tensor < np.inf, "numbers below infinity"
    else:
        fits, wanted = np.isfinite(tensor), "finite numbers"
    if not np.all(fits):
        worst = np.unravel_index(np.argmin(fits), tensor.shape)
        raise _Unfit(f"expected {wanted} in {name}, got {tensor[worst]} at {[*map(int, worst)]}")


def _code(name: str, kind: np.dtype) -> str:
    for code, known in _KINDS[name].items():
        if kind == known:
            return code
    raise _Unfit(f"expected {name} as {' or '.join(_KINDS[name])}, got {kind}")


def _known(name: str) -> None:
    if name not in _KINDS:
        raise _Unfit(f"expected tensors {', '.join(_KINDS)}, got {_short(name)}")


def _dims(keys: tuple[int, ...], values: tuple[int, ...]) -> str:
    sizes = {"lead": list(keys[:-2]), "slots": keys[-2], "keys": keys[-1], "values": values[-1]}
    return json.dumps(sizes)


def _frozen(frozen: int, slots: int) -> int:
    if not 0 <= frozen <= slots:
        raise _Unfit(f"expected 0 to {slots} frozen slots, got {_short(frozen)}")
    return frozen


def _position(name: str, number: Any) -> int:
    """A single whole number of 0 or more."""
    array = np.asarray(number)
    whole = np.issubdtype(array.dtype, np.integer)
    if array.shape != () or not (whole and 0 <= array <= _INT_MAX):
        raise _Unfit(f"expected a single {name} of 0 or more, got {_short(number)}")
    return int(array)


def _parsed(name: str, text: str, kind: type) -> Any:
    """The number that a field of the metadata holds, written as `repr` writes it."""
    try:
        number = kind(text)
        if kind is int and text != str(number):
            raise ValueError(text)
    except (ValueError, OverflowError) as error:
        raise _Unfit(f"expected a number for {name}, got {_short(text)}") from error
    if kind is float and not math.isfinite(number):
        raise _Unfit(f"expected a finite {name}, got {_short(text)}")
    return number


def _callers(metadata: Mapping[str, str]) -> dict[str, str]:
    for name, text in metadata.items():
        if not isinstance(name, str) or not isinstance(text, str):
            raise ValueError(f"expected metadata of strings by name, got {_short({name: text})}")
        if name in _OWN:
            raise ValueError(f"expected names other than {', '.join(_OWN)}, got {name!r}")
        try:
            (name + text).encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"expected text in metadata, got {_short({name: text})}") from error
    return dict(metadata)


def _counts(numbers: Any) -> bool:
    """Whether it is a list of whole numbers of 0 or more."""
    return (
        isinstance(numbers, list)
        and bool(numbers)
        and all(type(n) is int and 0 <= n < 2**63 for n in numbers)
    )


def _short(thing: Any) -> str:
    text = ascii(thing)
    return text if len(text) <= 80 else f"{text[:77]}..."
