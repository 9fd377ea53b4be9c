"""Fit the kernel times to measured ones, and their errors on points that the fit never saw.

The tables are those of aiconfigurator 0.12.0 (Apache-2.0) for an H100 80GB in bf16. Two errors:
on vLLM 0.24, with each batch size (each octave of m for GEMM) and all long contexts left out of
the fit in turn; and on SGLang 0.5.14, an engine that the fit never sees. The errors of one
constant efficiency (MFU 0.70, MBU 0.80) stand beside them.

Data: $JAXMEM_DATA/measured_kernels, else ../shared/data/measured_kernels beside the repository.
"""

import csv
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxmem.roofline import ACCELERATORS, MEASURED, Constant, Measured
from jaxmem.roofline.efficiency import decode_attention_s, gemm_s, prefill_attention_s

H100 = ACCELERATORS["h100-80gb"]
SHIPPED = MEASURED["vllm-hopper"]
FILES = {
    "gemm": "gemm_llama8b",
    "prefill": "context_attention_32_8_128",
    "decode": "generation_attention_32_8_128",
}
# The ramp of decode attention was chosen once on a grid and is kept.
FREE = {
    "gemm": ("launch_s", "mfu", "mbu", "corner"),
    "prefill": ("launch_s", "wave_s", "mfu", "edge_tokens"),
    "decode": ("launch_s", "wave_s", "mbu", "half_bytes", "corner"),
}
BOUNDS = {"mfu": (0.1, 1.0), "mbu": (0.1, 1.0), "corner": (1.0, 12.0)}
OUTLIER = 0.08  # log error from which a point counts less than quadratically
BYTES = 2.0


class Points(NamedTuple):
    """One table of measured kernels, as columns.

    Attributes:
      columns: the call's shape, by name, each [n].
      latency_s: measured seconds, [n].
      group: what is left out together: batch size, or octave of m, [n].
      long: contexts that the extrapolation is tested on, [n].
    """

    columns: dict[str, np.ndarray]
    latency_s: np.ndarray
    group: np.ndarray
    long: np.ndarray


def data_folder() -> Path:
    """Where the tables are; they need not be there."""
    default = Path(__file__).resolve().parents[2] / "shared" / "data"
    return Path(os.environ.get("JAXMEM_DATA", default)) / "measured_kernels"


def read(folder: Path, engine: str, kernel: str) -> Points:
    """The bf16 rows of one table.

    Args:
      folder: of the tables.
      engine: "vllm" or "sglang".
      kernel: "gemm", "prefill" or "decode".

    Returns:
      The points.
    """
    with open(folder / f"h100_{engine}_{FILES[kernel]}.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    if kernel != "gemm":
        rows = [row for row in rows if row["kv_cache_dtype"] == "bfloat16"]
    text = ("framework", "version", "device", "op_name", "kernel_source")
    names = [name for name in rows[0] if name not in text and not name.endswith("dtype")]
    columns = {name: np.array([float(row[name]) for row in rows]) for name in names}
    latency_s = columns.pop("latency") * 1e-3
    if kernel == "gemm":
        return Points(columns, latency_s, np.floor(np.log2(columns["m"])), columns["m"] >= 8192)
    length, limit = ("isl", 8192) if kernel == "prefill" else ("step", 16384)
    return Points(columns, latency_s, columns["batch_size"], columns[length] >= limit)


def predict(kernel: str, columns: dict[str, Any], constants: Measured | Constant) -> Array:
    """Seconds of each call.

    Args:
      kernel: "gemm", "prefill" or "decode".
      columns: its shape, by name, each [n].
      constants: fitted constants, or one efficiency: max(flops / peak, bytes / bandwidth).

    Returns:
      [n] seconds.
    """
    if kernel == "gemm":
        m, n, k = columns["m"], columns["n"], columns["k"]
        flops, nbytes = 2.0 * m * n * k, BYTES * (m * k + k * n + m * n)
    else:
        batch, dim = columns["batch_size"], columns["head_dim"]
        heads, kv_heads = columns["num_heads"], columns["num_key_value_heads"]
        tokens = columns["isl"] if kernel == "prefill" else columns["step"] + 1.0
        pairs = tokens * (tokens + 1.0) / 2.0 if kernel == "prefill" else tokens
        queries = tokens if kernel == "prefill" else 1.0
        flops = 4.0 * batch * heads * dim * pairs
        nbytes = BYTES * 2.0 * batch * dim * (tokens * kv_heads + queries * heads)
    if isinstance(constants, Constant):
        return jnp.maximum(
            flops / (H100.bf16_flops * constants.mfu), nbytes / (H100.bytes_s * constants.mbu)
        )
    if kernel == "gemm":
        return gemm_s(flops, nbytes, H100, constants.gemm)
    if kernel == "prefill":
        shape = (batch, tokens, pairs, 0.0, 0.0, heads, kv_heads, dim)
        return prefill_attention_s(*shape, H100, constants)
    return decode_attention_s(batch, flops, nbytes, kv_heads, H100, constants)


def fit(kernel: str, points: Points, keep: np.ndarray) -> Measured:
    """Constants that fit the logarithms of the kept points.

    min sum 2 s^2 (sqrt(1 + (r / s)^2) - 1), r = log(predicted / measured), by Levenberg and
    Marquardt with reweighting, from the shipped constants.

    Args:
      kernel: "gemm", "prefill" or "decode".
      points: the table.
      keep: which points count, [n].

    Returns:
      The shipped constants with those of this kernel refitted.
    """
    names = FREE[kernel]
    start = np.log([float(getattr(getattr(SHIPPED, kernel), name)) for name in names])
    low, high = np.log([BOUNDS.get(name, (1e-9, 1e12)) for name in names]).T
    residuals, slopes = _residuals(kernel, points)

    def loss(x: np.ndarray) -> float:
        r = np.asarray(residuals(x)) / OUTLIER
        return float(np.sum(keep * (np.sqrt(1.0 + r**2) - 1.0)))

    x, best, damping = start, loss(start), 1e-3
    for _ in range(100):
        r, jacobian = np.asarray(residuals(x)), np.asarray(slopes(x))
        weight = keep / np.sqrt(1.0 + (r / OUTLIER) ** 2)
        normal = jacobian.T @ (weight[:, None] * jacobian)
        downhill = jacobian.T @ (weight * r)
        move = np.linalg.solve(normal + damping * np.diag(np.diag(normal)), downhill)
        candidate = np.clip(x - move, low, high)
        value = loss(candidate)
        if value < best:
            settled = best - value < 1e-10 * best
            x, best, damping = candidate, value, damping / 5.0
            if settled:
                break
        else:
            damping *= 5.0
            if damping > 1e8:
                break
    return _with(kernel, dict(zip(names, np.exp(x))))


def errors(
    kernel: str, points: Points, constants: Measured | Constant, of: np.ndarray
) -> np.ndarray:
    """Absolute relative errors of some points.

    Args:
      kernel: "gemm", "prefill" or "decode".
      points: the table.
      constants: of the prediction.
      of: which points, boolean [n].

    Returns:
      |predicted / measured - 1| of those points.
    """
    predicted = np.asarray(predict(kernel, points.columns, constants))
    return np.abs(predicted / points.latency_s - 1.0)[of]


def held_out(kernel: str, points: Points) -> dict[str, np.ndarray]:
    """Errors on vLLM points by what was left out of the fit.

    Args:
      kernel: "gemm", "prefill" or "decode".
      points: the table.

    Returns:
      Errors by "each batch size in turn" (or octave of m) and "long".
    """
    folds = []
    for group in np.unique(points.group):
        out = points.group == group
        folds.append(errors(kernel, points, fit(kernel, points, ~out), out))
    name = "each octave of m" if kernel == "gemm" else "each batch size"
    limit = {"gemm": "m >= 8192", "prefill": "isl >= 8192", "decode": "step >= 16384"}[kernel]
    long = errors(kernel, points, fit(kernel, points, ~points.long), points.long)
    return {name: np.concatenate(folds), limit: long}


def main() -> list[dict[str, Any]]:
    """Refit, print the constants, and report both error tables.

    Returns:
      A record for each set of points: errors of the fit and of a constant efficiency.

    Raises:
      SystemExit: if the tables are not there.
    """
    folder = data_folder()
    if not folder.is_dir():
        raise SystemExit(f"no measured kernels in {folder}: set JAXMEM_DATA")
    with jax.enable_x64(True):
        return _report(folder)


def _report(folder: Path) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = []
    other: list[np.ndarray] = []
    other_constant: list[np.ndarray] = []
    for kernel in FILES:
        points = read(folder, "vllm", kernel)
        everything = np.ones(len(points.latency_s), bool)
        plain = errors(kernel, points, Constant(), everything)
        held = held_out(kernel, points)
        for name, error in held.items():
            beside = plain[points.long] if ">=" in name else plain
            records.append(_row(kernel, f"vLLM, left out: {name}", error, beside))
        pooled = np.concatenate(list(held.values()))
        both = np.concatenate([plain, plain[points.long]])
        records.append(_row(kernel, "vLLM, left out: all of these", pooled, both))
        refitted = getattr(fit(kernel, points, everything), kernel)
        shipped = getattr(SHIPPED, kernel)._asdict()
        words = [f"{name} {getattr(refitted, name):.4g} ({shipped[name]:g})" for name in shipped]
        print(f"{kernel}, refitted (shipped): {', '.join(words)}")
        unseen = read(folder, "sglang", kernel)
        everything = np.ones(len(unseen.latency_s), bool)
        other.append(errors(kernel, unseen, SHIPPED, everything))
        other_constant.append(errors(kernel, unseen, Constant(), everything))
        records.append(_row(kernel, "SGLang", other[-1], other_constant[-1]))
    pooled, beside = np.concatenate(other), np.concatenate(other_constant)
    records.append(_row("all", "SGLang", pooled, beside))
    return records


def _row(kernel: str, points: str, error: np.ndarray, constant: np.ndarray) -> dict[str, Any]:
    return {
        "kernel": kernel,
        "points": points,
        "n": len(error),
        "median_%": 100 * float(np.median(error)),
        "p90_%": 100 * float(np.quantile(error, 0.9)),
        "constant_median_%": 100 * float(np.median(constant)),
        "constant_p90_%": 100 * float(np.quantile(constant, 0.9)),
    }


def _with(kernel: str, values: dict[str, Any]) -> Measured:
    return SHIPPED._replace(**{kernel: getattr(SHIPPED, kernel)._replace(**values)})


def _residuals(
    kernel: str, points: Points
) -> tuple[Callable[[np.ndarray], Array], Callable[[np.ndarray], Array]]:
    """Log errors of all points and their slopes, as functions of the log constants."""
    key = (kernel, points.latency_s.tobytes())
    if key not in _COMPILED:
        columns = {name: jnp.asarray(column) for name, column in points.columns.items()}
        target = jnp.log(jnp.asarray(points.latency_s))

        def residuals(x: Array) -> Array:
            constants = _with(kernel, dict(zip(FREE[kernel], jnp.exp(x))))
            return jnp.log(predict(kernel, columns, constants)) - target

        _COMPILED[key] = (jax.jit(residuals), jax.jit(jax.jacfwd(residuals)))
    return _COMPILED[key]


_COMPILED: dict[Any, Any] = {}
