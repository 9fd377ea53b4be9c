"""Whole hit curve in one pass against one replay a capacity.

Rivals: an OrderedDict in Python, and libCacheSim's LRU (`process_trace` over a binary trace in
the page cache; with its default hash table, and with the size of table that is fastest). All get
integer ids that are already in memory. Times are the best of several runs; ours leaves the
compile out, which is shown apart.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxmem.common.progress import progress
from jaxmem.prefix_cache import NEVER, read_trace, stack_distances
from jaxmem.reference.prefix_cache import lru_hits

ZIPF_ACCESSES, ZIPF_OBJECTS, ZIPF_SKEW = 10_000_000, 1_000_000, 1.0
RUNS = 5
CAPACITIES = 20


def zipf_ids() -> np.ndarray:
    """10 million draws from a million objects with P(rank) ~ 1 / rank, labels shuffled."""
    rng = np.random.default_rng(0)
    weights = np.cumsum(1 / np.arange(1, ZIPF_OBJECTS + 1) ** ZIPF_SKEW)
    ranks = np.searchsorted(weights / weights[-1], rng.random(ZIPF_ACCESSES))
    return rng.permutation(ZIPF_OBJECTS)[ranks].astype(np.int32)


def mooncake_ids() -> np.ndarray | None:
    """Block ids of the Mooncake conversation trace, or None without the data."""
    default = Path(__file__).resolve().parents[2] / "shared" / "data"
    path = Path(os.environ.get("JAXMEM_DATA", default)) / "mooncake" / "conversation_trace.jsonl"
    return read_trace(path).block_ids.astype(np.int32) if path.exists() else None


def whole_curve(ids: np.ndarray) -> np.ndarray:
    """Hits at every capacity 0..max: distances, their histogram, its running sum."""
    distances = np.asarray(stack_distances(ids))
    counts = np.bincount(distances[distances != NEVER])
    return np.concatenate([[0], np.cumsum(counts)])


def best_of(run: Callable[[], Any], times: int) -> tuple[float, Any]:
    """(seconds of the fastest run, what it returned)."""
    fastest, value = np.inf, None
    for _ in range(times):
        start = time.perf_counter()
        value = run()
        fastest = min(fastest, time.perf_counter() - start)
    return fastest, value


class LibCacheSim:
    """libCacheSim's LRU over a binary trace file."""

    def __init__(self, ids: np.ndarray, folder: str, name: str) -> None:
        """Write the trace where the C++ reader can map it."""
        import libcachesim

        self.module = libcachesim
        kind = [("time", "<u4"), ("id", "<u8"), ("size", "<u4"), ("next", "<i8")]
        rows = np.zeros(len(ids), kind)
        rows["time"], rows["id"], rows["size"], rows["next"] = np.arange(len(ids)), ids + 1, 1, -1
        self.path = str(Path(folder) / f"{name}.oracleGeneral.bin")
        rows.tofile(self.path)
        self.accesses = len(ids)

    def replay(self, capacity: int, hash_power: int) -> tuple[float, int]:
        """(seconds, hits) of one replay; opening the trace is not counted."""
        kind = self.module.TraceType.ORACLE_GENERAL_TRACE
        reader = self.module.TraceReader(self.path, kind)
        cache = self.module.LRU(capacity, hashpower=hash_power)
        start = time.perf_counter()
        miss_ratio, _ = cache.process_trace(reader)
        return time.perf_counter() - start, round((1 - miss_ratio) * self.accesses)


def peak_bytes_per_access(ids: np.ndarray, folder: str) -> float:
    """Peak memory of the curve beyond the loaded ids, compile included, in a fresh process."""
    path = Path(folder) / "ids.npy"
    np.save(path, ids)
    command = [sys.executable, __file__, str(path)]
    return float(json.loads(subprocess.run(command, capture_output=True, check=True).stdout))


def measure(name: str, ids: np.ndarray, folder: str) -> list[dict[str, Any]]:
    """Records of one trace."""
    unique = len(np.unique(ids))
    capacities = [max(1, unique * (i + 1) // (2 * CAPACITIES)) for i in range(CAPACITIES)]
    tenth = unique // 10
    rows: list[dict[str, Any]] = []

    def add(system: str, covered: int | str, seconds: float, **more: Any) -> None:
        rate = len(ids) / seconds / 1e6
        rows.append(
            {"trace": name, "system": system, "capacities": covered, "seconds": seconds}
            | {"million_accesses_s": rate}
            | more
        )

    first, _ = best_of(lambda: whole_curve(ids), 1)
    try:
        simulator = LibCacheSim(ids, folder, name)
        powers = {"default table": 24}
        trial = {p: min(simulator.replay(tenth, p)[0] for _ in range(2)) for p in range(14, 24)}
        powers["best table"] = min(trial, key=trial.__getitem__)
    except ImportError:
        print("libcachesim is not installed (pip install 'jaxmem[bench]'): left out")
        powers = {}
    # Ours and the rival in turn, so that a drift of the machine's speed meets both.
    ours, replayed = np.inf, dict.fromkeys(powers, np.inf)
    hits: dict[str, int] = {}
    for _ in range(RUNS):
        seconds, curve = best_of(lambda: whole_curve(ids), 1)
        ours = min(ours, seconds)
        for label, power in powers.items():
            seconds, hits[label] = simulator.replay(tenth, power)
            replayed[label] = min(replayed[label], seconds)
    wanted = int(curve[min(tenth, len(curve) - 1)])
    assert all(abs(h - wanted) <= 1 for h in hits.values()), (hits, wanted)

    add(
        "jaxmem, whole curve",
        "all",
        ours,
        compile_s=max(first - ours, 0.0),
        bytes_per_access=peak_bytes_per_access(ids, folder),
    )
    for label, power in powers.items():
        system = f"libCacheSim LRU, {label} (2^{power})"
        add(system, 1, replayed[label], over_jaxmem=replayed[label] / ours)
        total = sum(simulator.replay(c, power)[0] for c in progress(capacities, "libCacheSim"))
        add(system, CAPACITIES, total, over_jaxmem=total / ours)
    listed = ids.tolist()
    seconds, count = best_of(lambda: lru_hits(listed, tenth), 1)
    assert count == wanted, (count, wanted)
    add("OrderedDict", 1, seconds, over_jaxmem=seconds / ours)
    total = 0.0
    for capacity in progress(capacities, "OrderedDict"):
        total += best_of(partial(lru_hits, listed, capacity), 1)[0]
    add("OrderedDict", CAPACITIES, total, over_jaxmem=total / ours)
    return rows


TRACES: dict[str, Callable[[], np.ndarray | None]] = {
    "mooncake": mooncake_ids,
    "zipf": zipf_ids,
}


def main() -> list[dict[str, Any]]:
    """Records of both traces."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name, load in TRACES.items():
            ids = load()
            if ids is None:
                print(f"{name}: no data, left out (set JAXMEM_DATA)")
            else:
                rows += measure(name, ids, folder)
    return rows


def peak_bytes() -> int:
    """Peak resident memory of this process so far."""
    status = Path("/proc/self/status")  # ru_maxrss would start from the parent's peak on Linux
    if status.exists():
        line = next(row for row in status.read_text().splitlines() if row.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":  # the process whose peak memory is measured
    loaded = np.load(sys.argv[1])
    jax.block_until_ready(jax.numpy.zeros(1))
    before = peak_bytes()
    whole_curve(loaded)
    print(json.dumps((peak_bytes() - before) / len(loaded)))
