"""Measured efficiency: where it exists, its shape, and its errors on measured kernels."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmem.roofline import ACCELERATORS, MEASURED, MODELS, Constant, Measured, prefill, stack
from jaxmem.roofline.efficiency import (
    decode_attention_s,
    gemm_s,
    prefill_attention_s,
    resolve,
    smooth_max,
)

SMALL, H100 = MODELS["llama-3-8b"], ACCELERATORS["h100-80gb"]
KERNELS = MEASURED["vllm-hopper"]


def test_measured_is_the_default_where_it_exists() -> None:
    for name, device in ACCELERATORS.items():
        expected = Measured if name in ("h100-80gb", "h200") else Constant
        assert isinstance(resolve(None, SMALL, device), expected), name
    assert isinstance(resolve(None, MODELS["deepseek-v3"], H100), Constant)  # 8-bit products
    assert isinstance(resolve(None, MODELS["gpt-oss-20b"], H100), Measured)
    assert isinstance(resolve(None, SMALL, stack([H100, ACCELERATORS["h200"]])), Measured)
    assert isinstance(resolve(None, SMALL, stack([H100, ACCELERATORS["b200"]])), Constant)
    assert resolve("constant", SMALL, H100) == Constant(0.70, 0.80)
    assert resolve(Constant(0.5, 0.6), SMALL, H100) == Constant(0.5, 0.6)


@pytest.mark.parametrize(
    ("efficiency", "model", "device", "message"),
    [
        ("measured", "llama-3-8b", "b200", "measured efficiency exists for .* got b200 with bf16"),
        ("measured", "deepseek-v3", "h200", "got h200 with bf16, fp8"),
        ("best", "llama-3-8b", "h200", "efficiency must be 'constant' or 'measured', got 'best'"),
    ],
)
def test_refusals(efficiency: str, model: str, device: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        prefill(MODELS[model], ACCELERATORS[device], 10, efficiency=efficiency)


def test_at_most_six_constants_a_kernel() -> None:
    for family in MEASURED.values():
        assert all(len(kernel) <= 6 for kernel in family)


def test_smooth_max_is_no_less_than_both() -> None:
    a, b = jnp.array([1e-9, 1.0, 3e-5]), jnp.array([2e-9, 0.0, 3e-5])
    for corner in (1.0, 2.4, 12.0):
        assert bool(jnp.all(smooth_max(a, b, corner) >= jnp.maximum(a, b) * (1 - 1e-6)))
    assert smooth_max(a, b, 1.0) == pytest.approx(a + b)


def test_no_kernel_beats_the_peak_and_more_work_takes_longer() -> None:
    grid = np.geomspace(1, 1e6, 60)
    for n, k in ((512, 512), (4096, 14336), (128256, 4096)):
        flops, nbytes = 2 * grid * n * k, 2 * (grid * n + grid * k + n * k)
        seconds = np.asarray(gemm_s(flops, nbytes, H100, KERNELS.gemm))
        check(seconds, flops, nbytes)
    for heads, kv_heads in ((32, 8), (4, 1), (32, 32), (128, 1)):
        for head_dim in (64, 128, 256):
            for batch in (1.0, 64.0, 1024.0):
                unit, shape = 4 * batch * heads * head_dim, (heads, kv_heads, head_dim)
                own = grid * (grid + 1) / 2
                new = prefill_attention_s(batch, grid, own, 0.0, 0.0, *shape, H100, KERNELS)
                check(np.asarray(new), unit * own, 0 * grid)
                cached_bytes = 4 * batch * grid * kv_heads * head_dim
                old = prefill_attention_s(
                    batch, 250.0, 31375.0, 250 * grid, cached_bytes, *shape, H100, KERNELS
                )
                check(np.asarray(old), unit * 250 * grid, cached_bytes)
                nbytes = 4 * batch * head_dim * (grid * kv_heads + heads)
                step = decode_attention_s(batch, unit * grid, nbytes, kv_heads, H100, KERNELS)
                check(np.asarray(step), unit * grid, nbytes)


def check(seconds: np.ndarray, flops: np.ndarray, nbytes: np.ndarray) -> None:
    assert np.all(np.diff(seconds) >= -1e-6 * seconds[1:])
    assert np.all(flops / seconds <= H100.bf16_flops)
    assert np.all(nbytes / seconds <= H100.bytes_s)


@pytest.fixture(scope="module")
def fitting() -> ModuleType:
    path = Path(__file__).resolve().parents[2] / "benchmarks" / "kernel_efficiency.py"
    spec = importlib.util.spec_from_file_location("kernel_efficiency", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("kernel", ["gemm", "prefill", "decode"])
def test_errors_on_points_left_out(kernel: str, fitting: ModuleType, data_dir: Path) -> None:
    with jax.enable_x64(True):
        points = fitting.read(data_dir / "measured_kernels", "vllm", kernel)
        for left_out, error in fitting.held_out(kernel, points).items():
            assert np.median(error) <= 0.08, left_out
            assert np.quantile(error, 0.9) <= 0.20, left_out
        everything = np.ones(len(points.latency_s), bool)
        refitted: Any = getattr(fitting.fit(kernel, points, everything), kernel)
    for name, shipped in getattr(KERNELS, kernel)._asdict().items():
        assert float(getattr(refitted, name)) == pytest.approx(shipped, rel=5e-3), name


def test_errors_on_an_engine_the_fit_never_saw(fitting: ModuleType, data_dir: Path) -> None:
    found, beside = [], []
    for kernel in ("gemm", "prefill", "decode"):
        points = fitting.read(data_dir / "measured_kernels", "sglang", kernel)
        everything = np.ones(len(points.latency_s), bool)
        found.append(fitting.errors(kernel, points, KERNELS, everything))
        beside.append(fitting.errors(kernel, points, Constant(), everything))
    assert np.median(np.concatenate(found)) <= 0.18
    assert np.quantile(np.concatenate(found), 0.9) <= 0.35
    assert np.median(np.concatenate(beside)) > 0.25  # the constant model, for comparison
