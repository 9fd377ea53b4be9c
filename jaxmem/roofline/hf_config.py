"""Reading a Hugging Face config.json; an architecture that is not known here is refused.

The rules are those of the `transformers` classes of the same model_type. A field that the cost
depends on must be there: only the defaults that published configs rely on are filled in.
"""

import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from jaxmem.roofline.hf_fields import Fields, Precision, hint, load
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
        source, content = str(path), load(path)
        if name is None and path.name == "config.json":
            name = path.resolve().parent.name
    fields = Fields(content, source)
    kind = fields.text("model_type")
    if "text_config" in content and kind == "gemma3":
        inner = content["text_config"]
        if not isinstance(inner, Mapping):
            raise ValueError(f"{source}: text_config must be an object, got {inner!r}")
        # What is said outside, such as the quantization, holds for the inner config too.
        fields = Fields({**content, **inner}, source)
    if kind not in _BUILDERS:
        raise ValueError(f"{source}: unknown model_type {kind!r}{hint(kind, _BUILDERS)}")
    return _BUILDERS[kind](fields, name or kind)


def _stack(
    fields: Fields,
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
    fields: Fields, head_dim: int | None = None, kv_required: bool = True
) -> tuple[int, ...]:
    """(layers, hidden, heads, kv_heads, head_dim) of ordinary attention."""
    layers = fields.layers()
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


def _projections(shape: tuple[int, ...], precision: Precision) -> list[Linear]:
    """Merged query, key and value product, and the output product, as engines run them."""
    layers, hidden, heads, kv_heads, head_dim = shape
    return [
        _linear(layers, hidden, (heads + 2 * kv_heads) * head_dim, precision),
        _linear(layers, heads * head_dim, hidden, precision),
    ]


def _linear(count: int, inputs: int, outputs: int, precision: Precision) -> Linear:
    return Linear(
        float(count), float(inputs), float(outputs), precision.dense, compute=precision.compute
    )


def _mlp(count: int, hidden: int, width: int, precision: Precision) -> list[Linear]:
    """A gated MLP: gate and up in one product, then down."""
    return [
        _linear(count, hidden, 2 * width, precision),
        _linear(count, width, hidden, precision),
    ]


def _experts(
    count: int, hidden: int, width: int, experts: int, active: int, precision: Precision
) -> list[Linear]:
    """The router in full precision and gated MLPs of which each token passes `active`."""
    shape = (precision.experts, float(experts), float(active), precision.compute)
    return [
        Linear(float(count), float(hidden), float(experts), precision.plain),
        Linear(float(count), float(hidden), 2.0 * width, *shape),
        Linear(float(count), float(width), float(hidden), *shape),
    ]


def _chosen(fields: Fields, experts: int) -> int:
    active = fields.integer("num_experts_per_tok")
    if active > experts:
        raise ValueError(
            f"{fields.source}: num_experts_per_tok must be at most {experts}, got {active}"
        )
    return active


def _llama(fields: Fields, name: str) -> Model:
    shape = layers, hidden, heads, kv_heads, head_dim = _shape(fields, kv_required=False)
    precision = Precision(fields)
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


def _mistral(fields: Fields, name: str) -> Model:
    # The class's default window is 4,096; null means none. Phi-3 and Mixtral default to none.
    default = 4096 if fields.text("model_type") == "mistral" else None
    window = fields.content.get("sliding_window", default)
    window = math.inf if window is None else fields.integer("sliding_window", default)
    shape = layers, hidden, heads, kv_heads, head_dim = _shape(fields)
    precision = Precision(fields)
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


def _qwen(fields: Fields, name: str) -> Model:
    kind = fields.text("model_type")
    shape = layers, hidden, heads, kv_heads, head_dim = _shape(
        fields, head_dim=128 if kind == "qwen3" else None
    )
    precision = Precision(fields)
    slides = fields.flag("use_sliding_window", False)
    if slides and kind == "qwen2_moe":
        raise ValueError(f"{fields.source}: use_sliding_window is not supported for qwen2_moe")
    given = kind == "qwen3_moe" or not slides or fields.has("layer_types")
    first = 0 if given else fields.integer("max_window_layers", low=0)
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


def _qwen_experts(fields: Fields, layers: int, hidden: int, precision: Precision) -> list[Linear]:
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


def _gemma3(fields: Fields, name: str) -> Model:
    shape = layers, hidden, heads, kv_heads, head_dim = _shape(fields)
    precision = Precision(fields)
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


def _deepseek(fields: Fields, name: str) -> Model:
    layers = fields.layers()
    hidden = fields.integer("hidden_size")
    heads = fields.integer("num_attention_heads")
    precision = Precision(fields)
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


def _gpt_oss(fields: Fields, name: str) -> Model:
    shape = layers, hidden, heads, kv_heads, head_dim = _shape(fields)
    precision = Precision(fields)
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


_BUILDERS: dict[str, Callable[[Fields, str], Model]] = {
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
