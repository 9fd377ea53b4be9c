"""A trace of requests as blocks: what a prefix cache sees of the prompts."""

import dataclasses
import json
import os

import numpy as np
from numpy.typing import ArrayLike

from jaxmem.common.files import write_text
from jaxmem.prefix_cache.distances import MAX_ACCESSES


@dataclasses.dataclass(frozen=True)
class BlockTrace:
    """Requests in order of arrival, each the blocks of its prompt from front to back.

    Equal ids mean equal blocks with equal prefixes (ids are hashes of the prefix, as a server
    computes them). All arrays are numpy's, on the host.

    Attributes:
      block_ids: integers [N], the requests' blocks one after another.
      offsets: int64 [R + 1]; request r holds block_ids[offsets[r]:offsets[r + 1]].
      input_tokens: int64 [R], prompt lengths in tokens. A request has a block for every
        `block_tokens` of them, and may have one more for the partial tail.
      output_tokens: int64 [R], answer lengths in tokens.
      arrival_s: float64 [R], ascending, in seconds.
      block_tokens: tokens a full block holds.

    Raises:
      ValueError: if the arrays do not fit together, a request's blocks do not fit its tokens,
        times do not ascend, or there are more than 2^31 - 2^26 block references.
    """

    block_ids: np.ndarray
    offsets: np.ndarray
    input_tokens: np.ndarray
    output_tokens: np.ndarray
    arrival_s: np.ndarray
    block_tokens: int

    def __post_init__(self) -> None:
        requests = len(self.input_tokens)
        if self.block_tokens < 1:
            raise ValueError(f"block_tokens must be positive, got {self.block_tokens}")
        if len(self.block_ids) > MAX_ACCESSES:
            raise ValueError(
                f"a trace holds at most {MAX_ACCESSES:,} block references (int32 positions), "
                f"got {len(self.block_ids):,}"
            )
        for name in ("output_tokens", "arrival_s"):
            if len(getattr(self, name)) != requests:
                raise ValueError(f"{name}: expected {requests} values, as input_tokens has")
        if len(self.offsets) != requests + 1 or (
            requests and (self.offsets[0] != 0 or self.offsets[-1] != len(self.block_ids))
        ):
            raise ValueError(f"offsets: expected {requests + 1}, from 0 to {len(self.block_ids)}")
        blocks, full = np.diff(self.offsets), self.input_tokens // self.block_tokens
        wrong = (blocks != full) & (blocks != -(-self.input_tokens // self.block_tokens))
        if wrong.any():
            r = int(wrong.argmax())
            raise ValueError(
                f"request {r}: {blocks[r]} blocks of {self.block_tokens} tokens do not fit "
                f"{self.input_tokens[r]} input tokens"
            )
        if not np.all(np.isfinite(self.arrival_s)) or np.any(np.diff(self.arrival_s) < 0):
            raise ValueError("arrival_s must ascend and be finite")
        if np.any(self.output_tokens < 0) or np.any(self.input_tokens < 0):
            raise ValueError("input_tokens and output_tokens must not be negative")

    @property
    def requests(self) -> int:
        """Number of requests R."""
        return len(self.input_tokens)

    @property
    def accesses(self) -> int:
        """Number of block references N."""
        return len(self.block_ids)

    def access_tokens(self) -> np.ndarray:
        """Tokens in each referenced block, int64 [N]: a partial tail counts its real ones."""
        tokens = np.full(self.accesses, self.block_tokens, np.int64)
        tail = self.input_tokens % self.block_tokens
        has_tail = np.diff(self.offsets) > self.input_tokens // self.block_tokens
        tokens[self.offsets[1:][has_tail] - 1] = tail[has_tail]
        return tokens

    def access_request(self) -> np.ndarray:
        """The request of each reference, int64 [N]."""
        return np.repeat(np.arange(self.requests), np.diff(self.offsets))


def make_trace(
    block_ids: ArrayLike,
    blocks_per_request: ArrayLike,
    input_tokens: ArrayLike,
    output_tokens: ArrayLike,
    arrival_s: ArrayLike,
    block_tokens: int,
) -> BlockTrace:
    """A trace from requests in any order: they are sorted by arrival, stably.

    Args:
      block_ids: integers [N], the requests' blocks one after another.
      blocks_per_request: integers [R], summing to N.
      input_tokens: integers [R].
      output_tokens: integers [R].
      arrival_s: [R] seconds.
      block_tokens: tokens a full block holds.

    Returns:
      The trace.

    Raises:
      ValueError: as `BlockTrace`.
    """
    ids = np.asarray(block_ids)
    counts = np.asarray(blocks_per_request, np.int64)
    arrival = np.asarray(arrival_s, np.float64)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    order = np.argsort(arrival, kind="stable")
    if np.any(order != np.arange(len(order))):
        moved = np.concatenate([[0], np.cumsum(counts[order])])
        source = np.repeat(offsets[:-1][order] - moved[:-1], counts[order]) + np.arange(len(ids))
        ids, offsets = ids[source], moved
    return BlockTrace(
        ids,
        offsets,
        np.asarray(input_tokens, np.int64)[order],
        np.asarray(output_tokens, np.int64)[order],
        arrival[order],
        block_tokens,
    )


def write_trace(path: str | os.PathLike[str], trace: BlockTrace) -> None:
    """Write a trace in the Mooncake format (JSON lines; gzip if the name ends in `.gz`).

    A request without an id for its partial tail gets a fresh one, which nothing else shares:
    the format wants ceil(tokens / block) ids.

    Args:
      path: the file, written whole or not at all.
      trace: what to write.
    """
    fresh = int(trace.block_ids.max(initial=-1)) + 1
    lines = []
    for r in range(trace.requests):
        ids = trace.block_ids[trace.offsets[r] : trace.offsets[r + 1]].tolist()
        if len(ids) * trace.block_tokens < trace.input_tokens[r]:
            ids.append(fresh)
            fresh += 1
        milliseconds = float(trace.arrival_s[r]) * 1000
        row = {
            "timestamp": int(milliseconds) if milliseconds.is_integer() else milliseconds,
            "input_length": int(trace.input_tokens[r]),
            "output_length": int(trace.output_tokens[r]),
            "hash_ids": ids,
        }
        lines.append(json.dumps(row) + "\n")
    write_text(path, "".join(lines))
