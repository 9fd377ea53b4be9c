"""config.json as the shape of a decoder: published ones, every refusal by name."""

import json
from pathlib import Path
from typing import Any

import pytest

from jaxmem.lm.config import Config, Llama3Scaling
from jaxmem.lm.weights.hf_config import decoder_config

SMALL = {
    "model_type": "llama",
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}
SMOLLM2 = {  # as published, with what its authors left in it
    "architectures": ["LlamaForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "hidden_act": "silu",
    "hidden_size": 576,
    "initializer_range": 0.041666666666666664,
    "intermediate_size": 1536,
    "is_llama_config": True,
    "max_position_embeddings": 8192,
    "mlp_bias": False,
    "model_type": "llama",
    "num_attention_heads": 9,
    "num_hidden_layers": 30,
    "num_key_value_heads": 3,
    "pad_token_id": 2,
    "pretraining_tp": 1,
    "rms_norm_eps": 1e-05,
    "rope_interleaved": False,
    "rope_scaling": None,
    "rope_theta": 100000,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "transformers.js_config": {"kv_cache_dtype": {"q4f16": "float16"}},
    "transformers_version": "4.42.3",
    "use_cache": True,
    "vocab_size": 49152,
}
LLAMA_3_2 = {
    "architectures": ["LlamaForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 128000,
    "eos_token_id": [128001, 128008, 128009],
    "head_dim": 64,
    "hidden_act": "silu",
    "hidden_size": 2048,
    "initializer_range": 0.02,
    "intermediate_size": 8192,
    "max_position_embeddings": 131072,
    "mlp_bias": False,
    "model_type": "llama",
    "num_attention_heads": 32,
    "num_hidden_layers": 16,
    "num_key_value_heads": 8,
    "pretraining_tp": 1,
    "rms_norm_eps": 1e-05,
    "rope_scaling": {
        "factor": 32.0,
        "high_freq_factor": 4.0,
        "low_freq_factor": 1.0,
        "original_max_position_embeddings": 8192,
        "rope_type": "llama3",
    },
    "rope_theta": 500000.0,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "transformers_version": "4.45.0.dev0",
    "use_cache": True,
    "vocab_size": 128256,
}
QWEN_2_5 = {
    "architectures": ["Qwen2ForCausalLM"],
    "attention_dropout": 0.0,
    "bos_token_id": 151643,
    "eos_token_id": 151645,
    "hidden_act": "silu",
    "hidden_size": 896,
    "initializer_range": 0.02,
    "intermediate_size": 4864,
    "max_position_embeddings": 32768,
    "max_window_layers": 21,
    "model_type": "qwen2",
    "num_attention_heads": 14,
    "num_hidden_layers": 24,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-06,
    "rope_theta": 1000000.0,
    "sliding_window": 32768,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "transformers_version": "4.43.1",
    "use_cache": True,
    "use_sliding_window": False,
    "vocab_size": 151936,
}
QWEN_3 = {  # written by transformers 5
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": None,
    "dtype": "bfloat16",
    "eos_token_id": None,
    "head_dim": 128,
    "hidden_act": "silu",
    "hidden_size": 1024,
    "initializer_range": 0.02,
    "intermediate_size": 3072,
    "layer_types": ["full_attention"] * 28,
    "max_position_embeddings": 40960,
    "max_window_layers": 28,
    "model_type": "qwen3",
    "num_attention_heads": 16,
    "num_hidden_layers": 28,
    "num_key_value_heads": 8,
    "pad_token_id": None,
    "rms_norm_eps": 1e-06,
    "rope_parameters": {"rope_theta": 1000000, "rope_type": "default"},
    "sliding_window": None,
    "tie_word_embeddings": True,
    "transformers_version": "5.24.0",
    "use_cache": True,
    "use_sliding_window": False,
    "vocab_size": 151936,
}
MISTRAL = {
    "architectures": ["MistralForCausalLM"],
    "bos_token_id": 1,
    "eos_token_id": 2,
    "hidden_act": "silu",
    "hidden_size": 4096,
    "initializer_range": 0.02,
    "intermediate_size": 14336,
    "max_position_embeddings": 32768,
    "model_type": "mistral",
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-05,
    "rope_theta": 10000.0,
    "sliding_window": 4096,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "transformers_version": "4.34.0.dev0",
    "use_cache": True,
    "vocab_size": 32000,
}
# What transformers 4.57 and 5.24 write with use_diff=False: every field of the base class.
BASE = {
    "return_dict": True,
    "output_hidden_states": False,
    "torchscript": False,
    "dtype": "float32",
    "torch_dtype": None,
    "pruned_heads": {},
    "tie_encoder_decoder": False,
    "chunk_size_feed_forward": 0,
    "is_encoder_decoder": False,
    "is_decoder": False,
    "cross_attention_hidden_size": None,
    "add_cross_attention": False,
    "finetuning_task": None,
    "id2label": {"0": "LABEL_0", "1": "LABEL_1"},
    "label2id": {"LABEL_0": 0, "LABEL_1": 1},
    "task_specific_params": None,
    "problem_type": None,
    "tokenizer_class": None,
    "prefix": None,
    "sep_token_id": None,
    "decoder_start_token_id": None,
    "max_length": 20,
    "min_length": 0,
    "do_sample": False,
    "early_stopping": False,
    "num_beams": 1,
    "num_beam_groups": 1,
    "diversity_penalty": 0.0,
    "temperature": 1.0,
    "top_k": 50,
    "top_p": 1.0,
    "typical_p": 1.0,
    "repetition_penalty": 1.0,
    "length_penalty": 1.0,
    "no_repeat_ngram_size": 0,
    "encoder_no_repeat_ngram_size": 0,
    "bad_words_ids": None,
    "num_return_sequences": 1,
    "output_scores": False,
    "return_dict_in_generate": False,
    "forced_bos_token_id": None,
    "forced_eos_token_id": None,
    "remove_invalid_values": False,
    "exponential_decay_length_penalty": None,
    "suppress_tokens": None,
    "begin_suppress_tokens": None,
    "tf_legacy_loss": False,
    "use_bfloat16": False,
    "_name_or_path": "",
    "output_attentions": False,
}
LLAMA3 = LLAMA_3_2["rope_scaling"]


@pytest.mark.parametrize(
    ("content", "wanted"),
    [
        (
            SMOLLM2,
            Config(49152, 576, 30, 9, 3, 64, 1536, 8192, rope_theta=1e5, tied=True),
        ),
        (
            LLAMA_3_2,
            Config(
                128256,
                2048,
                16,
                32,
                8,
                64,
                8192,
                131072,
                rope_theta=5e5,
                rope_llama3=Llama3Scaling(32.0, 1.0, 4.0, 8192),
                tied=True,
            ),
        ),
        (
            QWEN_2_5,
            Config(
                151936,
                896,
                24,
                14,
                2,
                64,
                4864,
                32768,
                norm_eps=1e-6,
                rope_theta=1e6,
                qkv_bias=True,
                tied=True,
            ),
        ),
        (
            QWEN_3,
            Config(
                151936,
                1024,
                28,
                16,
                8,
                128,
                3072,
                40960,
                norm_eps=1e-6,
                rope_theta=1e6,
                qk_norm=True,
                tied=True,
            ),
        ),
        (MISTRAL, Config(32000, 4096, 32, 32, 8, 128, 14336, 4096)),
    ],
    ids=["smollm2", "llama-3.2", "qwen2.5", "qwen3", "mistral"],
)
def test_published_configs(content: dict[str, Any], wanted: Config, tmp_path: Path) -> None:
    assert decoder_config(content) == wanted
    assert decoder_config(BASE | content) == wanted
    (tmp_path / "config.json").write_text(json.dumps(content))
    assert decoder_config(tmp_path) == decoder_config(tmp_path / "config.json") == wanted


def test_defaults_of_the_classes() -> None:
    config = decoder_config(SMALL)
    assert (config.norm_eps, config.rope_theta, config.tied) == (1e-6, 1e4, False)
    assert (config.head_dim, config.qkv_bias, config.qk_norm) == (8, False, False)
    assert decoder_config(SMALL | {"num_key_value_heads": None}).kv_heads == 4
    assert decoder_config(SMALL | {"head_dim": 16}).head_dim == 16
    assert decoder_config(SMALL | {"head_dim": None}).head_dim == 8
    assert decoder_config(SMALL | {"model_type": "qwen3"}).head_dim == 128
    assert decoder_config(SMALL | {"model_type": "qwen2", "use_sliding_window": False}).qkv_bias


@pytest.mark.parametrize(
    ("window", "positions"), [(None, 32768), (4096, 4096), (10**6, 32768), ("absent", 4096)]
)
def test_mistrals_window_ends_the_positions(window: Any, positions: int) -> None:
    content = {**MISTRAL, "sliding_window": window}
    if window == "absent":
        del content["sliding_window"]
    assert decoder_config(content).positions == positions


@pytest.mark.parametrize(
    ("change", "theta", "factor", "llama3"),
    [
        ({}, 1e4, 1.0, None),
        ({"rope_theta": 5e5}, 5e5, 1.0, None),
        ({"rope_scaling": {"type": "linear", "factor": 2}, "rope_theta": 5e5}, 5e5, 2.0, None),
        ({"rope_scaling": {"type": "linear", "rope_type": "linear", "factor": 4.0}}, 1e4, 4, None),
        ({"rope_parameters": {"rope_theta": 7e4, "rope_type": "default"}}, 7e4, 1.0, None),
        ({"rope_parameters": {"rope_theta": 7e4}, "rope_theta": 7e4}, 7e4, 1.0, None),
        ({"rope_parameters": {"factor": 2.0, "rope_type": "linear"}}, 1e4, 2.0, None),
        (
            {"rope_parameters": {"rope_theta": 7e4, "partial_rotary_factor": 1.0} | LLAMA3},
            7e4,
            1.0,
            Llama3Scaling(32.0, 1.0, 4.0, 8192),
        ),
        ({"rope_scaling": LLAMA3}, 1e4, 1.0, Llama3Scaling(32.0, 1.0, 4.0, 8192)),
    ],
)
def test_rope_in_both_spellings(
    change: dict[str, Any], theta: float, factor: float, llama3: Llama3Scaling | None
) -> None:
    config = decoder_config(SMALL | change)
    assert (config.rope_theta, config.rope_factor, config.rope_llama3) == (theta, factor, llama3)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"model_type": "gemma2"}, "gemma2"),
        ({"model_type": "lama"}, "did you mean 'llama'"),
        ({"model_type": None}, "model_type"),
        ({"attention_bias": True}, "attention_bias"),
        ({"mlp_bias": True}, "mlp_bias"),
        ({"hidden_act": "gelu"}, "hidden_act"),
        ({"use_sliding_window": True}, "use_sliding_window"),
        ({"layer_types": ["full_attention"] * 2 + ["sliding_attention"]}, "layer_types"),
        ({"layer_types": ["full_attention"]}, "layer_types"),
        ({"layer_types": "full_attention"}, "layer_types"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ({"quantization_config": {"quant_method": "fp8"}}, "quantization_config"),
        ({"logit_scale": 0.0625}, "logit_scale"),
        ({"final_logit_softcapping": 30.0}, "final_logit_softcapping"),
        ({"attn_logit_softcapping": 50.0}, "attn_logit_softcapping"),
        ({"embedding_multiplier": 12.0}, "embedding_multiplier"),
        ({"residual_multiplier": 0.22}, "residual_multiplier"),
        ({"attention_multiplier": 1.0}, "attention_multiplier"),
        ({"logits_scaling": 8.0}, "logits_scaling"),
        ({"no_rope_layers": [1, 1, 0]}, "no_rope_layers"),
        ({"rope_interleaved": True}, "rope_interleaved"),
        ({"num_local_experts": 8}, "num_local_experts"),
        ({"auto_map": {"AutoModelForCausalLM": "modeling.Mine"}}, "auto_map"),
        ({"pruned_heads": {"0": [1]}}, "pruned_heads"),
        ({"something new": "on"}, "unknown field 'something new' = 'on'"),
        ({"line\nbreak": 2}, "unknown field"),
        ({"rope_scaling": {"type": "yarn", "factor": 4.0}}, "yarn"),
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 4.0}}, "dynamic"),
        ({"rope_scaling": {"rope_type": ["linear"]}}, "rope_type"),
        (
            {"rope_scaling": {"rope_type": "linear", "type": "default", "factor": 2}},
            "one rope_type",
        ),
        ({"rope_scaling": {"rope_type": "linear"}}, "factor"),
        ({"rope_scaling": {"rope_type": "linear", "factor": 0}}, "factor"),
        ({"rope_scaling": {"type": "default", "mrope_section": [16, 24, 24]}}, "mrope_section"),
        ({"rope_scaling": {"factor": 4.0}}, "factor"),
        ({"rope_scaling": LLAMA3 | {"low_freq_factor": 4.0}}, "low_freq_factor"),
        ({"rope_scaling": LLAMA3 | {"original_max_position_embeddings": None}}, "original_max"),
        ({"rope_scaling": LLAMA3 | {"attention_factor": 1.2}}, "attention_factor"),
        ({"rope_scaling": "linear"}, "rope_scaling"),
        ({"rope_parameters": {"full_attention": {"rope_type": "default"}}}, "full_attention"),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor"),
        ({"rope_parameters": {"rope_theta": 7e4}, "rope_theta": 1e4}, "rope_theta"),
        ({"rope_parameters": {"rope_theta": 7e4}, "rope_scaling": LLAMA3}, "got both"),
        ({"rope_theta": "1e4"}, "rope_theta"),
        ({"rope_theta": float("nan")}, "rope_theta"),
        ({"rms_norm_eps": -1.0}, "rms_norm_eps"),
        ({"rms_norm_eps": True}, "rms_norm_eps"),
        ({"vocab_size": None}, "vocab_size"),
        ({"hidden_size": 30}, "hidden_size"),
        ({"head_dim": 7}, "head_dim"),
        ({"num_key_value_heads": 3}, "kv_heads"),
        ({"num_hidden_layers": 10**6}, "num_hidden_layers"),
        ({"max_position_embeddings": "64"}, "max_position_embeddings"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings"),
    ],
    ids=str,
)
def test_refusals_name_the_field(change: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named) as caught:
        decoder_config(SMALL | change)
    assert str(caught.value).startswith("config.json: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"a": 1'])
def test_what_is_no_config(text: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(ValueError, match="config.json"):
        decoder_config(tmp_path)
