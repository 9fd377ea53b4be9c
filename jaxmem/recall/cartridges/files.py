"""Cartridges on disk: one safetensors file, checked before it is believed; never a pickle."""

import json
import math
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from typing import Any, BinaryIO, NamedTuple, TypeVar

import jax.numpy as jnp
import ml_dtypes
import numpy as np

from jaxmem.common import check_size
from jaxmem.common.safetensors_header import StoredTensor, UnfitError, layout, read_json, short
from jaxmem.common.safetensors_writing import save_tensors
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
_Found = TypeVar("_Found")


def save_cartridge(
    path: str | os.PathLike[str], cartridge: Cartridge, metadata: Mapping[str, str] | None = None
) -> None:
    """Write a cartridge to one safetensors file, whole or not at all.

    Tensors keys [..., P, K] and values [..., P, V], bias and mask [..., P] and positions [P] or
    [..., P] where there are any, in the float type they have; scale, dims, frozen and
    first_question as metadata.

    Args:
      path: the file, by custom with the suffix .safetensors.
      cartridge: its scale and first_question single numbers.
      metadata: the caller's own strings by name (seed, model, tokenizer).

    Raises:
      ValueError: if the library safetensors is not installed, or the cartridge or the metadata
        is such that the file could not be loaded again.
    """
    if not isinstance(cartridge, Cartridge):
        raise ValueError(f"expected a cartridge to save, got {type(cartridge).__name__}")
    if metadata is not None and not isinstance(metadata, Mapping):
        raise ValueError(f"expected metadata by name, got {type(metadata).__name__}")
    frozen = check_size("frozen", cartridge.frozen, 0, cartridge.slots)
    parts = {name: getattr(cartridge, name) for name in _KINDS}
    tensors = {name: np.asarray(part) for name, part in parts.items() if part is not None}
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
    save_tensors(path, tensors, strings)


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
    return _checked(path, _load)


class CartridgeHeader(NamedTuple):
    """What a cartridge file says of itself before its numbers are read.

    shapes: of the tensors by name; keys [..., P, K].
    types: of the tensors by name, as the file has them ("BF16").
    settings: scale, frozen, and first_question where there is one.
    metadata: the caller's own strings by name.
    """

    shapes: dict[str, tuple[int, ...]]
    types: dict[str, str]
    settings: dict[str, Any]
    metadata: dict[str, str]


def read_header(path: str | os.PathLike[str]) -> CartridgeHeader:
    """The checked header of a cartridge file. Needs no extra.

    Args:
      path: the file.

    Returns:
      The header.

    Raises:
      ValueError: if it is no such file, is damaged, or comes from a newer version.
      OSError: if it cannot be read.
    """
    return _checked(path, lambda file: _header(file)[0])


def _checked(path: str | os.PathLike[str], read: Callable[[BinaryIO], _Found]) -> _Found:
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise ValueError(f"{path}: expected a cartridge file, got something that is no file")
    try:
        with open(path, "rb") as file:
            return read(file)
    except (ValueError, RecursionError) as error:
        reason = (
            str(error) if isinstance(error, UnfitError) else f"expected a JSON header, got {error}"
        )
        raise ValueError(f"{path}: {reason}") from error


def _header(file: BinaryIO) -> tuple[CartridgeHeader, dict[str, StoredTensor]]:
    header, room = read_json(file, _HEADER_BYTES)
    strings = _strings(header.pop("__metadata__", {}))
    stored = layout(header, room, _kinds)
    kinds = {name: tensor.code for name, tensor in stored.items()}
    shapes = {name: tensor.shape for name, tensor in stored.items()}
    _check_kinds(kinds, shapes)
    dims = _dims(shapes["keys"], shapes["values"])
    if strings["dims"] != dims:
        raise UnfitError(f"expected dims {dims} of the tensors, got {short(strings['dims'])}")
    settings: dict[str, Any] = {
        "scale": _parsed("scale", strings["scale"], float),
        "frozen": _frozen(_parsed("frozen", strings["frozen"], int), shapes["keys"][-2]),
    }
    if "first_question" in strings:
        asked = _parsed("first_question", strings["first_question"], int)
        settings["first_question"] = _position("first_question", asked)
    own = {name: text for name, text in strings.items() if name not in _OWN}
    return CartridgeHeader(shapes, kinds, settings, own), stored


def _load(file: BinaryIO) -> tuple[Cartridge, dict[str, str]]:
    (shapes, kinds, settings, own), stored = _header(file)
    parts: dict[str, Any] = {}
    for name, content in _contents(file, stored):
        kind = _KINDS[name][kinds[name]]
        if name == "mask" and np.any(np.frombuffer(content, np.uint8) > 1):
            raise UnfitError("expected bytes 0 and 1 in mask, got others")
        tensor = np.frombuffer(content, kind).reshape(shapes[name])
        _check_numbers(name, tensor)
        with np.errstate(over="ignore"):
            parts[name] = jnp.asarray(tensor)
        if parts[name].dtype != tensor.dtype:  # a double may be too large for a single
            _check_numbers(name, np.asarray(parts[name]))
    return Cartridge(**parts, **settings), own


def _strings(metadata: Any) -> dict[str, str]:
    """The metadata, if it is that of a cartridge of a known version."""
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise UnfitError(f"expected metadata of strings by name, got {short(metadata)}")
    if metadata.get("format") != FORMAT:
        raise UnfitError(f"expected format {FORMAT!r}, got {short(metadata.get('format'))}")
    version = metadata.get("version", "")
    if version != str(VERSION):
        newer = version.isascii() and version.isdigit() and int(version[:9]) > VERSION
        hint = ", written by a newer jaxmem" if newer else ""
        raise UnfitError(f"expected version {VERSION}, got {short(version)}{hint}")
    missing = [name for name in _OWN[2:5] if name not in metadata]
    if missing:
        raise UnfitError(f"expected metadata {', '.join(_OWN[:5])}, got none for {missing[0]}")
    return metadata


def _contents(file: BinaryIO, stored: dict[str, StoredTensor]) -> Iterator[tuple[str, bytes]]:
    """Bytes of each tensor, in the order of the file."""
    for name in sorted(stored, key=lambda name: stored[name].start):
        start, end = stored[name].start, stored[name].end
        content = file.read(end - start)
        if len(content) < end - start:
            raise UnfitError(f"expected {end - start} bytes of {name}, got {len(content)}")
        yield name, content


def _check_kinds(kinds: Mapping[str, str], shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Shapes that belong together."""
    for name in ("keys", "values"):
        if name not in kinds:
            raise UnfitError(f"expected tensors keys and values, got {', '.join(kinds) or 'none'}")
    keys, values = shapes["keys"], shapes["values"]
    if not 2 <= len(keys) <= _AXES or keys[:-1] != values[:-1] or 0 in (*keys, *values):
        raise UnfitError(
            f"expected keys [..., P, K] and values [..., P, V], got {keys} and {values}"
        )
    for name, fits in (
        ("bias", [keys[:-1]]),
        ("mask", [keys[:-1]]),
        ("positions", list(dict.fromkeys((keys[-2:-1], keys[:-1])))),
    ):
        if name in shapes and shapes[name] not in fits:
            wanted = " or ".join(map(str, fits))
            raise UnfitError(f"expected {name} {wanted} beside keys {keys}, got {shapes[name]}")


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
        raise UnfitError(
            f"expected {wanted} in {name}, got {tensor[worst]} at {[*map(int, worst)]}"
        )


def _code(name: str, kind: np.dtype) -> str:
    for code, known in _KINDS[name].items():
        if kind == known:
            return code
    raise UnfitError(f"expected {name} as {' or '.join(_KINDS[name])}, got {kind}")


def _kinds(name: str) -> dict[str, np.dtype]:
    if name not in _KINDS:
        raise UnfitError(f"expected tensors {', '.join(_KINDS)}, got {short(name)}")
    return _KINDS[name]


def _dims(keys: tuple[int, ...], values: tuple[int, ...]) -> str:
    sizes = {"lead": list(keys[:-2]), "slots": keys[-2], "keys": keys[-1], "values": values[-1]}
    return json.dumps(sizes)


def _frozen(frozen: int, slots: int) -> int:
    if not 0 <= frozen <= slots:
        raise UnfitError(f"expected 0 to {slots} frozen slots, got {short(frozen)}")
    return frozen


def _position(name: str, number: Any) -> int:
    """A single whole number of 0 or more."""
    array = np.asarray(number)
    whole = np.issubdtype(array.dtype, np.integer)
    if array.shape != () or not (whole and 0 <= array <= _INT_MAX):
        raise UnfitError(f"expected a single {name} of 0 or more, got {short(number)}")
    return int(array)


def _parsed(name: str, text: str, kind: type) -> Any:
    """The number that a field of the metadata holds, written as `repr` writes it."""
    try:
        number = kind(text)
        if kind is int and text != str(number):
            raise ValueError(text)
    except (ValueError, OverflowError) as error:
        raise UnfitError(f"expected a number for {name}, got {short(text)}") from error
    if kind is float and not math.isfinite(number):
        raise UnfitError(f"expected a finite {name}, got {short(text)}")
    return number


def _callers(metadata: Mapping[str, str]) -> dict[str, str]:
    for name, text in metadata.items():
        if not isinstance(name, str) or not isinstance(text, str):
            raise ValueError(f"expected metadata of strings by name, got {short({name: text})}")
        if name in _OWN:
            raise ValueError(f"expected names other than {', '.join(_OWN)}, got {name!r}")
        try:
            (name + text).encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"expected text in metadata, got {short({name: text})}") from error
    return dict(metadata)
