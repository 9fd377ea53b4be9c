"""Plain LRU hits against libCacheSim, where it is installed (GPL: never a dependency)."""

from pathlib import Path

import numpy as np
import pytest

from jaxmem.prefix_cache import stack_distances

libcachesim = pytest.importorskip("libcachesim", reason="libcachesim is not installed")


def test_hits_equal_libcachesim(tmp_path: Path) -> None:
    ids = np.random.default_rng(0).zipf(1.3, 50_000) % 5_000
    kind = [("time", "<u4"), ("id", "<u8"), ("size", "<u4"), ("next", "<i8")]
    rows = np.zeros(len(ids), kind)
    rows["time"], rows["id"], rows["size"], rows["next"] = np.arange(len(ids)), ids + 1, 1, -1
    path = tmp_path / "trace.oracleGeneral.bin"
    rows.tofile(path)
    distances = np.asarray(stack_distances(ids))
    for capacity in (1, 2, 10, 300, 4_999):
        reader = libcachesim.TraceReader(str(path), libcachesim.TraceType.ORACLE_GENERAL_TRACE)
        miss_ratio, _ = libcachesim.LRU(capacity).process_trace(reader)
        assert round((1 - miss_ratio) * len(ids)) == int((distances < capacity).sum())
