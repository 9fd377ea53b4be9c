"""Full context and RAG in numpy, and the ledger; part of the rival, see `dialogue_numpy.py`."""

from typing import Any, NamedTuple

import numpy as np
from dialogue_numpy_world import (
    BY_ROLE,
    HOP,
    SLOTS,
    THEIRS,
    D,
    M,
    Q,
    Talk,
    f32,
    first,
    highest,
    packed,
    pick,
    unit,
)

from jaxmem.dialogue.systems import PURPOSES, system
from jaxmem.dialogue.systems.full_context import MISS

ALPHA, WINDOW = 0.5, 128_000
CHUNK, CHUNKS, MESSAGES = 128, 16, 48


class Outcome(NamedTuple):
    """What a system answered in B conversations, and its ledger."""

    right: np.ndarray  # [B, Q]
    read_tokens: np.ndarray  # [B, Q]
    found: np.ndarray  # [B, Q]
    read: np.ndarray  # [3, PURPOSES, B, Q] calls, prefill and generated tokens
    write: np.ndarray  # [3, PURPOSES, B]


def ledger(size: int, shape: tuple[int, ...], **calls: tuple[Any, Any, Any]) -> np.ndarray:
    """[3, PURPOSES, B, ...] calls, prefill and generated tokens by purpose."""
    out = np.zeros((3, len(PURPOSES), size, *shape), f32)
    for name, entry in calls.items():
        for i, value in enumerate(entry):
            out[i, PURPOSES.index(name)] = value
    return out


def one_answer(
    right: np.ndarray, tokens: np.ndarray, found: np.ndarray, write: np.ndarray | None = None
) -> Outcome:
    """The outcome of answers given in one call each."""
    cost = (1, system.ANSWER_PROMPT + tokens, system.REPLY_TOKENS)
    write = ledger(len(right), ()) if write is None else write
    return Outcome(right, tokens, found, ledger(len(right), (Q,), answer=cost), write)


def full_context(rng: np.random.Generator, t: Talk) -> Outcome:
    """All of the window, lost in the middle."""
    start = first(t.end, np.maximum(t.end[:, -1] - WINDOW, 0))
    start += t.end[np.arange(len(start)), start] - t.end[:, -1] > 0
    position = (t.place - start[:, None] + 0.5) / np.maximum(t.messages - start, 1)[:, None]
    miss = ALPHA * MISS * (np.pi / 2) * np.sin(np.pi * np.clip(position, 0, 1))
    miss = np.where(t.place >= start[:, None], miss, 1.0)
    padded = np.append(miss, np.ones((len(miss), 1)), axis=1).astype(f32)
    shown = rng.random((len(miss), *SLOTS.shape), dtype=f32) >= padded[:, SLOTS]
    theirs = rng.random((len(miss), *THEIRS.shape), dtype=f32) >= padded[:, THEIRS]
    tokens = (t.tokens * (np.arange(M) >= start[:, None])).sum(1)[:, None]
    rows = np.ones((1, Q), f32)
    return one_answer(t.right(shown, theirs), tokens * rows, (t.messages - start)[:, None] * rows)


def rag(t: Talk) -> Outcome:
    """Chunks of 128 tokens, the best 16."""
    size = len(t.messages)
    before = t.end - t.tokens
    rows, at, starts = np.arange(size), np.zeros(size, np.int64), []
    lifted = (t.end + (rows << 31)[:, None]).ravel()
    while (at < t.messages).any():
        starts.append(at)
        filled = before[rows, np.minimum(at, M - 1)] + CHUNK + (rows << 31)
        at = np.minimum(np.searchsorted(lifted, filled) + 1 - rows * M, t.messages)
    bounds = np.stack([*starts, t.messages], axis=1)
    start, length = bounds[:, :-1], np.diff(bounds)  # [B, N]
    # Sums of chunks, longest first, so that those with an i-th message come ahead.
    order = np.argsort(-length, axis=None)
    row, lengths = (start + (rows * M)[:, None]).ravel()[order], length.ravel()[order]
    flat = t.embeddings.reshape(-1, D)
    sums = np.zeros((row.size, D), f32)  # those of no message score 0, far below the best 16
    here = int((lengths > 0).sum())
    np.take(flat, row[:here], axis=0, out=sums[:here], mode="clip")
    for i in range(1, lengths[0]):
        more = int((lengths > i).sum())
        sums[:more] += flat[row[:more] + i]
    unit(sums[:here])
    embeddings = np.empty_like(sums)
    embeddings[order] = sums
    scores = t.queries[:, :Q] @ embeddings.reshape(*start.shape, D).transpose(0, 2, 1)
    numbers = packed(scores)
    mark = np.zeros((size, M + 1), np.int64)
    np.put_along_axis(mark, start, 1, axis=1)
    chunk = np.cumsum(mark[:, :M], axis=1) - 1
    where = np.append(chunk[rows[:, None], np.minimum(t.place, M - 1)], rows[:, None] * 0, axis=1)
    shown, theirs = where[:, SLOTS], where[:, THEIRS]
    shown, theirs = pick(numbers, np.arange(Q), shown), pick(numbers, HOP, theirs)
    best = highest(numbers, CHUNKS)
    least = best.min(-1)[..., None]
    tokens = t.end[rows[:, None], bounds[:, 1:] - 1] - before[rows[:, None], start % M]
    taken = tokens[rows[:, None, None], 1023 - (best & 1023)].sum(-1)
    right = t.right(shown >= least, theirs >= least[:, HOP])
    return one_answer(right, taken.astype(f32), np.full(taken.shape, CHUNKS, f32))


class Scored(NamedTuple):
    """Messages scored by questions and by searches for a role."""

    best: np.ndarray  # [B, Q + roles, 48] `packed` scores of the best
    shown: np.ndarray  # [B, Q, WIDTH] of versions, by the question
    theirs: np.ndarray  # [B, 8, H] of what is told of holders, by the question
    shown_by_role: np.ndarray  # [B, 8, WIDTH]
    theirs_by_role: np.ndarray  # [B, 8, H]


def score(t: Talk) -> Scored:
    """Likeness of messages to queries; those beyond the last score 0, far below the best 48."""
    numbers = packed(t.queries @ t.embeddings.transpose(0, 2, 1))  # [B, Q + roles, M]
    at = np.append(np.minimum(t.place, M - 1), np.zeros((len(numbers), 1), np.int64), axis=1)
    shown, theirs = at[:, SLOTS], at[:, THEIRS]
    picked = (
        pick(numbers, np.arange(Q), shown), pick(numbers, HOP, theirs),
        pick(numbers, BY_ROLE, shown[:, HOP]), pick(numbers, BY_ROLE, theirs),
    )  # fmt: skip
    return Scored(highest(numbers, MESSAGES), *picked)


def rag_messages(t: Talk, scored: Scored) -> Outcome:
    """The best 48 messages."""
    best = scored.best[:, :Q]
    least = best.min(-1)[..., None]
    tokens = t.tokens[np.arange(len(best))[:, None, None], 1023 - (best & 1023)].sum(-1)
    right = t.right(scored.shown >= least, scored.theirs >= least[:, HOP])
    return one_answer(right, tokens.astype(f32), np.full(tokens.shape, MESSAGES, f32))
