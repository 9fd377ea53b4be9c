"""The hit curve of a trace: how much a prefix cache of every capacity serves, from one pass.

A block of a request is served by a cache of C blocks when all blocks before it in the request
are, and fewer than C other blocks were touched between its last touch and the start of the
request (`stack_distances`). The semantics differ in what is kept and in what order it is touched.
"""

import dataclasses
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from jaxmem.common.names import nearest
from jaxmem.prefix_cache.distances import NEVER, reuse
from jaxmem.prefix_cache.trace import BlockTrace

Semantics = Literal["plain", "prefix", "vllm"]


@dataclasses.dataclass(frozen=True)
class HitCurve:
    """Hits at every capacity.

    Attributes:
      hit_blocks: int64 [D + 1], ascending; block hits of an LRU stack of c blocks at index c,
        the last entry at any larger one.
      hit_tokens: int64 [D + 1], the same in tokens.
      total_blocks: all block references of the trace, partial tails included.
      total_tokens: all input tokens of the trace.
      block_tokens: tokens a full block holds.
      reserved_blocks: capacity that caches nothing (the running request's tail in vLLM).
      largest_request_blocks: blocks of the largest request, the reserved one included. Below
        this capacity a real server could not run that request: vLLM would refuse it, while the
        curve lets it pass through the LRU stack, of which it then keeps its front.
    """

    hit_blocks: np.ndarray
    hit_tokens: np.ndarray
    total_blocks: int
    total_tokens: int
    block_tokens: int
    reserved_blocks: int = 0
    largest_request_blocks: int = 0

    def hits(self, capacity_blocks: ArrayLike) -> np.ndarray:
        """Block hits at each capacity.

        Args:
          capacity_blocks: positive, any shape; infinity is a cache that never evicts.

        Returns:
          int64 of the same shape.

        Raises:
          ValueError: if a capacity is not positive.
        """
        return self.hit_blocks[self._index(capacity_blocks)]

    def block_ratio(self, capacity_blocks: ArrayLike) -> np.ndarray:
        """Block hits over all block references, partial tails included in every semantics.

        Args:
          capacity_blocks: positive, any shape; infinity allowed.

        Returns:
          float64 of the same shape, in 0..1.

        Raises:
          ValueError: if a capacity is not positive.
        """
        return self.hits(capacity_blocks) / self.total_blocks

    def token_ratio(self, capacity_blocks: ArrayLike) -> np.ndarray:
        """Tokens served from the cache over all input tokens.

        Args:
          capacity_blocks: positive, any shape; infinity allowed.

        Returns:
          float64 of the same shape, in 0..1.

        Raises:
          ValueError: if a capacity is not positive.
        """
        return self.hit_tokens[self._index(capacity_blocks)] / self.total_tokens

    def capacity_for(self, ratio: ArrayLike) -> np.ndarray:
        """The smallest capacity whose block ratio is at least `ratio`.

        Args:
          ratio: in 0..1, any shape.

        Returns:
          float64 of the same shape, in blocks; infinity where no capacity reaches the ratio.

        Raises:
          ValueError: if a ratio is not in 0..1.
        """
        wanted = np.asarray(ratio, np.float64)
        if not np.all((wanted >= 0) & (wanted <= 1)):
            raise ValueError(f"ratio must be in 0..1, got {wanted}")
        ratios = self.hit_blocks / self.total_blocks
        stack = np.searchsorted(ratios, wanted, side="left")
        capacity = np.maximum(stack, 1) + float(self.reserved_blocks)
        return np.where(stack < len(ratios), capacity, np.inf)

    def flat_capacity(self, share: float = 0.99) -> float:
        """The capacity at which the curve flattens: where it has `share` of its final height.

        Args:
          share: of the hits of an infinite cache, in 0..1.

        Returns:
          Blocks.
        """
        return float(self.capacity_for(share * self.hit_blocks[-1] / self.total_blocks))

    def _index(self, capacity_blocks: ArrayLike) -> np.ndarray:
        capacity = np.asarray(capacity_blocks, np.float64)
        if not np.all(capacity > 0):
            raise ValueError(f"capacity must be a positive number of blocks, got {capacity}")
        stack = np.floor(capacity) - self.reserved_blocks
        return np.clip(stack, 0, len(self.hit_blocks) - 1).astype(np.int64)


@dataclasses.dataclass(frozen=True)
class BlockDistances:
    """How large a cache must be to serve each block reference of a trace.

    Attributes:
      distance: int64 [M]; a stack of more blocks than this serves the reference, `NEVER` if none
        does. Only the references that a semantics keeps are here (full blocks for "vllm").
      request: int64 [M], the request of each.
      tokens: int64 [M], the tokens in each.
      trace: the trace they come from.
      reserved_blocks: capacity that caches nothing.
      largest_request_blocks: blocks of the largest request, the reserved one included.
    """

    distance: np.ndarray
    request: np.ndarray
    tokens: np.ndarray
    trace: BlockTrace
    reserved_blocks: int
    largest_request_blocks: int

    def curve(self) -> HitCurve:
        """Hits at every capacity.

        Returns:
          The `HitCurve` of the trace.
        """
        hit = self.distance != NEVER
        distance = self.distance[hit]
        return HitCurve(
            hit_blocks=_cumulative(distance, None),
            hit_tokens=_cumulative(distance, self.tokens[hit]),
            total_blocks=self.trace.accesses,
            total_tokens=int(self.trace.input_tokens.sum()),
            block_tokens=self.trace.block_tokens,
            reserved_blocks=self.reserved_blocks,
            largest_request_blocks=self.largest_request_blocks,
        )

    def cached_tokens(self, capacity_blocks: float) -> np.ndarray:
        """Prompt tokens of each request that a cache of this capacity serves.

        Args:
          capacity_blocks: a positive number of blocks; infinity allowed.

        Returns:
          int64 [R].

        Raises:
          ValueError: if the capacity is not positive.
        """
        if not capacity_blocks > 0:
            raise ValueError(f"capacity must be a positive number of blocks, got {capacity_blocks}")
        hit = self.distance < min(np.floor(capacity_blocks) - self.reserved_blocks, NEVER)
        tokens = np.bincount(self.request[hit], self.tokens[hit], self.trace.requests)
        return tokens.astype(np.int64)


def lru_curve(trace: BlockTrace, semantics: Semantics = "vllm", ttl_s: float = np.inf) -> HitCurve:
    """Hits of an LRU prefix cache at every capacity, from one pass; see `block_distances`.

    Args:
      trace: the requests.
      semantics: "plain", "prefix" or "vllm".
      ttl_s: seconds after which an untouched block no longer hits.

    Returns:
      The `HitCurve`.

    Raises:
      ValueError: as `block_distances`.
    """
    return block_distances(trace, semantics, ttl_s).curve()


def block_distances(
    trace: BlockTrace, semantics: Semantics = "vllm", ttl_s: float = np.inf
) -> BlockDistances:
    """The capacity that each block reference needs, requests served one after another.

    - "plain": LRU over the ids front to back; every reference stands alone.
    - "prefix": the longest resident prefix hits; then the request's blocks are touched tail to
      head, so that a tail is evicted before its head.
    - "vllm": as "prefix" over full blocks only, with the hit capped at (tokens - 1) // block (the
      last token is always computed). Of N usable blocks one serves the running request's partial
      tail and is recycled first, so full blocks obey LRU at N - 1. This equals the block pool of
      vLLM 0.33 with two exceptions, each worth a block or so: a request larger than the pool (see
      `HitCurve.largest_request_blocks`), and prompts that end exactly with a block. These need no
      slot for a tail until they generate, and if one is resident as a whole its recomputed last
      block takes a second slot. A pool counts one block more, its null block.

    Args:
      trace: the requests.
      semantics: one of the three.
      ttl_s: seconds after which an untouched block no longer hits; every touch renews it. An
        expired block keeps its place until LRU order evicts it.

    Returns:
      The distances.

    Raises:
      ValueError: for an unknown semantics, a ttl that is not positive, or a trace without tokens.
    """
    if str(semantics) not in get_args(Semantics):
        raise ValueError(
            f"unknown semantics {semantics!r}{nearest(semantics, get_args(Semantics))}"
        )
    if not ttl_s > 0:
        raise ValueError(f"ttl_s must be positive, got {ttl_s}")
    if trace.accesses == 0 or trace.input_tokens.sum() == 0:
        raise ValueError("the trace has no block references")
    tokens = trace.access_tokens()
    blocks = np.diff(trace.offsets)
    ids, request = trace.block_ids, trace.access_request()
    served = np.ones(len(ids), bool)
    if semantics == "vllm":
        index = np.arange(len(ids)) - trace.offsets[request]
        full = trace.input_tokens // trace.block_tokens
        kept = index < full[request]
        ids, request, tokens, index = ids[kept], request[kept], tokens[kept], index[kept]
        served = index < np.maximum((trace.input_tokens - 1) // trace.block_tokens, 0)[request]
        blocks = full
    ends = np.cumsum(blocks)
    starts = ends - blocks
    if semantics == "plain":
        distance, previous = (np.asarray(x) for x in reuse(ids))
    else:
        # Touch order: each request tail to head. The map is its own inverse.
        turn = (starts + ends - 1)[request] - np.arange(len(ids))
        distance, previous = (np.asarray(x)[turn] for x in reuse(ids[turn], starts))
    if np.isfinite(ttl_s):
        # A request's touches share its arrival time, so turning it around changes no time.
        age_s = trace.arrival_s[request] - trace.arrival_s[request[np.maximum(previous, 0)]]
        distance = np.where(age_s > ttl_s, NEVER, distance)
    if semantics != "plain":
        distance = _running_max(distance, starts[blocks > 0])
    reserved = int(semantics == "vllm")
    return BlockDistances(
        distance=np.where(served, distance, NEVER),
        request=request,
        tokens=tokens,
        trace=trace,
        reserved_blocks=reserved,
        largest_request_blocks=int(blocks.max()) + reserved,
    )


def _running_max(distance: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Running maximum within each request: a block hits only if all before it do."""
    if len(distance) == 0:
        return distance
    # Lifting each request above the last one lets one running maximum serve them all.
    segment = np.zeros(len(distance), np.int64)
    segment[starts] = 1
    lift = np.cumsum(segment) << 32
    return np.maximum.accumulate(distance + lift) - lift


def _cumulative(distance: np.ndarray, weight: np.ndarray | None) -> np.ndarray:
    """Total weight of distances below c, for c = 0 .. max + 1."""
    counts = np.bincount(distance, weight, minlength=1)
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
