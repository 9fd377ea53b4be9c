"""A million settings of the cost model in one call, against the same formulas in numpy.

Sweeps memory bandwidth, context and shared context over `jaxmem.roofline.throughput` for
Llama-3-8B, with constant and with measured efficiency.
"""

import dataclasses
import functools
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxmem.reference import roofline as reference
from jaxmem.roofline import ACCELERATORS, MEASURED, MODELS, throughput

SETTINGS = 1_000_000
TWIN_SETTINGS = 300  # the twin is a Python loop; its rate is measured on a sample
MODEL, H100 = MODELS["llama-3-8b"], ACCELERATORS["h100-80gb"]


@functools.partial(jax.jit, static_argnames="efficiency")
def tokens_s(
    bandwidth: jax.Array, context: jax.Array, shared: jax.Array, efficiency: str
) -> jax.Array:
    """Tokens/s of each setting.

    Args:
      bandwidth: [n] bytes/s.
      context: [n] tokens of each user.
      shared: [n] tokens that all users share.
      efficiency: "constant" or "measured".

    Returns:
      [n] tokens/s.
    """
    device = dataclasses.replace(H100, bytes_s=bandwidth)
    return throughput(MODEL, device, context, shared, efficiency=efficiency).tokens_s


def main(repeats: int = 5) -> list[dict[str, Any]]:
    """Time a million settings, drawn at random so that none shares work, and the twin.

    Args:
      repeats: runs of which the best counts.

    Returns:
      A record for each efficiency: settings, compile seconds, settings/s of both, their ratio
      and the median relative difference on the twin's sample.
    """
    rng = np.random.default_rng(0)
    columns = (
        np.exp(rng.uniform(np.log(0.5e12), np.log(8e12), SETTINGS)),
        np.round(np.exp(rng.uniform(np.log(500), np.log(128_000), SETTINGS))),
        np.round(rng.uniform(0, 64_000, SETTINGS)),
    )
    return [_record(efficiency, columns, repeats) for efficiency in ("constant", "measured")]


def _record(efficiency: str, columns: tuple[np.ndarray, ...], repeats: int) -> dict[str, Any]:
    arrays = tuple(jnp.asarray(column, jnp.float32) for column in columns)
    start = time.perf_counter()
    compiled = tokens_s.lower(*arrays, efficiency=efficiency).compile()
    compile_s = time.perf_counter() - start
    table = np.asarray(compiled(*arrays))
    fast_s = _best(lambda: compiled(*arrays).block_until_ready(), repeats)

    sample = list(zip(*(column[:TWIN_SETTINGS] for column in columns)))
    model, device = dataclasses.asdict(MODEL), dataclasses.asdict(H100)
    constants: dict[str, Any] = {"mfu": 0.7, "mbu": 0.8}
    if efficiency == "measured":
        kernels = MEASURED["vllm-hopper"]
        constants = {name: part._asdict() for name, part in kernels._asdict().items()}

    def twin() -> np.ndarray:
        return np.array(
            [
                reference.throughput(
                    model,
                    {**device, "bytes_s": bandwidth},
                    context,
                    shared,
                    200.0,
                    1.0,
                    constants,
                )["tokens_s"]
                for bandwidth, context, shared in sample
            ]
        )

    slow_s = _best(twin, 1)
    expected = twin()
    # Where one user more or less fits exactly, float32 may round the other way.
    difference = np.abs(table[:TWIN_SETTINGS] / expected - 1.0)
    return {
        "benchmark": f"throughput, {efficiency} efficiency",
        "settings": SETTINGS,
        "compile_s": compile_s,
        "run_s": fast_s,
        "settings_s": SETTINGS / fast_s,
        "twin_settings_s": TWIN_SETTINGS / slow_s,
        "ratio": SETTINGS / fast_s * slow_s / TWIN_SETTINGS,
        "median_difference": float(np.median(difference)),
    }


def _best(call: Callable[[], Any], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)
