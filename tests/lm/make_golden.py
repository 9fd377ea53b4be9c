"""Tiny random models by Hugging Face transformers, and their logits, for test_golden.py.

Needs torch and transformers (made with torch 2.13 and transformers 5.24):

    python tests/lm/make_golden.py

Writes golden/NAME/{config.json, model.safetensors, golden.json} beside itself.
"""

import inspect
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

GOLDEN = Path(__file__).parent / "golden"
PROMPT, STEPS, ROWS = 12, 3, 2
SIZES = {
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {"tie_word_embeddings": False}),
    "llama-linear": (
        "Llama",
        {"rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}},
    ),
    "llama-llama3": ("Llama", {"rope_parameters": LLAMA3, "tie_word_embeddings": True}),
    "smollm2": (
        "Llama",
        {
            "hidden_size": 36,
            "intermediate_size": 36,
            "num_hidden_layers": 3,
            "num_attention_heads": 9,
            "num_key_value_heads": 3,
            "rope_parameters": {"rope_type": "default", "rope_theta": 100000.0},
            "rms_norm_eps": 1e-5,
            "tie_word_embeddings": True,
        },
    ),
    "mistral": ("Mistral", {"num_key_value_heads": 1, "sliding_window": None, "head_dim": 8}),
    "qwen2": ("Qwen2", {"tie_word_embeddings": True}),
    "qwen3": ("Qwen3", {"head_dim": 12, "tie_word_embeddings": False}),
}
"""Class of transformers and what is set beside SIZES, by name."""


def model(name: str, seed: int) -> transformers.PreTrainedModel:
    """A random model whose every parameter matters: norms are not 1, biases not 0."""
    kind, fields = MODELS[name]
    config = getattr(transformers, f"{kind}Config")(**SIZES | fields)
    torch.manual_seed(seed)
    made = getattr(transformers, f"{kind}ForCausalLM")(config).eval()
    with torch.no_grad():
        for label, array in made.named_parameters():
            if label.endswith("norm.weight"):
                array.normal_(1.0, 0.2)
            elif label.endswith("bias"):
                array.normal_(0.0, 0.3)
            else:
                array.normal_(0.0, 1.2 / array.shape[-1] ** 0.5)
    return made


def expected(made: transformers.PreTrainedModel, seed: int) -> dict[str, Any]:
    """Ids [B, T + N], logits of the prompt [B, T, V], and of N cached steps [B, N, V]."""
    rng = np.random.default_rng(seed)
    ids = torch.tensor(rng.integers(0, made.config.vocab_size, (ROWS, PROMPT + STEPS)))
    arguments = inspect.signature(made.forward).parameters
    cache = {"cache" if "cache" in arguments else "past_key_values": transformers.DynamicCache()}
    with torch.no_grad():
        prompt = made(ids[:, :PROMPT], use_cache=True, **cache).logits
        steps = [
            made(ids[:, at : at + 1], use_cache=True, **cache).logits
            for at in range(PROMPT, PROMPT + STEPS)
        ]
    return {"ids": ids.numpy(), "prompt": prompt.numpy(), "steps": torch.cat(steps, 1).numpy()}


def rounded(array: np.ndarray) -> Any:
    """Nested lists of numbers of 7 significant digits."""
    if array.dtype.kind == "i":
        return array.tolist()
    if array.ndim:
        return [rounded(part) for part in array]
    return float(f"{array:.7g}")


def main() -> None:
    """Write them all."""
    for seed, name in enumerate(MODELS):
        folder = GOLDEN / name
        made = model(name, seed)
        made.save_pretrained(folder)
        (folder / "generation_config.json").unlink(missing_ok=True)
        golden = {key: rounded(array) for key, array in expected(made, seed).items()}
        text = json.dumps(golden, separators=(",", ":"))
        (folder / "golden.json").write_text(text + "\n", encoding="utf-8")
        (folder / "model.safetensors").chmod(0o644)
        size = sum(file.stat().st_size for file in folder.iterdir())
        print(f"{name}: {size:,} bytes", file=sys.stderr)


if __name__ == "__main__":
    main()
