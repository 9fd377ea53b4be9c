"""Reading a Hugging Face config.json; an architecture that is not known here is refused.

The rules are those of the `transformers` classes of the same model_type. A field that the cost
depends on must be there: only the defaults that published configs rely on are filled in.
"""

import json
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from jaxmem.common import lookup, open_text
from jaxmem.roofline.models import Attention, Linear, Model, grouped_query, latent

_MIXED = "vision tower not counted"


def read_config(
    config: str | os.PathLike[str] | Mapping[str, Any], name: str | None = None
) -> Model:
    """The model that a Hugging Face config describes (see `Model.from_config`).

    Args:
      config: path of a config.json or of its folder, or its content.
      name: what to call it.

    Returns:
      The model.

    Raises:
      ValueError: naming the file, and the field, line or architecture that is wrong.
    """
    if isinstance(config, Mapping):
        source, content = name or "config", config
    else:
        path = Path(config)
        path = path / "config.json" if path.is_dir() else path
        source, content = str(path), _load(path)
        if name is None and path.name == "config.json":
            name = path.resolve().parent.name
    fields = _Fields(content, source)
    kind = fields.text("model_type")
    if "text_config" in content and kind == "gemma3":
        inner = content["text_config"]
        if not isinstance(inner, Mapping):
            raise ValueError(f"{source}: text_config must be an object, got {inner!r}")
        # What is said outside, such as the quantization, holds for the inner config too.
        fields = _Fields({**content, **inner}, source)
    build = lookup(_BUILDERS, kind, f"model_type in {source}:")
    return build(fields, name or kind)


def _load(path: Path) -> Mapping[str, Any]:
    try:
        with open_text(path) as file:
            content = json.load(file)
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}, line {error.lineno}: not JSON: {error.msg}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 text") from error
    except EOFError as error:
        raise ValueError(f"{path}: the compressed file is cut short") from error
    if not isinstance(content, Mapping):
        raise ValueError(f"{path}: expected a JSON object, got {type(content).__name__}")
    return content


class _Fields:
    """Typed access to the fields of one config, with the file and the field in every error."""

    def __init__(self, content: Mapping[str, Any], source: str) -> None:
        self.content, self.source = content, source

    def has(self, key: str) -> bool:
        """Whether the field is there and not null."""
        return self.content.get(key) is not None

    def integer(self, key: str, default: int | None = None, low: int = 1) -> int:
        """An integer of at least `low`; `default` where it is absent or null."""
        value = self.content.get(key)
        if value is None:
            if default is None:
                raise ValueError(f"{self.source}: field {key} is missing")
            return default
        whole = isinstance(value, (int, float)) and not isinstance(value, bool) and value % 1 == 0
        if not whole or value < low or value > 1e9:
            raise ValueError(f"{self.source}: {key} must be an integer >= {low}, got {value!r}")
        return int(value)

    def flag(self, key: str, default: bool) -> bool:
        """True or false; `default` where it is absent or null."""
        value = self.content.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise ValueError(f"{self.source}: {key} must be true or false, got {value!r}")
        return value

    def text(self, key: str, default: str | None = None) -> str:
        """A string; `default` where it is absent or null."""
        value = self.content.get(key)
        if value is None and default is not None:
            return default
        if value is None:
            raise ValueError(f"{self.source}: field {key} is missing")
        if not isinstance(value, str):
            raise ValueError(f"{self.source}: {key} must be a string, got {value!r}")
        return value

    def sliding(self, layers: int, rule: Callable[[int], bool], use_types: bool) -> int:
        """How many of the layers slide: by `layer_types` where it counts, else by `rule`."""
        types = self.content.get("layer_types") if use_types else None
        if types is None:
            return sum(rule(layer) for layer in range(layers))
        known = ("sliding_attention", "full_attention")
        if not isinstance(types, list) or any(t not in known for t in types):
            odd = next((t for t in types if t not in known), types) if types else types
            raise ValueError(f"{self.source}: layer_types must hold {known}, got {odd!r}")
        if len(types) != layers:
            raise ValueError(
                f"{self.source}: layer_types has {len(types)} entries for {layers} layers"
            )
        return types.count("sliding_attention")


class _Precision:
    """Bytes a weight and arithmetic of the quantised products, and of all the rest."""

    def __init__(self, fields: _Fields) -> None:
        key = "dtype" if fields.has("dtype") else "torch_dtype"
        # Engines run float32 checkpoints in 16 bits; a config that is silent is taken as bf16.
        lookup(
            {"float32": 2, "bfloat16": 2, "float16": 2},
            fields.text(key, "bfloat16"),
            f"{key} in {fields.source}:",
        )
        self.plain, self.dense, self.experts, self.compute = 2.0, 2.0, 2.0, "bf16"
        quantization = fields.content.get("quantization_config")
        if quantization is None:
            return
        if not isinstance(quantization, Mapping):
            raise ValueError(f"{fields.source}: quantization_config must be an object")
        inner = _Fields(quantization, f"{fields.source}: quantization_config")
        method = inner.text("quant_method")
        if method == "fp8":
            self.dense = self.experts = 1.0
            self.compute = "fp8"
        elif method == "mxfp4":
            self.experts = 4.25 / 8  # 4 bits and an 8-bit scale for 32 weights
        elif method in ("gptq", "awq"):
            self.dense = self.experts = inner.integer("bits") / 8
        else:
            lookup(dict.fromkeys(("fp8", "mxfp4", "gptq", "awq")), method, "quant_method")
            raise ValueError(f"{fields.source}: quant_method must be lower case, got {method!r}")


def _stack(
    fields: _Fields,
    name: str,
    attention: list[Attention],
    projections: list[Linear],
    feed_forward: list[Linear],
    other: float,
    tied: bool = False,
    vocabulary: int | None = None,
    notes: str = "",
) -> Model:
    """Embedding, layers and head; `other` counts norms and biases, the final norm left out."""
    hidden = fields.integer("hidden_size")
    words = fields.integer("vocab_size", vocabulary)
    tied = fields.flag("tie_word_embeddings", tied)
    return Model(
        attention=tuple(group for group in attention if group.count),
        linear=tuple(group for group in projections + feed_forward if group.count),
        head=Linear(1.0, float(hidden), float(words)),
        embedding=0.0 if tied else float(hidden * words),
        other=float(other + hidden),
        name=name,
        notes=notes,
    )


def _shape(
    fields: _Fields, head_dim: int | None = None, kv_required: bool = True
) -> tuple[int, ...]:
    """(layers, hidden, heads, kv_heads, head_dim) of ordinary attention."""
    layers = fields.integer("num_hidden_layers")
    hidden = fields.integer("hidden_size")
    heads = fields.integer("num_attention_heads")
    kv_heads = fields.integer("num_key_value_heads", None if kv_required else heads)
    if heads % kv_heads:
        raise ValueError(
            f"{fields.source}: num_key_value_heads must divide num_attention_heads,"
            f" got {kv_heads} and {heads}"
        )
    if not fields.has("head_dim") and head_dim is None and hidden % heads:
        raise ValueError(
            f"{fields.source}: without head_dim num_attention_heads must divide hidden_size,"
            f" got {heads} and {hidden}"
        )
    return layers, hidden, heads, kv_heads, fields.integer("head_dim", head_dim or hidden // heads)


def _windows(count: int, sliding: int, window: float, shape: tuple[int, ...]) -> list[Attention]:
    """The layers that attend to everything, and those that slide."""
    heads, kv_heads, head_dim = shape
    return [
        grouped_query(count - sliding, heads, kv_heads, head_dim),
        grouped_query(sliding, heads, kv_heads, head_dim, window),
    ]


def _projections(shape: tuple[int, ...], precision: _Precision) -> list[Linear]:
    """Merged query, key and value product, and the output product, as engines run them."""
    layers, hidden, heads, kv_heads, head_dim = shape
    return [
        _linear(layers, hidden, (heads + 2 * kv_heads) * head_dim, precision),
        _linear(layers, heads * head_dim, hidden, precision),
    ]


def _linear(count: int, inputs: int, outputs: int, precision: _Precision) -> Linear:
    return Linear(
        float(count), float(inputs), float(outputs), precision.dense, compute=precision.compute
    )


def _mlp(count: int, hidden: int, width: int, precision: _Precision) -> list[Linear]:
    """A gated MLP: gate and up in one product, then down."""
    return [
        _linear(count, hidden, 2 * width, precision),
        _linear(count, width, hidden, precision),
    ]


def _experts(
    count: int, hidden: int, width: int, experts: int, active: int, precision: _Precision
) -> list[Linear]:
    """The router in full precision and gated MLPs of which each token passes `active`."""
    shape = (precision.experts, float(experts), float(active), precision.compute)
    return [
        Linear(float(count), float(hidden), float(experts), precision.plain),
        Linear(float(count), float(hidden), 2.0 * width, *shape),
        Linear(float(count), float(width), float(hidden), *shape),
    ]


def _chosen(fields: _Fields, experts: int) -> int:
    active = fields.integer("num_experts_per_tok")
    if active > experts:
        raise ValueError(
            f"{fields.source}: num_experts_per_tok must be at most {experts}, got {active}"
        )
    return active


def _llama(fields: _Fields, name: str) -> Model:
    shape = layers, hidden, heads, kv_heads, head_dim = _shape(fields, kv_required=False)
    precision = _Precision(fields)
    width = fields.integer("intermediate_size")
    other = 2 * layers * hidden
    if fields.flag("attention_bias", False):
        other += layers * ((heads + 2 * kv_heads) * head_dim + hidden)
    if fields.flag("mlp_bias", False):
        other += layers * (2 * width + hidden)
    return _stack(
        fields,
        name,
        [grouped_query(layers, heads, kv_heads, head_dim)],
        _projections(shape, precision),
        _mlp(layers, hidden, width, precision),
        other,
    )


def _mistral(fields: _Fields, name: str) -> Model:
    # The class's default window is 4,096; null means none. Phi-3 and Mixtral default to none.
    default = 4096 if fields.text("model_type") == "mistral" else None
    window = fields.content.get("sliding_window", default)
    window = math.inf if window is None else fields.integer("sliding_window", default)
    shape = layers, hidden, heads, kv_heads, head_dim = _shape(fields)
    precision = _Precision(fields)
    width = fields.integer("intermediate_size")
    if fields.text("model_type") == "mixtral":
        experts = fields.integer("num_local_experts")
        feed = _experts(layers, hidden, width, experts, _chosen(fields, experts), precision)
    else:
        feed = _mlp(layers, hidden, width, precision)
    return _stack(
        fields,
        name,
        [grouped_query(layers, heads, kv_heads, head_dim, window)],
        _projections(shape, precision),
        feed,
        2 * layers * hidden,
    )


def _qwen(fields: _Fields, name: str) -> Model:
    kind = fields.text("model_type")
    shape = layers, hidden, heads, kv_heads, head_dim = _shape(
        fields, head_dim=128 if kind == "qwen3" else None
    )
    precision = _Precision(fields)
    slides = fields.flag("use_sliding_window", False)
    first = 0 if kind == "qwen3_moe" else fields.integer("max_window_layers", layers, low=0)
    sliding = fields.sliding(
        layers, lambda layer: slides and layer >= first, use_types=kind in ("qwen2", "qwen3")
    )
    window = fields.integer("sliding_window") if sliding else math.inf
    other = 2 * layers * hidden
    if kind in ("qwen3", "qwen3_moe"):
        other += 2 * layers * head_dim  # norms of query and key
        if fields.flag("attention_bias", False):
            other += layers * ((heads + 2 * kv_heads) * head_dim + hidden)
    else:
        other += layers * (heads + 2 * kv_heads) * head_dim  # biases of query, key and value
    if kind in ("qwen2", "qwen3"):
        feed = _mlp(layers, hidden, fields.integer("intermediate_size"), precision)
    else:
        feed = _qwen_experts(fields, layers, hidden, precision)
    return _stack(
        fields,
        name,
        _windows(layers, sliding, window, (heads, kv_heads, head_dim)),
        _projections(shape, precision),
        feed,
        other,
    )


def _qwen_experts(fields: _Fields, layers: int, hidden: int, precision: _Precision) -> list[Linear]:
    """Experts every `decoder_sparse_step` layers but in those of `mlp_only_layers`."""
    step = fields.integer("decoder_sparse_step", 1)
    dense_layers = fields.content.get("mlp_only_layers") or []
    if not isinstance(dense_layers, list) or not all(isinstance(i, int) for i in dense_layers):
        raise ValueError(
            f"{fields.source}: mlp_only_layers must be a list of layers, got {dense_layers!r}"
        )
    sparse = sum(i not in dense_layers and (i + 1) % step == 0 for i in range(layers))
    experts = fields.integer("num_experts")
    width = fields.integer("moe_intermediate_size")
    feed = _experts(sparse, hidden, width, experts, _chosen(fields, experts), precision)
    if fields.text("model_type") == "qwen2_moe":
        shared = fields.integer("shared_expert_intermediate_size")
        feed += _mlp(sparse, hidden, shared, precision)
        feed.append(Linear(float(sparse), float(hidden), 1.0, precision.plain))  # its gate
    if sparse < layers:
        width = fields.integer("intermediate_size")
        feed += _mlp(layers - sparse, hidden, width, precision)
    return feed


def _gemma3(fields: _Fields, name: str) -> Model:
    shape = layers, hidden, heads, kv_heads, head_dim = _shape(fields)
    precision = _Precision(fields)
    pattern = fields.integer("sliding_window_pattern", 6)
    sliding = fields.sliding(layers, lambda layer: (layer + 1) % pattern != 0, use_types=True)
    window = fields.integer("sliding_window") if sliding else math.inf
    other = layers * (4 * hidden + 2 * head_dim)
    if fields.flag("attention_bias", False):
        other += layers * ((heads + 2 * kv_heads) * head_dim + hidden)
    return _stack(
        fields,
        name,
        _windows(layers, sliding, window, (heads, kv_heads, head_dim)),
        _projections(shape, precision),
        _mlp(layers, hidden, fields.integer("intermediate_size"), precision),
        other,
        tied=True,
        vocabulary=262_208,
        notes=_MIXED if fields.content.get("vision_config") is not None else "",
    )


def _deepseek(fields: _Fields, name: str) -> Model:
    layers = fields.integer("num_hidden_layers")
    hidden = fields.integer("hidden_size")
    heads = fields.integer("num_attention_heads")
    precision = _Precision(fields)
    nope, rope = fields.integer("qk_nope_head_dim"), fields.integer("qk_rope_head_dim")
    v_dim, rank = fields.integer("v_head_dim"), fields.integer("kv_lora_rank")
    query = heads * (nope + rope)
    other = layers * (2 * hidden + rank)  # two norms and that of the latent
    # null means a full query projection; absent, the class's default rank.
    if "q_lora_rank" in fields.content and fields.content["q_lora_rank"] is None:
        projections = [_linear(layers, hidden, query + rank + rope, precision)]
    else:
        query_rank = fields.integer("q_lora_rank", 1536)
        projections = [
            _linear(layers, hidden, query_rank + rank + rope, precision),
            _linear(layers, query_rank, query, precision),
        ]
        other += layers * query_rank
    projections += [
        _linear(layers, rank, heads * (nope + v_dim), precision),
        _linear(layers, heads * v_dim, hidden, precision),
    ]
    dense = min(fields.integer("first_k_dense_replace", low=0), layers)
    sparse = layers - dense
    feed: list[Linear] = []
    if dense:
        feed += _mlp(dense, hidden, fields.integer("intermediate_size"), precision)
    if sparse:
        experts, width = fields.integer("n_routed_experts"), fields.integer("moe_intermediate_size")
        feed += _experts(sparse, hidden, width, experts, _chosen(fields, experts), precision)
        shared = fields.integer("n_shared_experts", 0, low=0)
        if shared:
            feed += _mlp(sparse, hidden, shared * width, precision)
        if fields.text("model_type") == "deepseek_v3":
            other += sparse * experts  # the router's correction bias
    notes = ""
    if fields.integer("num_nextn_predict_layers", 0, low=0):
        notes = "multi-token prediction layer not counted"
    return _stack(
        fields,
        name,
        [latent(layers, heads, rank, rope, nope, v_dim)],
        projections,
        feed,
        other,
        notes=notes,
    )


def _gpt_oss(fields: _Fields, name: str) -> Model:
    shape = layers, hidden, heads, kv_heads, head_dim = _shape(fields)
    precision = _Precision(fields)
    sliding = fields.sliding(layers, lambda layer: layer % 2 == 0, use_types=True)
    window = fields.integer("sliding_window") if sliding else math.inf
    experts, width = fields.integer("num_local_experts"), fields.integer("intermediate_size")
    other = layers * (2 * hidden + heads + experts * (1 + 2 * width + hidden))
    if fields.flag("attention_bias", True):
        other += layers * ((heads + 2 * kv_heads) * head_dim + hidden)
    return _stack(
        fields,
        name,
        _windows(layers, sliding, window, (heads, kv_heads, head_dim)),
        _projections(shape, precision),
        _experts(layers, hidden, width, experts, _chosen(fields, experts), precision),
        other,
    )


_BUILDERS: dict[str, Callable[[_Fields, str], Model]] = {
    "llama": _llama,
    "mistral": _mistral,
    "mixtral": _mistral,
    "phi3": _mistral,
    "qwen2": _qwen,
    "qwen3": _qwen,
    "qwen2_moe": _qwen,
    "qwen3_moe": _qwen,
    "gemma3": _gemma3,
    "gemma3_text": _gemma3,
    "deepseek_v2": _deepseek,
    "deepseek_v3": _deepseek,
    "gpt_oss": _gpt_oss,
}
