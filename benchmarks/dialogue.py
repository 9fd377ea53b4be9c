"""Conversations a second with eleven memory systems, beside the same simulation in numpy.

The rival (`dialogue_numpy.py`) is written for numpy and draws from its own generator; what both
find is compared: accuracy by kind of question, and mean entries of the ledger. Each side runs in a
process of its own, one after the other: the rival with as many threads of BLAS as there are cores
a worker, at the batch and the number of workers that a trial finds fastest; ours at its default
batch. Times are the best of several runs; ours leaves the compile out, which is shown apart.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import NormalDist
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from prefix_cache import peak_bytes

from jaxmem.common import clustered_interval
from jaxmem.dialogue import KINDS, Judged, evaluate
from jaxmem.dialogue.conversation import Conversation
from jaxmem.dialogue.questions import NONE, Questions
from jaxmem.dialogue.systems import (
    Ledger,
    System,
    full_context,
    ledger,
    mem0,
    mem0g,
    memgpt,
    rag,
    rag_messages,
)

CONVERSATIONS, RUNS = 1_000, 3
TRIAL = 500  # conversations to choose the rival's setting by
EACH = 200  # conversations to time systems one by one
CORES = os.cpu_count() or 1
SETTINGS = [(125, 1), (50, 2), (125, 2), (250, 2)]  # batch, workers
# glibc: freed arrays stay with the process, which saves the rival a tenth of its time.
KEEP_PAGES = dict.fromkeys(("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"), str(2**33))

SYSTEMS: dict[str, System] = {
    "full context": full_context(alpha=0.5),
    "RAG 128 x 16": rag(),
    "RAG messages": rag_messages(),
    "mem0": mem0(),
    "mem0 add-only": mem0(policy="add_only", count=20),
    "mem0g": mem0g(),
    "mem0g no hop": mem0g(hop=False),
    "bitemporal": mem0g(policy="bitemporal"),
    "MemGPT": memgpt(),
    "mem0 sleep": mem0(consolidate_every=20),
    "MemGPT sleep": memgpt(consolidate_every=20),
}


def main() -> list[dict[str, Any]]:
    """Speed of both, agreement, and milliseconds a system."""
    with tempfile.TemporaryDirectory() as folder:
        theirs, chosen = rival(Path(folder) / "numpy.npz")
        ours = child(__file__, {}, str(Path(folder) / "ours.npz"))
        alike = agreement(
            dict(np.load(Path(folder) / "ours.npz")), dict(np.load(Path(folder) / "numpy.npz"))
        )
    rate, rival_rate = CONVERSATIONS / ours["seconds"], CONVERSATIONS / theirs["seconds"]
    records: list[dict[str, Any]] = [
        {
            "benchmark": f"{CONVERSATIONS} conversations, {len(SYSTEMS)} systems",
            "system": "jaxmem",
            "conversations_s": rate,
            "compile_s": ours["compile_s"],
            "peak_gb": ours["peak_gb"],
            "speed_over_numpy": rate / rival_rate,
        },
        {
            "benchmark": f"{CONVERSATIONS} conversations, {len(SYSTEMS)} systems",
            "system": f"numpy, {chosen}",
            "conversations_s": rival_rate,
            "peak_gb": theirs["peak_gb"],
        },
    ]
    records += [
        {"benchmark": "largest z of differences from numpy", "system": what} | row
        for what, row in alike.items()
    ]
    records += [
        {"benchmark": "one system less the world alone", "system": name, "ms_a_conversation": each}
        for name, each in ours["ms"].items()
    ]
    return records


def child(script: str, environment: dict[str, str], *args: str) -> Any:
    """What a script prints as JSON, run in a process of its own."""
    command = [sys.executable, script, *args]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, env=os.environ | environment)
    return json.loads(done.stdout)


def rival(path: Path) -> tuple[dict[str, float], str]:
    """(seconds and peak memory of the rival, its setting); what it found is at the path."""

    def run(conversations: int, batch: int, workers: int, runs: int) -> dict[str, float]:
        threads = str(max(CORES // workers, 1))
        names = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")
        args = map(str, (path, conversations, batch, workers, runs))
        script = Path(__file__).with_name("dialogue_numpy.py")
        return child(str(script), dict.fromkeys(names, threads) | KEEP_PAGES, *args)

    trial = {setting: run(TRIAL, *setting, 2)["seconds"] for setting in SETTINGS}
    batch, workers = min(trial, key=trial.__getitem__)
    return run(CONVERSATIONS, batch, workers, RUNS), f"batch {batch}, {workers} threads"


def own(path: Path) -> dict[str, Any]:
    """Our times, peak memory and results, the latter at the path."""

    def seconds(systems: dict[str, System], conversations: int) -> tuple[float, Any]:
        start = time.perf_counter()
        found = evaluate(systems, conversations, label="")
        return time.perf_counter() - start, found

    first, _ = seconds(SYSTEMS, 50)
    warm = min(seconds(SYSTEMS, 50)[0] for _ in range(2))
    best = np.inf
    for _ in range(RUNS):
        spent, found = seconds(SYSTEMS, CONVERSATIONS)
        best = min(best, spent)
    peak = peak_bytes()
    np.savez(path, allow_pickle=False, **totals(found))
    alone = {
        name: {"world": WORLD_ALONE} | ({name: SYSTEMS[name]} if name else {})
        for name in ("", *SYSTEMS)
    }
    for systems in alone.values():
        seconds(systems, 50)
    each = dict.fromkeys(alone, np.inf)
    for _ in range(RUNS):  # in turn, so that a slow spell of the machine meets all
        for name, systems in alone.items():
            each[name] = min(each[name], seconds(systems, EACH)[0] / EACH)
    ms = {"world": 1e3 * each[""]}
    ms |= {name: 1e3 * (each[name] - each[""]) for name in SYSTEMS}
    return {"seconds": best, "compile_s": first - warm, "peak_gb": peak / 1e9, "ms": ms}


def _keep(key: Array, conversation: Conversation) -> tuple[Conversation, Ledger]:
    return conversation, ledger()


def _touch(key: Array, memory: Conversation, questions: Questions) -> tuple[Array, Ledger]:
    """No answers, but a number of all embeddings, so that none is left out."""
    zero = jnp.sum(memory.embeddings**2) + jnp.sum(questions.embeddings**2, axis=1)
    return jnp.full(questions.key.shape, NONE), ledger(read_tokens=zero)


WORLD_ALONE = System(_keep, _touch)


def totals(found: dict[str, Judged]) -> dict[str, np.ndarray]:
    """Sums by conversation of all that is compared, and of the questions."""
    out: dict[str, np.ndarray] = {}
    for name, judged in found.items():
        for kind, label in enumerate(KINDS):
            chosen = judged.mask & (judged.kind == kind)
            out[f"questions/{label}"] = chosen.sum(1)
            out[f"accuracy/{name}/{label}"] = (judged.right & chosen).sum(1)
        out["questions/all"] = judged.mask.sum(1)
        for field in ("calls", "prefill_tokens", "generated_tokens"):
            read = getattr(judged.read, field).sum(-1) * judged.mask
            out[f"ledger/{name}/read {field}"] = read.sum(1)
            out[f"ledger/{name}/write {field}"] = getattr(judged.write, field).sum(-1)
        for field in ("read_tokens", "found"):
            out[f"ledger/{name}/{field}"] = (getattr(judged.read, field) * judged.mask).sum(1)
    return out


def agreement(ours: dict[str, np.ndarray], theirs: dict[str, np.ndarray]) -> dict[str, Any]:
    """The largest |z| of the differences between two sets of `totals`, and its 95 % bound."""
    largest: dict[str, dict[str, Any]] = {}
    for name in ours:
        what, *labels = name.split("/")
        if what == "questions":
            continue
        pair = []
        for side in (ours, theirs):
            by = side.get(f"questions/{labels[-1]}", side["questions/all"])
            if labels[-1].startswith("write"):
                by = np.ones(len(by))
            pair.append(clustered_interval(side[name], by))
        (a, _, high), (b, _, other) = pair
        spread = np.hypot(high - a, other - b) / 1.96
        if spread > 1e-9 * abs(a):
            z = abs(a - b) / spread
        else:  # what takes no draw must be the same
            z = 0.0 if abs(a - b) <= 1e-6 * abs(a) else np.inf
        row = largest.setdefault(what, {"z": -1.0, "comparisons": 0})
        row["comparisons"] += 1
        if z > row["z"]:
            row |= {"z": float(z), "at": " ".join(labels)}
    for row in largest.values():
        row["joint_95"] = NormalDist().inv_cdf((1 + 0.95 ** (1 / row["comparisons"])) / 2)
    return largest


if __name__ == "__main__":  # our process
    print(json.dumps(own(Path(sys.argv[1]))))
