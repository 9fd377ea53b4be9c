"""A random model of a few thousand parameters that reads bytes: for tests and trials."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxmem.common import choice
from jaxmem.lm.config import Config
from jaxmem.lm.model import Model
from jaxmem.lm.parameters import DTYPES, Params, fingerprint, nested
from jaxmem.lm.tokenizer import Tokenizer

_MARKERS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")

CONFIG = Config(
    vocabulary=256 + len(_MARKERS),
    hidden=32,
    layers=2,
    heads=4,
    kv_heads=2,
    head_dim=8,
    feed_forward=48,
    positions=4096,
    tied=False,  # a tied random model says its last token again and again
)
"""The shape of `tiny` where none is asked for."""


def tiny(key: Array, config: Config | None = None, dtype: str = "float32") -> Model:
    """A model with random parameters, every byte a token, ChatML's markers three more.

    Args:
      key: PRNG key.
      config: its shape, by default `CONFIG`; of at least 259 tokens.
      dtype: "bfloat16" or "float32" of the parameters.

    Returns:
      The model.

    Raises:
      ValueError: if the vocabulary is too small, or the package tokenizers is not installed.
    """
    config = config or CONFIG
    if config.vocabulary < CONFIG.vocabulary:
        raise ValueError(
            f"expected a vocabulary of at least {CONFIG.vocabulary}, got {config.vocabulary}"
        )
    choice(DTYPES, dtype, "dtype")
    params = _random_params(key, config, dtype)
    tokenizer = Tokenizer(byte_tokenizer())
    return Model(config, params, tokenizer, "tiny", fingerprint(params, config))


def _random_params(key: Array, config: Config, dtype: str) -> Params:
    """As `init_params`, by one draw: a program for each shape takes longer to compile."""
    sizes = [math.prod(shape) for shape in config.shapes.values()]
    parts = np.split(np.asarray(jax.random.normal(key, (sum(sizes),))), np.cumsum(sizes)[:-1])
    drawn = {}
    for (name, shape), noise in zip(config.shapes.items(), parts):
        scale, middle = 1.0, 0.0
        if name.endswith("norm"):
            scale, middle = 0.1, 1.0
        elif name.endswith("bias"):
            scale = 0.1
        elif name.startswith("layers."):
            scale = 1.0 / math.sqrt(shape[-2])
        drawn[name] = jnp.asarray(middle + scale * noise.reshape(shape), dtype)
    return nested(drawn)


def byte_tokenizer() -> Any:
    """The tokenizer of `tiny`: every byte a token, no merges, and the markers.

    Returns:
      A `tokenizers.Tokenizer`.

    Raises:
      ValueError: if the package tokenizers is not installed.
    """
    try:
        import tokenizers
    except ImportError as error:
        raise ValueError("a tokenizer needs tokenizers: pip install 'jaxmem[lm]'") from error
    letters = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: id for id, letter in enumerate(letters)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocabulary, merges=[]))
    parts = tokenizers.pre_tokenizers
    tokenizer.pre_tokenizer = parts.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.add_special_tokens(list(_MARKERS))
    return tokenizer
