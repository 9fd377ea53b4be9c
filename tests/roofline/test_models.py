"""Model shapes: weights as published, KV as it is cached."""

import dataclasses

import pytest

from jaxmem.reference import roofline as reference
from jaxmem.roofline import ACCELERATORS, MODELS, kv_cache_bytes

# Weights of the published checkpoints (safetensors index), of one token, and their bytes.
PUBLISHED = {
    "llama-3-8b": (8_030_261_248, 8_030_261_248),
    "llama-3-70b": (70_553_706_496, 70_553_706_496),
    "qwen3-8b": (8_190_735_360, 8_190_735_360),
    "qwen3-30b-a3b": (30_532_122_624, 3_353_032_704),
    "gemma-3-27b": (27_009_346_304, 27_009_346_304),
    "deepseek-v3": (671_026_419_200, 37_552_297_472),
    "gpt-oss-20b": (20_914_757_184, 4_193_246_784),
    "smollm2-135m": (134_515_008, 134_515_008),
}


@pytest.mark.parametrize("name", MODELS)
def test_weights_are_those_of_the_checkpoint(name: str) -> None:
    model = MODELS[name]
    assert (model.total_parameters, model.active_parameters) == PUBLISHED[name]
    plain = dataclasses.asdict(model)
    assert reference.parameters(plain) == model.total_parameters
    assert reference.parameters(plain, "active") == model.active_parameters
    assert reference.weight_bytes(plain) == pytest.approx(model.weight_bytes, rel=1e-12)


def test_quantised_checkpoints_have_their_size() -> None:
    assert MODELS["gpt-oss-20b"].weight_bytes / 1e9 == pytest.approx(13.76, abs=0.005)
    # 1 byte a weight, but for embedding, head, router and norms.
    assert 671e9 < MODELS["deepseek-v3"].weight_bytes < 674e9


def test_what_is_not_counted_is_said() -> None:
    assert "vision" in MODELS["gemma-3-27b"].notes
    assert "multi-token" in MODELS["deepseek-v3"].notes


@pytest.mark.parametrize(
    ("name", "tokens", "expected"),
    [
        ("llama-3-8b", 1, 131_072),
        ("llama-3-70b", 1, 327_680),
        ("qwen3-30b-a3b", 1, 48 * 4 * 128 * 2 * 2),
        ("deepseek-v3", 1, 61 * 576 * 2),
        # 10 layers keep everything, 52 keep 1,024 tokens.
        ("gemma-3-27b", 8192, (10 * 8192 + 52 * 1024) * 16 * 128 * 2 * 2),
        ("gpt-oss-20b", 1000, (12 * 1000 + 12 * 128) * 8 * 64 * 2 * 2),
    ],
)
def test_kv_bytes(name: str, tokens: int, expected: int) -> None:
    assert float(kv_cache_bytes(MODELS[name], tokens)) == expected


def test_kv_dtype() -> None:
    model = MODELS["llama-3-8b"]
    for dtype, share in (("bf16", 1.0), ("fp8", 0.5), ("int8", 0.5)):
        smaller = model.with_kv_dtype(dtype)
        assert float(kv_cache_bytes(smaller, 10)) == share * float(kv_cache_bytes(model, 10))
        assert smaller.weight_bytes == model.weight_bytes
    with pytest.raises(ValueError, match=r"unknown KV dtype 'bf8' \(did you mean"):
        model.with_kv_dtype("bf8")


def test_experts_that_a_batch_touches() -> None:
    experts = next(g for g in MODELS["qwen3-30b-a3b"].linear if g.experts > 1)
    assert float(experts.distinct_experts(1.0)) == pytest.approx(8.0, rel=1e-6)
    assert float(experts.distinct_experts(2.0)) == pytest.approx(8 + 8 * 120 / 128, rel=1e-6)
    assert float(experts.distinct_experts(1e5)) == pytest.approx(128.0, rel=1e-6)


@pytest.mark.parametrize("device", ACCELERATORS.values(), ids=lambda d: d.name)
def test_accelerators_are_plausible_and_have_a_source(device: object) -> None:
    values = dataclasses.asdict(device)  # type: ignore[call-overload]
    assert len(values["source"]) > 10
    assert 1e14 < values["bf16_flops"] < 1e16
    assert values["fp8_flops"] == 0 or values["fp8_flops"] > values["bf16_flops"]
    assert 100 < values["bf16_flops"] / values["bytes_s"] < 700
    assert 1e10 < values["capacity_bytes"] < 1e12
