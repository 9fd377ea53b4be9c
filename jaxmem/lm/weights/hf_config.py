"""A Hugging Face config.json as the shape of a decoder; what would change the maths is refused.

The rules and defaults are those of the `transformers` classes Llama, Mistral, Qwen2 and Qwen3,
versions 4 and 5. A field is read here, known to be harmless, or off; any other is refused by name.
"""

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jaxmem.common.safetensors_header import short
from jaxmem.lm.config import Config, Llama3Scaling
from jaxmem.roofline.hf_fields import Fields, hint, load

_KINDS: dict[str, dict[str, Any]] = {
    "llama": {},
    "mistral": {},
    "qwen2": {"qkv_bias": True},
    "qwen3": {"qk_norm": True},
}
_READ = {
    "model_type",
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "hidden_act",
    "max_position_embeddings",
    "rms_norm_eps",
    "rope_theta",
    "rope_scaling",
    "rope_parameters",
    "tie_word_embeddings",
    "sliding_window",
    "layer_types",
    "quantization_config",
}
_HARMLESS = {  # of training, of generating, of bookkeeping
    "_attn_implementation",
    "_attn_implementation_autoset",
    "_name_or_path",
    "architectures",
    "attention_dropout",
    "attn_implementation",
    "bad_words_ids",
    "begin_suppress_tokens",
    "bos_token_id",
    "chunk_size_feed_forward",
    "decoder_start_token_id",
    "diversity_penalty",
    "do_sample",
    "dtype",
    "early_stopping",
    "embd_pdrop",
    "encoder_no_repeat_ngram_size",
    "eos_token_id",
    "exponential_decay_length_penalty",
    "finetuning_task",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "hidden_dropout",
    "id2label",
    "initializer_range",
    "is_decoder",
    "is_llama_config",
    "keys_to_ignore_at_inference",
    "label2id",
    "length_penalty",
    "max_length",
    "max_window_layers",
    "min_length",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_return_sequences",
    "output_attentions",
    "output_hidden_states",
    "output_scores",
    "pad_token_id",
    "prefix",
    "pretraining_tp",
    "problem_type",
    "remove_invalid_values",
    "repetition_penalty",
    "resid_pdrop",
    "return_dict",
    "return_dict_in_generate",
    "sep_token_id",
    "suppress_tokens",
    "task_specific_params",
    "temperature",
    "tf_legacy_loss",
    "tokenizer_class",
    "top_k",
    "top_p",
    "torch_dtype",
    "torchscript",
    "transformers.js_config",
    "transformers_version",
    "typical_p",
    "unsloth_fixed",
    "unsloth_version",
    "use_bfloat16",
    "use_cache",
}
_ONE = (  # off at 1 rather than at 0
    "embedding_multiplier",
    "logit_scale",
    "logits_scaling",
    "partial_rotary_factor",
    "residual_multiplier",
)
_ROPE: dict[str, tuple[str, ...]] = {  # fields of each kind of scaling
    "default": (),
    "linear": ("factor",),
    "llama3": (
        "factor",
        "low_freq_factor",
        "high_freq_factor",
        "original_max_position_embeddings",
    ),
}


def decoder_config(config: str | os.PathLike[str] | Mapping[str, Any]) -> Config:
    """The shape that a Hugging Face config describes: llama, mistral, qwen2 or qwen3.

    With Mistral's sliding window, positions end where it would begin to forget: up to there the
    maths is that of full attention.

    Args:
      config: path of a config.json or of its folder, or its content.

    Returns:
      The shape.

    Raises:
      ValueError: naming the file and the field that is wrong, unknown or not supported.
      OSError: if the file cannot be read.
    """
    if isinstance(config, Mapping):
        source, content = "config.json", config
    else:
        path = Path(config)
        path = path / "config.json" if path.is_dir() else path
        source, content = str(path), load(path)
    fields = Fields(content, source)
    kind = fields.text("model_type")
    if kind not in _KINDS:
        raise ValueError(f"{source}: unknown model_type {kind!r}{hint(kind, _KINDS)}")
    _check_fields(fields)
    heads, hidden = fields.integer("num_attention_heads"), fields.integer("hidden_size")
    layers = fields.layers()
    _check_layer_types(fields, layers)
    positions = fields.integer("max_position_embeddings")
    if kind == "mistral" and fields.content.get("sliding_window", 4096) is not None:
        positions = min(positions, fields.integer("sliding_window", 4096))  # the class's default
    null = kind == "llama" or "num_key_value_heads" in content
    try:
        return Config(
            vocabulary=fields.integer("vocab_size"),
            hidden=hidden,
            layers=layers,
            heads=heads,
            kv_heads=fields.integer("num_key_value_heads", heads if null else None),
            head_dim=_head_dim(fields, kind, hidden, heads),
            feed_forward=fields.integer("intermediate_size"),
            positions=positions,
            norm_eps=_number(content, "rms_norm_eps", source, 1e-6),
            tied=fields.flag("tie_word_embeddings", False),
            **_KINDS[kind],
            **_rope(fields),
        )
    except ValueError as error:
        line = str(error)
        raise ValueError(line if line.startswith(source) else f"{source}: {line}") from error


def _check_fields(fields: Fields) -> None:
    """Refuse what is not read, not harmless and not off."""
    for name, value in fields.content.items():
        if name in _READ or name in _HARMLESS or _off(name, value):
            continue
        raise ValueError(
            f"{fields.source}: unknown field {short(name)} = {short(value)}: it may change the "
            "maths"
        )
    if fields.has("quantization_config"):
        raise ValueError(
            f"{fields.source}: quantization_config is not supported: only weights of "
            "float32, float16 and bfloat16 are read"
        )
    activation = fields.text("hidden_act", "silu")
    if activation not in ("silu", "swish"):
        raise ValueError(f"{fields.source}: expected hidden_act 'silu', got {short(activation)}")


def _off(name: str, value: Any) -> bool:
    if value is None or value is False or (isinstance(value, (list, dict, str)) and not value):
        return True
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return number and value == (1 if name in _ONE else 0)


def _check_layer_types(fields: Fields, layers: int) -> None:
    types = fields.content.get("layer_types")
    if types is None:
        return
    if not isinstance(types, list) or len(types) != layers:
        raise ValueError(
            f"{fields.source}: expected layer_types of {layers} layers, got {short(types)}"
        )
    for kind in types:
        if kind != "full_attention":
            raise ValueError(
                f"{fields.source}: expected layer_types of full_attention, got {short(kind)}"
            )


def _head_dim(fields: Fields, kind: str, hidden: int, heads: int) -> int:
    if fields.has("head_dim"):
        return fields.integer("head_dim")
    if kind == "qwen3" and "head_dim" not in fields.content:
        return 128  # the class's default
    if hidden % heads:
        raise ValueError(f"expected hidden_size in {heads} heads alike, got {hidden}")
    return hidden // heads


def _rope(fields: Fields) -> dict[str, Any]:
    """Base and scaling of the rotary frequencies, in the spelling of transformers 4 or 5."""
    content, source = fields.content, fields.source
    old, new = content.get("rope_scaling"), content.get("rope_parameters")
    if old is not None and new is not None and old != new:
        raise ValueError(f"{source}: expected rope_scaling or rope_parameters, got both")
    name = "rope_scaling" if new is None else "rope_parameters"
    inner = {} if old is None and new is None else old if new is None else new
    if not isinstance(inner, Mapping):
        raise ValueError(f"{source}: expected {name} as an object, got {short(inner)}")
    source = f"{source}: {name}"
    named = [inner[key] for key in ("rope_type", "type") if inner.get(key) is not None]
    kind = named[0] if named else "default"
    if any(other != kind for other in named):
        raise ValueError(f"{source}: expected one rope_type, got {short(named)}")
    if not isinstance(kind, str) or kind not in _ROPE:
        raise ValueError(f"{source}: expected a rope_type of {', '.join(_ROPE)}, got {short(kind)}")
    for key, value in inner.items():
        if key not in ("rope_type", "type", "rope_theta", *_ROPE[kind]) and not _off(key, value):
            raise ValueError(
                f"{source}: unknown field {short(key)} = {short(value)}: it may change the maths"
            )
    theta = _number(content, "rope_theta", fields.source, 10_000.0)
    inside = _number(inner, "rope_theta", source, theta)
    if content.get("rope_theta") is not None and inside != theta:
        raise ValueError(f"{source}: expected rope_theta {theta} as outside, got {inside}")
    found: dict[str, Any] = {"rope_theta": inside}
    if kind == "linear":
        found["rope_factor"] = _number(inner, "factor", source)
    if kind == "llama3":
        length = Fields(inner, source).integer("original_max_position_embeddings")
        factor, low, high = (_number(inner, key, source) for key in _ROPE["llama3"][:3])
        scaling = Llama3Scaling(factor, low, high, length)
        if scaling.low >= scaling.high:
            raise ValueError(
                f"{source}: expected low_freq_factor below high_freq_factor, got {scaling.low} "
                f"and {scaling.high}"
            )
        found["rope_llama3"] = scaling
    return found


def _number(
    content: Mapping[str, Any], key: str, source: str, default: float | None = None
) -> float:
    """A number above 0; `default` where it is absent or null."""
    value = content.get(key)
    value = default if value is None else value
    if value is None:
        raise ValueError(f"{source}: field {key} is missing")
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not 0 < value < math.inf or value > 1e30:
        raise ValueError(f"{source}: {key} must be a number above 0, got {short(value)}")
    return float(value)
