"""What benchmarks/lm.py reports by: FLOPs, turns, ratios."""

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from jaxmem.lm.tiny import CONFIG


@pytest.fixture(scope="module")
def setting() -> ModuleType:
    """benchmarks/lm_setting.py as a module."""
    path = Path(__file__).resolve().parents[2] / "benchmarks" / "lm_setting.py"
    spec = importlib.util.spec_from_file_location("lm_setting", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_flops_are_those_of_each_token_in_turn(setting: ModuleType) -> None:
    rows, length, prefix = 3, 5, 7
    # Query and output, key and value, gate and up and down; two layers.
    layer = 2 * (2 * 32 * 32 + 2 * 32 * 16 + 3 * 32 * 48)
    read = sum(2 * 2 * 4 * 8 * (prefix + t + 1) for t in range(length))
    head = 2 * 32 * 259
    forward = rows * 2 * (length * layer + read) + 6 * head
    assert setting.pass_flops(CONFIG, rows, length, prefix, 6) == forward
    both = rows * 2 * (2 * length * layer + 3 * read) + 2 * 6 * head
    assert setting.pass_flops(CONFIG, rows, length, prefix, 6, gradient=True) == both


def test_systems_run_in_turn_and_the_best_variant_alone(setting: ModuleType) -> None:
    calls: list[str] = []
    ours = {"jaxmem float32": lambda: calls.append("a")}
    rivals = {"transformers float32": {"sdpa": lambda: calls.append("b")}}
    times = setting.contest(ours, rivals, 3)
    assert list(times) == ["jaxmem float32", "transformers float32 sdpa"]
    assert calls == ["a", "b", "b"] + ["a", "b"] * 3  # warm, a trial of two, three rounds
    assert {len(taken) for taken in times.values()} == {3}


def test_ratios_are_to_the_fastest_and_to_the_same_type(setting: ModuleType) -> None:
    times = {
        "jaxmem bfloat16": [2.0, 1.0, 3.0],
        "transformers bfloat16 sdpa": [4.0, 6.0, 5.0],
        "transformers float32 eager": [2.0, 2.0, 2.0],
    }
    first, second, third = setting.records_of(
        "what", times, 10, 1e9, {"bfloat16": 4e9, "float32": 1e9}
    )
    assert (first["seconds"], first["median_s"], first["tokens_s"]) == (1.0, 2.0, 10.0)
    assert first["speed_over_transformers"] == 2.0
    assert first["speed_over_same_type"] == 4.0
    assert first["share_of_matmul_peak"] == 0.25
    np.testing.assert_allclose(second["speed_over_transformers"], 0.5)
    assert third["speed_over_transformers"] == third["speed_over_same_type"] == 1.0
    alone = setting.records_of("what", {"jaxmem float32": [1.0]}, 1, 1.0, {"float32": 1.0})
    assert alone[0]["speed_over_transformers"] is None
