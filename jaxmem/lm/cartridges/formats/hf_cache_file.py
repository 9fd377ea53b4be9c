"""Cartridges as the KV cache of Hugging Face's transformers, for use there without PEFT."""

import json
import os

import numpy as np

from jaxmem.common.safetensors_writing import save_tensors
from jaxmem.lm.cartridges.formats.limits import check_plain
from jaxmem.lm.fit import check_fit, first_question
from jaxmem.lm.model import Model
from jaxmem.recall.cartridges import Cartridge


def save_hf_cache(path: str | os.PathLike[str], cartridge: Cartridge, model: Model) -> None:
    """Write a cartridge as keys and values of a cache of transformers, with safetensors.

    Tensors layers.N.key and layers.N.value [1, G, P, K]; as metadata model, fingerprint, slots,
    frozen, positions (JSON: [P] or [L, G, P]) and first_question, the position of the first
    token of a prompt. Kept positions are no trouble: keys are rotated already, only the prompt
    must be told where it stands.

        from safetensors import safe_open
        from transformers import DynamicCache

        cache = DynamicCache()
        with safe_open("notes.safetensors", "pt") as file:
            for layer in range(model.config.num_hidden_layers):
                key = file.get_tensor(f"layers.{layer}.key").to(model.dtype)
                value = file.get_tensor(f"layers.{layer}.value").to(model.dtype)
                cache.update(key, value, layer)
            first = int(file.metadata()["first_question"])
        positions = first + torch.arange(ids.shape[1])[None]
        logits = model(ids, past_key_values=cache, position_ids=positions).logits

    Later versions call the argument `cache`. It grows with what it reads, so make a new one for
    each prompt. `generate` counts positions from the number of slots, so it is right for packed
    cartridges only.

    Args:
      path: the file, by custom with the suffix .safetensors.
      cartridge: keys and values [L, G, P, K], without bias and mask.
      model: that it was made with.

    Raises:
      ValueError: if it does not fit the model, a cache cannot hold it, or the library safetensors
        is not installed.
    """
    check_fit(cartridge, model.config)
    check_plain(cartridge, "a cache")
    tensors = {}
    for name, array in (("key", cartridge.keys), ("value", cartridge.values)):
        for layer, part in enumerate(np.asarray(array)):
            tensors[f"layers.{layer}.{name}"] = part[None]  # [1, G, P, K]
    metadata = {
        "format": "pt",
        "model": model.name,
        "fingerprint": model.fingerprint,
        "slots": str(cartridge.slots),
        "frozen": str(cartridge.frozen),
        "first_question": str(first_question(cartridge)),
    }
    if cartridge.positions is not None:
        metadata["positions"] = json.dumps(np.asarray(cartridge.positions).tolist())
    save_tensors(path, tensors, metadata)
