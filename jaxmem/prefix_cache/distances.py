"""Exact LRU reuse distances of a whole access stream at once, without a scan over accesses.

With p[t] the last earlier position of the block at t (-1 if there is none), the number of distinct
blocks touched since then is

    distance[t] = #{j < t : p[j] <= p[t]} - (p[t] + 1)

because the p[t] + 1 positions up to p[t] all satisfy the condition, and a position j after it does
exactly when it is the first touch of its block since. An LRU cache of C blocks serves access t if
and only if distance[t] < C: one pass answers for every capacity.

Source: Mattson et al. 1970, "Evaluation techniques for storage hierarchies".
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jaxmem.prefix_cache.ranks import count_before, count_smaller_before, padded_length

NEVER = 2**31 - 1
"""The distance of a first touch."""

MAX_ACCESSES = 2**31 - 2**26
"""The longest stream: positions and padding must fit into int32."""

_MAX_ROW = 2048


class Reuse(NamedTuple):
    """How each access relates to the last one of its block; [N] each, int32.

    distance: distinct blocks touched in between; `NEVER` for a first touch.
    previous: position of that last touch, -1 for a first touch.
    """

    distance: Array
    previous: Array


def stack_distances(block_ids: ArrayLike, starts: ArrayLike | None = None) -> Array:
    """Reuse distance of every access: distinct blocks touched since the last touch of its block.

    distance[t] = #{j < s : p[j] <= p[t]} - (p[t] + 1), with s = t, or the start of t's request.

    Args:
      block_ids: integers [N]; any values, each one a block. Under `jax.jit` they are ranked by a
        sort; outside, ids below 2 N cost no extra work.
      starts: integers [R], ascending, the first at 0: position of the first access of each
        request. If given, distances are as of the start of the request that makes the access,
        so that what the request itself touches does not count.

    Returns:
      int32 [N]; `NEVER` (2^31 - 1) for a first touch. An LRU cache of C blocks serves access t
      if and only if distance[t] < C.

    Raises:
      ValueError: if `block_ids` is not a vector of integers or longer than 2^31 - 2^26, or if
        `starts` does not ascend from 0.
    """
    return reuse(block_ids, starts).distance


def reuse(block_ids: ArrayLike, starts: ArrayLike | None = None) -> Reuse:
    """Distance and position of the last touch of every access; see `stack_distances`.

    Args:
      block_ids: integers [N].
      starts: integers [R] or None.

    Returns:
      A `Reuse` of int32 [N].

    Raises:
      ValueError: as `stack_distances`.
    """
    if isinstance(block_ids, jax.core.Tracer):
        return _reuse_traced(block_ids, starts)
    ids = np.asarray(block_ids)
    if ids.ndim != 1 or not (np.issubdtype(ids.dtype, np.integer) or ids.size == 0):
        raise ValueError(f"block ids must be a vector of integers, got {ids.dtype} {ids.shape}")
    if ids.size > MAX_ACCESSES:
        raise ValueError(f"{ids.size:,} accesses do not fit into int32 positions")
    if ids.size == 0:
        return Reuse(jnp.zeros(0, jnp.int32), jnp.zeros(0, jnp.int32))
    m, k = padded_length(ids.size)
    if int(ids.min()) < 0 or int(ids.max()) >= 2 * max(ids.size, 1024):
        ids = np.unique(ids, return_inverse=True)[1]
    blocks = 1 << int(ids.max()).bit_length()
    padded = np.full(m << k, blocks, np.int32)
    padded[: ids.size] = ids
    begins = None if starts is None else _checked_begins(np.asarray(starts), ids.size, m << k)
    found = _reuse(padded, begins, blocks, m, k)
    return Reuse(found.distance[: ids.size], found.previous[: ids.size])


def _reuse_traced(block_ids: Array, starts: ArrayLike | None) -> Reuse:
    n = block_ids.shape[0]
    m, k = padded_length(n)
    _, ids = jnp.unique(block_ids, return_inverse=True, size=n)
    padded = jnp.full(m << k, n, jnp.int32).at[:n].set(ids.astype(jnp.int32))
    begins = None
    if starts is not None:
        begins = jnp.zeros(m << k, bool).at[jnp.asarray(starts)].set(True, mode="drop")
        begins = begins.at[n:].set(True)
    found = _reuse(padded, begins, n, m, k)
    return Reuse(found.distance[:n], found.previous[:n])


def _checked_begins(starts: np.ndarray, accesses: int, padded: int) -> np.ndarray:
    """Flags of the positions at which a request begins; each pad is a request of its own."""
    if starts.ndim != 1 or starts.size == 0 or not np.issubdtype(starts.dtype, np.integer):
        raise ValueError(f"starts must be a vector of integers, got {starts.dtype} {starts.shape}")
    if starts[0] != 0 or np.any(np.diff(starts) < 0) or starts[-1] > accesses:
        raise ValueError(f"starts must ascend from 0 to at most {accesses}, got {starts[:5]}...")
    begins = np.zeros(padded + 1, bool)
    begins[starts] = True
    begins[accesses:] = True
    return begins[:padded]


@partial(jax.jit, static_argnames=("blocks", "m", "k"))
def _reuse(ids: Array, begins: Array | None, blocks: int, m: int, k: int) -> Reuse:
    """Reuse of [m * 2^k] ids in 0..blocks; pads at the end are accesses to block `blocks`."""
    position = jnp.arange(ids.shape[0], dtype=jnp.int32)
    previous, last = _previous_positions(ids, blocks, min(_MAX_ROW, 2**k))
    first = previous < 0
    is_last = (
        jnp.zeros(ids.shape, bool)
        .at[jnp.where(last < 0, ids.shape[0], last)]
        .set(True, mode="drop")
    )
    firsts, lasts = count_before(first), count_before(is_last)

    # To make `previous` a permutation, the k-th first touch takes the k-th last position, the
    # only values that are left. It lies at or after that first touch, so a pair (first touch j,
    # access t) is counted exactly when its value is below p[t]: lasts[p[t]] times, to be undone.
    nth_last = (
        jnp.zeros_like(position)
        .at[jnp.where(is_last, lasts, ids.shape[0])]
        .set(position, mode="drop")
    )
    values = jnp.where(first, nth_last.at[firsts].get(mode="promise_in_bounds"), previous)

    if begins is None:
        smaller, known = count_smaller_before(values, m, k), firsts
    else:
        begin = jax.lax.cummax(jnp.where(begins, position, 0))
        known = firsts.at[begin].get(mode="promise_in_bounds")
        order = _request_order(previous, begin, begins)
        counted = count_smaller_before(values.at[order].get(mode="promise_in_bounds"), m, k)
        smaller = (
            jnp.zeros_like(counted)
            .at[order]
            .set(counted, unique_indices=True, mode="promise_in_bounds")
        )
    undone = lasts.at[jnp.maximum(previous, 0)].get(mode="promise_in_bounds")
    distance = jnp.where(first, NEVER, known + smaller - undone - (previous + 1))
    if begins is None:
        return Reuse(distance, previous)
    root = _first_in_request(previous, begin)
    return Reuse(distance[root], previous[root])


def _previous_positions(ids: Array, blocks: int, row: int) -> tuple[Array, Array]:
    """Last earlier position of each block [N], -1 if none, and each block's last [blocks + 1].

    Within rows of accesses a stable sort brings equal blocks together; across rows a table
    of the last position of each block is carried along.
    """
    rows = ids.reshape(-1, row)
    base = jnp.arange(rows.shape[0], dtype=jnp.int32)[:, None] * row
    block, place = _sorted_rows(rows, blocks)
    place = place + base
    again = block[:, 1:] == block[:, :-1]
    in_row = jnp.pad(jnp.where(again, place[:, :-1], -1), ((0, 0), (1, 0)), constant_values=-1)
    in_row = (
        jnp.zeros_like(ids)
        .at[place.reshape(-1)]
        .set(in_row.reshape(-1), unique_indices=True, mode="promise_in_bounds")
    )

    def advance(r: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        last, seen = carry
        block = jax.lax.dynamic_index_in_dim(rows, r, keepdims=False)
        before = last.at[block].get(mode="promise_in_bounds")
        seen = jax.lax.dynamic_update_index_in_dim(seen, before, r, 0)
        # `before` is below every position here. To name it makes the update wait for the read,
        # so that the table is updated in place and not copied.
        here = jnp.maximum(before, r * row + jnp.arange(row, dtype=jnp.int32))
        return last.at[block].max(here, mode="promise_in_bounds"), seen

    nowhere = jnp.full(blocks + 1, -1, jnp.int32)
    last, seen = jax.lax.fori_loop(0, rows.shape[0], advance, (nowhere, jnp.zeros_like(rows)))
    return jnp.where(in_row < 0, seen.reshape(-1), in_row), last


def _sorted_rows(rows: Array, blocks: int) -> tuple[Array, Array]:
    """Each row's blocks in order, equal ones by place, and the places they came from."""
    row = rows.shape[1]
    bits = row.bit_length() - 1
    place = jnp.broadcast_to(jnp.arange(row, dtype=jnp.int32), rows.shape)
    if (blocks + 1) << bits > 2**32:
        block, place = jax.lax.sort((rows, place), num_keys=1, is_stable=True)
        return block, place
    # Block and place fit into one word: sorting one operand takes two thirds of the time.
    word = (rows.astype(jnp.uint32) << bits) | place.astype(jnp.uint32)
    word = jax.lax.sort(word, is_stable=False)
    return (word >> bits).astype(jnp.int32), (word & np.uint32(row - 1)).astype(jnp.int32)


def _request_order(previous: Array, begin: Array, begins: Array) -> Array:
    """Positions [N], each request's by falling `previous`, so that none counts its own."""
    position = jnp.arange(begin.shape[0], dtype=jnp.int32)
    following = jnp.where(begins, position, begin.shape[0])
    end = jax.lax.cummin(following, reverse=True)
    end = jnp.concatenate([end[1:], jnp.full(1, begin.shape[0], jnp.int32)])
    rising = jnp.all((previous[1:] >= previous[:-1]) | begins[1:])
    return jax.lax.cond(
        rising,  # as ids of prefixes are, touched tail to head: turn each request around
        lambda: begin + end - 1 - position,
        lambda: jax.lax.sort((begin, -previous, position), num_keys=2)[2],
    )


def _first_in_request(previous: Array, begin: Array) -> Array:
    """Position [N] of the first access of the same block in the same request."""
    position = jnp.arange(begin.shape[0], dtype=jnp.int32)
    parent = jnp.where(previous >= begin, previous, position)
    return jax.lax.while_loop(
        lambda root: jnp.any(root[root] != root), lambda root: root[root], parent
    )
