"""Cartridges in the formats of others: PEFT folders, the official `.pt`, Hugging Face caches."""

from jaxmem.lm.cartridges.formats.hf_cache_file import save_hf_cache
from jaxmem.lm.cartridges.formats.peft_file import load_peft, save_peft
from jaxmem.lm.cartridges.formats.torch_file import load_torch

__all__ = ["load_peft", "load_torch", "save_hf_cache", "save_peft"]
