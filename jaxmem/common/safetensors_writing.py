"""Writing a safetensors file: whole or not at all, the same bytes for the same numbers."""

import json
import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from jaxmem.common.files import atomic_path


def save_tensors(
    path: str | os.PathLike[str], tensors: Mapping[str, np.ndarray], metadata: Mapping[str, str]
) -> None:
    """Write arrays and strings as a safetensors file.

    Args:
      path: the file to write.
      tensors: arrays by name.
      metadata: strings by name.

    Raises:
      ValueError: if the library safetensors is not installed.
      OSError: if it cannot be written.
    """
    try:
        from safetensors.numpy import save_file
    except ImportError as error:
        raise ValueError(
            "writing safetensors needs the library safetensors: pip install 'jaxmem[lm]'"
        ) from error
    whole = {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}
    with atomic_path(path) as temporary:
        save_file(whole, temporary, metadata=dict(metadata))
        _sort_header(temporary)


def _sort_header(path: Path) -> None:
    """The library puts metadata in another order each time: in the order of names, padded."""
    with open(path, "r+b") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
        text = json.dumps(header, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        content = text.encode()
        if len(content) <= length:  # the same JSON, but for what two libraries escape
            file.seek(8)
            file.write(content.ljust(length))
