"""A model from disk, whichever of the two forms it has."""

import os
from pathlib import Path

from jaxmem.lm.config import Config
from jaxmem.lm.parameters import Params
from jaxmem.lm.tokenizer import Tokenizer
from jaxmem.lm.weights.gguf_file import read_gguf
from jaxmem.lm.weights.hf_folder import read_folder


def read_weights(
    path: str | os.PathLike[str], dtype: str = "bfloat16"
) -> tuple[Config, Params, Tokenizer]:
    """Read a model's shape, parameters and tokenizer.

    Args:
      path: a Hugging Face folder (config.json, safetensors, tokenizer.json) or a GGUF file.
      dtype: type of the parameters, "bfloat16" or "float32".

    Returns:
      The shape, the parameters and the tokenizer.

    Raises:
      ValueError: one line that names the file, what was expected and what came.
      OSError: if a file cannot be read.
    """
    return read_folder(path, dtype) if Path(path).is_dir() else read_gguf(path, dtype)
