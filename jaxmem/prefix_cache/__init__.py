"""How much of a request trace a prefix cache serves, for every capacity at once."""

from jaxmem.prefix_cache.curve import BlockDistances, HitCurve, block_distances, lru_curve
from jaxmem.prefix_cache.distances import NEVER, stack_distances
from jaxmem.prefix_cache.readers import read_trace
from jaxmem.prefix_cache.synthetic import synthetic_trace
from jaxmem.prefix_cache.tiers import Tier, TierHits, tier_hits
from jaxmem.prefix_cache.trace import BlockTrace, make_trace, write_trace

__all__ = [
    "NEVER",
    "BlockDistances",
    "BlockTrace",
    "HitCurve",
    "Tier",
    "TierHits",
    "block_distances",
    "lru_curve",
    "make_trace",
    "read_trace",
    "stack_distances",
    "synthetic_trace",
    "tier_hits",
    "write_trace",
]
