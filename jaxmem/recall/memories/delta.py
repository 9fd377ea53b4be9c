"""Error-correcting memories: the delta rule, with decay, and with Longhorn's implicit rate."""

from collections.abc import Callable

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxmem.recall.memories.memory import (
    Gates,
    Memory,
    Rows,
    build,
    check_factory,
    decay_products,
    scan_chunks,
)
from jaxmem.recall.memories.sums import linear_read, shape, zeros
from jaxmem.recall.memories.triangular import unit_lower_inverse


def delta_rule(rate: ArrayLike = 1.0, *, chunk: int = 64) -> Memory:
    """Error-correcting memory (DeltaNet).

    W_t = W_{t-1} + b_t k_t^T (v_t - k_t W_{t-1}), o_t = q_t W_t

    With a unit key and rate 1 the newest pair is stored exactly, and a repeated key replaces its
    old value, which a plain sum cannot do. The chunk form is that of `gated_delta_rule` with a = 1.

    Args:
      rate: b, stable in (0, 2 / |k|^2); gate `rate`.
      chunk: writes handled at once; changes the speed only.

    Returns:
      A memory whose state is W [K, V].

    Raises:
      ValueError: if rate is no scalar or negative, or chunk < 1.

    Source: Yang et al. 2024, arXiv:2406.06484.
    """
    check_factory(chunk, rate=rate)
    return _delta(Gates(rate=rate), chunk)


def gated_delta_rule(decay: ArrayLike = 0.99, rate: ArrayLike = 1.0, *, chunk: int = 64) -> Memory:
    """Error-correcting memory that fades (Gated DeltaNet).

    W_t = a_t W_{t-1} + b_t k_t^T (v_t - a_t k_t W_{t-1}), o_t = q_t W_t

    A chunk at once, with c and D of `decay_products` and A = tril(diag(b) K K^T * D, -1):
    U = (I + A)^-1 diag(b) (V - diag(c) K W), O = diag(c) Q W + (Q K^T * D) U,
    W' = c_C W + (diag(D_C) K)^T U

    Args:
      decay: a in [0, 1]; gate `decay`.
      rate: b, stable in (0, 2 / |k|^2); gate `rate`.
      chunk: writes handled at once; changes the speed only.

    Returns:
      A memory whose state is W [K, V].

    Raises:
      ValueError: if decay or rate is no scalar or out of range, or chunk < 1.

    Source: Yang et al. 2025, arXiv:2412.06464.
    """
    check_factory(chunk, decay=decay, rate=rate, at_most_1=("decay",))
    return _delta(Gates(decay=decay, rate=rate), chunk)


def longhorn(strength: ArrayLike = 1.0, *, chunk: int = 64) -> Memory:
    """The online learner that weighs staying close against storing the pair.

    W_t = argmin_W |W - W_{t-1}|^2 + s_t |v_t - k_t W|^2, o_t = q_t W_t

    which is the delta rule at the rate s / (1 + s |k|^2), stable for any s.

    Args:
      strength: s, at least 0; gate `rate`.
      chunk: writes handled at once; changes the speed only.

    Returns:
      A memory whose state is W [K, V].

    Raises:
      ValueError: if strength is no scalar or negative, or chunk < 1.

    Source: Liu et al. 2024, arXiv:2407.14207 (its code approximates |k|^2 by a diagonal).
    """
    check_factory(chunk, strength=strength)

    def implicit(rate: Array, keys: Array) -> Array:
        return rate / (1 + rate * jnp.sum(keys**2, axis=-1))

    return _delta(Gates(rate=strength), chunk, implicit)


def _explicit(rate: Array, keys: Array) -> Array:
    return rate


def _delta(
    gates: Gates, chunk: int, rate_of: Callable[[Array, Array], Array] = _explicit
) -> Memory:
    """The gated delta rule with b = rate_of(gate, keys); without a gate of decay, a = 1."""

    def write(weights: Array, row: Rows) -> Array:
        kept = weights if row.decay is None else row.decay * weights
        rate = rate_of(row.rate, row.keys)
        return kept + jnp.outer(rate * row.keys, row.values - row.keys @ kept)

    def local(rows: Rows) -> tuple:
        q, k, v = rows.queries, rows.keys, rows.values  # [C, K], [C, K], [C, V]
        size = k.shape[0]
        if rows.decay is None:
            start, left = jnp.ones(size, k.dtype), jnp.tri(size, dtype=k.dtype)
        else:
            start, left = decay_products(rows.decay)  # [C], [C, C]
        rate = rate_of(rows.rate, k)[:, None]
        coupling = jnp.tril(rate * (k @ k.T) * left, -1)  # A [C, C]
        sides = jnp.concatenate([rate * v, rate * start[:, None] * k], axis=1)  # [C, V + K]
        solved = unit_lower_inverse(coupling) @ sides
        own, read = solved[:, : v.shape[1]], solved[:, v.shape[1] :]  # [C, V], [C, K]
        among = None if q is None else q @ k.T * left  # [C, C]
        scaled = None if q is None else start[:, None] * q
        return scaled, among, own, read, start[-1], left[-1][:, None] * k

    def step(weights: Array, terms: tuple) -> tuple[Array, Array | None]:
        q, among, own, read, kept, k = terms
        update = own - read @ weights  # U [C, V]
        outputs = None if q is None else q @ weights + among @ update
        return kept * weights + k.T @ update, outputs

    def write_rows(weights: Array, rows: Rows) -> tuple[Array, Array | None]:
        return scan_chunks(local, step, weights, rows, chunk)

    return build(zeros, write, write_rows, linear_read, shape, gates)
