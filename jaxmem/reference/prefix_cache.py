"""Replays of prefix caches, one capacity at a time, as a server would run them."""

from collections import OrderedDict
from collections.abc import Sequence

import numpy as np

NEVER = 2**31 - 1


def stack_distances(block_ids: Sequence[int], starts: Sequence[int] | None = None) -> np.ndarray:
    """Distances by keeping the LRU list itself.

    Args:
      block_ids: [N] blocks.
      starts: first position of each request, or None for a request an access.

    Returns:
      int64 [N]: place of the block in the list as it was at the start of the request, `NEVER`
      if it was not there.
    """
    ids = [int(i) for i in block_ids]
    begins = list(range(len(ids))) if starts is None else [int(s) for s in starts]
    recent: list[int] = []
    distances = []
    for begin, end in zip(begins, [*begins[1:], len(ids)], strict=True):
        for block in ids[begin:end]:
            distances.append(recent.index(block) if block in recent else NEVER)
        for block in ids[begin:end]:
            if block in recent:
                recent.remove(block)
            recent.insert(0, block)
    return np.array(distances, np.int64)


def lru_hits(block_ids: Sequence[int], capacity: int) -> int:
    """Hits of a plain LRU cache.

    Args:
      block_ids: [N] blocks.
      capacity: in blocks.

    Returns:
      Number of hits.
    """
    cache: OrderedDict[int, None] = OrderedDict()
    hits = 0
    for block in block_ids:
        if block in cache:
            hits += 1
            cache.move_to_end(block)
        else:
            if len(cache) >= capacity:
                cache.popitem(last=False)
            cache[block] = None
    return hits


def prefix_hits(
    requests: Sequence[Sequence[int]],
    capacity: int,
    arrival_s: Sequence[float] | None = None,
    ttl_s: float = float("inf"),
) -> int:
    """Hits of an LRU cache of prefixes: longest resident prefix, touched tail to head.

    Args:
      requests: blocks of each request, front to back.
      capacity: in blocks.
      arrival_s: time of each request, in seconds, if blocks expire.
      ttl_s: age at which a block no longer hits, counted from its last touch.

    Returns:
      Number of block hits.
    """
    cache: OrderedDict[int, float] = OrderedDict()
    times = [0.0] * len(requests) if arrival_s is None else arrival_s
    hits = 0
    for blocks, now in zip(requests, times, strict=True):
        for block in blocks:
            if block not in cache or now - cache[block] > ttl_s:
                break
            hits += 1
        for block in reversed(blocks):
            if block in cache:
                cache.move_to_end(block)
            elif len(cache) >= capacity:
                cache.popitem(last=False)
            cache[block] = now
    return hits


def vllm_hits(
    requests: Sequence[Sequence[int]],
    input_tokens: Sequence[int],
    block_tokens: int,
    usable_blocks: int,
) -> tuple[int, int]:
    """Hits of vLLM's block pool: a free queue of slots, of which some still hold a hashed block.

    A request takes its hit blocks out of the queue, allocates the rest from the front (evicting
    what they held) and one slot for its last, partial block. When it ends, hashed blocks go to
    the back of the queue tail first, the partial one to the front.

    Args:
      requests: block ids of each request, front to back; only full blocks are hashed.
      input_tokens: tokens of each request.
      block_tokens: tokens a block.
      usable_blocks: slots of the pool, its null block not counted.

    Returns:
      (block hits, requests that are larger than the pool and were refused).
    """
    free: OrderedDict[int, None] = OrderedDict((slot, None) for slot in range(usable_blocks))
    slots_of: dict[int, list[int]] = {}  # a recomputed block is a second copy; the first serves
    held: dict[int, int] = {}

    def allocate() -> int:
        slot, _ = free.popitem(last=False)
        if slot in held:
            copies = slots_of[held[slot]]
            copies.remove(slot)
            if not copies:
                del slots_of[held[slot]]
            del held[slot]
        return slot

    hits = refused = 0
    for ids, tokens in zip(requests, input_tokens, strict=True):
        full = list(ids[: tokens // block_tokens])
        if len(full) + 1 > usable_blocks:
            refused += 1
            continue
        taken: list[int] = []
        for block in full[: max(tokens - 1, 0) // block_tokens]:
            if block not in slots_of:
                break
            taken.append(slots_of[block][0])
            del free[taken[-1]]
        hits += len(taken)
        for block in full[len(taken) :]:
            slot = allocate()
            slots_of.setdefault(block, []).append(slot)
            held[slot] = block
            taken.append(slot)
        partial = allocate()
        for slot in reversed(taken):
            free[slot] = None
        free[partial] = None
        free.move_to_end(partial, last=False)
    return hits, refused
