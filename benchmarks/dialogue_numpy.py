"""The rival of `benchmarks/dialogue.py`: its systems in numpy, on B conversations at once.

Loops run over time only (statements, evictions, chunks), each step on [B, ...] arrays. What makes
numpy fast is used: statements have fixed slots, a key's versions side by side in order of time, so
that what concerns keys is an index known beforehand and an answer a look-up by a few bits; signs
come from a table by bytes; small talk is its signs; the highest scores come from one partition of
numbers that carry their index in the low bits; systems share scores, extraction and stores where
these are equal (at dated statements mem0g's store is mem0's, with what was replaced kept as
retired). Error rates that are 0 in `LECTURE_RATES` are left out, and so is their work.

`python benchmarks/dialogue_numpy.py FILE CONVERSATIONS BATCH WORKERS RUNS` writes what came out to
FILE and prints the seconds of the fastest run and the peak memory. Batches are shared out to
WORKERS threads.
"""

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from dialogue_numpy_memgpt import evict, memgpt_read, memgpt_write
from dialogue_numpy_retrieval import Outcome, full_context, rag, rag_messages, score
from dialogue_numpy_stores import draw, stores
from dialogue_numpy_world import KIND, talk
from prefix_cache import peak_bytes

from jaxmem.dialogue.questions import KINDS


def judge(seed: int, number: int, size: int) -> tuple[np.ndarray, dict[str, Outcome]]:
    """Which questions there are [B, Q], and the outcomes of all systems."""
    rng = np.random.Generator(np.random.SFC64([seed, number]))
    t = talk(rng, size)
    scored = score(t)
    outcomes = {
        "full context": full_context(rng, t),
        "RAG 128 x 16": rag(t),
        "RAG messages": rag_messages(t, scored),
        **stores(rng, t),
    }
    draws, queue = draw(rng, size), evict(t)
    mains = [memgpt_write(t, draws, queue, sleeps) for sleeps in (False, True)]
    agents = memgpt_read(rng, t, scored, mains)
    return t.mask, outcomes | dict(zip(("MemGPT", "MemGPT sleep"), agents, strict=True))


def evaluate(
    conversations: int, batch: int, workers: int, seed: int = 0
) -> tuple[np.ndarray, dict[str, Outcome]]:
    """Judge all systems on conversations, batches shared out to threads."""
    numbers = range(-(-conversations // batch))
    with ThreadPoolExecutor(workers) as pool:
        parts = list(pool.map(lambda number: judge(seed, number, batch), numbers))
    masks, outcomes = zip(*parts)
    joined = {
        name: Outcome(
            *(
                np.concatenate(field, axis=0 if i < 3 else 2)
                for i, field in enumerate(zip(*(part[name] for part in outcomes)))
            )
        )
        for name in outcomes[0]
    }
    return np.concatenate(masks), joined


def totals(mask: np.ndarray, outcomes: dict[str, Outcome]) -> dict[str, np.ndarray]:
    """Sums by conversation, as `totals` of `benchmarks/dialogue.py`."""
    out = {"questions/all": mask.sum(1)}
    for i, kind in enumerate(KINDS):
        out[f"questions/{kind}"] = mask[:, i == KIND].sum(1)
    for name, outcome in outcomes.items():
        for i, kind in enumerate(KINDS):
            chosen = i == KIND
            right = outcome.right[:, chosen] & mask[:, chosen]
            out[f"accuracy/{name}/{kind}"] = right.sum(1)
        for i, field in enumerate(("calls", "prefill_tokens", "generated_tokens")):
            out[f"ledger/{name}/read {field}"] = (outcome.read[i].sum(0) * mask).sum(1)
            out[f"ledger/{name}/write {field}"] = outcome.write[i].sum(0)
        for field in ("read_tokens", "found"):
            out[f"ledger/{name}/{field}"] = (getattr(outcome, field) * mask).sum(1)
    return out


def main() -> None:
    """What the header says."""
    path, (conversations, batch, workers, runs) = sys.argv[1], map(int, sys.argv[2:])
    seconds = []
    evaluate(batch * workers, batch, workers)
    for _ in range(runs):
        start = time.perf_counter()
        mask, outcomes = evaluate(conversations, batch, workers)
        seconds.append(time.perf_counter() - start)
    np.savez(path, allow_pickle=False, **totals(mask, outcomes))
    print(json.dumps({"seconds": min(seconds), "peak_gb": peak_bytes() / 1e9}))


if __name__ == "__main__":
    main()
