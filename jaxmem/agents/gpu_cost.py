"""What a log of calls takes on an accelerator, by the cost model."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxmem.prompts import PromptLog, reuse
from jaxmem.roofline import Accelerator, Model
from jaxmem.roofline.break_even import share_s
from jaxmem.roofline.cost import Efficiency, prefill


class GpuCost(NamedTuple):
    """GPU seconds of some calls.

    prefill_s: reading what no cache had.
    decode_s: writing, as a share of devices that are full of such users.
    no_cache_s: reading everything anew, in place of `prefill_s`.
    """

    prefill_s: float
    decode_s: float
    no_cache_s: float

    @property
    def total_s(self) -> float:
        """Reading, with a cache, and writing."""
        return self.prefill_s + self.decode_s


def gpu_cost(
    log: PromptLog,
    model: Model,
    accelerator: Accelerator,
    *,
    devices: float = 1,
    efficiency: Efficiency = None,
) -> GpuCost:
    """GPU seconds of a log, each prompt finding what the ones before it left in a prefix cache.

    seconds = sum over calls of prefill(prompt | reused) devices + output / (tokens/s when full)

    Args:
      log: the calls.
      model: the language model that makes them, as the cost model sees it.
      accelerator: one device.
      devices: devices that serve together.
      efficiency: see `jaxmem.roofline.efficiency.resolve`.

    Returns:
      The seconds; infinite where a prompt does not fit into the memory.

    Raises:
      ValueError: if a number is out of range.
    """
    asked = log.prompt_tokens > 0
    prompt = jnp.asarray(log.prompt_tokens[asked], jnp.float32)
    if not prompt.size:
        return GpuCost(0.0, 0.0, 0.0)
    kept = jnp.asarray(reuse(log, tail_tokens=1).reused[asked], jnp.float32)
    written = np.maximum(log.output_tokens[asked], 1).astype(np.float32)
    whole = accelerator.times(devices)

    def read_s(kept_tokens: jnp.ndarray) -> float:
        seconds = prefill(model, whole, prompt, kept_tokens, efficiency=efficiency).total_s
        return float(seconds.sum() * devices)

    decode_s = share_s(model, accelerator, prompt, 0.0, written, devices, efficiency)
    return GpuCost(read_s(kept), float(decode_s.sum()), read_s(jnp.zeros_like(prompt)))
