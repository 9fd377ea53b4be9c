"""The cost model as plain loops over tokens, steps, layers and products, in float64.

A model is a dict with lists "attention" and "linear" and a dict "head", as
`dataclasses.asdict` gives it; an accelerator is a dict too. Efficiency is {"mfu", "mbu"} or
{"gemm", "prefill", "decode"}, each a dict of fitted constants.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

Fields = Mapping[str, Any]


def parameters(model: Fields, of: str = "experts") -> float:
    """Weights of a model.

    Args:
      model: the model.
      of: "experts" to count all of them, "active" for those that a token passes.

    Returns:
      The number of weights.
    """
    total = float(model["embedding"] + model["other"])
    for group in [*model["linear"], model["head"]]:
        for _ in range(int(group["count"])):
            total += group[of] * group["inputs"] * group["outputs"]
    return total


def weight_bytes(model: Fields) -> float:
    """Bytes of all weights.

    Args:
      model: the model.

    Returns:
      Bytes.
    """
    total = float((model["embedding"] + model["other"]) * model["other_bytes"])
    for group in [*model["linear"], model["head"]]:
        weights = group["experts"] * group["inputs"] * group["outputs"]
        total += group["count"] * weights * group["weight_bytes"]
    return total


def kv_cache_bytes(model: Fields, tokens: float) -> float:
    """Bytes of the keys and values of a context.

    Args:
      model: the model.
      tokens: context length.

    Returns:
      Bytes.
    """
    total = 0.0
    for group in model["attention"]:
        for _ in range(int(group["count"])):
            total += min(tokens, group["window"]) * group["cached"] * model["kv_bytes"]
    return total


def prefill(
    model: Fields,
    device: Fields,
    tokens: int,
    cached: int,
    batch: float,
    efficiency: Fields,
) -> dict[str, float]:
    """Time to read prompts.

    Args:
      model, device: as above.
      tokens, cached: length of the prompt, and how much of it is cached.
      batch: prompts side by side.
      efficiency: as above.

    Returns:
      Seconds: linear_s, attention_s, memory_s, total_s.
    """
    cached = min(cached, tokens - 1)
    positions = np.arange(cached + 1, tokens + 1, dtype=np.float64)  # of the new tokens
    new = float(len(positions))
    linear = sum(_product(group, device, efficiency, batch * new) for group in model["linear"])
    linear += _product(model["head"], device, efficiency, batch)
    attention, moved = 0.0, _weights_read(model, batch * new)
    for group in model["attention"]:
        seen = np.minimum(positions, group["window"])
        own = np.minimum(positions - cached, group["window"])
        kept = min(cached, group["window"])
        read = batch * kept * group["cached"] * model["kv_bytes"]
        moved += group["count"] * (read + batch * new * group["cached"] * model["kv_bytes"])
        unit = 2.0 * batch * group["heads"] * (group["qk_dim"] + group["v_dim"])
        again = 2.0 * batch * kept * group["expansion"]
        if "mfu" in efficiency:
            flops = unit * seen.sum() + again
            attention += group["count"] * flops / (device["bf16_flops"] * efficiency["mfu"])
            continue
        c, gemm = efficiency["prefill"], efficiency["gemm"]
        width = (group["qk_dim"] + group["v_dim"]) / 2.0
        rows = max(1.0, new * group["heads"] / group["kv_heads"] / 128.0)
        idle = max(1.0, device["multiprocessors"] / (batch * group["kv_heads"] * rows))
        mfu = min(c["mfu"] * (1.0 + 64.0 / 128.0) / (1.0 + 64.0 / width), gemm["mfu"])
        speed = device["bf16_flops"] * mfu
        layer = c["launch_s"] + c["wave_s"] * _waves(batch * group["kv_heads"], device)
        layer += unit * new * (1.0 + group["kv_heads"] / group["heads"]) * c["edge_tokens"] / speed
        arithmetic = unit * (own.sum() * idle + (seen - own).sum()) / speed
        reading = read / (device["bytes_s"] * efficiency["decode"]["mbu"])
        layer += max(arithmetic, reading)
        layer += again / (device["bf16_flops"] * gemm["mfu"])
        attention += group["count"] * layer
    return _times(linear, attention, moved, device, efficiency)


def decode(
    model: Fields,
    device: Fields,
    context: float,
    new: int,
    batch: float,
    efficiency: Fields,
) -> dict[str, float]:
    """Time to generate, step by step.

    Args:
      model, device: as above.
      context: tokens cached before the first step.
      new: tokens to generate.
      batch: sequences side by side.
      efficiency: as above.

    Returns:
      Seconds: means of linear_s, attention_s, memory_s and step_s, and total_s.
    """
    steps = [step(model, device, context + i, 0.0, batch, efficiency) for i in range(1, new + 1)]
    mean = {key: sum(s[key] for s in steps) / new for key in steps[0]}
    mean["step_s"] = mean.pop("total_s")
    mean["total_s"] = sum(s["total_s"] for s in steps)
    return mean


def step(
    model: Fields,
    device: Fields,
    context: float,
    shared: float,
    batch: float,
    efficiency: Fields,
) -> dict[str, float]:
    """Time of one decode step.

    Args:
      model, device: as above.
      context: tokens that each sequence reads for itself, the new one among them.
      shared: tokens before those that are read once for all.
      batch: sequences side by side.
      efficiency: as above.

    Returns:
      Seconds: linear_s, attention_s, memory_s, total_s.
    """
    linear = sum(_product(group, device, efficiency, batch) for group in model["linear"])
    linear += _product(model["head"], device, efficiency, batch)
    attention, moved = 0.0, _weights_read(model, batch)
    for group in model["attention"]:
        own = min(context, group["window"])
        common = min(shared, max(group["window"] - own, 0.0))
        element = group["cached"] * model["kv_bytes"]
        moved += group["count"] * element * (batch * own + common + batch)
        widths = group["decode_qk_dim"] + group["decode_v_dim"]
        if "mfu" in efficiency:
            flops = 2.0 * batch * (own + common) * group["heads"] * widths
            attention += group["count"] * flops / (device["bf16_flops"] * efficiency["mfu"])
            continue
        c = efficiency["decode"]
        for caches, length in ((batch, own), (1.0, common)):
            if length == 0:
                continue
            nbytes = caches * length * element + 2.0 * batch * group["heads"] * widths
            mbu = c["mbu"] / (1.0 + (c["half_bytes"] / nbytes) ** c["ramp"])
            floor = c["launch_s"] + c["wave_s"] * _waves(caches * group["decode_kv_heads"], device)
            reading = _p_norm(floor, nbytes / (device["bytes_s"] * mbu), c["corner"])
            flops = 2.0 * batch * length * group["heads"] * widths
            arithmetic = flops / (device["bf16_flops"] * efficiency["gemm"]["mfu"])
            attention += group["count"] * max(reading, arithmetic)
    return _times(linear, attention, moved, device, efficiency)


def throughput(
    model: Fields,
    device: Fields,
    context: float,
    shared: float,
    answer: float,
    devices: float,
    efficiency: Fields,
    usable: float = 0.9,
) -> dict[str, float]:
    """Tokens a second with memory full.

    Args:
      model, device: as above.
      context: each user's own tokens.
      shared: tokens that all users share.
      answer: tokens of an answer.
      devices: devices that serve together.
      efficiency: as above.
      usable: share of the memory for weights and KV.

    Returns:
      users, step_s, tokens_s, free_bytes, user_bytes.
    """
    sizes = ("bf16_flops", "fp8_flops", "int8_flops", "bytes_s", "capacity_bytes")
    whole = {key: devices * device[key] for key in (*sizes, "multiprocessors")}
    free = usable * whole["capacity_bytes"] - weight_bytes(model) - kv_cache_bytes(model, shared)
    user = kv_cache_bytes(model, context + answer)
    users = 0
    if free > 0:
        users = math.floor(free / user)
    # The answers are at every stage between their first and their last token.
    mean_own = sum(context + i for i in range(1, int(answer) + 1)) / answer
    time = step(model, whole, mean_own, shared, max(users, 1), efficiency)["total_s"]
    return {
        "users": users,
        "step_s": time,
        "tokens_s": users / time,
        "free_bytes": free,
        "user_bytes": user,
    }


def break_even_queries(
    context_s: float, cartridge_s: float, training_s: float, price_ratio: float
) -> float:
    """Queries that repay a training.

    Args:
      context_s, cartridge_s: GPU seconds of a query with the document and with the cartridge.
      training_s: GPU seconds of the training.
      price_ratio: price of a GPU second of training over one of serving.

    Returns:
      Queries, infinite if nothing is saved.
    """
    if context_s <= cartridge_s:
        return math.inf
    return training_s * price_ratio / (context_s - cartridge_s)


def gemm(flops: float, nbytes: float, device: Fields, constants: Fields) -> float:
    """Time of one matrix product.

    Args:
      flops, nbytes: arithmetic and traffic of the call.
      device: as above.
      constants: launch_s, mfu, mbu, corner.

    Returns:
      Seconds.
    """
    moving = constants["launch_s"] + nbytes / (device["bytes_s"] * constants["mbu"])
    working = flops / (device["bf16_flops"] * constants["mfu"])
    return _p_norm(moving, working, constants["corner"])


def _product(group: Fields, device: Fields, efficiency: Fields, rows: float) -> float:
    flops = 2.0 * rows * group["active"] * group["inputs"] * group["outputs"]
    if "mfu" in efficiency:
        peak = device[f"{group['compute']}_flops"] or device["bf16_flops"]
        return group["count"] * flops / (peak * efficiency["mfu"])
    nbytes = _distinct(group, rows) * group["inputs"] * group["outputs"] * group["weight_bytes"]
    nbytes += 2.0 * rows * group["active"] * (group["inputs"] + group["outputs"])
    return group["count"] * gemm(flops, nbytes, device, efficiency["gemm"])


def _distinct(group: Fields, rows: float) -> float:
    """Expected experts that some row is sent to: each misses all rows with (1 - k/E)^rows."""
    missed = (1.0 - group["active"] / group["experts"]) ** rows
    return sum(1.0 - missed for _ in range(int(group["experts"])))


def _weights_read(model: Fields, rows: float) -> float:
    total = (model["embedding"] + model["other"]) * model["other_bytes"]
    for group in [*model["linear"], model["head"]]:
        matrix = group["inputs"] * group["outputs"] * group["weight_bytes"]
        total += group["count"] * matrix * _distinct(group, rows)
    return total


def _times(
    linear: float, attention: float, moved: float, device: Fields, efficiency: Fields
) -> dict[str, float]:
    constant = "mfu" in efficiency
    mbu = efficiency["mbu"] if constant else efficiency["gemm"]["mbu"]
    memory = moved / (device["bytes_s"] * mbu)
    total = linear + attention
    if constant:
        total = max(total, memory)
    return {
        "linear_s": float(linear),
        "attention_s": float(attention),
        "memory_s": float(memory),
        "total_s": float(total),
    }


def _p_norm(a: float, b: float, p: float) -> float:
    return (a**p + b**p) ** (1.0 / p)


def _waves(tiles: float, device: Fields) -> float:
    return max(0.0, tiles / device["multiprocessors"] - 1.0)
