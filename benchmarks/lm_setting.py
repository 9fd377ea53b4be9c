"""What `lm.py` measures on and by: sizes, prefixes and rows, runs in turn, FLOPs, peak memory."""

import ctypes
import dataclasses
import gc
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxmem.lm import Config
from jaxmem.lm.cartridges.course import Course
from jaxmem.lm.cartridges.prefix import prefix_cartridge
from jaxmem.lm.cartridges.rows import Example, Rows, pack
from jaxmem.lm.cartridges.teacher import teach
from jaxmem.lm.parameters import Params
from jaxmem.recall.cartridges import Cartridge

KINDS = ("bfloat16", "float32")
ROUNDS_S = 6.0  # after so many seconds no further round of a comparison is started

_M_MMAP_THRESHOLD = -3  # of glibc's malloc.h

Records = list[dict[str, Any]]
Systems = dict[str, Callable[[], Any]]


class Sizes(NamedTuple):
    """What is measured.

    rows, length: of a batch to read or to train on, and their tokens.
    alone: tokens of the single row.
    some: logits that are asked for where not all are; a multiple of `rows`.
    slots: of the cartridge.
    prompt, new: tokens given and made in decoding.
    batches: rows of decoding.
    documents: tokens of the long prefixes, the first of which is read whole.
    top_k: likeliest tokens of a lesson.
    products: rows, inputs and outputs of matrix products.
    runs: most timed runs of each system.
    """

    rows: int = 8
    length: int = 64
    alone: int = 512
    some: int = 64
    slots: int = 132
    prompt: int = 128
    new: int = 64
    batches: tuple[int, ...] = (1, 32)
    documents: tuple[int, ...] = (1063, 7000)
    top_k: int = 32
    products: tuple[tuple[int, int, int], ...] = (
        (512, 576, 3072),
        (2048, 576, 1536),
        (1024, 2048, 2048),
        (2048, 2048, 2048),
    )
    runs: int = 3


class Setting(NamedTuple):
    """All that the measurements share.

    config: the model's shape.
    params: by type.
    ids: [N] a text's tokens.
    sizes: what is measured.
    document: the first of `Sizes.documents`, read.
    start: the cartridge of the text's first tokens.
    course: rows of the text's end, the second half of each predicted, and what the document says.
    rival: the module lm_transformers, or None.
    models: its models by type.
    """

    config: Config
    params: dict[str, Params]
    ids: np.ndarray
    sizes: Sizes
    document: Cartridge
    start: Cartridge
    course: Course
    rival: Any
    models: dict[str, Any]


def setting_of(
    config: Config, params: Params, ids: np.ndarray, sizes: Sizes, rival: Any
) -> Setting:
    """Both types of a model given in float32, ours and the rival's, and what is read once."""
    casts = {kind: jax.tree.map(lambda p, to=kind: p.astype(to), params) for kind in KINDS}
    document = prefix_cartridge(casts["bfloat16"], config, ids[: sizes.documents[0]])
    start = prefix_cartridge(params, config, ids[: sizes.slots])
    rows = rows_of(ids, sizes)
    lesson = teach(casts["bfloat16"], config, rows, document, top_k=sizes.top_k, batch=sizes.rows)
    models: dict[str, Any] = {}
    if rival:
        built = rival.build(config, params)
        models = {kind: rival.as_type(built, kind) for kind in KINDS}
    return Setting(config, casts, ids, sizes, document, start, Course(rows, lesson), rival, models)


def rows_of(ids: np.ndarray, sizes: Sizes) -> Rows:
    """The text's end in rows without padding, the second half of each predicted."""
    rows, half = ids[-sizes.rows * sizes.length :].reshape(sizes.rows, -1), sizes.length // 2
    return pack([Example(tuple(r[:half]), tuple(r[half:])) for r in rows.tolist()], sizes.length)


def longer(document: Cartridge, count: int) -> Cartridge:
    """A document of so many tokens: the slots of a shorter one, repeated.

    Speed and memory depend on shapes alone, and reading would take longer than the rest.
    """
    again = np.arange(count) % document.slots
    return dataclasses.replace(
        document,
        keys=document.keys[:, :, again],
        values=document.values[:, :, again],
        positions=jnp.arange(count),
        first_question=count,
    )


def products(setting: Setting) -> tuple[dict[str, float], Records]:
    """FLOP/s of the best product of each type, whoever makes it, and a record a product."""
    peaks = dict.fromkeys(KINDS, 0.0)
    records: Records = []
    product = jax.jit(partial(jnp.matmul, preferred_element_type=jnp.float32))
    for kind in KINDS:
        for rows, inputs, outputs in setting.sizes.products:
            shapes = (rows, inputs), (inputs, outputs)
            factors = [jax.random.normal(jax.random.key(0), shape, kind) for shape in shapes]
            systems: Systems = {f"jax {kind}": partial(product, *factors)}
            if setting.rival:
                systems[f"torch {kind}"] = setting.rival.matmul(*shapes, kind)
            in_turn(systems, 2)
            for name, taken in in_turn(systems, 3 * setting.sizes.runs).items():
                rate = 2.0 * rows * inputs * outputs / min(taken)
                peaks[kind] = max(peaks[kind], rate)
                made = {
                    "benchmark": f"product {rows} x {inputs} x {outputs}",
                    "system": name,
                    "seconds": min(taken),
                    "median_s": median(taken),
                    "gflops_s": rate / 1e9,
                }
                records.append(made)
    for record in records:
        kind = next(kind for kind in KINDS if kind in record["system"])
        record["share_of_matmul_peak"] = record["gflops_s"] * 1e9 / peaks[kind]
    return peaks, records


def pass_flops(
    config: Config, rows: int, length: int, prefix: int, heads: int, gradient: bool = False
) -> float:
    """Of a pass over rows behind a prefix with so many logits, from shapes.

    A gradient by activations costs products of frozen weights once more, and attention, by
    queries, keys and values, twice more. What attention masks is not counted.
    """
    weights = (shape for shape in config.shapes.values() if len(shape) == 3)
    each = 2.0 * sum(layers * inputs * outputs for layers, inputs, outputs in weights)
    read = 4.0 * config.layers * config.heads * config.head_dim * (prefix + (length + 1) / 2)
    head = 2.0 * config.hidden * config.vocabulary * heads
    if gradient:
        return rows * length * (2 * each + 3 * read) + 2 * head
    return rows * length * (each + read) + head


def seconds(run: Callable[[], Any]) -> float:
    """Of one call, until its result is there."""
    start = time.perf_counter()
    jax.block_until_ready(run())
    return time.perf_counter() - start


def in_turn(systems: Systems, runs: int) -> dict[str, list[float]]:
    """Seconds of the runs of each, A B A B, so that a slow spell of the machine meets all."""
    found: dict[str, list[float]] = {name: [] for name in systems}
    start = time.perf_counter()
    for round in range(runs):
        if round > 1 and time.perf_counter() - start > ROUNDS_S:
            break
        for name, run in systems.items():
            time.sleep(0.02)  # until the threads of the one before no longer wait at full speed
            found[name].append(seconds(run))
    return found


def contest(ours: Systems, rivals: dict[str, Systems], runs: int) -> dict[str, list[float]]:
    """Times of ours and of the fastest variant of each rival, once all are compiled and warm."""
    for run in ours.values():
        seconds(run)
    chosen = dict(ours)
    for name, variants in rivals.items():
        trial = {}
        for label, run in variants.items():
            trial[label] = seconds(run)
            if trial[label] < 1.0:  # the first run of a shape is slower, if not by much
                trial[label] = seconds(run)
        best = min(trial, key=trial.__getitem__)
        chosen[f"{name} {best}"] = variants[best]
    return in_turn(chosen, runs)


def records_of(
    what: str,
    times: dict[str, list[float]],
    tokens: int,
    flops: float,
    peaks: dict[str, float],
) -> Records:
    """A record a system: speed, its ratios to transformers, its share of the peak of its type."""
    best = {name: min(taken) for name, taken in times.items()}
    rivals = {name: taken for name, taken in best.items() if name.startswith("transformers")}
    records: Records = []
    for name, taken in best.items():
        kind = next(kind for kind in KINDS if kind in name)
        same = [other for rival, other in rivals.items() if kind in rival]
        records.append(
            {
                "benchmark": what,
                "system": name,
                "seconds": taken,
                "median_s": median(times[name]),
                "tokens_s": tokens / taken,
                "speed_over_transformers": min(rivals.values()) / taken if rivals else None,
                "speed_over_same_type": min(same) / taken if same else None,
                "gflops_s": flops / taken / 1e9,
                "share_of_matmul_peak": flops / taken / peaks[kind],
            }
        )
    return records


def peak_gb(run: Callable[[], Any]) -> float | None:
    """GB of resident memory that a call needs on top of what was there; None without Linux."""
    reset, status = Path("/proc/self/clear_refs"), Path("/proc/self/status")
    if not reset.exists():
        return None
    gc.collect()
    libc = ctypes.CDLL(None)
    libc.mallopt(_M_MMAP_THRESHOLD, 2**17)  # what is freed goes back,
    libc.malloc_trim(0)  # so that it does not hide a need
    reset.write_text("5")  # the peak counts from here

    def kilobytes(name: str) -> int:
        lines = status.read_text().splitlines()
        return int(next(line for line in lines if line.startswith(name)).split()[1])

    before = kilobytes("VmRSS:")
    jax.block_until_ready(run())
    return (kilobytes("VmHWM:") - before) * 1024 / 1e9
