"""TTT-Linear: a linear layer with layer norm and residual, trained while it reads."""

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
    scan_mini_batches,
)

EPSILON = 1e-6  # of the layer norm, as in ttt-lm-jax


class TTTState(NamedTuple):
    """Where the training is. The last row of the weights is the bias.

    weights: W [K + 1, V], which is read.
    start: the weights at the start of the mini-batch [K + 1, V], where gradients are taken.
    position: writes of the mini-batch so far, 0 to chunk - 1.
    """

    weights: Array
    start: Array
    position: Array


def ttt(
    rate: ArrayLike = 0.1,
    bias: ArrayLike = 0.0,
    scale: ArrayLike = 1.0,
    shift: ArrayLike = 0.0,
    *,
    chunk: int = 16,
) -> Memory:
    """Test-time training of f(x) = x + LN([x, c] W) to map keys to values (TTT-Linear).

    W_t = W_{t-1} - r_t [k_t, c]^T g_t, g_t = d/dz |LN(z) - (v_t - k_t)|^2 / 2 at z = [k_t, c] W_s,
    o_t = f(q_t) at W_t

    where s is the last multiple of `chunk` up to t - 1: the gradients of a mini-batch are taken
    at the weights of its start. So `chunk` changes what is learned, and how writes are split
    over calls does not. LN(z) = scale (z - mean) / sd + shift. W starts as the identity (a real
    model learns it; replace `weights` and `start` of the state): at 0 the gradient of LN explodes.

    A mini-batch at once, with X = [K, c] and Y = [Q, c]:
    Z = Y W - tril(Y X^T) diag(r) G, O = Q + LN(Z), W' = W - X^T diag(r) G

    Args:
      rate: r, at least 0; gate `rate`.
      bias: c, the constant beside each key; all keys share it, so it must be small against |k|.
        1 in ttt-lm-jax, where keys are long; with unit keys it lets new pairs displace old ones.
      scale: of the layer norm, scalar or [V]. It has to suit v - k, as nothing else sets the
        length of LN(z): 1 for entries of about 1, (2 / V)^(1/2) for unit keys and values.
      shift: of the layer norm, scalar or [V].
      chunk: writes a mini-batch, 16 in the paper.

    Returns:
      A memory whose state is a `TTTState`; because of the residual, K = V.

    Raises:
      ValueError: if rate or bias is no scalar or negative, or chunk < 1; its `init`, if K and V
        differ or scale or shift is not [V].

    Source: Sun et al. 2024, arXiv:2407.04620, sections 2.4 to 2.7.
    """
    check_factory(chunk, rate=rate, bias=bias)

    def init(key_dim: int, value_dim: int) -> TTTState:
        if key_dim != value_dim:
            raise ValueError(f"key_dim and value_dim must agree, got {key_dim} and {value_dim}")
        for name, number in (("scale", scale), ("shift", shift)):
            if jnp.shape(number) not in ((), (value_dim,)):
                raise ValueError(f"expected {name} [{value_dim}], got {jnp.shape(number)}")
        weights = jnp.eye(key_dim + 1, value_dim)
        return TTTState(weights, weights, jnp.int32(0))

    def beside(x: Array) -> Array:  # [..., K] -> [..., K + 1]
        constant = jnp.broadcast_to(jnp.asarray(bias, x.dtype), (*x.shape[:-1], 1))
        return jnp.concatenate([x, constant], axis=-1)

    def layer(z: Array) -> Array:  # LN(z) [..., V]
        return jnp.asarray(scale, z.dtype) * _normal(z)[0] + jnp.asarray(shift, z.dtype)

    def gradient(z: Array, target: Array) -> Array:  # of |LN(z) - target|^2 / 2 by z, [..., V]
        normal, deviation = _normal(z)
        error = jnp.asarray(scale, z.dtype) * (layer(z) - target)
        along = normal * jnp.mean(error * normal, axis=-1, keepdims=True)
        return (error - jnp.mean(error, axis=-1, keepdims=True) - along) / deviation

    def write(state: TTTState, row: Rows) -> TTTState:
        x = beside(row.keys)
        step = row.rate * gradient(x @ state.start, row.values - row.keys)
        weights = state.weights - jnp.outer(x, step)
        full = state.position == chunk - 1
        start = jnp.where(full, weights, state.start)
        return TTTState(weights, start, jnp.where(full, 0, state.position + 1))

    def local(rows: Rows, real: Array) -> tuple:
        x, target = beside(rows.keys), rows.values - rows.keys  # [C, K + 1], [C, V]
        asked = None
        if rows.queries is not None:
            y = beside(rows.queries)  # [C, K + 1]
            asked = rows.queries, y, jnp.tril(y @ x.T)
        return x, target, rows.rate[:, None], asked, real[-1]  # the rate is 0 where not real

    def step(state: TTTState, terms: tuple) -> tuple[TTTState, Array | None]:
        weights, begin, _ = state
        x, target, rate, asked, full = terms
        change = rate * gradient(x @ begin, target)  # [C, V]
        outputs = None
        if asked is not None:
            q, y, among = asked
            outputs = q + layer(y @ weights - among @ change)
        weights = weights - x.T @ change
        begin = jnp.where(full, weights, begin)
        return TTTState(weights, begin, state.position), outputs

    def write_rows(state: TTTState, rows: Rows) -> tuple[TTTState, Array | None]:
        length = rows.keys.shape[0]
        after, outputs = scan_mini_batches(local, step, state, rows, chunk, state.position)
        return after._replace(position=(state.position + length) % chunk), outputs

    def read(state: TTTState, query: Array) -> Array:
        return query + layer(beside(query) @ state.weights)

    def shape(state: TTTState) -> tuple[int, int]:
        return state.weights.shape[0] - 1, state.weights.shape[1]

    return build(init, write, write_rows, read, shape, Gates(rate=rate))


def _normal(z: Array) -> tuple[Array, Array]:
    """(z - mean) / sd [..., V] and sd [..., 1]."""
    centred = z - jnp.mean(z, axis=-1, keepdims=True)
    deviation = jnp.sqrt(jnp.mean(centred**2, axis=-1, keepdims=True) + EPSILON)
    return centred / deviation, deviation
