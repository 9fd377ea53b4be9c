"""How many earlier elements are smaller: the counting problem behind exact LRU distances.

    count[t] = #{j < t : values[j] < values[t]}

`values` is a permutation of 0..n-1. A radix partition, most significant digit first, settles each
pair (j, t) at the first digit where the two values differ: within the elements that agree on all
higher digits, still in their first order, an element with digit d counts those before it with a
digit below d. When only `m << (k % 4)` values share a group, they are compared pair by pair.
All is data-parallel: bit planes and population counts within 32 lanes, cumulative sums across.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

LANES = 32
DIGIT_BITS = 4
_DIGITS = 2**DIGIT_BITS
_LANE = np.arange(LANES, dtype=np.uint32)
_LOWER_LANES = (np.uint32(1) << _LANE) - np.uint32(1)
_TILE = 256  # groups compared at a time: a tile stays in cache
_STRIPE = 32  # rows compared at a time within a tile


def padded_length(length: int) -> tuple[int, int]:
    """The smallest m * 2^k >= length with m in 32..63 and k >= 5.

    Sizes of this form cost 3 % of padding at most beyond 1,024 and bound the number of compiled
    programs to 32 for each doubling.

    Args:
      length: number of elements.

    Returns:
      (m, k).
    """
    k = max(5, (max(length, 1) - 1).bit_length() - 6)
    m = max(32, -(-length >> k))
    return (32, k + 1) if m == 64 else (m, k)


def count_before(flags: Array) -> Array:
    """Exclusive prefix count of a boolean array: how many flags are set before each place.

    Args:
      flags: boolean [n], n a multiple of 32.

    Returns:
      int32 [n].
    """
    words = _pack(flags.reshape(-1, LANES).astype(jnp.uint32))
    totals = jax.lax.population_count(words)
    before = jnp.cumsum(totals) - totals
    within = jax.lax.population_count(words[:, None] & _LOWER_LANES)
    return (before[:, None] + within).reshape(-1).astype(jnp.int32)


def count_smaller_before(values: Array, m: int, k: int) -> Array:
    """For each element of a permutation, the number of earlier elements that are smaller.

    Args:
      values: int32 [m * 2^k], a permutation of 0..n-1.
      m: static, 32..63.
      k: static, >= 5; `padded_length` gives both.

    Returns:
      int32 [n], #{j < t : values[j] < values[t]}.
    """
    passes, group = k // DIGIT_BITS, m << (k % DIGIT_BITS)
    low_bits = (group - 1).bit_length()
    # The group number above, the place in the group below: every digit is then a shift away.
    keys = ((values // group) << low_bits | (values % group)).astype(jnp.uint32)
    steps = []
    for level in reversed(range(passes)):
        keys, step = _partition(keys, level * DIGIT_BITS, group, low_bits)
        steps.append(step)
    counts = _count_within_groups(keys & np.uint32(2**low_bits - 1), group)
    for destination, smaller in reversed(steps):
        # Without the barrier XLA fuses the levels and computes each of them again and again.
        counts = jax.lax.optimization_barrier(counts)
        counts = smaller + counts.at[destination].get(mode="promise_in_bounds")
    return counts.astype(jnp.int32)


def _partition(
    keys: Array, shift: int, group: int, low_bits: int
) -> tuple[Array, tuple[Array, Array]]:
    """One stable partition of every group by its next digit.

    Returns the keys in their new order, and for each key its destination and the number of keys
    before it in its group whose digit is smaller.
    """
    digits = (keys >> (shift + low_bits)) & np.uint32(_DIGITS - 1)
    lanes = digits.reshape(-1, LANES)
    planes = [_pack((lanes >> bit) & np.uint32(1)) for bit in range(DIGIT_BITS)]

    totals = jnp.stack([_population(planes, digit) for digit in range(_DIGITS)], axis=1)
    same_before = jnp.cumsum(totals, axis=0) - totals  # [n / 32, digits]
    less_before = jnp.cumsum(same_before, axis=1) - same_before

    # Lanes before this one, narrowed bit by bit to those with an equal digit; those that fall
    # out because they have a 0 where this one has a 1 are smaller.
    equal = jnp.broadcast_to(_LOWER_LANES, lanes.shape)
    less = jnp.zeros_like(equal)
    for bit in reversed(range(DIGIT_BITS)):
        plane = planes[bit][:, None]
        own = np.uint32(0) - ((lanes >> bit) & np.uint32(1))
        less = less | (equal & own & ~plane)
        equal = equal & ~(plane ^ own)

    at = jnp.arange(lanes.shape[0], dtype=jnp.uint32)[:, None] * np.uint32(_DIGITS) + lanes
    same = jax.lax.population_count(equal) + _take(same_before.reshape(-1), at)
    smaller = jax.lax.population_count(less) + _take(less_before.reshape(-1), at)

    # All groups before this one are complete: each holds `size` keys of every digit.
    parent = keys >> (shift + low_bits + DIGIT_BITS)
    size = np.uint32(group << shift)
    smaller = smaller.reshape(-1) - parent * digits * size
    destination = (parent * np.uint32(_DIGITS) + digits - parent) * size + same.reshape(-1)
    destination, smaller = jax.lax.optimization_barrier((destination.astype(jnp.int32), smaller))
    moved = (
        jnp.zeros_like(keys)
        .at[destination]
        .set(keys, unique_indices=True, mode="promise_in_bounds")
    )
    return jax.lax.optimization_barrier(moved), (destination, smaller)


def _count_within_groups(places: Array, group: int) -> Array:
    """The same count within runs of `group` elements, each a permutation, pair by pair."""
    rows = places.astype(jnp.int16).reshape(-1, group)
    count = rows.shape[0]
    tiles = jnp.pad(rows, ((0, -count % _TILE), (0, 0))).reshape(-1, _TILE, group)

    def count_tile(tile: Array) -> Array:  # [tile, group]
        # Groups side by side in the fast axis: every comparison is a vector instruction.
        x = jax.lax.optimization_barrier(tile.T)  # [group, tile]
        stripes = []
        for start in range(0, group, _STRIPE):
            stripe = x[start : start + _STRIPE]
            row = jnp.arange(stripe.shape[0])[:, None]

            def earlier(i: Array, total: Array, stripe: Array = stripe) -> Array:
                return total + (x[i] < stripe).astype(jnp.int16)

            def own(i: Array, total: Array, stripe: Array = stripe, row: Array = row) -> Array:
                return total + ((stripe[i] < stripe) & (row > i)).astype(jnp.int16)

            total = jax.lax.fori_loop(0, start, earlier, jnp.zeros_like(stripe))
            stripes.append(jax.lax.fori_loop(0, stripe.shape[0], own, total))
        return jnp.concatenate(stripes).T

    counted = jax.lax.map(count_tile, tiles).reshape(-1, group)[:count]
    return counted.reshape(-1).astype(jnp.uint32)


def _pack(bits: Array) -> Array:
    """[n, 32] of 0 and 1 -> [n] words, lane i in bit i."""
    return jnp.sum(bits << _LANE, axis=1, dtype=jnp.uint32)


def _population(planes: list[Array], digit: int) -> Array:
    """How many of the 32 lanes hold `digit`."""
    lanes = jnp.full_like(planes[0], 0xFFFFFFFF)
    for bit, plane in enumerate(planes):
        lanes = lanes & (plane if digit >> bit & 1 else ~plane)
    return jax.lax.population_count(lanes)


def _take(table: Array, index: Array) -> Array:
    return table.at[index].get(mode="promise_in_bounds")
