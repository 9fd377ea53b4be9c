"""New random models against Hugging Face transformers, where it is installed.

test_golden has every shape, from models drawn once.
"""

import importlib.util
from pathlib import Path
from types import ModuleType

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmem.lm.decoder import forward, init_cache
from jaxmem.lm.weights.hf_folder import read_params

pytest.importorskip("torch", exc_type=ImportError)
pytest.importorskip("transformers", exc_type=ImportError)

NAMES = ["llama", "llama-linear", "llama-llama3", "mistral", "qwen2", "qwen3", "smollm2"]
pytestmark = pytest.mark.usefixtures("unoptimised")
forward_jit = jax.jit(forward, static_argnames="config")


@pytest.fixture(scope="module")
def script() -> ModuleType:
    """make_golden.py as a module."""
    spec = importlib.util.spec_from_file_location(
        "make_golden", Path(__file__).parent / "make_golden.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["llama-llama3", "qwen3"])
def test_logits_are_those_of_transformers(name: str, script: ModuleType, tmp_path: Path) -> None:
    made = script.model(name, 101)
    made.save_pretrained(tmp_path)
    wanted = script.expected(made, 101)
    ids, length = wanted["ids"], wanted["prompt"].shape[1]
    places = jnp.broadcast_to(jnp.arange(ids.shape[1]), ids.shape)
    config, params = read_params(tmp_path, "float32")
    cache = init_cache(config, len(ids), ids.shape[1])
    prompt, cache = forward_jit(params, config, ids[:, :length], places[:, :length], cache=cache)
    np.testing.assert_allclose(prompt, wanted["prompt"], atol=1e-4)
    for at in range(length, ids.shape[1]):
        logits, cache = forward_jit(
            params, config, ids[:, at : at + 1], places[:, at : at + 1], cache=cache
        )
        np.testing.assert_allclose(logits[:, 0], wanted["steps"][:, at - length], atol=1e-4)


def test_names_are_those_of_the_script(script: ModuleType) -> None:
    assert sorted(script.MODELS) == NAMES
