"""Tokens of a real tokenizer, from its `tokenizer.json`."""

import importlib
import os
from pathlib import Path
from typing import Any

import numpy as np


class TokenEncoder:
    """Text as token ids, by the `tokenizers` package; an `Encoder`.

    Attributes:
      name: the file's, for reports.
      unit_bytes: 4, an id being a little-endian uint32.
      exact: True.
    """

    unit_bytes = 4.0
    exact = True

    def __init__(self, tokenizer: Any, name: str) -> None:
        """Wrap a tokenizer.

        Args:
          tokenizer: a `tokenizers.Tokenizer`.
          name: for reports.
        """
        self.name = name
        self._tokenizer = tokenizer

    def encode(self, text: bytes) -> bytes:
        """Encode a text, without the special tokens that a model puts around it.

        Args:
          text: UTF-8; what is not becomes the replacement character.

        Returns:
          Its token ids as little-endian uint32, one after another.
        """
        ids = self._tokenizer.encode(text.decode("utf-8", "replace"), add_special_tokens=False).ids
        return np.asarray(ids, "<u4").tobytes()


def token_encoder(path: str | os.PathLike[str]) -> TokenEncoder:
    """An encoder from a tokenizer on disk.

    Args:
      path: a `tokenizer.json`, or a model's folder that holds one.

    Returns:
      The encoder.

    Raises:
      ValueError: if the `tokenizers` package is not installed, or the file is no tokenizer.
    """
    try:
        tokenizers = importlib.import_module("tokenizers")  # an extra
    except ImportError as error:
        raise ValueError(
            "counting tokens with a tokenizer.json needs the package 'tokenizers': "
            "pip install jaxmem[lm]"
        ) from error
    file = Path(path)
    if file.is_dir():
        file = file / "tokenizer.json"
    try:
        tokenizer = tokenizers.Tokenizer.from_file(str(file))
    except Exception as error:  # the package raises bare Exception
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(f"{file}: expected a tokenizer.json: {reason}") from error
    return TokenEncoder(tokenizer, f"{file.parent.name}/{file.name}".lstrip("/"))
