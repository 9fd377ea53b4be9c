"""The rival of `sessions`: a MemGPT session in plain Python, written for speed.

One layout only (the working context in front), which is what makes it fast: prompts are never
built, the queue is a deque of lengths, and every sum is a running total. Draws come from numpy in
one call a kind, as that is faster than Python's `random`. It knows nothing of jaxmem.
"""

import json
import multiprocessing
import sys
import time
from collections import deque
from collections.abc import Mapping

import numpy as np

FIELDS = (
    "calls",
    "warnings",
    "evictions",
    "facts",
    "lost",
    "prompt_tokens",
    "new_tokens",
    "memory_tokens",
    "eviction_tokens",
)
SHORTEST_MESSAGE = 8  # tokens


def sessions(number: int, parameters: Mapping[str, float], rounds: int, seed: int) -> np.ndarray:
    """Totals of many sessions.

    Args:
      number: how many.
      parameters: the settings, by name.
      rounds: of each.
      seed: of numpy's generator.

    Returns:
      [number, len(FIELDS)].
    """
    rng = np.random.default_rng(seed)
    return np.array([_session(rng, parameters, rounds) for _ in range(number)])


def _session(rng: np.random.Generator, p: Mapping[str, float], rounds: int) -> tuple[int, ...]:
    """The totals of one session, in the order of `FIELDS`."""
    window, system, memory = int(p["window_tokens"]), int(p["system_tokens"]), p["memory_tokens"]
    entry, edit, warning = int(p["entry_tokens"]), int(p["edit_tokens"]), int(p["warning_tokens"])
    results, summary_tokens = int(p["search_tokens"]), int(p["summary_tokens"])
    room = int((p["memory_limit_tokens"] - memory) // entry)
    most_saves = int(p["saves_a_warning"])
    warn_at = round(min(p["warn_share"] * window, 2**30))
    flush_at = round(p["flush_share"] * window)
    evicted = round(p["evicted_share"] * window)
    of_queue, kept_queue = p["evicted_of_queue"], p["kept_queue_tokens"]
    kept, any_call = p["kept_share"] * window, bool(p["flush_any_call"])
    forgets = bool(p["forgets"])

    lengths = rng.normal(p["message_tokens"], p["message_sd"], (rounds, 2)).round()
    lengths = np.maximum(lengths, SHORTEST_MESSAGE).astype(int)
    chance = rng.random((rounds, 2))
    # 0: nothing, 1: a search, 2: a fact for later, 4: a fact saved at once.
    saved = chance[:, 1] < p["fact_share"] * p["saved_at_once"]
    what = (chance[:, 0] < p["search_share"]) + 2 * (chance[:, 1] < p["fact_share"]) + 2 * saved
    places = iter(rng.integers(0, room, rounds * 2).tolist())

    queue: deque[int] = deque()
    pending: deque[int] = deque()  # numbers of messages whose fact is not saved
    joined = left = 0  # messages, ever
    queued = summary = edits = place = 0
    base = system + int(memory)  # of the prompt, less summary and queue
    calls = warnings = evictions = facts = lost = 0
    prompts = new = by_memory = by_eviction = 0
    reply = 0  # tokens of the last reply, which no call has seen
    warned = False
    new += base  # at the first call

    for (user, answer), happens in zip(lengths.tolist(), what.tolist()):
        queue.append(user)
        number = joined
        joined += 1
        queued += user
        fresh = reply + user
        looks, edited = True, False
        size = base + summary + queued
        saves = 0
        if not warned and size >= warn_at:
            queue.append(warning)
            joined += 1
            queued += warning
            fresh += warning
            size += warning
            warned = True
            warnings += 1
            saves = min(len(pending), most_saves)
            for _ in range(saves):
                pending.popleft()
        # The calls of the round: after a warning's saves the first, then the others.
        more = saves + (happens & 1) + (happens >= 4)
        while True:
            evicts = False
            if looks and size >= flush_at and len(queue) > 2:
                amount = max(evicted, round(of_queue * queued), queued - kept_queue, size - kept)
                gone = 0
                while gone < amount and len(queue) > 2:
                    gone += queue.popleft()
                    left += 1
                queued -= gone
                summary = summary_tokens
                size = base + summary + queued
                while forgets and pending and pending[0] < left:
                    pending.popleft()
                    lost += 1
                evicts = True
                looks = warned = False
                evictions += 1
            calls += 1
            prompts += size
            if fresh > queued:
                fresh = queued
            new += fresh
            if edited:
                new += entry
                shown = edits if edits < room else room
                by_memory += entry * (shown - place - 1) + size - base - fresh
            elif evicts:
                by_eviction += summary + queued - fresh
            if not more:
                break
            more -= 1
            looks = looks and any_call
            if saves or not happens & 1:  # the call saved a fact: a record and an entry
                saves -= saves > 0
                join = edit
                if edits < room:
                    place = edits
                    base += entry
                else:
                    place = next(places)
                edits += 1
                edited = True
            else:
                happens -= 1
                join = results
                edited = False
            queue.append(join)
            joined += 1
            queued += join
            fresh = join
            size = base + summary + queued
        queue.append(answer)
        joined += 1
        queued += answer
        reply = answer
        if happens >= 2:
            facts += 1
            if happens < 4:
                if number >= left or not forgets:
                    pending.append(number)
                else:
                    lost += 1
    return calls, warnings, evictions, facts, lost, prompts, new, by_memory, by_eviction


def main() -> None:
    """Time sessions in some processes: settings, sessions, rounds, processes, runs, path."""
    parameters = json.loads(sys.argv[1])
    number, rounds, workers, runs = map(int, sys.argv[2:6])
    best = np.inf
    parts = [(number // workers, parameters, rounds, seed) for seed in range(workers)]
    with multiprocessing.Pool(workers) as pool:
        pool.starmap(sessions, [(1, parameters, rounds, 0)] * workers)  # the workers are there
        for _ in range(runs):
            start = time.perf_counter()
            totals = np.concatenate(pool.starmap(sessions, parts, chunksize=1))
            best = min(best, time.perf_counter() - start)
    np.save(sys.argv[6], totals)
    print(json.dumps({"seconds": best, "sessions": len(totals)}))


if __name__ == "__main__":
    main()
