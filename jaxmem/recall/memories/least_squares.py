"""Memories that solve a least-squares problem: exactly, recursively, and with decay."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array
from jax.scipy.linalg import cho_factor, cho_solve
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
from jaxmem.recall.memories.sums import linear_read
from jaxmem.recall.memories.triangular import cholesky_inverse


class RLSState(NamedTuple):
    """The solution so far, and what the next write needs to correct it.

    weights: W [K, V].
    inverse: P = (sum k^T k + ridge I)^-1 [K, K].
    """

    weights: Array
    inverse: Array


class RidgeState(NamedTuple):
    """Sums of which the solution is a function.

    key_key: H = sum k^T k [K, K], decayed.
    key_value: N = sum k^T v [K, V], decayed.
    """

    key_key: Array
    key_value: Array


def least_squares(keys: ArrayLike, values: ArrayLike, ridge: ArrayLike = 0.0) -> Array:
    """The linear memory with the least squared error on a document.

    W = argmin |K W - V|^2 + ridge |W|^2; at ridge 0 the shortest of the minimisers

    By K = A diag(s) B^T: W = B diag(s / (s^2 + ridge)) A^T V, s below rounding left out.

    Args:
      keys: [N, K].
      values: [N, V].
      ridge: scalar, at least 0.

    Returns:
      Weights [K, V]; read q @ W.

    Raises:
      ValueError: if the shapes do not fit, or ridge is no scalar or negative.
    """
    check_factory(ridge=ridge)
    keys, values = jnp.asarray(keys), jnp.asarray(values)
    if keys.ndim != 2 or values.ndim != 2 or keys.shape[0] != values.shape[0]:
        raise ValueError(
            f"expected keys [N, K] and values [N, V], got {keys.shape} and {values.shape}"
        )
    if 0 in keys.shape:
        return jnp.zeros((keys.shape[1], values.shape[1]), jnp.result_type(keys, values, 0.0))
    left, s, right = jnp.linalg.svd(keys, full_matrices=False)  # [N, R], [R], [R, K]
    some = s > jnp.finfo(s.dtype).eps * max(keys.shape) * s[0]
    scale = jnp.where(some, s / jnp.where(some, s**2 + ridge, 1), 0)
    return right.T @ (scale[:, None] * (left.T @ values))


def recursive_least_squares(ridge: ArrayLike = 0.1, *, chunk: int = 64) -> Memory:
    """Ridge regression by writes: after each, W is the solution on all pairs so far.

    g = P k^T / (1 + k P k^T), W <- W + g (v - k W), P <- P - g k P, P_0 = I / ridge

    A chunk at once (Woodbury), with I + K P K^T = L L^T, Y = L^-1 K P, Z = L^-1 (V - K W):
    O = Q W + tril(Q Y^T) Z, W' = W + Y^T Z, P' = P - Y^T Y;
    tril, because the first rows of L^-1 are those of the first writes.

    Args:
      ridge: over 0; P loses digits as N / ridge grows.
      chunk: writes handled at once; changes the speed only.

    Returns:
      A memory whose state is an `RLSState`. It has no gates (`ridge` has).

    Raises:
      ValueError: if ridge is no scalar or not positive, or chunk < 1.

    Source: Haykin, Adaptive Filter Theory, chapter on recursive least squares.
    """
    check_factory(chunk, ridge=ridge, positive=("ridge",))

    def init(key_dim: int, value_dim: int) -> RLSState:
        return RLSState(jnp.zeros((key_dim, value_dim)), jnp.eye(key_dim) / ridge)

    def write(state: RLSState, row: Rows) -> RLSState:
        weights, inverse = state
        k, v = row.keys, row.values
        side = inverse @ k  # [K]
        gain = side / (1 + k @ side)  # [K]
        return RLSState(weights + jnp.outer(gain, v - k @ weights), inverse - jnp.outer(gain, side))

    def step(state: RLSState, rows: Rows) -> tuple[RLSState, Array | None]:
        weights, inverse = state
        q, k, v = rows.queries, rows.keys, rows.values  # [C, K], [C, K], [C, V]
        sides = k @ inverse  # [C, K]
        inverse_lower = cholesky_inverse(jnp.eye(k.shape[0], dtype=k.dtype) + sides @ k.T)  # [C, C]
        y, z = inverse_lower @ sides, inverse_lower @ (v - k @ weights)  # [C, K], [C, V]
        outputs = None if q is None else q @ weights + jnp.tril(q @ y.T) @ z
        return RLSState(weights + y.T @ z, inverse - y.T @ y), outputs

    def write_rows(state: RLSState, rows: Rows) -> tuple[RLSState, Array | None]:
        return scan_chunks(lambda rows: rows, step, state, rows, chunk)

    def read(state: RLSState, query: Array) -> Array:
        return linear_read(state.weights, query)

    def shape(state: RLSState) -> tuple[int, int]:
        return state.weights.shape[0], state.weights.shape[1]

    return build(init, write, write_rows, read, shape, Gates())


def ridge(ridge: ArrayLike = 0.1, decay: ArrayLike = 1.0, *, chunk: int = 64) -> Memory:
    """Ridge regression on sums that may fade, solved when read (Mesa layer).

    H_t = a_t H_{t-1} + b_t k_t^T k_t, N_t = a_t N_{t-1} + b_t k_t^T v_t,
    o_t = q_t (H_t + ridge I)^-1 N_t

    Without decay the same as `recursive_least_squares`, at a Cholesky factorisation for every
    output. A chunk at once, with c and D of `decay_products` and x_t = q_t (H_t + ridge I)^-1:
    H_t = c_t H + sum_j D_tj b_j k_j^T k_j, O = diag(c) X N + (X K^T * D diag(b)) V

    Args:
      ridge: over 0; not decayed.
      decay: a in [0, 1]; gate `decay`.
      chunk: writes handled at once, in C K^2 numbers of memory; changes the speed only.

    Returns:
      A memory whose state is a `RidgeState`. Gate `rate` is b, the weight of a write (1 if None).

    Raises:
      ValueError: if ridge or decay is no scalar or out of range, or chunk < 1.

    Source: von Oswald et al. 2025, arXiv:2506.05233.
    """
    check_factory(chunk, ridge=ridge, decay=decay, positive=("ridge",), at_most_1=("decay",))

    def init(key_dim: int, value_dim: int) -> RidgeState:
        return RidgeState(jnp.zeros((key_dim, key_dim)), jnp.zeros((key_dim, value_dim)))

    def write(state: RidgeState, row: Rows) -> RidgeState:
        k, v = row.keys, row.values
        return RidgeState(
            row.decay * state.key_key + row.rate * jnp.outer(k, k),
            row.decay * state.key_value + row.rate * jnp.outer(k, v),
        )

    def solve(key_key: Array, sides: Array) -> Array:  # [..., K, K], [..., K, N]
        system = key_key + ridge * jnp.eye(key_key.shape[-1], dtype=key_key.dtype)
        return cho_solve((cho_factor(system, lower=True)[0], True), sides)

    def local(rows: Rows) -> tuple:
        start, left = decay_products(rows.decay)  # [C], [C, C]
        return rows.queries, rows.keys, rows.values, start, left * rows.rate

    def step(state: RidgeState, terms: tuple) -> tuple[RidgeState, Array | None]:
        q, k, v, start, left = terms
        key_key, key_value = state
        size, dim = k.shape
        outputs = None
        if q is not None:
            squares = (k[:, :, None] * k[:, None, :]).reshape(size, dim * dim)
            sums = start[:, None] * key_key.reshape(-1) + left @ squares  # H_t [C, K * K]
            x = solve(sums.reshape(size, dim, dim), q[..., None])[..., 0]  # [C, K]
            outputs = start[:, None] * (x @ key_value) + (x @ k.T * left) @ v
        last = (left[-1][:, None] * k).T  # [K, C]
        return RidgeState(start[-1] * key_key + last @ k, start[-1] * key_value + last @ v), outputs

    def write_rows(state: RidgeState, rows: Rows) -> tuple[RidgeState, Array | None]:
        return scan_chunks(local, step, state, rows, chunk)

    def read(state: RidgeState, query: Array) -> Array:
        return query @ solve(state.key_key, state.key_value)

    def shape(state: RidgeState) -> tuple[int, int]:
        return state.key_value.shape[0], state.key_value.shape[1]

    return build(init, write, write_rows, read, shape, Gates(decay=decay, rate=1.0))
