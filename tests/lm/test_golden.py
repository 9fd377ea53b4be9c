"""Logits of tiny models that Hugging Face transformers made (make_golden.py), without it."""

import json
from pathlib import Path

import jax
import numpy as np
import pytest

from jaxmem.lm.decoder import forward, init_cache
from jaxmem.lm.weights.hf_folder import read_params

pytestmark = pytest.mark.usefixtures("unoptimised")

GOLDEN = Path(__file__).parent / "golden"
NAMES = sorted(path.name for path in GOLDEN.iterdir())
forward_jit = jax.jit(forward, static_argnames="config")


def test_every_shape_is_there() -> None:
    assert NAMES == [
        "llama",
        "llama-linear",
        "llama-llama3",
        "mistral",
        "qwen2",
        "qwen3",
        "smollm2",
    ]


@pytest.mark.parametrize("name", NAMES)
def test_logits_are_those_of_transformers(name: str) -> None:
    config, params = read_params(GOLDEN / name, "float32")
    golden = json.loads((GOLDEN / name / "golden.json").read_text(encoding="utf-8"))
    ids, prompt, steps = (np.array(golden[key]) for key in ("ids", "prompt", "steps"))
    batch, length = prompt.shape[:2]
    assert ids.shape == (2, 15)
    assert np.std(prompt) > 0.5, "logits near 0 would prove little"
    places = np.broadcast_to(np.arange(ids.shape[1]), ids.shape)
    cache = init_cache(config, batch, ids.shape[1])
    for at in range(length, ids.shape[1] + 1):  # the prompt, then token by token
        now = slice(0 if at == length else at - 1, at)
        logits, cache = forward_jit(params, config, ids[:, now], places[:, now], cache=cache)
        wanted = prompt if at == length else steps[:, at - length - 1 : at - length]
        np.testing.assert_allclose(logits, wanted, atol=1e-4, err_msg=f"token {at}")
