"""The matrix product of the decoder: in the type of the weights, summed in single precision.

With bfloat16 weights all products, gradients included, run in bfloat16: JAX's own gradient would
meet a float32 cotangent with bfloat16 weights, and fall back to float32.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax import Array


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
    dims = (((rows.ndim - 1,), (axis,)), ((), ()))
    kind = jnp.promote_types(weights.dtype, jnp.float32)
    return jax.lax.dot_general(
        rows.astype(weights.dtype), weights, dims, preferred_element_type=kind
    )


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
