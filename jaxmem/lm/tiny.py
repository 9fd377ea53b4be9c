"""A random model of a few thousand parameters that reads bytes: for tests and trials."""

import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxmem.common.files import atomic_path, write_text
from jaxmem.lm.config import Config
from jaxmem.lm.model import Model
from jaxmem.lm.parameters import Params, fingerprint, flat, nested
from jaxmem.lm.tokenizer import Tokenizer
from jaxmem.lm.weights.hf_folder import _NAMES
from jaxmem.lm.weights.stacking import file_names

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
    params = _random_params(key, config, dtype)
    return Model(config, params, _byte_tokenizer()[1], "tiny", fingerprint(params, config))


def write_folder(path: str | os.PathLike[str], model: Model) -> None:
    """Write a model of `tiny` as a Hugging Face folder, which `load_model` reads.

    Args:
      path: the folder, made if need be.
      model: of `tiny`, without biases of products and norms of heads.

    Raises:
      ValueError: if it is of another shape, or a package of the extra is not installed.
    """
    try:
        from safetensors.numpy import save_file
    except ImportError as error:
        raise ValueError("writing models needs safetensors: pip install 'jaxmem[lm]'") from error
    config = model.config
    if config.qkv_bias or config.qk_norm or config.rope_llama3 or config.rope_factor != 1.0:
        raise ValueError("expected a model of tiny's kind, got biases, norms of heads or scaling")
    folder = Path(path)
    write_text(folder / "config.json", json.dumps(_fields(config)))
    write_text(folder / "tokenizer.json", _byte_tokenizer()[0].to_str())
    tensors = {}
    for name, array in flat(model.params).items():
        whole = np.asarray(array)
        if name.startswith("layers."):
            for layer, part in enumerate(whole):
                tensors[_NAMES[name].format(layer)] = np.ascontiguousarray(part.T)
        else:
            tensors[_NAMES[name]] = whole
    if set(tensors) != set(file_names(config, _NAMES)):
        raise ValueError("expected the parameters of the model's shape, got others")
    with atomic_path(folder / "model.safetensors") as temporary:
        save_file(tensors, temporary)


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


def _fields(config: Config) -> dict[str, Any]:
    """The config.json of a Llama of this shape."""
    return {
        "model_type": "llama",
        "vocab_size": config.vocabulary,
        "hidden_size": config.hidden,
        "intermediate_size": config.feed_forward,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_dim,
        "max_position_embeddings": config.positions,
        "rms_norm_eps": config.norm_eps,
        "rope_theta": config.rope_theta,
        "tie_word_embeddings": config.tied,
    }


def _byte_tokenizer(markers: Sequence[str] = _MARKERS) -> tuple[Any, Tokenizer]:
    """A tokenizer of the `tokenizers` package without merges, and the same one wrapped."""
    try:
        import tokenizers
    except ImportError as error:
        raise ValueError("a tokenizer needs tokenizers: pip install 'jaxmem[lm]'") from error
    letters = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    model = tokenizers.models.BPE(vocab={one: id for id, one in enumerate(letters)}, merges=[])

    def made() -> Any:
        tokenizer = tokenizers.Tokenizer(model)
        parts = tokenizers.pre_tokenizers
        tokenizer.pre_tokenizer = parts.ByteLevel(add_prefix_space=False, use_regex=False)
        tokenizer.decoder = tokenizers.decoders.ByteLevel()
        tokenizer.add_special_tokens(list(markers))
        return tokenizer

    return made(), Tokenizer(made())
