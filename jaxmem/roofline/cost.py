"""What a context costs: memory of its KV cache, time to read it, users a device can serve.

Every function broadcasts, is differentiable and can be vmapped; counts are floats.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jaxmem.roofline.accelerators import Accelerator
from jaxmem.roofline.border import Number, at_most, number
from jaxmem.roofline.efficiency import (
    Constant,
    Measured,
    decode_attention_s,
    gemm_s,
    prefill_attention_s,
    resolve,
)
from jaxmem.roofline.models import Attention, Linear, Model

Efficiency = str | Constant | Measured | None
ACTIVATION_BYTES = 2.0
USABLE_MEMORY = 0.9  # of the device's memory; the rest is for activations and the engine
# Steps are averaged over 8 Gauss-Legendre points: exact where the time is linear in the
# context, and the number of new tokens can be traced.
_POINTS, _WEIGHTS = np.polynomial.legendre.leggauss(8)


class Prefill(NamedTuple):
    """Time to read a prompt.

    Attributes:
      linear_s: matrix products with the weights, seconds.
      attention_s: query-key and probability-value products.
      memory_s: reading weights and cached KV, writing new KV.
      total_s: time to first token.
    """

    linear_s: Array
    attention_s: Array
    memory_s: Array
    total_s: Array


class Decode(NamedTuple):
    """Time to generate, token after token.

    Attributes:
      linear_s, attention_s, memory_s: parts of the mean step, as in `Prefill`.
      step_s: the mean step.
      total_s: all steps.
    """

    linear_s: Array
    attention_s: Array
    memory_s: Array
    step_s: Array
    total_s: Array


class Throughput(NamedTuple):
    """What a device with its memory full of users generates.

    Attributes:
      users: whole users whose KV fits, 0 if none does.
      step_s: decode step of that many users (of one, where none fits).
      tokens_s: tokens generated each second by all users together.
      free_bytes: memory left for users' KV beside the weights and the shared context.
      user_bytes: KV of one user, answer included.
    """

    users: Array
    step_s: Array
    tokens_s: Array
    free_bytes: Array
    user_bytes: Array


def kv_cache_bytes(model: Model, tokens: ArrayLike) -> Array:
    """Bytes of the keys and values of a context.

    sum over layers of cached * kv_bytes * min(tokens, window)

    Args:
      model: the model.
      tokens: context length; broadcasts.

    Returns:
      Bytes.

    Raises:
      ValueError: if `tokens` is negative or not a number.
    """
    return _kv_bytes(model, number(tokens, "tokens"))


def prefill(
    model: Model,
    accelerator: Accelerator,
    tokens: ArrayLike,
    cached_tokens: ArrayLike = 0,
    batch: ArrayLike = 1,
    *,
    efficiency: Efficiency = None,
) -> Prefill:
    """Time to read prompts up to their first new token.

    With constant efficiency, total = max(linear + attention, memory): attention is causal,
    the output head runs once a prompt, all weights are read once. With measured efficiency
    total = linear + attention, each the sum of its kernel calls, and `memory_s` is for
    information. All KV of a prompt is taken to be there, that of a sliding window too.

    Args:
      model: the model.
      accelerator: the device.
      tokens: length of the whole prompt.
      cached_tokens: how many of them have their KV cached; the last token never counts as
        cached, since its output is needed.
      batch: prompts of that length side by side.
      efficiency: see `resolve`.

    Returns:
      Seconds, broadcast over all arguments.

    Raises:
      ValueError: if a number is out of range, or efficiency was not measured there.
    """
    length, batch = number(tokens, "tokens", 1), number(batch, "batch", 0, above=True)
    cached = number(cached_tokens, "cached_tokens")
    at_most(cached_tokens, "cached_tokens", tokens, "tokens")
    eff = resolve(efficiency, model, accelerator)
    cached = jnp.minimum(cached, length - 1.0)
    new = length - cached
    linear_s = _products_s(model, accelerator, eff, batch * new, batch)
    attention_s: Number = 0.0
    read: Number = 0.0
    for group in model.attention:
        own, past = _pairs(new, cached, group.window)
        cached_bytes = batch * jnp.minimum(cached, group.window) * group.cached * model.kv_bytes
        expand = 2.0 * group.expansion * batch * jnp.minimum(cached, group.window)
        if isinstance(eff, Constant):
            flops = 2.0 * batch * group.heads * (group.qk_dim + group.v_dim) * (own + past)
            layer_s = (flops + expand) / (accelerator.bf16_flops * eff.mfu)
        else:
            layer_s = expand / (accelerator.bf16_flops * eff.gemm.mfu) + prefill_attention_s(
                batch,
                new,
                own,
                past,
                cached_bytes,
                group.heads,
                group.kv_heads,
                (group.qk_dim + group.v_dim) / 2.0,
                accelerator,
                eff,
            )
        attention_s += group.count * layer_s
        written = batch * new * group.cached * model.kv_bytes
        read += group.count * (cached_bytes + written)
    memory_s = _memory_s(read + _weights_read(model, batch * new), accelerator, eff)
    if isinstance(eff, Constant):
        total = jnp.maximum(linear_s + attention_s, memory_s)
    else:
        total = linear_s + attention_s
    return Prefill(*jnp.broadcast_arrays(linear_s, attention_s, memory_s, total))


def decode(
    model: Model,
    accelerator: Accelerator,
    context_tokens: ArrayLike,
    new_tokens: ArrayLike,
    batch: ArrayLike = 1,
    *,
    efficiency: Efficiency = None,
) -> Decode:
    """Time to generate tokens one by one: step i of 1..new reads context + i tokens of KV.

    With constant efficiency a step takes max(linear + attention, memory), memory being all
    weights and the KV; with measured efficiency the sum of its kernel calls.

    Args:
      model: the model.
      accelerator: the device.
      context_tokens: tokens in the cache before the first step.
      new_tokens: tokens to generate.
      batch: sequences of that length side by side.
      efficiency: see `resolve`.

    Returns:
      Seconds, broadcast over all arguments.

    Raises:
      ValueError: if a number is out of range, or efficiency was not measured there.
    """
    context = number(context_tokens, "context_tokens")[..., None]
    new = number(new_tokens, "new_tokens", 1)
    side_by_side = number(batch, "batch", 0, above=True)[..., None]
    eff = resolve(efficiency, model, accelerator)
    # As wide as 1..new has the same variance: exact for quadratics too, and for one step.
    spread = jnp.sqrt(jnp.maximum(new**2 - 1.0, 1e-12))
    steps = (new + 1.0)[..., None] / 2.0 + spread[..., None] / 2.0 * _POINTS  # [..., 8]
    model, accelerator, eff = _expand((model, accelerator, eff))
    parts = _step(model, accelerator, eff, side_by_side, context + steps, jnp.zeros(1))
    weights = jnp.asarray(0.5 * _WEIGHTS, float)
    mean = [jnp.sum(part * weights, axis=-1) for part in parts]
    return Decode(*jnp.broadcast_arrays(*mean, mean[-1] * new))


def throughput(
    model: Model,
    accelerator: Accelerator,
    context_tokens: ArrayLike,
    shared_tokens: ArrayLike = 0,
    answer_tokens: ArrayLike = 200,
    devices: ArrayLike = 1,
    *,
    usable_memory: ArrayLike = USABLE_MEMORY,
    efficiency: Efficiency = None,
) -> Throughput:
    """Tokens a second with memory full of users who each keep a context of their own.

    users = floor((usable * memory - weights - KV(shared)) / KV(context + answer)). A step
    reads the weights once, the shared KV once (cascade attention) and each user's own, which
    on average holds half of the answer. Prefill is not counted.

    Args:
      model: the model.
      accelerator: the device.
      context_tokens: each user's own context, without the shared part.
      shared_tokens: context that all users share, stored and read once.
      answer_tokens: length of an answer, for which memory is kept.
      devices: multiplies memory, bandwidth and FLOP/s; communication is ignored.
      usable_memory: share of the memory for weights and KV.
      efficiency: see `resolve`.

    Returns:
      Users, seconds, tokens/s and bytes, broadcast over all arguments.

    Raises:
      ValueError: if a number is out of range, or efficiency was not measured there.
    """
    context, shared = (
        number(context_tokens, "context_tokens"),
        number(shared_tokens, "shared_tokens"),
    )
    answer = number(answer_tokens, "answer_tokens", 1)
    usable = number(usable_memory, "usable_memory", 0, above=True)
    at_most(usable_memory, "usable_memory", 1.0, "the whole memory")
    eff = resolve(efficiency, model, accelerator)
    device = accelerator.times(devices)
    free = usable * device.capacity_bytes - model.weight_bytes - _kv_bytes(model, shared)
    user_bytes = _kv_bytes(model, context + answer)
    users = jnp.maximum(jnp.floor(free / user_bytes), 0.0)
    *_, step_s = _step(
        model, device, eff, jnp.maximum(users, 1.0), context + (answer + 1.0) / 2.0, shared
    )
    return Throughput(*jnp.broadcast_arrays(users, step_s, users / step_s, free, user_bytes))


def _step(
    model: Model,
    device: Accelerator,
    eff: Constant | Measured,
    batch: Array,
    context: Array,
    shared: Array,
) -> tuple[Array, Array, Array, Array]:
    """(linear, attention, memory, total) seconds of one decode step of `batch` sequences.

    Each sequence reads `context` tokens of its own, the new one among them, and `shared`
    tokens that are read once for all.
    """
    linear_s = _products_s(model, device, eff, batch, batch)
    attention_s = jnp.zeros_like(context)
    read: Number = 0.0
    for group in model.attention:
        own = jnp.minimum(context, group.window)
        common = jnp.minimum(shared, jnp.maximum(group.window - own, 0.0))
        kv_read = (batch * own + common) * group.cached * model.kv_bytes
        flops_token = 2.0 * group.heads * (group.decode_qk_dim + group.decode_v_dim)
        if isinstance(eff, Constant):
            layer_s = batch * (own + common) * flops_token / (device.bf16_flops * eff.mfu)
        else:
            layer_s = _attend_s(group, model, device, eff, batch, batch, own)
            once = _attend_s(group, model, device, eff, 1.0, batch, common)
            layer_s += jnp.where(common > 0.0, once, 0.0)
        attention_s += group.count * layer_s
        written = batch * group.cached * model.kv_bytes
        read += group.count * (kv_read + written)
    memory_s = _memory_s(read + _weights_read(model, batch), device, eff)
    if isinstance(eff, Constant):
        return linear_s, attention_s, memory_s, jnp.maximum(linear_s + attention_s, memory_s)
    return linear_s, attention_s, memory_s, linear_s + attention_s


def _attend_s(
    group: Attention,
    model: Model,
    device: Accelerator,
    eff: Measured,
    sequences: Number,
    queries: Number,
    tokens: Array,
) -> Array:
    """One layer's decode attention of `queries` over `sequences` caches of `tokens` each."""
    widths = group.decode_qk_dim + group.decode_v_dim
    kv_read = sequences * tokens * group.cached * model.kv_bytes
    activations = ACTIVATION_BYTES * queries * group.heads * widths
    flops = 2.0 * queries * tokens * group.heads * widths
    return decode_attention_s(
        sequences, flops, kv_read + activations, group.decode_kv_heads, device, eff
    )


def _products_s(
    model: Model, device: Accelerator, eff: Constant | Measured, tokens: Array, prompts: Array
) -> Array:
    """All matrix products with weights: the layers' on `tokens`, the head's on `prompts`."""
    layers = sum(_product_s(group, device, eff, tokens) for group in model.linear)
    return layers + _product_s(model.head, device, eff, prompts)


def _product_s(group: Linear, device: Accelerator, eff: Constant | Measured, rows: Array) -> Array:
    flops = 2.0 * rows * group.active * group.inputs * group.outputs
    if isinstance(eff, Constant):
        return group.count * flops / (device.flops_s(group.compute) * eff.mfu)
    weights = group.distinct_experts(rows) * group.inputs * group.outputs * group.weight_bytes
    activations = ACTIVATION_BYTES * rows * group.active * (group.inputs + group.outputs)
    return group.count * gemm_s(flops, weights + activations, device, eff.gemm)


def _weights_read(model: Model, tokens: Array) -> Array:
    """Bytes of weights that a pass over `tokens` reads: of the experts, those it touches."""
    read = jnp.asarray((model.embedding + model.other) * model.other_bytes)
    for group in (*model.linear, model.head):
        matrix = group.count * group.inputs * group.outputs * group.weight_bytes
        read += matrix * group.distinct_experts(tokens)
    return read


def _memory_s(nbytes: Number, device: Accelerator, eff: Constant | Measured) -> Array:
    mbu = eff.mbu if isinstance(eff, Constant) else eff.gemm.mbu
    return jnp.asarray(nbytes / (device.bytes_s * mbu))


def _kv_bytes(model: Model, tokens: Array) -> Array:
    return sum(
        (
            group.count * group.cached * model.kv_bytes * jnp.minimum(tokens, group.window)
            for group in model.attention
        ),
        start=jnp.zeros_like(tokens),
    )


def _pairs(new: Array, cached: Array, window: Number) -> tuple[Array, Array]:
    """Query-key pairs of one prompt: among the new tokens, and of new with cached ones.

    New token i of 1..new sees min(i, window) new and min(cached, max(window - i, 0)) cached
    ones; both sums in closed form, without a difference of large numbers.
    """
    reach = jnp.minimum(window, cached + new)  # an infinite window would give inf * 0
    ramp = jnp.minimum(new, reach)
    own = ramp * (ramp + 1.0) / 2.0 + (new - ramp) * reach
    whole = jnp.clip(reach - cached, 0.0, new)  # tokens that see all cached ones
    falling = (ramp - whole) * (reach - (ramp + whole + 1.0) / 2.0)
    return own, whole * cached + falling


def _expand(tree: tuple) -> tuple:
    """A new last axis on every array, so that it broadcasts against the steps."""
    return jax.tree.map(lambda x: x[..., None] if jnp.ndim(x) else x, tree)
