"""Prompts as dense arrays, and their reuse as pure jnp: many simulated sessions in one call."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jaxmem.common import check_size
from jaxmem.prompts.log import PromptLog
from jaxmem.prompts.reuse import HOW

_FIRST, _EXTENDED, _EDITED, _REPLACED, _INSERTED, _REMOVED, _REORDERED = (
    HOW.index(how)
    for how in ("first", "extended", "edited", "replaced", "inserted", "removed", "reordered")
)


class Prompts(NamedTuple):
    """C calls in time order, each of at most N segments, padded at the end.

    content: int32 [C, N], equal where contents are; negative is padding.
    tokens: int32 [C, N], 0 in the padding.
    label: int32 [C, N].
    session: int32 [C], or whatever has a cache of its own.
    time_s: float32 [C], ascending.
    """

    content: Array
    tokens: Array
    label: Array
    session: Array
    time_s: Array


class DenseReuse(NamedTuple):
    """As `Reuse`, for contents that are equal or share nothing; int32 [C].

    reference: the earlier call with the longest common prefix, the latest of equals, or -1.
    reused: tokens of whole blocks of that prefix.
    rounding: tokens of it beside whole blocks.
    broken: tokens after it that the reference held too.
    fresh: tokens that it did not hold.
    position: segment at which the prefix ended.
    how: index into `HOW`; never "grown".
    cause: label of the segment that changed, -1 where nothing broke.
    """

    reference: Array
    reused: Array
    rounding: Array
    broken: Array
    fresh: Array
    position: Array
    how: Array
    cause: Array


def dense_reuse(
    prompts: Prompts,
    block_tokens: ArrayLike = 1,
    *,
    ttl_s: ArrayLike = jnp.inf,
    lookback: int | None = None,
) -> DenseReuse:
    """The longest prefix that an earlier call of the session had, and why it is no longer.

    shared_i = max over j in (i - lookback .. i - 1) of tokens[i, :depth_ij],
    depth_ij = first n with content[i, n] != content[j, n]

    Args:
      prompts: one session or more; the caller vmaps over batches of them.
      block_tokens: only whole blocks of so many tokens are reused; may be traced.
      ttl_s: a call counts for so many seconds after it was sent; may be traced.
      lookback: how many calls before each are looked at, all by default (which takes C^2 N
        comparisons). An agent that is alone in its session needs one.

    Returns:
      Tokens by what became of them, as `reuse` gives them for logs.
    """
    calls, width = prompts.content.shape
    window = calls - 1 if lookback is None else min(check_size("lookback", lookback), calls - 1)
    if window <= 0:
        return _nothing(prompts)
    place = jnp.arange(width)
    ends = jnp.pad(jnp.cumsum(prompts.tokens, axis=1), ((0, 0), (1, 0)))  # [C, N + 1]

    def one(call: Array) -> DenseReuse:
        earlier = call - 1 - jnp.arange(window)  # [W], the latest first
        row = prompts.content[call]  # [N]
        differs = row != prompts.content[earlier]  # [W, N]
        length = jnp.sum(row >= 0)
        depth = jnp.minimum(jnp.min(jnp.where(differs, place, width), axis=1), length)  # [W]
        may = (earlier >= 0) & (prompts.session[earlier] == prompts.session[call])
        may &= prompts.time_s[earlier] >= prompts.time_s[call] - ttl_s
        depth = jnp.where(may, depth, -1)
        deepest = jnp.max(depth)
        found = deepest >= 0
        reference = jnp.max(jnp.where(may & (depth == deepest), earlier, -1))
        at = jnp.maximum(deepest, 0)
        shared = ends[call, at]

        other = prompts.content[reference]
        rest, gone = (place >= at) & (row >= 0), (place >= at) & (other >= 0)  # [N]
        same = (row[:, None] == other[None, :]) & rest[:, None] & gone[None, :]  # [N, N]
        held = same.any(1)
        fresh = jnp.sum(jnp.where(rest & (~held | ~found), prompts.tokens[call], 0))
        here = place == at  # empty where the prompts are equal
        broke = (rest & here).any() & (gone & here).any()
        new_held, old_kept = (held & here).any(), (same.any(0) & here).any()
        label = jnp.sum(jnp.where(here, prompts.label[call], 0))
        old_label = jnp.sum(jnp.where(here, prompts.label[reference], 0))
        how = jnp.select(
            [~found, ~broke, new_held & old_kept, old_kept, new_held, label == old_label],
            [_FIRST, _EXTENDED, _REORDERED, _INSERTED, _REMOVED, _EDITED],
            _REPLACED,
        )
        cause = jnp.where(how == _REMOVED, old_label, label)
        reused = shared // block_tokens * block_tokens
        return DenseReuse(
            reference,
            reused,
            shared - reused,
            ends[call, -1] - shared - fresh,
            fresh,
            at,
            how,
            jnp.where(found & broke, cause, -1),
        )

    found = jax.lax.map(one, jnp.arange(calls), batch_size=min(calls, 16))
    return jax.tree.map(lambda x: x.astype(jnp.int32), found)


def _nothing(prompts: Prompts) -> DenseReuse:
    """A single call, which has nothing to reuse."""
    zero = jnp.zeros(len(prompts.content), jnp.int32)
    total = jnp.sum(prompts.tokens, axis=1, dtype=jnp.int32)
    return DenseReuse(zero - 1, zero, zero, zero, total, zero, zero + _FIRST, zero - 1)


def to_dense(log: PromptLog, block_tokens: int | None = None) -> Prompts:
    """A log as dense arrays: its segments, or its token stream cut into blocks.

    In blocks, parts of contents are shared too; a content that is only a name is a stream of its
    own tokens. Labels are those of the segment in which a block ends.

    Args:
      log: the calls.
      block_tokens: tokens a block, the last of a prompt may have fewer; segments by default.

    Returns:
      Arrays of C calls; times from 0.

    Raises:
      ValueError: if block_tokens is no positive whole number, or blocks are asked of an encoder
        whose tokens are no whole number of bytes.
    """
    if block_tokens is None:
        rows = [log.content[a:b] for a, b in zip(log.starts, log.starts[1:])]
        tokens = [log.segment_tokens[a:b] for a, b in zip(log.starts, log.starts[1:])]
        labels = [log.label[a:b] for a, b in zip(log.starts, log.starts[1:])]
    else:
        rows, tokens, labels = _blocks(log, check_size("block_tokens", block_tokens))
    return Prompts(
        _padded(rows, -1),
        _padded(tokens, 0),
        _padded(labels, 0),
        jnp.asarray(log.thread.astype(np.int32)),
        jnp.asarray((log.time_s - log.time_s[:1]).astype(np.float32)),
    )


def _blocks(
    log: PromptLog, block: int
) -> tuple[list[np.ndarray], list[np.ndarray], list[np.ndarray]]:
    """Ids, sizes and labels of each call's blocks."""
    unit = int(log.encoder.unit_bytes)
    if unit != log.encoder.unit_bytes:
        raise ValueError(f"blocks: expected whole bytes a token, got {log.encoder.unit_bytes}")
    streams = []
    for n, (units, tokens) in enumerate(zip(log.units, log.tokens.tolist())):
        name = n.to_bytes(4, "little")
        places = (b"\0" + name + p.to_bytes(4, "little") for p in range(tokens))
        # Padded to whole tokens, so that a segment begins with a token.
        whole = units.ljust(tokens * unit, b"\0") if units else b""
        streams.append([whole[p * unit : (p + 1) * unit] for p in range(tokens)] if units
                       else list(places))  # fmt: skip
    ids: dict[tuple[bytes, ...], int] = {}
    rows, sizes, labels = [], [], []
    for call in range(log.calls):
        of = slice(log.starts[call], log.starts[call + 1])
        stream = [token for c in log.content[of] for token in streams[c]]
        cuts = range(0, len(stream), block)
        parts = [tuple(stream[cut : cut + block]) for cut in cuts]
        rows.append(np.array([ids.setdefault(part, len(ids)) for part in parts], np.int32))
        sizes.append(np.array([len(part) for part in parts], np.int32))
        owner = np.repeat(log.label[of], log.segment_tokens[of])
        labels.append(owner[np.minimum(np.array(cuts, int) + block, len(stream)) - 1])
    return rows, sizes, labels


def _padded(rows: list[np.ndarray], fill: int) -> Array:
    """Rows of different lengths as one int32 array [C, N]."""
    whole = np.full((len(rows), max((len(row) for row in rows), default=0)), fill, np.int32)
    for place, row in zip(whole, rows):
        place[: len(row)] = row
    return jnp.asarray(whole)
