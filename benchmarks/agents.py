"""Archival memory at 10^5 texts: exact search beside numpy and sqlite-vec, and the store.

Vectors are random and of length 1, 384 numbers each. All systems in one process, in turn; the
best of several runs. numpy's search is its product and an argpartition, and its product alone is
beside it: the least that an exact search can take. sqlite-vec is optional (`pip install
sqlite-vec apsw`), its table lies in memory. Writing is one text a transaction, on disk when it
returns, and a thousand in one.
"""

import importlib
import importlib.util
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from jaxmem.agents.messages import Message
from jaxmem.agents.stores import NewMessage, SqliteStore
from jaxmem.agents.vectors import VectorIndex

COUNT, SIZE, BEST, BATCH = 100_000, 384, 10, 32
WRITES, SEARCHES, TRIES = 200, 50, 15
Records = list[dict[str, Any]]


def main() -> Records:
    """All comparisons."""
    return measure(COUNT)


def measure(count: int) -> Records:
    """The comparisons at a number of texts."""
    rng = np.random.default_rng(0)
    matrix = rng.standard_normal((count, SIZE)).astype(np.float32)
    matrix /= np.linalg.norm(matrix, axis=1, keepdims=True)
    queries = rng.standard_normal((BATCH, SIZE)).astype(np.float32)
    index = VectorIndex(SIZE)
    index.add(np.arange(count), matrix)
    ways: dict[str, tuple[Callable[[], Any], int]] = {
        "jaxmem, one query": (lambda: index.search(queries[:1], BEST), 1),
        "numpy, one product": (lambda: matrix @ queries[0], 1),
        "numpy, one query": (lambda: _numpy(matrix, queries[0]), 1),
        "jaxmem, 32 queries": (lambda: index.search(queries, BEST), BATCH),
        "numpy, 32 products": (lambda: queries @ matrix.T, BATCH),
        "numpy, 32 queries": (lambda: [_numpy(matrix, query) for query in queries], BATCH),
    }
    found = index.search(queries, BEST).ids
    agree = all(set(_numpy(matrix, q)) == set(row) for q, row in zip(queries, found.tolist()))
    if importlib.util.find_spec("sqlite_vec") and importlib.util.find_spec("apsw"):
        ask = _sqlite_vec(matrix)
        agree &= set(ask(queries[0])) == set(found[0].tolist())
        ways["sqlite-vec, one query"] = (lambda: ask(queries[0]), 1)
    times = _in_turn({name: way for name, (way, _) in ways.items()})
    base = {1: times["numpy, one product"], BATCH: times["numpy, 32 products"]}
    records: Records = [
        {
            "benchmark": "search",
            "system": name,
            "memories": count,
            "ms_a_query": 1e3 * times[name] / many,
            "over_numpy_product": times[name] / base[many],
            "agree": agree,
        }
        for name, (_, many) in ways.items()
    ]
    return records + _store(matrix)


def _numpy(matrix: np.ndarray, query: np.ndarray) -> list[int]:
    scores = matrix @ query
    return np.argpartition(scores, -BEST)[-BEST:].tolist()


def _sqlite_vec(matrix: np.ndarray) -> Callable[[np.ndarray], list[int]]:
    """Search of a virtual table of sqlite-vec, by cosine."""
    # Many builds of Python's own sqlite3 load no extensions; apsw's does.
    db = importlib.import_module("apsw").Connection(":memory:")
    db.enable_load_extension(True)
    db.load_extension(importlib.import_module("sqlite_vec").loadable_path())
    db.execute(f"CREATE VIRTUAL TABLE v USING vec0(e float[{SIZE}] distance_metric=cosine)")
    with db:
        rows = ((i, row.tobytes()) for i, row in enumerate(matrix))
        db.executemany("INSERT INTO v (rowid, e) VALUES (?, ?)", rows)

    def ask(query: np.ndarray) -> list[int]:
        sql = "SELECT rowid FROM v WHERE e MATCH ? AND k = ?"
        return [row[0] for row in db.execute(sql, (query.tobytes(), BEST))]

    return ask


class _Given:
    """An embedder that only hands out vectors."""

    name, size = "given", SIZE

    def __init__(self, matrix: np.ndarray) -> None:
        self._matrix, self._next = matrix, 0

    def embed(self, texts: list[str]) -> np.ndarray:
        start = self._next % (len(self._matrix) - len(texts) + 1)
        self._next += len(texts)
        return self._matrix[start : start + len(texts)]


def _store(matrix: np.ndarray) -> Records:
    """Writes and searches a second of a store on disk that holds so many texts."""
    count = len(matrix)
    with tempfile.TemporaryDirectory() as folder:
        store = SqliteStore(Path(folder) / "m.db", _Given(matrix))  # type: ignore[arg-type]
        began = time.perf_counter()
        for start in range(0, count, 1_000):
            store.add_passages("a", [f"text {start + i}" for i in range(min(1_000, count - start))])
        many_s = (time.perf_counter() - began) / count
        said = [
            NewMessage(float(i), "user", f"word{i % 997} and {i} more of it", Message("user", "x"))
            for i in range(count)
        ]
        for start in range(0, count, 10_000):
            store.add_messages("a", said[start : start + 10_000])
        store.find_passages("a", "x", count=BEST)
        ways: dict[str, tuple[Callable[[int], Any], int]] = {
            "write a text": (lambda i: store.add_passages("a", [f"new {i}"]), WRITES),
            "write a message": (lambda i: store.add_messages("a", said[i : i + 1]), WRITES),
            "search texts": (lambda i: store.find_passages("a", "x", count=BEST), SEARCHES),
            "search messages, rare words": (
                lambda i: store.find_messages("a", f"word{i} {i}"),
                SEARCHES,
            ),
            "search messages, a word of all": (
                lambda i: store.find_messages("a", f"word{i} more"),
                SEARCHES // 10,
            ),
            "write a text, then search": (lambda i: _both(store, i), SEARCHES),
        }
        records = [_rate("write texts, 1,000 at once", 1.0 / many_s, count)]
        for name, (way, times) in ways.items():
            way(0)
            began = time.perf_counter()
            for i in range(times):
                way(i)
            records.append(_rate(name, times / (time.perf_counter() - began), count))
        store.close()
    return records


def _both(store: SqliteStore, number: int) -> None:
    store.add_passages("a", [f"newer {number}"])
    store.find_passages("a", "x", count=BEST)


def _rate(name: str, a_second: float, count: int) -> dict[str, Any]:
    return {"benchmark": "store", "system": name, "memories": count, "a_second": a_second}


def _in_turn(ways: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Seconds of the best of several calls of each, in turn, after one that compiles."""
    best = dict.fromkeys(ways, float("inf"))
    for run in range(TRIES + 1):
        for name, way in ways.items():
            began = time.perf_counter()
            way()
            if run:
                best[name] = min(best[name], time.perf_counter() - began)
    return best
