"""The matrix product of the decoder: in the type of the weights, summed in single precision.

With bfloat16 weights all products, gradients included, run in bfloat16: JAX's own gradient would
meet a float32 cotangent with bfloat16 weights, and fall back to float32.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax import Array

LONGEST_SUM = 4096
"""Terms that a product sums at once."""


def product(rows: Array, weights: Array) -> Array:
    """rows W, with rows rounded to the type of W, and at least single precision out.

    Args:
      rows: [..., I].
      weights: [I, O].

    Returns:
      [..., O].
    """
    return _contract(rows, weights, 0)


def transposed_product(rows: Array, weights: Array) -> Array:
    """rows W^T, as `product`.

    Args:
      rows: [..., O].
      weights: [I, O].

    Returns:
      [..., I].
    """
    return _contract(rows, weights, 1)


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def _contract(rows: Array, weights: Array, axis: int) -> Array:
    """Sum over the rows' last axis and one of the weights'."""
    rows = rows.astype(weights.dtype)
    multiply = partial(
        jax.lax.dot_general,
        preferred_element_type=jnp.promote_types(weights.dtype, jnp.float32),
    )
    long, parts = rows.shape[-1], _parts(rows.shape[-1])
    if axis == 1 or parts == 1:
        return multiply(rows, weights, (((rows.ndim - 1,), (axis,)), ((), ())))
    split = rows.reshape(-1, parts, long // parts)
    sums = multiply(split, weights.reshape(parts, long // parts, -1), (((2,), (1,)), ((1,), (0,))))
    return jnp.sum(sums, axis=0).reshape(*rows.shape[:-1], -1)


def _parts(long: int) -> int:
    """In how many equal parts a sum is taken: one over a vocabulary takes a CPU twice as long."""
    least = -(-long // LONGEST_SUM)
    return next((count for count in range(least, 16 * least) if long % count == 0), 1)


def _forward(rows: Array, weights: Array, axis: int) -> tuple[Array, tuple[Array, Array]]:
    return _contract(rows, weights, axis), (rows, weights)


def _backward(axis: int, kept: tuple[Array, Array], change: Array) -> tuple[Array, Array]:
    rows, weights = kept
    flat, changes = (
        part.reshape(-1, part.shape[-1]).astype(weights.dtype) for part in (rows, change)
    )
    by_weights = flat.T @ changes if axis == 0 else changes.T @ flat
    return _contract(change, weights, 1 - axis).astype(rows.dtype), by_weights


_contract.defvjp(_forward, _backward)
