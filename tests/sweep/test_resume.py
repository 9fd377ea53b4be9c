"""Sweeps that are killed and resumed, on several devices and in several processes."""

import functools
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sweep_workers import CASES, EXACT, fit

from jaxmem.results import read_records
from jaxmem.sweep import Sweep, batches, grid, partial, sweep

SCRIPT = Path(__file__).with_name("sweep_workers.py")


def scaled(key: jax.Array, setting: dict[str, Any]) -> dict[str, Any]:
    return {"y": setting["a"] * jax.random.normal(key)}


def start(*arguments: object, devices: int = 1) -> subprocess.Popen[str]:
    """A worker with so many fake CPU devices."""
    environment = {
        **os.environ,
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": os.environ.get("XLA_FLAGS", "")  # as here, for equal bits
        + f" --xla_force_host_platform_device_count={devices}",
        "PYTHONPATH": os.pathsep.join(
            [str(Path(batches.__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
        ),
    }
    command = [sys.executable, str(SCRIPT), *map(str, arguments)]
    return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)


def finish(processes: list[subprocess.Popen[str]], code: int = 0) -> None:
    """Wait for workers; if one fails or hangs, end all."""
    try:
        for process in processes:
            _, error = process.communicate(timeout=60)
            assert process.returncode == code, error[-3000:]
    finally:
        for process in processes:
            process.kill()


def close(found: dict[str, Any], wanted: Sweep, rtol: float) -> None:
    """What a worker saved, against a sweep of this process."""
    assert [list(row) for row in found["records"]] == [list(row) for row in wanted.records]
    for name in wanted.records[0]:
        ours, theirs = ([row[name] for row in rows] for rows in (wanted.records, found["records"]))
        np.testing.assert_allclose(theirs, ours, rtol=rtol, atol=rtol, err_msg=name)
    np.testing.assert_allclose(found["weights"], wanted.arrays["weights"], rtol=rtol, atol=rtol)


# Kill and resume.


def stop_after(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Interrupt sweeps after so many batches were written."""
    original, done = partial.append, []

    def append(*arguments: Any) -> None:
        original(*arguments)
        done.append(1)
        if len(done) == count:
            raise KeyboardInterrupt

    monkeypatch.setattr(partial, "append", append)


@pytest.mark.parametrize("written", [0, 3])
def test_killed_and_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: int) -> None:
    killed, whole = tmp_path / "killed.json", tmp_path / "whole.json"
    finish([start("killed", killed, written)], -signal.SIGKILL)
    assert not killed.exists()
    beside = Path(f"{killed}.partial")
    assert len(beside.read_bytes().split(b"\n")) == written + 2  # header, batches, torn line
    settings = CASES["divides"][1]
    wanted = sweep(fit, 8, settings, batch=3, path=whole)
    ran = []
    monkeypatch.setattr(batches, "progress", lambda items, label: ran.extend(items) or items)
    found = sweep(fit, 8, settings, batch=3, path=killed)
    assert len(ran) == 8 - written
    assert killed.read_bytes() == whole.read_bytes()
    assert not beside.exists()
    np.testing.assert_array_equal(found.arrays["weights"], wanted.arrays["weights"])


def test_resumed_twice_and_with_another_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, settings = tmp_path / "r.csv", grid(rate=[0.1, 0.3, 0.5])
    wanted = sweep(fit, 7, settings, batch=3)
    for count in (2, 1):
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            stop_after(patch, count)
            sweep(fit, 7, settings, batch=3, path=path)
        with open(f"{path}.partial", "ab") as file:
            file.write(b'{"seeds": [')
    found = sweep(fit, 7, settings, batch=2, path=path)
    assert found.records[:9] == wanted.records[:9]
    np.testing.assert_allclose(
        [row["loss"] for row in found.records],
        [row["loss"] for row in wanted.records],
        rtol=1e-6,
        atol=1e-7,
    )


def test_special_floats_survive_a_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def odd(key: jax.Array, setting: dict[str, Any]) -> dict[str, Any]:
        x = jnp.array([jnp.nan, jnp.inf, -jnp.inf, -0.0, 1e-45, 0.1]) * setting["a"]
        return {
            "x": x,
            "half": x.astype(jnp.bfloat16),
            "count": jnp.uint32(2**32 - 1),
            "ok": setting["a"] > 0,
        }

    settings = grid(a=[1.0, 3.0])
    wanted = sweep(odd, 2, settings)
    stop_after(monkeypatch, 1)
    path = tmp_path / "r.json"
    with pytest.raises(KeyboardInterrupt):
        sweep(odd, 2, settings, path=path)
    monkeypatch.undo()
    monkeypatch.setattr(batches, "_batch", None)  # nothing is left to compute
    found = sweep(odd, 2, settings, path=path)
    assert found.records == wanted.records
    for name, array in wanted.arrays.items():
        assert found.arrays[name].dtype == array.dtype
        np.testing.assert_array_equal(np.isnan(found.arrays[name]), np.isnan(array))
        ours, theirs = (np.nan_to_num(a.astype(np.float32)) for a in (found.arrays[name], array))
        assert ours.tobytes() == theirs.tobytes()


def test_partial_file_of_another_sweep_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "r.json"

    def times(factor: Any, key: jax.Array, setting: dict[str, Any]) -> dict[str, Any]:
        return {"y": factor * setting["a"]}

    table = np.arange(40.0, dtype=np.float32)
    same = functools.partial(times, 2.0)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        stop_after(patch, 1)
        sweep(same, 4, grid(a=[1.0, 2.0]), path=path, batch=2)
    kept = Path(f"{path}.partial").read_bytes()
    others: list[tuple[str, Any, Any, Any, Any]] = [
        ("seeds", same, 5, grid(a=[1.0, 2.0]), None),
        ("settings", same, 4, grid(a=[1.0, 2.5]), None),
        ("key", same, 4, grid(a=[1.0, 2.0]), jax.random.key(0)),
        ("program", functools.partial(times, 2.5), 4, grid(a=[1.0, 2.0]), None),
        (
            "function, program",
            lambda k, s: {"y": table.sum() * s["a"]},
            4,
            grid(a=[1.0, 2.0]),
            None,
        ),
    ]
    for name, function, seeds, settings, key in others:
        with pytest.raises(ValueError, match=f"is of another sweep, with other {name};"):
            sweep(function, seeds, settings, path=path, key=key)
    assert Path(f"{path}.partial").read_bytes() == kept
    assert len(sweep(same, 4, grid(a=[1.0, 2.0]), path=path).records) == 8
    for text in ("", "[]\n", '{"sweep": 3}\n', "seed,y", "{}\n"):
        Path(f"{path}.partial").write_text(text)
        if text:
            with pytest.raises(ValueError, match=r"expected the file of an unfinished sweep"):
                sweep(same, 4, grid(a=[1.0]), path=path)
        else:
            sweep(same, 4, grid(a=[1.0]), path=path)


# Devices and processes.


def test_four_devices(tmp_path: Path) -> None:
    finish([start("devices", tmp_path / "out.json", devices=4)])
    found = json.loads((tmp_path / "out.json").read_text())
    assert list(found) == list(CASES)
    for name, (seeds, settings, batch) in CASES.items():
        wanted = sweep(fit, seeds, settings, batch=batch)
        close(found[name], wanted, 0 if name in EXACT else 1e-6)


def test_two_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "r.json"
    seeds, settings, _ = CASES["padded"]
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        stop_after(patch, 1)
        sweep(fit, seeds, settings, batch=3, path=path)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    outs = [tmp_path / f"{rank}.json" for rank in range(2)]
    finish([start("process", i, port, out, path, devices=2) for i, out in enumerate(outs)])
    assert outs[0].read_bytes() == outs[1].read_bytes()
    found = json.loads(outs[0].read_text())
    for name in ("resumed", "alone"):
        close(found[name], sweep(fit, *CASES["padded"][:2]), 1e-6)
    assert read_records(path) == found["resumed"]["records"]
    assert not Path(f"{path}.partial").exists()


@pytest.mark.parametrize(
    ("devices", "seeds", "shape"),
    [
        (1, 5, (1, 1)),
        (4, 8, (4, 1)),
        (4, 3, (2, 2)),
        (6, 4, (3, 2)),
        (5, 4, (1, 5)),
        (8, 1, (1, 8)),
    ],
)
def test_seeds_fill_devices_first(
    monkeypatch: pytest.MonkeyPatch, devices: int, seeds: int, shape: tuple[int, int]
) -> None:
    monkeypatch.setattr(jax, "make_mesh", lambda shape, *rest, **named: shape)
    assert batches._mesh(jax.devices()[:1] * devices, seeds) == shape
