"""A training run on disk, to go on after it was killed: one safetensors file."""

import json
import math
import os
import stat
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxmem.common.safetensors_header import StoredTensor, UnfitError, layout, read_json, short
from jaxmem.common.safetensors_writing import save_tensors
from jaxmem.lm.cartridges.state import Moment, State

FORMAT = "jaxmem-training-state"
"""Value of the metadata field `format`."""

VERSION = 1
"""The version of the format that is written and read."""

_Found = TypeVar("_Found")
_MARK = "identity."
_HEADER_BYTES = 2**22  # a history of tens of thousands of looks
_KINDS: dict[str, np.dtype] = {
    "F32": np.dtype("<f4"),
    "F64": np.dtype("<f8"),
    "I32": np.dtype("<i4"),
    "I64": np.dtype("<i8"),
}


def save_state(path: str | os.PathLike[str], state: State, identity: Mapping[str, str]) -> None:
    """Write the state of a run, whole or not at all.

    Args:
      path: the file to write.
      state: all that the run needs to go on.
      identity: what makes it this run and no other, strings by name: fingerprint of the model,
        digests of the document and of the rows, recipe, seed, slots.

    Raises:
      ValueError: if the library safetensors is not installed, or an array is of a type that is
        not stored.
    """
    tensors = {}
    for name, leaf in _leaves(state).items():
        array = np.asarray(leaf).reshape(np.shape(leaf) or (1,))
        if array.dtype not in _KINDS.values():
            raise ValueError(f"expected {name} as {' or '.join(_KINDS)}, got {array.dtype}")
        tensors[name] = array
    history = [[None if number != number else number for number in one] for one in state.history]
    strings = {
        "format": FORMAT,
        "version": str(VERSION),
        "history": json.dumps(history, allow_nan=False),
    }
    strings |= {_MARK + name: text for name, text in identity.items()}
    save_tensors(path, tensors, strings)


def load_state(path: str | os.PathLike[str], like: State, identity: Mapping[str, str]) -> State:
    """Read the state of the same run.

    Sizes are checked against those of `like` before memory is taken.

    Args:
      path: a file that `save_state` wrote.
      like: a state of this run, its first one, say: the shapes and types that are expected.
      identity: as it was saved.

    Returns:
      The state.

    Raises:
      ValueError: if the file is damaged, or of another run, naming what differs.
      OSError: if it cannot be read.
    """
    return _checked(path, lambda file: _load(file, like, identity))


def read_identity(path: str | os.PathLike[str]) -> dict[str, str]:
    """Which run a file is of.

    Args:
      path: a file that `save_state` wrote.

    Returns:
      Its identity, strings by name.

    Raises:
      ValueError: if it is no such file.
      OSError: if it cannot be read.
    """
    return _checked(path, lambda file: _identity(read_json(file, _HEADER_BYTES)[0]))


def _checked(path: str | os.PathLike[str], read: Callable[[BinaryIO], _Found]) -> _Found:
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise ValueError(f"{path}: expected the file of a run, got something that is no file")
    try:
        with open(path, "rb") as file:
            return read(file)
    except (ValueError, RecursionError) as error:
        fit = isinstance(error, UnfitError)
        reason = str(error) if fit else f"expected a JSON header, got {error}"
        raise ValueError(f"{path}: {reason}") from error


def _load(file: BinaryIO, like: State, identity: Mapping[str, str]) -> State:
    header, room = read_json(file, _HEADER_BYTES)
    stored_identity = _identity(header)
    for name in dict.fromkeys([*identity, *stored_identity]):
        if stored_identity.get(name) != identity.get(name):
            raise UnfitError(
                f"another run's: expected {name} {short(identity.get(name))}, got "
                f"{short(stored_identity.get(name))}"
            )
    history = _history(header.pop("__metadata__").get("history"))
    stored = layout(header, room, lambda _: _KINDS)
    wanted = _leaves(like)
    for name in sorted(set(stored) ^ set(wanted)):
        raise UnfitError(f"expected arrays of this run, {short(name)} is in one of both only")
    found = {}
    start = os.fstat(file.fileno()).st_size - room
    for name, leaf in wanted.items():
        found[name] = _array(file, start, name, stored[name], leaf)
    _, tree = jax.tree_util.tree_flatten(like._replace(history=()))
    state: State = jax.tree_util.tree_unflatten(tree, found.values())
    return state._replace(history=history)


def _array(file: BinaryIO, start: int, name: str, tensor: StoredTensor, leaf: Any) -> jax.Array:
    kind, shape = np.dtype(leaf.dtype), np.shape(leaf)
    if (_KINDS[tensor.code], tensor.shape) != (kind, shape or (1,)):
        raise UnfitError(
            f"expected {name} {kind} {list(shape)}, got {tensor.code} {list(tensor.shape)}"
        )
    file.seek(start + tensor.start)
    content = file.read(tensor.end - tensor.start)
    if len(content) < tensor.end - tensor.start:
        raise UnfitError(f"expected {tensor.end - tensor.start} bytes of {name}, got fewer")
    return jnp.asarray(np.frombuffer(content, kind).reshape(shape))


def _leaves(state: State) -> dict[str, Any]:
    """Arrays of a state by their paths in it, in the order of the pytree."""
    found, _ = jax.tree_util.tree_flatten_with_path(state._replace(history=()))
    return {jax.tree_util.keystr(path): leaf for path, leaf in found}


def _identity(header: Mapping[str, Any]) -> dict[str, str]:
    strings = header.get("__metadata__")
    if not isinstance(strings, dict) or not all(isinstance(v, str) for v in strings.values()):
        raise UnfitError(f"expected metadata of strings by name, got {short(strings)}")
    for name, wanted in (("format", FORMAT), ("version", str(VERSION))):
        if strings.get(name) != wanted:
            raise UnfitError(f"expected {name} {wanted}, got {short(strings.get(name))}")
    return {name[len(_MARK) :]: t for name, t in strings.items() if name.startswith(_MARK)}


def _history(text: str | None) -> tuple[Moment, ...]:
    rows = json.loads(text or "[]")
    if not isinstance(rows, list) or not rows:
        raise UnfitError(f"expected a history of looks, got {short(text)}")
    moments: list[Moment] = []
    for row in rows:
        numbers = isinstance(row, list) and len(row) == len(Moment._fields)
        if not numbers or not all(n is None or type(n) in (int, float) for n in row):
            raise UnfitError(f"expected looks of {len(Moment._fields)} numbers, got {short(row)}")
        before = moments[-1].step if moments else -1
        if type(row[0]) is not int or row[0] <= before:
            raise UnfitError(f"expected steps that rise, got {short(row[0])} after {before}")
        moments.append(Moment(row[0], *(math.nan if n is None else float(n) for n in row[1:])))
    return tuple(moments)
