"""Sweeps in processes of their own: `python sweep_workers.py MODE ...`, called by test_resume."""

import json
import os
import signal
import sys
from typing import Any, BinaryIO

import jax
import jax.numpy as jnp

from jaxmem.sweep import Sweep, grid, sweep
from jaxmem.sweep import partial as partial_file

# Name: seeds, settings, batch.
CASES: dict[str, tuple[int, list[dict[str, Any]], int]] = {
    "divides": (8, grid(rate=[0.1, 0.3, 0.5]), 6),
    "padded": (5, grid(rate=[0.1, 0.3, 0.5]), 6),
    "few seeds": (2, grid(rate=[0.1, 0.2, 0.3, 0.4, 0.5], steps=[1, 3]), 4),
}
EXACT = {"divides"}  # two seeds a device and batch, on one device as on four


def fit(key: jax.Array, setting: dict[str, Any]) -> dict[str, jax.Array]:
    """Gradient descent on a random least-squares problem."""
    draws = jax.random.normal(key, (14, 4))
    x = draws[:12]
    y = x @ draws[12] + 0.1 * draws[13, 0] * x[:, 0] ** 2
    limit = setting.get("steps", 3)

    def step(w: jax.Array, i: jax.Array) -> tuple[jax.Array, None]:
        gradient = x.T @ (x @ w - y) / 12
        return jnp.where(i < limit, w - setting["rate"] * gradient, w), None

    w, _ = jax.lax.scan(step, jnp.zeros(4), jnp.arange(4))
    return {"loss": jnp.mean((x @ w - y) ** 2), "large": jnp.abs(w).max() > 1, "weights": w}


def save(path: str, found: dict[str, Sweep]) -> None:
    """Records and arrays of sweeps, for the test to compare."""
    content = {
        name: {"records": one.records, "weights": one.arrays["weights"].tolist()}
        for name, one in found.items()
    }
    with open(path, "w") as file:
        json.dump(content, file)


def run_devices(out: str) -> None:
    """All cases on four fake devices."""
    assert len(jax.devices()) == 4
    save(out, {name: sweep(fit, s, c, batch=b) for name, (s, c, b) in CASES.items()})


def run_killed(path: str, batches: str) -> None:
    """A sweep that is killed while it writes the batch after so many."""
    original, count = partial_file.append, 0

    def append(file: BinaryIO, seeds: slice, settings: slice, values: dict[str, Any]) -> None:
        nonlocal count
        if count == int(batches):
            file.write(b'{"seeds": [4, 5], "settings": [0, 3], "metrics": {"loss": [[0.12')
            file.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        count += 1
        original(file, seeds, settings, values)

    partial_file.append = append
    sweep(fit, 8, CASES["divides"][1], batch=3, path=path)


def run_process(rank: str, port: str, out: str, path: str) -> None:
    """One of two processes with two fake devices each."""
    jax.distributed.initialize(f"127.0.0.1:{port}", 2, int(rank), initialization_timeout=40)
    assert (len(jax.devices()), len(jax.local_devices())) == (4, 2)
    seeds, settings, batch = CASES["padded"]
    found = {
        "resumed": sweep(fit, seeds, settings, batch=batch, path=path),
        "alone": sweep(fit, seeds, settings, batch=batch, devices=jax.local_devices()),
    }
    try:
        sweep(fit, seeds + int(rank), settings)
        raise AssertionError("other seeds in the other process were taken")
    except ValueError as error:
        print(error, file=sys.stderr)
    save(out, found)
    jax.distributed.shutdown()


if __name__ == "__main__":
    {"devices": run_devices, "killed": run_killed, "process": run_process}[sys.argv[1]](
        *sys.argv[2:]
    )
