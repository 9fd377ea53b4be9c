"""Reading config.json: published shapes, the rules of each architecture, and refusals."""

import copy
import gzip
import json
import math
from pathlib import Path
from typing import Any

import pytest

from jaxmem.roofline import MODELS, Model, kv_cache_bytes
from jaxmem.roofline.catalogue import CONFIGS

LLAMA = CONFIGS["llama-3-8b"]
MISTRAL = {
    "model_type": "mistral",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 32000,
    "sliding_window": 4096,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
MIXTRAL = {
    **MISTRAL,
    "model_type": "mixtral",
    "sliding_window": None,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
}
DEEPSEEK_LITE = {
    "model_type": "deepseek_v2",
    "hidden_size": 2048,
    "intermediate_size": 10944,
    "moe_intermediate_size": 1408,
    "num_hidden_layers": 27,
    "num_attention_heads": 16,
    "q_lora_rank": None,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "first_k_dense_replace": 1,
    "n_routed_experts": 64,
    "n_shared_experts": 2,
    "num_experts_per_tok": 6,
    "vocab_size": 102400,
    "torch_dtype": "bfloat16",
}
QWEN_MOE = {
    "model_type": "qwen2_moe",
    "hidden_size": 2048,
    "intermediate_size": 5632,
    "moe_intermediate_size": 1408,
    "shared_expert_intermediate_size": 5632,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "num_experts": 60,
    "num_experts_per_tok": 4,
    "decoder_sparse_step": 1,
    "use_sliding_window": False,
    "max_window_layers": 21,
    "sliding_window": 32768,
    "vocab_size": 151936,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
PHI = {
    "model_type": "phi3",
    "hidden_size": 3072,
    "intermediate_size": 8192,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "sliding_window": 2047,
    "vocab_size": 32064,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
QWEN2 = {
    "model_type": "qwen2",
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "vocab_size": 151936,
    "tie_word_embeddings": True,
    "use_sliding_window": False,
    "sliding_window": 32768,
    "max_window_layers": 21,
    "torch_dtype": "bfloat16",
}


def windows(model: Model) -> dict[float, float]:
    """Layers by window."""
    return {float(group.window): float(group.count) for group in model.attention}


@pytest.mark.parametrize(
    ("config", "total"),
    [
        (MISTRAL, 7_241_732_096),
        (MIXTRAL, 46_702_792_704),
        (DEEPSEEK_LITE, 15_706_484_224),
        (QWEN_MOE, 14_315_784_192),
        (PHI, 3_821_079_552),
        (QWEN2, 494_032_768),
    ],
    ids=lambda value: value["model_type"] if isinstance(value, dict) else "",
)
def test_weights_are_those_of_the_checkpoint(config: dict[str, Any], total: int) -> None:
    assert Model.from_config(config).total_parameters == total


def test_a_file_a_folder_and_a_dict_are_one(tmp_path: Path) -> None:
    folder = tmp_path / "my-model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LLAMA))
    packed = tmp_path / "packed.json.gz"
    packed.write_bytes(gzip.compress(json.dumps(LLAMA).encode()))
    for source in (folder, folder / "config.json", str(folder)):
        model = Model.from_config(source)
        assert model.name == "my-model"
        assert model.total_parameters == MODELS["llama-3-8b"].total_parameters
    assert Model.from_config(packed).name == "llama"
    assert Model.from_config(LLAMA, name="mine").name == "mine"


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (MISTRAL, {4096.0: 32.0}),
        ({k: v for k, v in MISTRAL.items() if k != "sliding_window"}, {4096.0: 32.0}),
        ({**MISTRAL, "sliding_window": None}, {math.inf: 32.0}),
        (MIXTRAL, {math.inf: 32.0}),
        ({**MIXTRAL, "sliding_window": 4096}, {4096.0: 32.0}),
        ({k: v for k, v in PHI.items() if k != "sliding_window"}, {math.inf: 32.0}),
        (QWEN2, {math.inf: 24.0}),
        ({**QWEN2, "use_sliding_window": True}, {math.inf: 21.0, 32768.0: 3.0}),
        (
            {**QWEN2, "layer_types": ["full_attention", "sliding_attention"] * 12},
            {math.inf: 12.0, 32768.0: 12.0},
        ),
        (
            {**CONFIGS["qwen3-30b-a3b"], "use_sliding_window": True, "sliding_window": 99},
            {99.0: 48.0},
        ),
        (CONFIGS["gemma-3-27b"], {math.inf: 10.0, 1024.0: 52.0}),
        (
            {**CONFIGS["gemma-3-27b"]["text_config"], "sliding_window_pattern": 2},
            {math.inf: 31.0, 1024.0: 31.0},
        ),
        (
            {k: v for k, v in CONFIGS["gpt-oss-20b"].items() if k != "layer_types"},
            {math.inf: 12.0, 128.0: 12.0},
        ),
    ],
)
def test_which_layers_slide(config: dict[str, Any], expected: dict[float, float]) -> None:
    assert windows(Model.from_config(config)) == expected


def test_multi_head_and_multi_query() -> None:
    mha = {k: v for k, v in LLAMA.items() if k != "num_key_value_heads"}
    assert float(kv_cache_bytes(Model.from_config(mha), 1)) == 4 * 131_072
    mqa = {**LLAMA, "num_key_value_heads": 1}
    assert float(kv_cache_bytes(Model.from_config(mqa), 1)) == 131_072 / 8


def test_head_dim_need_not_be_hidden_over_heads() -> None:
    wide = {**LLAMA, "head_dim": 256}
    assert float(kv_cache_bytes(Model.from_config(wide), 1)) == 2 * 131_072
    without = {k: v for k, v in CONFIGS["qwen3-8b"].items() if k != "head_dim"}
    odd = {**without, "hidden_size": 2560}  # 128 a head all the same
    assert Model.from_config(odd).attention[0].qk_dim == 128


def test_tied_embeddings_are_stored_once() -> None:
    apart = Model.from_config({**CONFIGS["smollm2-135m"], "tie_word_embeddings": False})
    together = MODELS["smollm2-135m"]
    assert apart.total_parameters - together.total_parameters == 576 * 49152


def test_sparse_layers() -> None:
    base = CONFIGS["qwen3-30b-a3b"]
    dense = Model.from_config({**base, "mlp_only_layers": [0, 1], "decoder_sparse_step": 2})
    routed = [group for group in dense.linear if group.experts > 1]
    assert {group.count for group in routed} == {23.0}  # odd layers but 1
    absent = {k: v for k, v in CONFIGS["deepseek-v3"].items() if k != "q_lora_rank"}
    assert Model.from_config(absent).total_parameters == MODELS["deepseek-v3"].total_parameters


@pytest.mark.parametrize(
    ("quantization", "nbytes", "compute"),
    [
        ({"quant_method": "fp8"}, 1.0, "fp8"),
        ({"quant_method": "gptq", "bits": 4}, 0.5, "bf16"),
        ({"quant_method": "awq", "bits": 8}, 1.0, "bf16"),
        ({"quant_method": "mxfp4"}, 2.0, "bf16"),
    ],
)
def test_quantization(quantization: dict[str, Any], nbytes: float, compute: str) -> None:
    model = Model.from_config({**LLAMA, "quantization_config": quantization})
    assert {group.weight_bytes for group in model.linear} == {nbytes}
    assert {group.compute for group in model.linear} == {compute}
    assert model.head.weight_bytes == 2.0
    assert model.total_parameters == MODELS["llama-3-8b"].total_parameters


def test_biases_are_weights_too() -> None:
    biased = {**LLAMA, "attention_bias": True, "mlp_bias": True}
    more = Model.from_config(biased).total_parameters - MODELS["llama-3-8b"].total_parameters
    assert more == 32 * (6144 + 4096 + 2 * 14336 + 4096)


REFUSALS: list[tuple[dict[str, Any], str]] = [
    ({"model_type": None}, "field model_type is missing"),
    ({"model_type": "bert"}, "c.json: unknown model_type 'bert' .known: deepseek_v2"),
    (
        {"model_type": "llama4"},
        "c.json: unknown model_type 'llama4' .did you mean 'llama'.. .known: deep",
    ),
    ({"model_type": 3}, "model_type must be a string, got 3"),
    ({"hidden_size": None}, "field hidden_size is missing"),
    ({"intermediate_size": None}, "field intermediate_size is missing"),
    ({"vocab_size": None}, "field vocab_size is missing"),
    ({"num_hidden_layers": 0}, "num_hidden_layers must be an integer >= 1, got 0"),
    ({"num_hidden_layers": -3}, "num_hidden_layers must be an integer >= 1, got -3"),
    ({"hidden_size": "4096"}, "hidden_size must be an integer >= 1, got '4096'"),
    ({"hidden_size": [4096]}, r"hidden_size must be an integer >= 1, got \[4096\]"),
    ({"hidden_size": True}, "hidden_size must be an integer >= 1, got True"),
    ({"hidden_size": 40.5}, "hidden_size must be an integer >= 1, got 40.5"),
    ({"hidden_size": math.nan}, "hidden_size must be an integer >= 1, got nan"),
    ({"hidden_size": math.inf}, "hidden_size must be an integer >= 1, got inf"),
    ({"hidden_size": 10**30}, "hidden_size must be an integer >= 1, got 1000"),
    ({"hidden_size": 4097}, "without head_dim num_attention_heads must divide hidden_size"),
    ({"num_key_value_heads": 7}, "num_key_value_heads must divide num_attention_heads"),
    ({"tie_word_embeddings": "no"}, "tie_word_embeddings must be true or false, got 'no'"),
    ({"torch_dtype": "float8"}, "c.json: unknown torch_dtype 'float8'"),
    ({"torch_dtype": 16}, "torch_dtype must be a string, got 16"),
    ({"quantization_config": 8}, "quantization_config must be an object"),
    ({"quantization_config": {}}, "quantization_config: field quant_method is missing"),
    (
        {"quantization_config": {"quant_method": "bitsandbytes"}},
        "config: unknown quant_method 'bitsand",
    ),
    ({"quantization_config": {"quant_method": "gptq"}}, "quantization_config: field bits is miss"),
]


@pytest.mark.parametrize(("change", "message"), REFUSALS)
def test_refusals_name_the_file_and_the_field(
    change: dict[str, Any], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("c.json").write_text(json.dumps({**LLAMA, **change}))
    with pytest.raises(ValueError, match=message) as caught:
        Model.from_config("c.json")
    assert "c.json" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("qwen3-30b-a3b", {"num_experts_per_tok": 200}, "num_experts_per_tok must be at most 128"),
        ("qwen3-30b-a3b", {"num_experts": None}, "field num_experts is missing"),
        ("qwen3-30b-a3b", {"mlp_only_layers": 3}, "mlp_only_layers must be a list"),
        ("qwen3-8b", {"use_sliding_window": True}, "field max_window_layers is missing"),
        (
            "qwen3-8b",
            {"use_sliding_window": True, "max_window_layers": 9},
            "field sliding_window is missing",
        ),
        ("gpt-oss-20b", {"layer_types": ["full_attention"]}, "1 entries for 24 layers"),
        ("gpt-oss-20b", {"layer_types": ["chunked"] * 24}, "layer_types must hold .* got 'chunk"),
        ("gpt-oss-20b", {"layer_types": "full"}, "layer_types must hold"),
        ("gpt-oss-20b", {"layer_types": [["x"]]}, "layer_types must hold"),
        ("gemma-3-27b", {"text_config": [1]}, "text_config must be an object"),
        ("llama-3-8b", {**QWEN_MOE, "use_sliding_window": True}, "not supported for qwen2_moe"),
        ("deepseek-v3", {"kv_lora_rank": None}, "field kv_lora_rank is missing"),
        ("deepseek-v3", {"first_k_dense_replace": None}, "field first_k_dense_replace is missing"),
        ("llama-3-8b", {"num_attention_heads": 0}, "num_attention_heads must be an integer"),
    ],
)
def test_refusals_of_other_architectures(name: str, change: dict[str, Any], message: str) -> None:
    config = copy.deepcopy(CONFIGS[name])
    with pytest.raises(ValueError, match=message):
        Model.from_config({**config, **change})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "line 1: not JSON"),
        (b'{\n"model_type": "llama",\n}', r"line [23]: not JSON"),
        (b"[1, 2]", "expected a JSON object, got list"),
        (b"\xff\xfe", "not UTF-8"),
        (
            gzip.compress(b'{"model_type": "llama"}' * 50, mtime=0)[:-12],
            "compressed file is damaged",
        ),
    ],
    ids=["empty", "a trailing comma", "a list", "not text", "cut gzip"],
)
def test_broken_files(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "broken.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message) as caught:
        Model.from_config(path)
    assert "broken.json" in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_hidden_layers": 10**9}, "num_hidden_layers must be at most 10,000"),
        ({"hidden_size": 10**400}, r"hidden_size must be an integer >= 1, got 1000.*\.\.\."),
        (
            {"quantization_config": {"quant_method": "gptq", "bits": 10**6}},
            "bits must be at most 16",
        ),
    ],
)
def test_absurd_sizes_are_refused(change: dict, message: str) -> None:
    config = {
        "model_type": "llama",
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "vocab_size": 100,
    }
    Model.from_config(config)
    with pytest.raises(ValueError, match=message):
        Model.from_config(config | change)


@pytest.mark.parametrize(
    "content",
    [b'{"a":' * 100_000, b"\x1f\x8b" + bytes(range(200))],
    ids=["nested too deeply", "damaged gzip"],
)
def test_damaged_configs_are_named(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "broken.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"broken\.json"):
        Model.from_config(path)
