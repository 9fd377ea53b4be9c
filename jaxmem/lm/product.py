"""The matrix product of the decoder: in the type of the weights, summed in single precision."""

import jax
import jax.numpy as jnp
from jax import Array


@jax.custom_vjp
def product(rows: Array, weights: Array) -> Array:
    """rows W, with rows rounded to the type of W, and at least single precision out.

    With bfloat16 weights all three products, gradients included, run in bfloat16: JAX's own
    gradient would meet a float32 cotangent with bfloat16 weights, and fall back to float32.

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
    return _transposed(rows, weights)


def _contract(rows: Array, weights: Array, axis: int) -> Array:
    dims = (((rows.ndim - 1,), (axis,)), ((), ()))
    kind = jnp.promote_types(weights.dtype, jnp.float32)
    return jax.lax.dot_general(
        rows.astype(weights.dtype), weights, dims, preferred_element_type=kind
    )


def _outer(rows: Array, others: Array, kind: jnp.dtype) -> Array:
    """Sum over all leading axes of the outer products."""
    rows, others = (part.reshape(-1, part.shape[-1]).astype(kind) for part in (rows, others))
    return rows.T @ others


def _forward(rows: Array, weights: Array) -> tuple[Array, tuple[Array, Array]]:
    return product(rows, weights), (rows, weights)


def _backward(kept: tuple[Array, Array], change: Array) -> tuple[Array, Array]:
    rows, weights = kept
    return (
        _contract(change, weights, 1).astype(rows.dtype),
        _outer(rows, change, weights.dtype),
    )


product.defvjp(_forward, _backward)


@jax.custom_vjp
def _transposed(rows: Array, weights: Array) -> Array:
    return _contract(rows, weights, 1)


def _transposed_forward(rows: Array, weights: Array) -> tuple[Array, tuple[Array, Array]]:
    return _transposed(rows, weights), (rows, weights)


def _transposed_backward(kept: tuple[Array, Array], change: Array) -> tuple[Array, Array]:
    rows, weights = kept
    return (
        _contract(change, weights, 0).astype(rows.dtype),
        _outer(change, rows, weights.dtype),
    )


_transposed.defvjp(_transposed_forward, _transposed_backward)
