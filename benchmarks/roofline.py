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

SETTINGS = (100, 1_000, 10)  # bandwidths, contexts, shared contexts: a million
TWIN_SETTINGS = 300  # the twin is a Python loop; its rate is measured on a sample
MODEL, H100 = MODELS["llama-3-8b"], ACCELERATORS["h100-80gb"]


@functools.partial(jax.jit, static_argnames="efficiency")
def grid(bandwidth: jax.Array, context: jax.Array, shared: jax.Array, efficiency: str) -> jax.Array:
    """Tokens/s of every combination.

    Args:
      bandwidth: [b] bytes/s.
      context: [c] tokens of each user.
      shared: [s] tokens that all users share.
      efficiency: "constant" or "measured".

    Returns:
      [b, c, s] tokens/s.
    """
    device = dataclasses.replace(H100, bytes_s=bandwidth[:, None, None])
    return throughput(MODEL, device, context[:, None], shared, efficiency=efficiency).tokens_s


def main(repeats: int = 5) -> list[dict[str, Any]]:
    """Time the grid and its twin.

    Args:
      repeats: runs of which the best counts.

    Returns:
      A record for each efficiency: settings, compile seconds, settings/s of both, their ratio
      and the largest relative difference on the twin's sample.
    """
    axes = (
        np.geomspace(0.5e12, 8e12, SETTINGS[0]),
        np.round(np.geomspace(500, 128_000, SETTINGS[1])),
        np.round(np.linspace(0, 64_000, SETTINGS[2])),
    )
    arrays = tuple(jnp.asarray(axis, jnp.float32) for axis in axes)
    return [_record(efficiency, axes, arrays, repeats) for efficiency in ("constant", "measured")]


def _record(
    efficiency: str, axes: tuple[np.ndarray, ...], arrays: tuple[jax.Array, ...], repeats: int
) -> dict[str, Any]:
    start = time.perf_counter()
    compiled = grid.lower(*arrays, efficiency=efficiency).compile()
    compile_s = time.perf_counter() - start
    table = np.asarray(compiled(*arrays))
    fast_s = _best(lambda: compiled(*arrays).block_until_ready(), repeats)

    sample = np.random.default_rng(0).integers(0, table.shape, (TWIN_SETTINGS, 3))
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
                    {**device, "bytes_s": axes[0][b]},
                    axes[1][c],
                    axes[2][s],
                    200.0,
                    1.0,
                    constants,
                )["tokens_s"]
                for b, c, s in sample
            ]
        )

    slow_s = _best(twin, 1)
    expected = twin()
    # Where one user more or less fits exactly, float32 may round the other way.
    difference = np.abs(table[tuple(sample.T)] / expected - 1.0)
    settings = int(np.prod(SETTINGS))
    return {
        "benchmark": f"throughput grid, {efficiency} efficiency",
        "settings": settings,
        "compile_s": compile_s,
        "run_s": fast_s,
        "settings_s": settings / fast_s,
        "twin_settings_s": TWIN_SETTINGS / slow_s,
        "ratio": settings / fast_s * slow_s / TWIN_SETTINGS,
        "median_difference": float(np.median(difference)),
    }


def _best(call: Callable[[], Any], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)
