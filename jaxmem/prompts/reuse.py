"""What a prefix cache reuses of each call, and what broke the rest: by segment and by how."""

import dataclasses
from functools import cached_property
from typing import NamedTuple

import numpy as np

from jaxmem.common import check_number, check_size, choice
from jaxmem.prefix_cache import BlockTrace, make_trace
from jaxmem.prompts.log import PromptLog, common_ends, common_prefix
from jaxmem.prompts.matching import Match, matches

SCOPES = ("session", "all")
HOW = ("first", "extended", "edited", "grown", "replaced", "inserted", "removed", "reordered")
_HOW = {how: i for i, how in enumerate(HOW)}
_BREAKS = np.array([how not in ("first", "extended") for how in HOW])


@dataclasses.dataclass(frozen=True, repr=False)
class Reuse:
    """What of each call an earlier one had computed. Arrays of C calls, numpy's.

    prompt = reused + rounding + expired + broken + fresh, in tokens

    Attributes:
      log: the calls.
      reference: int64, the earlier call that this one is compared with: of its session and model
        the one that shares most, the latest of those that share about equally much; of other
        sessions only if there is none; -1 without any.
      shared: int64, tokens of the longest prefix that any earlier call of the scope had.
      reused: int64, those that a cache of this block size, minimum and time to live serves.
      rounding: int64, live tokens that are too few for a block or for the minimum.
      expired: int64, tokens that no call touched within the time to live.
      broken: int64, tokens after it that the reference held too: what a change before them made
        be computed again.
      fresh: int64, tokens that the reference did not hold.
      position: int64, the segment at which it ended, counted within the call.
      how: int8, index into `HOW`: what stands there in place of the reference's segment.
        "edited" keeps the label; "grown" has the old content as its beginning.
      cause: int32, index into `log.labels`: the segment that changed; -1 where nothing broke.
    """

    log: PromptLog
    reference: np.ndarray
    shared: np.ndarray
    reused: np.ndarray
    rounding: np.ndarray
    expired: np.ndarray
    broken: np.ndarray
    fresh: np.ndarray
    position: np.ndarray
    how: np.ndarray
    cause: np.ndarray

    def __repr__(self) -> str:
        """A line without any text of the log."""
        return f"Reuse({self.share:.1%} of {self.log})"

    @property
    def recomputed(self) -> np.ndarray:
        """Tokens computed again or for the first time, int64 [C]."""
        return self.log.prompt_tokens - self.reused

    @property
    def share(self) -> float:
        """Reused tokens over all prompt tokens; 0 for an empty log."""
        return float(self.reused.sum() / max(int(self.log.prompt_tokens.sum()), 1))

    @cached_property
    def by_cause(self) -> dict[tuple[str, str], tuple[int, int]]:
        """(label, how) -> (calls, broken tokens) of each kind of break, the costliest first."""
        found: dict[tuple[str, str], tuple[int, int]] = {}
        for call in np.flatnonzero(_BREAKS[self.how] & (self.broken > 0)):
            key = (self.log.labels[self.cause[call]], HOW[self.how[call]])
            calls, tokens = found.get(key, (0, 0))
            found[key] = (calls + 1, tokens + int(self.broken[call]))
        return dict(sorted(found.items(), key=lambda item: (-item[1][1], item[0])))


def reuse(
    log: PromptLog,
    block_tokens: int = 1,
    *,
    scope: str = "session",
    ttl_s: float = np.inf,
    minimum_tokens: int = 0,
    tail_tokens: int = 0,
) -> Reuse:
    """The longest prefix of each prompt that an earlier call had, and why it is no longer.

    shared_i = max over earlier calls j of the scope of |common prefix of prompts i and j|

    Each model has a cache of its own.

    A call keeps alive all prefixes of its prompt: one expires `ttl_s` after the last call that
    begins with it.

    Args:
      log: the calls.
      block_tokens: only whole blocks of so many tokens are reused.
      scope: "session", or "all" where sessions share a cache.
      ttl_s: time to live after the last use, seconds.
      minimum_tokens: shorter prefixes are not reused.
      tail_tokens: tokens at the end of a prompt that are always computed; 1 on most engines.

    Returns:
      Tokens by what became of them, a cause for each break.

    Raises:
      ValueError: for an unknown scope, numbers out of range, or a time to live for a log
        without times.
    """
    limits = _checked(log, block_tokens, scope, ttl_s, minimum_tokens, tail_tokens)
    found = matches(log, limits.scope, np.inf)
    shared = np.array([match.tokens for match in found], np.int64)
    live = shared if np.isinf(ttl_s) else _live(log, limits)
    prompt = log.prompt_tokens
    reused = _whole_blocks(log, live, limits)
    # A call is compared with its own session, also where it finds more in others.
    own = found if limits.scope == "session" else matches(log, "session", np.inf)
    own = [mine if mine.call >= 0 else other for mine, other in zip(own, found)]
    diagnoses = [
        _diagnose(log, c, match, tokens)
        for c, (match, tokens) in enumerate(zip(own, shared.tolist()))
    ]
    fresh = np.minimum([d.fresh for d in diagnoses], prompt - shared).astype(np.int64)
    reference = np.array([match.call for match in own], np.int64)
    broken, rounding, expired = prompt - shared - fresh, live - reused, shared - live
    # What a break cannot have cost: the reference had expired, or was too short to be kept.
    late = (reference >= 0) & (log.time_s - log.time_s[reference] > ttl_s)
    short = ~late & (shared + broken < limits.least)
    expired, rounding = expired + broken * late, rounding + broken * short
    return Reuse(
        log=log,
        reference=reference,
        shared=shared,
        reused=reused,
        rounding=rounding,
        expired=expired,
        broken=np.where(late | short, 0, broken),
        fresh=fresh,
        position=np.array([match.segments for match in own], np.int64),
        how=np.array([_HOW[d.how] for d in diagnoses], np.int8),
        cause=np.array([d.cause for d in diagnoses], np.int32),
    )


def served(
    log: PromptLog,
    block_tokens: int = 1,
    *,
    scope: str = "session",
    ttl_s: float = np.inf,
    minimum_tokens: int = 0,
    tail_tokens: int = 0,
) -> np.ndarray:
    """Tokens of each prompt that are reused, and no causes: `reuse(...).reused`, for less.

    Args:
      log, block_tokens, scope, ttl_s, minimum_tokens, tail_tokens: as in `reuse`.

    Returns:
      int64 [C].

    Raises:
      ValueError: as `reuse`.
    """
    limits = _checked(log, block_tokens, scope, ttl_s, minimum_tokens, tail_tokens)
    return _whole_blocks(log, _live(log, limits), limits)


class _Limits(NamedTuple):
    """Of a cache, as in `reuse`."""

    block: int
    scope: str
    ttl_s: float
    least: int
    tail: int


def _checked(
    log: PromptLog,
    block_tokens: int,
    scope: str,
    ttl_s: float,
    minimum_tokens: int,
    tail_tokens: int,
) -> _Limits:
    check_number("ttl_s", ttl_s, scalar=True)
    if np.isfinite(ttl_s) and not log.timed:
        raise ValueError("ttl_s: the log has no times, a time to live cannot apply")
    return _Limits(
        check_size("block_tokens", block_tokens),
        choice(SCOPES, scope, "scope"),
        float(ttl_s),
        check_size("minimum_tokens", minimum_tokens, 0),
        check_size("tail_tokens", tail_tokens, 0),
    )


def _live(log: PromptLog, limits: _Limits) -> np.ndarray:
    """Tokens of the longest prefix of each prompt that has not expired."""
    found = matches(log, limits.scope, limits.ttl_s)
    return np.array([match.tokens for match in found], np.int64)


def _whole_blocks(log: PromptLog, live: np.ndarray, limits: _Limits) -> np.ndarray:
    reused = np.minimum(live, np.maximum(log.prompt_tokens - limits.tail, 0))
    reused = reused // limits.block * limits.block
    return np.where(reused >= limits.least, reused, 0)


def block_trace(log: PromptLog, block_tokens: int = 16, scope: str = "all") -> BlockTrace:
    """The prompts as chained blocks, for every capacity at once (`jaxmem.prefix_cache`).

    Args:
      log: the calls.
      block_tokens: tokens a block.
      scope: "all", or "session" where nothing is shared between sessions.

    Returns:
      Full blocks only; equal ids are equal prefixes.

    Raises:
      ValueError: as `reuse`.
    """
    limits = _checked(log, block_tokens, scope, np.inf, 0, 0)
    blocks = log.prompt_tokens // block_tokens
    ids: list[np.ndarray] = []
    used = 0
    for count, match in zip(blocks, matches(log, limits.scope, np.inf)):
        kept = match.tokens // block_tokens
        old = ids[match.shares][:kept] if kept else np.empty(0, np.int64)
        ids.append(np.concatenate([old, np.arange(used, used + count - kept)]))
        used += int(count - kept)
    return make_trace(
        np.concatenate(ids) if ids else np.empty(0, np.int64),
        blocks,
        log.prompt_tokens,
        log.output_tokens,
        log.time_s - log.time_s[0] if log.calls else log.time_s,
        block_tokens,
    )


class _Diagnosis(NamedTuple):
    """What stands where the common prefix ends."""

    how: str
    cause: int
    fresh: int


def _diagnose(log: PromptLog, call: int, match: Match, shared: int) -> _Diagnosis:
    """How the call departs from its reference, and how much of it behind `shared` tokens is new."""
    start, end = int(log.starts[call]), int(log.starts[call + 1])
    here = start + match.segments
    rest = int(log.prompt_tokens[call]) - shared
    if match.call < 0:
        return _Diagnosis("first", -1, rest)
    there, last = int(log.starts[match.call]) + match.segments, int(log.starts[match.call + 1])
    if here == end or there == last:
        return _Diagnosis("extended", -1, rest)
    new, old = log.content[here:end].tolist(), log.content[there:last].tolist()
    held, kept = set(old), set(new)
    labels = log.label[here:end].tolist()
    gone: dict[int, list[int]] = {}  # by label, what the call no longer has
    for content, label in zip(old, log.label[there:last].tolist()):
        if content not in kept:
            gone.setdefault(label, []).append(content)
    fresh, begins = 0, int(log.segment_tokens[start:here].sum())
    for content, label in zip(new, labels):
        tokens = int(log.tokens[content])
        same = min(max(shared - begins, 0), tokens)
        begins += tokens
        if content in held:
            continue
        if gone.get(label):
            same = max(in_common(log, gone[label].pop(0), content), same)
        fresh += tokens - same
    old_label = int(log.label[there])
    if old[0] in kept:
        how, cause = ("reordered" if new[0] in held else "inserted"), labels[0]
    elif new[0] in held:
        how, cause = "removed", old_label
    elif labels[0] == old_label:
        before, after = log.units[old[0]], log.units[new[0]]
        whole = before and common_prefix(before, after) == len(before)
        how, cause = ("grown" if whole else "edited"), labels[0]
    else:
        how, cause = "replaced", labels[0]
    return _Diagnosis(how, cause, min(fresh, rest))


def in_common(log: PromptLog, old: int, new: int) -> int:
    """Tokens of a content that its old form had: at its ends, or in whole lines; if most of it.

    Args:
      log: the calls.
      old, new: ids of the contents.

    Returns:
      Tokens; 0 if less than half of the smaller one is left.
    """
    if not (log.units[old] and log.units[new]):
        return 0
    before, after = log.contents[old], log.contents[new]
    begins, ends = common_ends(before, after)
    had = set(before.split(b"\n"))
    lines = sum(len(line) + 1 for line in after.split(b"\n") if line in had)
    same = min(max(begins + ends, lines), len(after))
    if 2 * same < min(len(before), len(after)):
        return 0
    return int(log.tokens[new] * same / max(len(after), 1))
