"""Accelerators: peak arithmetic, memory bandwidth and memory size, each with its source."""

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from jaxmem.common import lookup
from jaxmem.roofline.border import Number, number


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Accelerator:
    """One device, or a batch of them where the fields are arrays that broadcast.

    Attributes:
      bf16_flops: dense FLOP/s of 16-bit matrix products with float32 accumulation.
      fp8_flops, int8_flops: dense operations/s in 8 bits; 0 where there is no such unit.
      bytes_s: memory bandwidth, bytes/s.
      capacity_bytes: memory, bytes (GB is 10^9).
      multiprocessors: SMs, compute units or cores that run thread blocks side by side.
      name: what it is called.
      source: the document its numbers are from.
      kernels: the family of kernels whose measured efficiency holds on it, if any.
    """

    bf16_flops: Number
    fp8_flops: Number
    int8_flops: Number
    bytes_s: Number
    capacity_bytes: Number
    multiprocessors: Number
    name: str = dataclasses.field(default="custom", metadata={"static": True})
    source: str = dataclasses.field(default="", metadata={"static": True})
    kernels: str | None = dataclasses.field(default=None, metadata={"static": True})

    def flops_s(self, dtype: str) -> Number:
        """Peak FLOP/s of matrix products whose weights are of `dtype`.

        Args:
          dtype: "bf16", "fp8" or "int8"; 8-bit weights are multiplied in bf16 where the
            device has no 8-bit unit (weight-only kernels do so).

        Returns:
          FLOP/s, in the shape of the fields.

        Raises:
          ValueError: if the dtype is none of these.
        """
        peaks = {"bf16": self.bf16_flops, "fp8": self.fp8_flops, "int8": self.int8_flops}
        peak = lookup(peaks, dtype, "compute dtype")
        if isinstance(peak, (int, float)):
            return peak or self.bf16_flops
        return jnp.where(peak > 0, peak, self.bf16_flops)

    def times(self, devices: ArrayLike) -> "Accelerator":
        """That many devices as one: arithmetic, bandwidth and memory multiplied.

        Communication between them is ignored, so this is the upper bound of tensor parallelism.

        Args:
          devices: how many, at least 1; broadcasts with the fields and may be traced.

        Returns:
          The accelerator they make together.

        Raises:
          ValueError: if `devices` is below 1.
        """
        if isinstance(devices, int) and devices == 1:
            return self
        n = number(devices, "devices", 1)
        return jax.tree.map(lambda value: value * n, self)


def stack(accelerators: Sequence[Accelerator]) -> Accelerator:
    """Several accelerators as one with arrays, to broadcast or `jax.vmap` over.

    Args:
      accelerators: n of them.

    Returns:
      One whose numbers have shape [n]. Measured efficiency stays available only if all of
      them run the same kernels.

    Raises:
      ValueError: if there is none.
    """
    if not accelerators:
        raise ValueError("expected at least one accelerator, got none")
    names = [dataclasses.replace(a, name="", source="", kernels=None) for a in accelerators]
    stacked = jax.tree.map(
        lambda *values: jnp.stack([jnp.asarray(v, float) for v in values]), *names
    )
    families = {a.kernels for a in accelerators}
    return dataclasses.replace(
        stacked,
        name=", ".join(a.name for a in accelerators),
        kernels=families.pop() if len(families) == 1 else None,
    )


def _accelerator(
    name: str,
    source: str,
    bf16: float,
    fp8: float,
    int8: float,
    bandwidth: float,
    memory: float,
    multiprocessors: int,
    kernels: str | None = None,
) -> Accelerator:
    """From the units of data sheets: TFLOP/s (dense), GB/s and GB."""
    return Accelerator(
        bf16_flops=bf16 * 1e12,
        fp8_flops=fp8 * 1e12,
        int8_flops=int8 * 1e12,
        bytes_s=bandwidth * 1e9,
        capacity_bytes=memory * 1e9,
        multiprocessors=float(multiprocessors),
        name=name,
        source=source,
        kernels=kernels,
    )


_HOPPER = "NVIDIA H100 Tensor Core GPU Architecture whitepaper (SXM5, dense)"
_ADA = "NVIDIA Ada GPU Architecture whitepaper"
_TPU = "Google Cloud TPU documentation"
_LIST = (
    _accelerator("a100-80gb", "NVIDIA A100 80GB SXM datasheet", 312, 0, 624, 2039, 80, 108),
    _accelerator("h100-80gb", _HOPPER, 989.4, 1978.9, 1978.9, 3350, 80, 132, kernels="vllm-hopper"),
    _accelerator(
        "h200",
        f"NVIDIA H200 datasheet; arithmetic as {_HOPPER}",
        *(989.4, 1978.9, 1978.9, 4800, 141, 132),
        kernels="vllm-hopper",
    ),
    _accelerator("b200", "NVIDIA HGX B200 table (dense)", 2250, 4500, 4500, 7700, 180, 148),
    _accelerator(
        "mi300x", "AMD Instinct MI300X data sheet", 1307.4, 2614.9, 2614.9, 5300, 192, 304
    ),
    _accelerator("l40s", "NVIDIA L40S datasheet (dense)", 362.05, 733, 733, 864, 48, 142),
    # bf16 with float32 accumulation runs at half rate on GeForce.
    _accelerator("rtx-4090", _ADA, 165.2, 330.3, 660.6, 1008, 24, 128),
    _accelerator("tpu-v5e", f"{_TPU}, v5e", 197, 0, 393, 819, 16, 1),
    _accelerator("tpu-v6e", f"{_TPU}, v6e", 918, 0, 1836, 1638, 32, 1),
)

ACCELERATORS: dict[str, Accelerator] = {a.name: a for a in _LIST}
"""Accelerators by name: dense FLOP/s, bytes/s and bytes of one device, with their source."""
