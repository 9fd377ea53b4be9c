"""Tensors of a folder of safetensors files, one file or many, read one at a time."""

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from jaxmem.common.safetensors_header import UnfitError, layout, read_json, short
from jaxmem.roofline.hf_fields import load

_FLOATS = {
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype(ml_dtypes.bfloat16),
}
_HEADER_BYTES = 2**24  # about a hundred a tensor
_ONE_FILE = "model.safetensors"
_INDEX = "model.safetensors.index.json"


class TensorFile(NamedTuple):
    """Where a tensor lies.

    path: of the file.
    kind: type of its numbers.
    shape: sizes.
    offset: of its first byte in the file.
    """

    path: Path
    kind: np.dtype
    shape: tuple[int, ...]
    offset: int

    def read(self) -> np.ndarray:
        """Read the tensor.

        Returns:
          Its numbers, of `shape`.

        Raises:
          ValueError: if the file has become shorter since its header was read.
        """
        count = int(np.prod(self.shape))
        found = np.fromfile(self.path, self.kind, count, offset=self.offset)
        if found.size < count:
            raise ValueError(f"{self.path}: expected {count} numbers, got {found.size}")
        return found.reshape(self.shape)


def file_tensors(
    path: str | os.PathLike[str], kinds: Mapping[str, np.dtype] = _FLOATS
) -> dict[str, TensorFile]:
    """The tensors of one safetensors file, after a check of its header.

    Args:
      path: the file.
      kinds: types that its tensors may have, by the file's codes.

    Returns:
      Where each tensor lies, by its name.

    Raises:
      ValueError: one line that names the file, what was expected and what came.
      OSError: if it cannot be read.
    """
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise ValueError(f"{path}: expected a safetensors file, got something that is no file")
    with open(path, "rb") as file:
        try:
            header, room = read_json(file, _HEADER_BYTES)
            _check_metadata(header.pop("__metadata__", {}))
            found = layout(header, room, lambda _: kinds)
        except (ValueError, RecursionError) as error:
            fit = isinstance(error, UnfitError)
            reason = str(error) if fit else f"expected a JSON header, got {error}"
            raise ValueError(f"{path}: {reason}") from error
        start = os.fstat(file.fileno()).st_size - room
    return {
        name: TensorFile(Path(path), kinds[tensor.code], tensor.shape, start + tensor.start)
        for name, tensor in found.items()
    }


def folder_tensors(path: str | os.PathLike[str]) -> dict[str, TensorFile]:
    """The tensors of a folder: model.safetensors, or the shards of its index.

    Args:
      path: the folder.

    Returns:
      Where each tensor lies, by its name.

    Raises:
      ValueError: as `file_tensors`, and where index and shards do not agree.
      OSError: if a file cannot be read.
    """
    folder = Path(path)
    if (folder / _ONE_FILE).exists():
        return file_tensors(folder / _ONE_FILE)
    index = folder / _INDEX
    if not index.exists():
        raise ValueError(f"{folder}: expected {_ONE_FILE} or {_INDEX}, got neither")
    places = _weight_map(index)
    found: dict[str, TensorFile] = {}
    for shard in sorted(set(places.values())):
        if not (folder / shard).is_file():
            raise ValueError(f"{index}: expected the file {short(shard)} beside it, got none")
        tensors = file_tensors(folder / shard)
        for name in tensors:
            if places.get(name) != shard:
                told = short(places[name]) if name in places else "nowhere"
                raise ValueError(f"{index}: expected {short(name)} in {short(shard)}, got {told}")
        found |= tensors
    for name, shard in places.items():
        if name not in found:
            raise ValueError(f"{index}: expected {short(name)} in {short(shard)}, got none")
    return found


def _weight_map(index: Path) -> Mapping[str, str]:
    places = load(index).get("weight_map")
    if not isinstance(places, dict) or not places:
        raise ValueError(f"{index}: expected a weight_map of files by name, got {short(places)}")
    for shard in places.values():
        plain = isinstance(shard, str) and shard.endswith(".safetensors")
        if not plain or Path(shard).name != shard or "\\" in shard or "\0" in shard:
            raise ValueError(f"{index}: expected names of files beside it, got {short(shard)}")
    return places


def _check_metadata(metadata: Any) -> None:
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise UnfitError(f"expected metadata of strings by name, got {short(metadata)}")
