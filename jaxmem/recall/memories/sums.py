"""Memories that add up outer products: linear attention, with and without decay."""

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


def zeros(key_dim: int, value_dim: int) -> Array:
    """Weights of an empty linear memory.

    Args:
      key_dim: K.
      value_dim: V.

    Returns:
      [K, V].
    """
    return jnp.zeros((key_dim, value_dim))


def linear_read(weights: Array, query: Array) -> Array:
    """What a linear memory answers: o = q W.

    Args:
      weights: [K, V].
      query: [..., K].

    Returns:
      [..., V].
    """
    return query @ weights


def shape(weights: Array) -> tuple[int, int]:
    """Sizes of a linear memory.

    Args:
      weights: [K, V].

    Returns:
      (K, V).
    """
    return weights.shape[0], weights.shape[1]


def outer_product(*, chunk: int = 64) -> Memory:
    """Sum of outer products (Hebbian memory, linear attention).

    W_t = W_{t-1} + k_t^T v_t, o_t = q_t W_t

    A chunk at once: O = Q W + tril(Q K^T) V, W' = W + K^T V

    Args:
      chunk: writes handled at once; changes the speed only.

    Returns:
      A memory whose state is W [K, V]. It has no gates.

    Raises:
      ValueError: if chunk < 1.

    Source: Katharopoulos et al. 2020, arXiv:2006.16236.
    """
    check_factory(chunk)

    def write(weights: Array, row: Rows) -> Array:
        return weights + jnp.outer(row.keys, row.values)

    def local(rows: Rows) -> tuple[Array | None, Array | None, Array]:
        q, k, v = rows.queries, rows.keys, rows.values  # [C, K], [C, K], [C, V]
        inside = None if q is None else jnp.tril(q @ k.T) @ v  # [C, V]
        return q, inside, k.T @ v

    def step(weights: Array, terms: tuple) -> tuple[Array, Array | None]:
        q, inside, added = terms
        return weights + added, None if q is None else q @ weights + inside

    def write_rows(weights: Array, rows: Rows) -> tuple[Array, Array | None]:
        return scan_chunks(local, step, weights, rows, chunk)

    return build(zeros, write, write_rows, linear_read, shape, Gates())


def decay(decay: ArrayLike = 0.99, *, chunk: int = 64) -> Memory:
    """Sum of outer products that fades.

    W_t = a_t W_{t-1} + k_t^T v_t, o_t = q_t W_t

    A chunk at once, with c and D of `decay_products`:
    O = diag(c) Q W + (Q K^T * D) V, W' = c_C W + (diag(D_C) K)^T V

    Args:
      decay: a in [0, 1]; gate `decay`.
      chunk: writes handled at once; changes the speed only.

    Returns:
      A memory whose state is W [K, V].

    Raises:
      ValueError: if decay is no scalar or out of range, or chunk < 1.

    Source: Sun et al. 2023, arXiv:2307.08621 (RetNet); Yang et al. 2024, arXiv:2312.06635 (GLA).
    """
    check_factory(chunk, decay=decay, at_most_1=("decay",))

    def write(weights: Array, row: Rows) -> Array:
        return row.decay * weights + jnp.outer(row.keys, row.values)

    def local(rows: Rows) -> tuple[Array | None, Array | None, Array, Array]:
        q, k, v = rows.queries, rows.keys, rows.values  # [C, K], [C, K], [C, V]
        start, left = decay_products(rows.decay)  # [C], [C, C]
        inside = None if q is None else (q @ k.T * left) @ v  # [C, V]
        scaled = None if q is None else start[:, None] * q
        return scaled, inside, start[-1], (left[-1][:, None] * k).T @ v

    def step(weights: Array, terms: tuple) -> tuple[Array, Array | None]:
        q, inside, kept, added = terms
        return kept * weights + added, None if q is None else q @ weights + inside

    def write_rows(weights: Array, rows: Rows) -> tuple[Array, Array | None]:
        return scan_chunks(local, step, weights, rows, chunk)

    return build(zeros, write, write_rows, linear_read, shape, Gates(decay=decay))
