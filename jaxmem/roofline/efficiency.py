"""How much of the peak a kernel reaches: one constant, or fitted to measured kernels.

One constant is wrong both ways: short kernels wait for their launch and reach a third of the
peak, long ones nine tenths. The fitted forms have a launch floor and ramps.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from jaxmem.roofline.accelerators import Accelerator
from jaxmem.roofline.border import Number
from jaxmem.roofline.models import Model

QUERY_TILE = 128.0  # query rows that one thread block of prefill attention takes
# An exponential costs as much as 64 columns of the two products: 4,096 FLOP against
# 16 exponentials a clock a multiprocessor, over 4 FLOP a column.
SOFTMAX_COLUMNS = 64.0


class Constant(NamedTuple):
    """The same efficiency for every kernel.

    Attributes:
      mfu: share of the peak FLOP/s reached.
      mbu: share of the peak bytes/s reached.
    """

    mfu: Number = 0.70
    mbu: Number = 0.80


class Gemm(NamedTuple):
    """Constants of a matrix product: launch floor, peak shares, sharpness of the corner."""

    launch_s: Number
    mfu: Number
    mbu: Number
    corner: Number


class PrefillAttention(NamedTuple):
    """Constants of prefill attention: launch, one more wave of blocks, peak share, tile edge."""

    launch_s: Number
    wave_s: Number
    mfu: Number
    edge_tokens: Number


class DecodeAttention(NamedTuple):
    """Constants of decode attention: launch, wave, peak share, its ramp, the corner."""

    launch_s: Number
    wave_s: Number
    mbu: Number
    half_bytes: Number
    ramp: Number
    corner: Number


class Measured(NamedTuple):
    """Constants fitted to measured kernels of one family of accelerators.

    Attributes:
      gemm, prefill, decode: constants of the three kernels.
    """

    gemm: Gemm
    prefill: PrefillAttention
    decode: DecodeAttention


# Fitted by benchmarks/kernel_efficiency.py on kernels of vLLM 0.24 on an H100 80GB, bf16.
# Source: the tables of aiconfigurator 0.12.0 (Apache-2.0). H200 has the same die; its own
# tables, unseen by the fit, are met to 6-9 % in the median.
MEASURED: dict[str, Measured] = {
    "vllm-hopper": Measured(
        gemm=Gemm(launch_s=4.15e-6, mfu=0.809, mbu=0.908, corner=2.39),
        prefill=PrefillAttention(launch_s=1.22e-5, wave_s=3.32e-6, mfu=0.682, edge_tokens=416.0),
        decode=DecodeAttention(
            launch_s=1.23e-5, wave_s=3.70e-6, mbu=0.978, half_bytes=4.17e7, ramp=0.6, corner=2.80
        ),
    )
}
"""Fitted constants by family of kernels (`Accelerator.kernels`)."""


def resolve(
    efficiency: str | Constant | Measured | None, model: Model, accelerator: Accelerator
) -> Constant | Measured:
    """The constants that `efficiency` stands for.

    Args:
      efficiency: "constant" (MFU 0.70, MBU 0.80), "measured", the constants themselves, or
        None for "measured" where it exists and "constant" elsewhere.
      model: measured constants hold for products in bf16 only.
      accelerator: measured constants hold for the families of `MEASURED` only.

    Returns:
      The constants.

    Raises:
      ValueError: if "measured" is asked for where nothing was measured, or the word is unknown.
    """
    if isinstance(efficiency, (Constant, Measured)):
        return efficiency
    arithmetic = {group.compute for group in model.linear}
    measured = MEASURED.get(accelerator.kernels or "") if arithmetic <= {"bf16"} else None
    if efficiency == "constant" or (efficiency is None and measured is None):
        return Constant()
    if efficiency not in (None, "measured"):
        raise ValueError(f"efficiency must be 'constant' or 'measured', got {efficiency!r}")
    if measured is None:
        known = "h100-80gb and h200 with bf16 arithmetic"
        raise ValueError(
            f"measured efficiency exists for {known}, got {accelerator.name} with"
            f" {', '.join(sorted(arithmetic))}"
        )
    return measured


def smooth_max(a: Number, b: Number, corner: Number) -> Array:
    """(a^p + b^p)^(1/p): the larger of two times, with a rounded corner where they meet.

    Args:
      a, b: nonnegative times, seconds, not both 0.
      corner: p, at least 1; the corner is sharp as p grows.

    Returns:
      Seconds, at least max(a, b).
    """
    total = jnp.add(a, b)  # scaled by the sum: small times to a power would underflow
    return total * ((a / total) ** corner + (b / total) ** corner) ** (1.0 / corner)


def gemm_s(flops: Number, nbytes: Number, device: Accelerator, constants: Gemm) -> Array:
    """Time of one matrix product.

    smooth_max(launch + bytes / (bandwidth * mbu), flops / (peak * mfu))

    Args:
      flops: multiplications and additions of the call.
      nbytes: bytes of weights and activations that the call moves.
      device: the accelerator.
      constants: fitted constants.

    Returns:
      Seconds, broadcast.
    """
    memory = constants.launch_s + nbytes / (device.bytes_s * constants.mbu)
    return smooth_max(memory, flops / (device.bf16_flops * constants.mfu), constants.corner)


def prefill_attention_s(
    batch: Number,
    tokens: Number,
    own_pairs: Number,
    cached_pairs: Number,
    cached_bytes: Number,
    heads: Number,
    kv_heads: Number,
    head_dim: Number,
    device: Accelerator,
    constants: Measured,
) -> Array:
    """Time of one layer's causal attention of new tokens over themselves and cached ones.

    launch + waves + edges + max(flops / (peak * mfu), cached bytes / (bandwidth * mbu))

    Args:
      batch: prompts side by side.
      tokens: new tokens of each.
      own_pairs: query-key pairs among the new tokens of one prompt.
      cached_pairs: pairs of new tokens with cached ones.
      cached_bytes: cached keys and values read, of all prompts.
      heads, kv_heads: query and key/value heads.
      head_dim: mean width of a head in scores and values.
      device: the accelerator.
      constants: fitted constants.

    Returns:
      Seconds a layer, broadcast.
    """
    c = constants.prefill
    unit = 4.0 * batch * heads * head_dim  # FLOP a pair
    tiles = batch * kv_heads * jnp.maximum(tokens * heads / kv_heads / QUERY_TILE, 1.0)
    idle = jnp.maximum(device.multiprocessors / tiles, 1.0)  # too few tiles to go round
    edge = unit * tokens * (1.0 + kv_heads / heads) * c.edge_tokens
    # Constants are for heads of 128; the softmax weighs more on narrower ones.
    softmax = (1.0 + SOFTMAX_COLUMNS / 128.0) / (1.0 + SOFTMAX_COLUMNS / head_dim)
    flops_s = device.bf16_flops * jnp.minimum(c.mfu * softmax, constants.gemm.mfu)
    cached_s = cached_bytes / (device.bytes_s * constants.decode.mbu)
    pairs = unit * (own_pairs * idle + cached_pairs)
    floor = c.launch_s + c.wave_s * _waves(batch * kv_heads, device)
    return floor + edge / flops_s + jnp.maximum(pairs / flops_s, cached_s)


def decode_attention_s(
    sequences: Number,
    flops: Number,
    nbytes: Number,
    kv_heads: Number,
    device: Accelerator,
    constants: Measured,
) -> Array:
    """Time of one layer's attention of one new token of each sequence over its cache.

    smooth_max(launch + waves, bytes / (bandwidth * mbu(bytes))), or the arithmetic if longer,
    with mbu(bytes) = mbu / (1 + (half / bytes)^ramp)

    Args:
      sequences: caches that are read, each by its own thread blocks.
      flops: multiplications and additions of the call (latent attention has many a byte).
      nbytes: bytes of keys, values, queries and outputs, of all sequences.
      kv_heads: key/value heads.
      device: the accelerator.
      constants: fitted constants.

    Returns:
      Seconds a layer, broadcast.
    """
    c = constants.decode
    mbu = c.mbu / (1.0 + (c.half_bytes / nbytes) ** c.ramp)
    floor = c.launch_s + c.wave_s * _waves(sequences * kv_heads, device)
    memory = smooth_max(floor, nbytes / (device.bytes_s * mbu), c.corner)
    return jnp.maximum(memory, flops / (device.bf16_flops * constants.gemm.mfu))


def _waves(tiles: Number, device: Accelerator) -> Array:
    """Rounds of thread blocks beyond the first, without the ceiling."""
    return jnp.maximum(tiles / device.multiprocessors - 1.0, 0.0)
