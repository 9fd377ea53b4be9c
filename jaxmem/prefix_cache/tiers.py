"""A stack of memories under one prefix cache: what each tier serves, and how fast it loads."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jaxmem.prefix_cache.curve import HitCurve


class Tier(NamedTuple):
    """One memory of the stack.

    name: what to call it ("HBM").
    capacity_blocks: blocks it holds; infinity for one that never evicts.
    bytes_s: bandwidth towards the accelerator, in bytes a second; infinity if it is there.
    """

    name: str
    capacity_blocks: float
    bytes_s: float = np.inf


class TierHits(NamedTuple):
    """What one tier serves.

    name: of the tier.
    hits: blocks found in this tier and no faster one.
    block_ratio: over all block references of the trace.
    tokens: in those blocks.
    load_s: seconds of transfer for them, all requests together.
    """

    name: str
    hits: int
    block_ratio: float
    tokens: int
    load_s: float


def tier_hits(curve: HitCurve, tiers: Sequence[Tier], block_bytes: float) -> list[TierHits]:
    """What each tier of an exclusive LRU stack serves.

    A block evicted from one tier moves to the next, and any touch brings it back to the top, so
    the stack is one LRU list cut at the summed capacities: tier i serves
    hits(C_1 + ... + C_i) - hits(C_1 + ... + C_{i-1}).

    Args:
      curve: from `lru_curve`.
      tiers: fastest first.
      block_bytes: bytes of KV a block holds.

    Returns:
      A `TierHits` a tier, in the same order.

    Raises:
      ValueError: if there is no tier, or a capacity or bandwidth is not positive.
    """
    if not tiers:
        raise ValueError("expected at least one tier, got none")
    rows, total, hits, tokens = [], 0.0, 0, 0
    for tier in tiers:
        if not (tier.capacity_blocks > 0 and tier.bytes_s > 0):
            raise ValueError(f"tier {tier.name!r}: capacity and bandwidth must be positive")
        total += tier.capacity_blocks
        hits_here = int(curve.hits(total)) - hits
        tokens_here = round(float(curve.token_ratio(total)) * curve.total_tokens) - tokens
        rows.append(
            TierHits(
                tier.name,
                hits_here,
                hits_here / curve.total_blocks,
                tokens_here,
                hits_here * block_bytes / tier.bytes_s,
            )
        )
        hits, tokens = hits + hits_here, tokens + tokens_here
    return rows
