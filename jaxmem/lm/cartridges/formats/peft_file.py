"""Cartridges as PEFT's CARTRIDGE adapters: a folder that `PeftModel.from_pretrained` loads.

adapter_config.json and adapter_model.safetensors with one tensor prompt_embeddings
[P, 2 L G K]: of each slot the key and the value of the first layer, of the second, and so on, its
heads side by side. Slots stand at positions 0 to P - 1, questions start at P.
"""

import json
import os
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxmem.common.files import write_text
from jaxmem.common.safetensors_header import short
from jaxmem.common.safetensors_writing import save_tensors
from jaxmem.lm.cartridges.formats.limits import check_packed, check_plain
from jaxmem.lm.fit import check_fit
from jaxmem.lm.model import Model
from jaxmem.lm.weights.safetensors_file import file_tensors
from jaxmem.recall.cartridges import Cartridge
from jaxmem.roofline.hf_fields import load

_CONFIG, _WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_TENSOR = "prompt_embeddings"
_VERSION = "0.21.2"  # of PEFT, whose layout this is


def save_peft(path: str | os.PathLike[str], cartridge: Cartridge, model: Model) -> None:
    """Write a cartridge as a folder of PEFT's, for the same model in transformers.

    Args:
      path: the folder, made if need be.
      cartridge: packed, keys and values [L, G, P, K], without bias and mask.
      model: that it was made with.

    Raises:
      ValueError: if it does not fit the model, PEFT's layout cannot hold it, or the library
        safetensors is not installed.

    Source: huggingface/peft 0.21.2, tuners/cartridge and `PeftModel.get_prompt`.
    """
    check_fit(cartridge, model.config)
    check_plain(cartridge, "PEFT")
    check_packed(cartridge, "PEFT")
    config = model.config
    pairs = np.stack([np.asarray(cartridge.keys), np.asarray(cartridge.values)], axis=1)
    rows = np.moveaxis(pairs, 3, 0).reshape(cartridge.slots, -1)  # [P, L, 2, G, K]
    fields = {
        "peft_type": "CARTRIDGE",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": model.name,
        "revision": None,
        "auto_mapping": None,
        "inference_mode": True,
        "modules_to_save": None,
        "num_virtual_tokens": cartridge.slots,
        "num_frozen_tokens": cartridge.frozen,
        "num_layers": config.layers,
        "num_attention_heads": config.kv_heads,
        "token_dim": config.kv_heads * config.head_dim,
        "num_transformer_submodules": 1,
        "peft_version": _VERSION,
    }
    folder = Path(path)
    save_tensors(folder / _WEIGHTS, {_TENSOR: rows}, {"format": "pt"})
    write_text(folder / _CONFIG, json.dumps(fields, indent=2, sort_keys=True) + "\n")


def load_peft(path: str | os.PathLike[str], model: Model) -> Cartridge:
    """Read a folder of PEFT's with a CARTRIDGE adapter, trained there or written by `save_peft`.

    Such a folder does not say of which weights it is, only of which shape.

    Args:
      path: the folder.
      model: that is to read it; it must be the one the adapter was trained on.

    Returns:
      The cartridge, keys and values [L, G, P, K] in the type of the file, packed.

    Raises:
      ValueError: naming the file, what was expected and what came.
      OSError: if a file cannot be read.
    """
    folder, config = Path(path), model.config
    fields = load(folder / _CONFIG)
    source = folder / _CONFIG

    def expect(name: str, wanted: Any, *more: Any) -> None:
        if fields.get(name) not in (wanted, *more) or isinstance(fields.get(name), bool):
            raise ValueError(f"{source}: expected {name} {wanted}, got {short(fields.get(name))}")

    expect("peft_type", "CARTRIDGE")
    expect("num_layers", config.layers)
    expect("num_attention_heads", config.kv_heads)
    expect("token_dim", config.kv_heads * config.head_dim)
    expect("num_transformer_submodules", 1, None)
    expect("modules_to_save", None, [])
    slots, frozen = fields.get("num_virtual_tokens"), fields.get("num_frozen_tokens", 1)
    if type(slots) is not int or type(frozen) is not int or not 0 <= frozen <= slots or not slots:
        raise ValueError(
            f"{source}: expected num_virtual_tokens of 1 or more and as many num_frozen_tokens at "
            f"most, got {short(slots)} and {short(frozen)}"
        )
    tensors = file_tensors(folder / _WEIGHTS)
    shape = slots, 2 * config.layers * config.kv_heads * config.head_dim
    got = {name: list(tensor.shape) for name, tensor in tensors.items()}
    if got != {_TENSOR: list(shape)}:
        raise ValueError(
            f"{folder / _WEIGHTS}: expected one tensor {_TENSOR} {list(shape)}, got {short(got)}"
        )
    rows = tensors[_TENSOR].read()
    parts = rows.reshape(slots, config.layers, 2, config.kv_heads, config.head_dim)
    keys, values = np.moveaxis(parts, (2, 0), (0, 3))  # 2 x [L, G, P, K]
    cartridge = Cartridge(
        jnp.asarray(keys),
        jnp.asarray(values),
        config.scale,
        positions=jnp.arange(slots),
        first_question=slots,
        frozen=frozen,
    )
    try:
        check_fit(cartridge, config)
    except ValueError as error:
        raise ValueError(f"{folder}: {error}") from error
    return cartridge
