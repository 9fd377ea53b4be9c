"""Titans' long-term memory with a linear map: gradient descent with momentum and forgetting."""

from typing import NamedTuple

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
    scan_mini_batches,
)
from jaxmem.recall.memories.sums import linear_read


class TitansState(NamedTuple):
    """Where the descent is.

    weights: W [K, V], which is read.
    momentum: S [K, V].
    start: the weights at the start of the mini-batch [K, V], where gradients are taken.
    position: writes of the mini-batch so far, 0 to chunk - 1.
    """

    weights: Array
    momentum: Array
    start: Array
    position: Array


def titans(
    rate: ArrayLike = 0.05,
    momentum: ArrayLike = 0.5,
    forgetting: ArrayLike = 0.0,
    *,
    chunk: int = 64,
) -> Memory:
    """Gradient descent with momentum and forgetting on |k W - v|^2 / 2 (Titans, linear memory).

    S_t = m_t S_{t-1} - r_t k_t^T (k_t W_s - v_t), W_t = (1 - f_t) W_{t-1} + S_t, o_t = q_t W_t

    where s is the last multiple of `chunk` up to t - 1: the gradients of a mini-batch are taken
    at the weights of its start (chunk=1: at W_{t-1}), momentum and forgetting act on each write.
    So `chunk` changes what is learned, and how writes are split over calls does not.

    A mini-batch at once, with (B, L) and (p, M) the `decay_products` of 1 - f and of m:
    G = L M diag(r), E = K W_s - V, O = diag(B) Q W + diag(L p) Q S - (Q K^T * G) E,
    W' = B_C W + (L p)_C S - (diag(G_C) K)^T E, S' = p_C S - (diag(M_C r) K)^T E

    Args:
      rate: r, at least 0; gate `rate`. The paper's gradient is of |k W - v|^2: half this rate.
      momentum: m in [0, 1]; gate `momentum`.
      forgetting: f in [0, 1]; gate `decay` is 1 - f.
      chunk: writes a mini-batch.

    Returns:
      A memory whose state is a `TitansState`.

    Raises:
      ValueError: if a number is no scalar or out of range, or chunk < 1.

    Source: Behrouz et al. 2025, arXiv:2501.00663, sections 3.1 and 3.2.
    """
    at_most_1 = ("momentum", "forgetting")
    check_factory(chunk, at_most_1=at_most_1, rate=rate, momentum=momentum, forgetting=forgetting)

    def init(key_dim: int, value_dim: int) -> TitansState:
        zeros = jnp.zeros((key_dim, value_dim))
        return TitansState(zeros, zeros, zeros, jnp.int32(0))

    def write(state: TitansState, row: Rows) -> TitansState:
        k, v = row.keys, row.values
        gradient = jnp.outer(k, k @ state.start - v)
        velocity = row.momentum * state.momentum - row.rate * gradient
        weights = row.decay * state.weights + velocity
        full = state.position == chunk - 1
        start = jnp.where(full, weights, state.start)
        return TitansState(weights, velocity, start, jnp.where(full, 0, state.position + 1))

    def local(rows: Rows, real: Array) -> tuple:
        q, k, v = rows.queries, rows.keys, rows.values  # [C, K], [C, K], [C, V]
        kept, left = decay_products(rows.decay)  # B [C], L [C, C]
        carried, swing = decay_products(rows.momentum)  # p [C], M [C, C]
        left = jnp.where(real, left, 0)  # momentum moves the weights only when one writes
        reach = left @ swing * rows.rate  # G [C, C]
        coast = left @ carried  # L p [C]
        asked = None if q is None else (kept[:, None] * q, coast[:, None] * q, q @ k.T * reach)
        to_weights = kept[-1], coast[-1], reach[-1][:, None] * k
        to_momentum = carried[-1], (swing[-1] * rows.rate)[:, None] * k
        return k, v, asked, to_weights, to_momentum, real[-1]

    def step(state: TitansState, terms: tuple) -> tuple[TitansState, Array | None]:
        weights, velocity, begin, _ = state
        k, v, asked, (kept, coast, k_w), (carried, k_s), full = terms
        error = k @ begin - v  # E [C, V]
        outputs = None
        if asked is not None:
            q_w, q_s, among = asked
            outputs = q_w @ weights + q_s @ velocity - among @ error
        weights = kept * weights + coast * velocity - k_w.T @ error
        velocity = carried * velocity - k_s.T @ error
        begin = jnp.where(full, weights, begin)
        return TitansState(weights, velocity, begin, state.position), outputs

    def write_rows(state: TitansState, rows: Rows) -> tuple[TitansState, Array | None]:
        length = rows.keys.shape[0]
        after, outputs = scan_mini_batches(local, step, state, rows, chunk, state.position)
        return after._replace(position=(state.position + length) % chunk), outputs

    def read(state: TitansState, query: Array) -> Array:
        return linear_read(state.weights, query)

    def shape(state: TitansState) -> tuple[int, int]:
        return state.weights.shape[0], state.weights.shape[1]

    return build(init, write, write_rows, read, shape, Gates(1 - forgetting, rate, momentum))
