"""Run a function over seeds x settings: batches of runs, split over devices and processes."""

import contextlib
import functools
import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jaxmem.common.progress import progress
from jaxmem.results import write_records
from jaxmem.sweep import partial
from jaxmem.sweep.partial import digest
from jaxmem.sweep.result import Sweep
from jaxmem.sweep.settings import RESERVED, short, stack

Function = Callable[[jax.Array, dict[str, Any]], Mapping[str, Any]]


def sweep(
    function: Function,
    seeds: int | Sequence[int],
    settings: Sequence[Mapping[str, Any]] | Mapping[str, Any],
    *,
    key: jax.Array | None = None,
    batch: int = 64,
    path: str | os.PathLike[str] | None = None,
    label: str = "sweep",
    devices: Sequence[jax.Device] | None = None,
) -> Sweep:
    """Every metric of `function(key of the seed, setting)`, for all seeds and settings.

    What the function computes from the key alone (a document, its answers) is computed once a seed
    and shared by its settings. The order of the runs, the batch, the devices and a resume change
    nothing but rounding: results are the same bit for bit if the batch on a device has the same
    shape, else to about 1e-6 (a long training may amplify it). The last batch is padded, so there
    is one compilation; calls with the same function object and shapes share it.

    With `path`, each finished batch is added to PATH.partial at once; the same call after a kill
    goes on from there (with another batch or other devices, if need be). At the end the records are
    written to PATH and PATH.partial is removed. A PATH that exists is computed anew and replaced.

    Under `jax.distributed` every process makes the same call and gets the same result; the runs are
    split over the devices of all, and process 0 alone reads and writes files.

    Args:
      function: un-batched and traceable: (typed key, setting with traced leaves) to a dict of
        numbers or of arrays of a fixed shape.
      seeds: how many (0 to seeds - 1), or which, each in [0, 2^32).
      settings: dicts of the same fields, each a number, an array or a pytree; or one dict of arrays
        or pytrees with a leading axis of settings. [{}] for none.
      key: the key of seed s is `fold_in(key, s)`; `jax.random.key(s)` if None. Draws of the `rbg`
        generators depend on the batch.
      batch: runs at a time on each device, which bounds the memory: whole seeds if their settings
        fit, else settings are split too, and what they share is computed again.
      path: a `.json` or `.csv` file for the records.
      label: what the progress line says.
      devices: where to run; all there are if None.

    Returns:
      The records, arrays and their summary.

    Raises:
      ValueError: if an argument is not as described, the function does not return numbers, or
        PATH.partial is of another sweep.
    """
    numbers = _seed_array(seeds)
    rows, tree = stack(settings)
    if not isinstance(batch, (int, np.integer)) or batch < 1:
        raise ValueError(f"expected batch >= 1, got {batch!r}")
    base = None if key is None else _key_data(key)
    mesh = _mesh(jax.devices() if devices is None else list(devices), len(numbers))
    shapes, program = _traced(function, jax.random.key(0) if key is None else key, tree)
    for name in shapes:
        if name in RESERVED or name in rows[0]:
            raise ValueError(f"{name!r} cannot be the name of a metric: it names another column")
    size = (len(numbers), len(rows))
    values = {name: np.zeros(size + spec.shape, spec.dtype) for name, spec in shapes.items()}
    is_shared = any(d.process_index != jax.process_index() for d in mesh.devices.flat)
    is_writer = not is_shared or jax.process_index() == 0
    header = {
        "function": getattr(function, "__qualname__", type(function).__name__),
        "program": program,
        "seeds": digest(numbers),
        "settings": digest(tree),
        "key": digest(base and (base[0], str(base[1]))),
        "metrics": {name: f"{spec.dtype}{spec.shape}" for name, spec in shapes.items()},
    }
    if is_shared:
        _check_same(digest(f"{header} {batch} {path is None}"))

    done, file = np.zeros(size, bool), None
    if path is not None:
        beside = _beside(path)
        data = beside.read_bytes() if is_writer and beside.exists() else b""
        done, length = partial.load(beside, _same(data) if is_shared else data, header, values)
        file = partial.resume(beside, header, length) if is_writer else None

    step = _steps(mesh, size, batch)
    starts = [
        (i, j)
        for i in range(0, size[0], step[0])
        for j in range(0, size[1], step[1])
        if not done[i : i + step[0], j : j + step[1]].all()
    ]
    with file or contextlib.nullcontext():
        for i, j in progress(starts, label) if is_writer else starts:
            some = np.minimum(np.arange(i, i + step[0]), size[0] - 1)  # padded with the last
            other = np.minimum(np.arange(j, j + step[1]), size[1] - 1)
            found = _batch(
                function,
                program,
                mesh,
                base and base[1],
                _place(mesh, P(), base and base[0]),
                _place(mesh, P("seeds"), numbers[some]),
                _place(mesh, P("settings"), _taken((np.arange(size[1]), tree), other)),
            )
            at = slice(i, min(i + step[0], size[0])), slice(j, min(j + step[1], size[1]))
            for name, value in (_gathered(found) if is_shared else jax.device_get(found)).items():
                values[name][at] = value[: at[0].stop - i, : at[1].stop - j]
            if file:
                partial.append(file, *at, values)

    scalars = {name: array.tolist() for name, array in values.items() if array.ndim == 2}
    records = [
        {"seed": seed, **row, **{name: table[i][j] for name, table in scalars.items()}}
        for i, seed in enumerate(numbers.tolist())
        for j, row in enumerate(rows)
    ]
    if file and path is not None:
        write_records(path, records)
        beside.unlink()
    arrays = {name: array for name, array in values.items() if array.ndim > 2}
    return Sweep(records, arrays, tuple(rows[0]), tuple(scalars))


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _batch(
    function: Function,
    program: str,  # so that a function that closes over other values by now is traced again
    mesh: Mesh,
    impl: Any,
    base: Any,
    seeds: jax.Array,
    settings: Any,
) -> dict[str, jax.Array]:
    """All metrics of seeds [s] x settings [c], each [s, c, ...], on the devices of `mesh`."""

    def one(key: jax.Array, numbered: tuple[jax.Array, dict[str, Any]]) -> dict[str, jax.Array]:
        return _cell(function, key, numbered[1])

    def local(base: Any, seeds: jax.Array, settings: Any) -> dict[str, jax.Array]:
        if base is None:
            keys = jax.vmap(jax.random.key)(seeds)
        else:
            root = jax.random.wrap_key_data(base, impl=impl)
            keys = jax.vmap(lambda seed: jax.random.fold_in(root, seed))(seeds)
        # The inner map does not batch the key: what depends on it alone has no settings axis.
        return jax.vmap(jax.vmap(one, in_axes=(None, 0)), in_axes=(0, None))(keys, settings)

    # Not left to the partitioner, which may gather the batch for a solve or a sort.
    return jax.shard_map(
        local,
        mesh=mesh,
        in_specs=(P(), P("seeds"), P("settings")),
        out_specs=P("seeds", "settings"),
        check_vma=False,
    )(base, seeds, settings)


def _cell(function: Function, key: jax.Array, setting: dict[str, Any]) -> dict[str, jax.Array]:
    """One run, its metrics checked to be arrays of real numbers."""
    found = function(key, setting)
    if not isinstance(found, Mapping) or not found:
        raise ValueError(f"expected the function to return a dict of metrics, got {short(found)}")
    metrics = {}
    for name, value in found.items():
        if not isinstance(name, str):
            raise ValueError(f"expected names of metrics to be text, got {short(name)}")
        try:
            metrics[name] = jnp.asarray(value)
            kind = metrics[name].dtype
        except (TypeError, ValueError):
            kind = np.dtype(object)
        if not any(jnp.issubdtype(kind, real) for real in (np.bool_, np.integer, np.floating)):
            raise ValueError(f"metric {name!r}: expected numbers, got {short(value)}")
    return metrics


def _traced(function: Function, key: jax.Array, tree: Any) -> tuple[dict[str, Any], str]:
    """Shape and type of each metric, in the function's order, and a digest of the program.

    The program is the compiler's input: the function, what it calls and what it closes over.
    """
    order: list[str] = []

    def run(key: jax.Array, setting: dict[str, Any]) -> dict[str, jax.Array]:
        metrics = _cell(function, key, setting)
        order[:] = metrics  # a pytree of dicts would be sorted
        return metrics

    setting = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), tree)
    lowered = jax.jit(run).lower(key, setting)
    return {name: lowered.out_info[name] for name in order}, digest(lowered.as_text())


def _seed_array(seeds: int | Sequence[int]) -> np.ndarray:
    if isinstance(seeds, (int, np.integer)):
        numbers = list(range(seeds))
    elif np.iterable(seeds):
        numbers = seeds.tolist() if hasattr(seeds, "tolist") else list(seeds)
    else:
        raise ValueError(f"expected a number of seeds or a list of them, got {short(seeds)}")
    if not numbers:
        raise ValueError(f"expected at least one seed, got {short(seeds)}")
    for seed in numbers:
        if not isinstance(seed, (int, np.integer)) or not 0 <= seed < 2**32:
            raise ValueError(f"expected integer seeds in [0, 2^32), got {short(seed)}")
    if len(set(numbers)) < len(numbers):
        twice = next(seed for i, seed in enumerate(numbers) if seed in numbers[:i])
        raise ValueError(f"expected different seeds, got {twice} twice")
    return np.array(numbers, np.uint32)


def _key_data(key: jax.Array) -> tuple[np.ndarray, Any]:
    is_key = isinstance(key, jax.Array) and jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
    if not is_key or key.shape:
        raise ValueError(f"expected a typed key (jax.random.key), got {short(key)}")
    return np.asarray(jax.random.key_data(key)), jax.random.key_impl(key)


def _beside(path: str | os.PathLike[str]) -> Path:
    """PATH.partial, after a look at PATH, which is written only at the end."""
    if not str(path).endswith((".json", ".csv")):
        raise ValueError(f"{path}: results are written to .json or .csv")
    if os.path.exists(path) and not os.path.isfile(path):
        raise ValueError(f"{path}: expected a file to write, this is something else")
    return Path(f"{os.fspath(path)}.partial")


def _mesh(devices: list[jax.Device], seeds: int) -> Mesh:
    """Seeds over as many devices as they fill, settings over the rest."""
    if not devices:
        raise ValueError("expected at least one device, got none")
    processes = {device.process_index for device in devices}
    if processes != {jax.process_index()} and len(processes) < jax.process_count():
        raise ValueError("expected devices of this process alone or of every process")
    rows = max(n for n in range(1, len(devices) + 1) if len(devices) % n == 0 and n <= seeds)
    return jax.make_mesh(
        (rows, len(devices) // rows),
        ("seeds", "settings"),
        axis_types=(AxisType.Auto, AxisType.Auto),
        devices=devices,
    )


def _steps(mesh: Mesh, size: tuple[int, int], batch: int) -> tuple[int, int]:
    """Seeds and settings of one batch over all devices, evened out so that little is padded."""

    def even(total: int, devices: int, most: int) -> int:
        rounds = math.ceil(total / (devices * most))
        return math.ceil(total / (devices * rounds))

    settings = even(size[1], mesh.shape["settings"], batch)
    seeds = even(size[0], mesh.shape["seeds"], max(1, batch // settings))
    return seeds * mesh.shape["seeds"], settings * mesh.shape["settings"]


def _taken(tree: Any, index: np.ndarray) -> Any:
    return jax.tree.map(lambda leaf: leaf[index], tree)


def _place(mesh: Mesh, spec: P, tree: Any) -> Any:
    """Arrays that every process has, split over the devices of all."""
    sharding = NamedSharding(mesh, spec)
    return jax.tree.map(
        lambda x: jax.make_array_from_callback(x.shape, sharding, lambda index: x[index]), tree
    )


def _gathered(tree: Any) -> Any:
    """Every process's part of the arrays, in every process."""
    return multihost_utils.process_allgather(tree, tiled=True)


def _same(data: bytes) -> bytes:
    """The bytes that process 0 has, in every process."""
    length = int(multihost_utils.process_allgather(np.int32(len(data)))[0])
    padded = np.zeros(length, np.uint8)
    padded[: len(data)] = np.frombuffer(data, np.uint8)
    return multihost_utils.process_allgather(padded)[0].tobytes() if length else b""


def _check_same(arguments: str) -> None:
    """Processes that disagree would wait for each other, or mix their results."""
    code = np.frombuffer(arguments.encode(), np.uint8)
    if (multihost_utils.process_allgather(code) != code).any():
        raise ValueError("expected the same arguments of sweep in every process")
