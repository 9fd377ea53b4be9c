"""Which earlier call shares the longest prefix with each call of a log."""

import bisect
from collections import deque
from typing import NamedTuple

import numpy as np

from jaxmem.prompts.log import PromptLog

_CLOSE = 16  # tokens: so little more may be a coincidence, of ids that begin alike, say
_TIES = 4  # neighbours looked through for the latest of those that share equally much


class Match(NamedTuple):
    """The earlier call that shares the longest prefix: whole segments, and tokens in all.

    `shares` has all these tokens; `call` is the one to compare with, which may have a few less.
    """

    call: int
    shares: int
    segments: int
    tokens: int


def matches(log: PromptLog, scope: str, ttl_s: float) -> list[Match]:
    """For each call the earlier one of its scope, touched within `ttl_s`, that shares most.

    Each model has a cache of its own. Two indices: the last call through each prefix of whole
    segments gives the latest call that shares them all; prompts kept in sorted order have the one
    that shares most of the next segment as a neighbour.

    Args:
      log: the calls.
      scope: "session" or "all".
      ttl_s: seconds.

    Returns:
      C matches.
    """
    scopes = (log.thread if scope == "session" else log.model).tolist()
    prefixes, contents, order = log.prefix.tolist(), log.content.tolist(), log.order
    ends = np.concatenate([[0], np.cumsum(log.segment_tokens)]).tolist()
    bounds, times = log.starts.tolist(), log.time_s.tolist()
    through: dict[tuple[int, int], int] = {}  # (scope, prefix) -> last call through it
    ordered: dict[int, _Sorted] = {}
    found = []
    for call in range(log.calls):
        start, end, who = bounds[call], bounds[call + 1], scopes[call]
        oldest = times[call] - ttl_s
        near = ordered.setdefault(who, _Sorted(log, ttl_s))
        near.expire(oldest)
        latest, depth = through.get((who, -1), -1), 0
        if latest >= 0 and times[latest] < oldest:
            latest = -1
        if latest >= 0:
            for s in range(start, end):
                last = through.get((who, prefixes[s]), -1)
                if last < 0 or times[last] < oldest:
                    break
                latest, depth = last, depth + 1
        partial, shares = 0, latest
        key = tuple(order[c] for c in contents[start:end])
        if latest >= 0 and start + depth < end:
            partial, shares = _partial(log, call, latest, depth), latest
            other, most = near.best(key, call, depth)
            if most > partial:
                latest = other if most >= partial + _CLOSE else latest
                shares, partial = other, most
        tokens = ends[start + depth] - ends[start] + partial
        found.append(Match(latest, shares, depth, tokens))
        near.add(key, call)
        through[who, -1] = call
        for s in range(start, end):
            through[who, prefixes[s]] = call
    return found


class _Sorted:
    """Distinct prompts of one scope in the order of their bytes, each with its latest call."""

    def __init__(self, log: PromptLog, ttl_s: float) -> None:
        self.log = log
        self.keys: list[tuple[bytes, ...]] = []
        self.latest: dict[tuple[bytes, ...], int] = {}
        self.uses: deque[tuple[float, tuple[bytes, ...]]] | None = (
            deque() if np.isfinite(ttl_s) else None
        )

    def add(self, key: tuple[bytes, ...], call: int) -> None:
        if key not in self.latest:
            bisect.insort(self.keys, key)
        self.latest[key] = call
        if self.uses is not None:
            self.uses.append((float(self.log.time_s[call]), key))

    def expire(self, oldest: float) -> None:
        while self.uses and self.uses[0][0] < oldest:
            key = self.uses.popleft()[1]
            if key in self.latest and self.log.time_s[self.latest[key]] < oldest:
                del self.latest[key], self.keys[bisect.bisect_left(self.keys, key)]

    def best(self, key: tuple[bytes, ...], call: int, depth: int) -> tuple[int, int]:
        """The latest of the calls that share most of the segment after `depth` equal ones."""
        place = bisect.bisect_left(self.keys, key)
        call_of, most = -1, 0
        for way in (range(place - 1, place - 1 - _TIES, -1), range(place, place + _TIES)):
            for n in way:
                if not 0 <= n < len(self.keys):
                    break
                other = self.latest[self.keys[n]]
                shares = _partial(self.log, call, other, depth)
                if shares < most or shares == 0:
                    break
                if shares > most or other > call_of:
                    call_of, most = other, shares
        return call_of, most


def _partial(log: PromptLog, a: int, b: int, depth: int) -> int:
    """Tokens two calls share of what follows `depth` segments, which are equal."""
    i, j = log.starts[a] + depth, log.starts[b] + depth
    if i >= log.starts[a + 1] or j >= log.starts[b + 1]:
        return 0
    x, y = int(log.content[i]), int(log.content[j])
    if depth and log.prefix[i - 1] != log.prefix[j - 1]:
        return 0
    return log.shared_tokens(x, y) if x != y else 0
