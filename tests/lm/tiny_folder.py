"""The tiny model as a Hugging Face folder, for what reads a model from disk."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from jaxmem.lm.config import Config
from jaxmem.lm.model import Model
from jaxmem.lm.parameters import flat
from jaxmem.lm.tiny import byte_tokenizer
from jaxmem.lm.weights.hf_folder import NAMES


def write_folder(path: Path, model: Model) -> None:
    """Write a model of `tiny` as a folder that `load_model` reads."""
    from safetensors.numpy import save_file

    path.mkdir(exist_ok=True)
    (path / "config.json").write_text(json.dumps(_fields(model.config)))
    (path / "tokenizer.json").write_text(byte_tokenizer().to_str())
    tensors = {}
    for name, array in flat(model.params).items():
        whole = np.asarray(array)
        if name.startswith("layers."):
            for layer, part in enumerate(whole):
                tensors[NAMES[name].format(layer)] = np.ascontiguousarray(part.T)
        else:
            tensors[NAMES[name]] = whole
    save_file(tensors, path / "model.safetensors")


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
