"""A decoder of the Llama family in float64, one token, one head and one slot at a time."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np


def forward(
    params: Mapping[str, np.ndarray],
    config: Mapping[str, Any],
    ids: np.ndarray,
    positions: np.ndarray,
    segment_ids: np.ndarray | None = None,
    cartridge: Mapping[str, np.ndarray] | None = None,
) -> np.ndarray:
    """Logits of the next token after each token.

    A layer is x + attention(norm(x)), then y + down(silu(gate(norm(y))) * up(norm(y))).

    Args:
      params: arrays by their full names, "layers.query" [L, D, H K] and so on; products [in, out].
        Biases, query and key norms and the head count where they are there.
      config: layers, heads, kv_heads, head_dim, norm_eps, rope_theta, rope_factor and rope_llama3
        (factor, low, high, original, or None).
      ids: [B, T] tokens.
      positions: [B, T] of each for its rotation.
      segment_ids: [B, T]; a token sees those before it that have its number.
      cartridge: keys and values [L, G, P, K], and, where they are there and not None, bias and
        mask [L, G, P].

    Returns:
      [B, T, V].
    """
    arrays = {name: np.asarray(array, np.float64) for name, array in params.items()}
    head = arrays.get("head", arrays["embedding"])
    rows = []
    for b in range(len(ids)):
        same = np.zeros(len(ids[b])) if segment_ids is None else np.asarray(segment_ids[b])
        stream = arrays["embedding"][ids[b]]  # [T, D]
        for layer in range(config["layers"]):
            weights = {
                name.removeprefix("layers."): array[layer]
                for name, array in arrays.items()
                if name.startswith("layers.")
            }
            slots = {
                name: np.asarray(array[layer], np.float64)
                for name, array in (cartridge or {}).items()
                if array is not None
            }
            stream = _layer(weights, config, stream, positions[b], same, slots)
        rows.append(_rms_norm(stream, arrays["norm"], config["norm_eps"]) @ head.T)
    return np.stack(rows)


def _layer(
    weights: Mapping[str, np.ndarray],
    config: Mapping[str, Any],
    stream: np.ndarray,
    positions: np.ndarray,
    same: np.ndarray,
    slots: Mapping[str, np.ndarray],
) -> np.ndarray:
    normed = _rms_norm(stream, weights["attention_norm"], config["norm_eps"])
    query = _heads(weights, config, "query", config["heads"], normed, positions)
    keys = _heads(weights, config, "key", config["kv_heads"], normed, positions)
    values = _heads(weights, config, "value", config["kv_heads"], normed, positions)
    found = np.zeros_like(query)  # [T, H, K]
    for t in range(len(stream)):
        for h in range(config["heads"]):
            g = h // (config["heads"] // config["kv_heads"])
            found[t, h] = _read(config, query[t, h], keys[:, g], values[:, g], t, same, slots, g)
    stream = stream + found.reshape(len(stream), -1) @ weights["output"]
    normed = _rms_norm(stream, weights["feed_forward_norm"], config["norm_eps"])
    gate = normed @ weights["gate"]
    gated = gate / (1 + np.exp(-gate)) * (normed @ weights["up"])
    return stream + gated @ weights["down"]


def _read(
    config: Mapping[str, Any],
    query: np.ndarray,
    keys: np.ndarray,
    values: np.ndarray,
    t: int,
    same: np.ndarray,
    slots: Mapping[str, np.ndarray],
    g: int,
) -> np.ndarray:
    """Softmax attention of token t over slots and over its segment's tokens up to itself."""
    scale = 1 / math.sqrt(config["head_dim"])
    logits, read = [], []
    if slots:
        for p in range(slots["keys"].shape[1]):
            if "mask" not in slots or slots["mask"][g, p]:
                bias = slots["bias"][g, p] if "bias" in slots else 0.0
                logits.append(scale * float(query @ slots["keys"][g, p]) + bias)
                read.append(slots["values"][g, p])
    for s in range(t + 1):
        if same[s] == same[t]:
            logits.append(scale * float(query @ keys[s]))
            read.append(values[s])
    top = max(logits)
    shares = [math.exp(logit - top) for logit in logits]
    total = math.fsum(shares)
    return np.sum([share / total * value for share, value in zip(shares, read)], axis=0)


def _heads(
    weights: Mapping[str, np.ndarray],
    config: Mapping[str, Any],
    name: str,
    heads: int,
    normed: np.ndarray,
    positions: np.ndarray,
) -> np.ndarray:
    """[T, heads, K] queries, keys or values."""
    made = normed @ weights[name] + weights.get(f"{name}_bias", 0.0)
    made = made.reshape(len(normed), heads, config["head_dim"])
    if f"{name}_norm" in weights:
        made = _rms_norm(made, weights[f"{name}_norm"], config["norm_eps"])
    if name != "value":
        for t, h in np.ndindex(*made.shape[:2]):
            made[t, h] = _rotated(config, made[t, h], int(positions[t]))
    return made


def _rotated(config: Mapping[str, Any], vector: np.ndarray, position: int) -> np.ndarray:
    """Numbers i and i + K / 2 turned by position times the speed of the pair."""
    half = len(vector) // 2
    turned = np.empty_like(vector)
    for i in range(half):
        angle = position * _speed(config, i)
        first, second = vector[i], vector[i + half]
        turned[i] = first * math.cos(angle) - second * math.sin(angle)
        turned[i + half] = second * math.cos(angle) + first * math.sin(angle)
    return turned


def _speed(config: Mapping[str, Any], pair: int) -> float:
    """Radians a position of a pair, after linear or Llama 3's scaling."""
    speed = config["rope_theta"] ** (-2 * pair / config["head_dim"]) / config["rope_factor"]
    if config["rope_llama3"] is None:
        return speed
    factor, low, high, original = config["rope_llama3"]
    wave = 2 * math.pi / speed
    if wave > original / low:
        return speed / factor
    if wave < original / high:
        return speed
    share = (original / wave - low) / (high - low)
    return (1 - share) * speed / factor + share * speed


def _rms_norm(rows: np.ndarray, weight: np.ndarray, eps: float) -> np.ndarray:
    """x / sqrt(mean(x^2) + eps) * w."""
    return rows / np.sqrt(np.mean(rows**2, axis=-1, keepdims=True) + eps) * weight
