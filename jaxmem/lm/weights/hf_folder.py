"""Weights, shape and tokenizer out of a Hugging Face folder."""

import os
from pathlib import Path

import numpy as np

from jaxmem.common.safetensors_header import short
from jaxmem.lm.config import Config
from jaxmem.lm.parameters import Params
from jaxmem.lm.tokenizer import Tokenizer, tokenizer_from_folder
from jaxmem.lm.weights.hf_config import decoder_config
from jaxmem.lm.weights.safetensors_file import TensorFile, folder_tensors
from jaxmem.lm.weights.stacking import check_tensors, file_names, stacked
from jaxmem.roofline.hf_fields import load

NAMES = {
    "embedding": "model.embed_tokens.weight",
    "norm": "model.norm.weight",
    "head": "lm_head.weight",
    "layers.attention_norm": "model.layers.{}.input_layernorm.weight",
    "layers.query": "model.layers.{}.self_attn.q_proj.weight",
    "layers.key": "model.layers.{}.self_attn.k_proj.weight",
    "layers.value": "model.layers.{}.self_attn.v_proj.weight",
    "layers.output": "model.layers.{}.self_attn.o_proj.weight",
    "layers.feed_forward_norm": "model.layers.{}.post_attention_layernorm.weight",
    "layers.gate": "model.layers.{}.mlp.gate_proj.weight",
    "layers.up": "model.layers.{}.mlp.up_proj.weight",
    "layers.down": "model.layers.{}.mlp.down_proj.weight",
    "layers.query_bias": "model.layers.{}.self_attn.q_proj.bias",
    "layers.key_bias": "model.layers.{}.self_attn.k_proj.bias",
    "layers.value_bias": "model.layers.{}.self_attn.v_proj.bias",
    "layers.query_norm": "model.layers.{}.self_attn.q_norm.weight",
    "layers.key_norm": "model.layers.{}.self_attn.k_norm.weight",
}
"""Hugging Face's name of each parameter of `Config.shapes`, with {} for the layer."""

_DERIVED = "rotary_emb.inv_freq"  # a table of frequencies that old versions saved


def read_folder(path: str | os.PathLike[str], dtype: str) -> tuple[Config, Params, Tokenizer]:
    """Read a model from config.json, safetensors (in shards or not) and tokenizer.json.

    Args:
      path: the folder.
      dtype: "bfloat16" or "float32".

    Returns:
      The model's shape, its parameters and its tokenizer.

    Raises:
      ValueError: one line that names the file, what was expected and what came.
      OSError: if a file cannot be read.
    """
    config, params = read_params(path, dtype)
    folder = Path(path)
    tokenizer = tokenizer_from_folder(folder, _eos(folder))
    if tokenizer.vocabulary > config.vocabulary:
        raise ValueError(
            f"{folder}: expected a tokenizer of at most {config.vocabulary} tokens, got "
            f"{tokenizer.vocabulary}"
        )
    return config, params, tokenizer


def read_params(path: str | os.PathLike[str], dtype: str) -> tuple[Config, Params]:
    """`read_folder` of a model without a tokenizer.

    Args:
      path: the folder.
      dtype: "bfloat16" or "float32".

    Returns:
      The model's shape and its parameters.

    Raises:
      ValueError: one line that names the file, what was expected and what came.
      OSError: if a file cannot be read.
    """
    folder = Path(path)
    if not folder.is_dir():
        raise ValueError(f"{path}: expected a folder, got something else")
    config = decoder_config(folder)
    tensors = folder_tensors(folder)
    head = tensors.get(NAMES["head"]) if config.tied else None
    stored = {
        name: tensor.shape
        for name, tensor in tensors.items()
        if tensor is not head and not name.endswith(_DERIVED)
    }
    try:
        check_tensors(file_names(config, NAMES), stored)
    except ValueError as error:
        raise ValueError(f"{folder}: {error}") from error
    if head is not None:
        _check_tied(head, tensors[NAMES["embedding"]], folder)
    params = stacked(config, NAMES, lambda name: tensors[name].read(), dtype, str(folder))
    return config, params


def _eos(folder: Path) -> int | None:
    """The id that config.json has for the end of a text, the first of several."""
    found = load(folder / "config.json").get("eos_token_id")
    found = found[0] if isinstance(found, list) and found else found
    if found is not None and type(found) is not int:
        raise ValueError(
            f"{folder / 'config.json'}: expected eos_token_id as a number or several, got "
            f"{short(found)}"
        )
    return found


def _check_tied(head: TensorFile, embedding: TensorFile, folder: Path) -> None:
    """Refuse a tied head that is there and is another."""
    same = head.shape == embedding.shape and np.array_equal(head.read(), embedding.read())
    if not same:
        raise ValueError(
            f"{folder}: expected {NAMES['head']} to be the embedding, as tie_word_embeddings has "
            "it, got another tensor"
        )
