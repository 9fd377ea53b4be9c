"""A real decoder-only language model in JAX, and cartridges trained on it.

- `jaxmem.lm.cartridges`: a document trained into a small KV cache.
- `jaxmem.lm.self_study`: the conversations about it that are trained on.
- `load_model`: Llama, SmolLM2, Qwen2, Qwen2.5, Qwen3 and Mistral shapes, from Hugging Face folders
  and GGUF files; `smollm2`: a model that installs without a hub; `tiny`: random, for tests.
- `forward`, `generate`: logits and text, over a cartridge and a cache.
"""

from jaxmem.lm.config import Config, Llama3Scaling
from jaxmem.lm.decoder import Cache, forward, init_cache
from jaxmem.lm.generation import Generated, generate, prefill
from jaxmem.lm.model import Model, load_model, smollm2
from jaxmem.lm.parameters import init_params
from jaxmem.lm.tiny import tiny
from jaxmem.lm.tokenizer import Tokenizer

from jaxmem.lm import cartridges, self_study  # isort: skip

__all__ = [
    "Cache",
    "Config",
    "Generated",
    "Llama3Scaling",
    "Model",
    "Tokenizer",
    "cartridges",
    "forward",
    "generate",
    "init_cache",
    "init_params",
    "load_model",
    "prefill",
    "self_study",
    "smollm2",
    "tiny",
]
