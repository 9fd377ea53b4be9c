"""Weights on disk: Hugging Face folders and GGUF files, checked before they are believed."""

from jaxmem.lm.weights.hf_folder import read_folder
from jaxmem.lm.weights.read import read_weights
from jaxmem.lm.weights.smollm2 import smollm2_path

__all__ = ["read_folder", "read_weights", "smollm2_path"]
