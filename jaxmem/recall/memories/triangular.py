"""Inverses of triangular matrices by products of matrices."""

from functools import partial

import jax
import jax.numpy as jnp
from jax import Array

# Errors of the inverse multiply: not in TF32 or bfloat16, whatever the caller's default.
_product = partial(jnp.matmul, precision="highest")


@jax.custom_jvp
def unit_lower_inverse(strict: Array) -> Array:
    """(I + A)^-1 of a strictly lower triangular A, by doubling blocks.

    [[X, 0], [-Y A_21 X, Y]] inverts two neighbouring blocks whose inverses are X and Y

    On a CPU about as fast as a triangular solve, which calls a BLAS whose threads stall (1 s and
    not 7 ms were seen) where other programs keep the cores busy.

    Args:
      strict: A, [C, C]; what is not below the diagonal is taken for 0.

    Returns:
      [C, C].
    """
    length = strict.shape[0]
    size = 1
    inverses = jnp.ones((1 << (length - 1).bit_length(), 1, 1), strict.dtype)  # [blocks, 1, 1]
    full = inverses.shape[0]
    strict = jnp.pad(strict, (0, full - length))
    while size < full:
        pairs = jnp.arange(full // (2 * size))
        # A_21 of each pair: odd rows of blocks, the even columns left of the diagonal.
        blocks = strict.reshape(len(pairs), 2, size, len(pairs), 2, size)
        corners = blocks[pairs, 1, :, pairs, 0, :]  # [pairs, size, size]
        first, second = inverses[0::2], inverses[1::2]
        below = -_product(second, _product(corners, first))
        upper = jnp.concatenate([first, jnp.zeros_like(first)], axis=2)
        lower = jnp.concatenate([below, second], axis=2)
        inverses = jnp.concatenate([upper, lower], axis=1)
        size *= 2
    return inverses[0, :length, :length]


@unit_lower_inverse.defjvp
def _unit_lower_inverse_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    """dX = -X dA X."""
    (strict,), (change,) = primals, tangents
    inverse = unit_lower_inverse(strict)
    return inverse, -_product(inverse, _product(jnp.tril(change, -1), inverse))


@jax.custom_jvp
def cholesky_inverse(matrix: Array) -> Array:
    """L^-1 of a symmetric positive definite S = L L^T.

    Args:
      matrix: S, [C, C].

    Returns:
      Lower triangular, [C, C].
    """
    lower = jnp.linalg.cholesky(matrix)
    scale = jnp.diagonal(lower)  # L = (I + A) diag(scale)
    return unit_lower_inverse(jnp.tril(lower / scale, -1)) / scale[:, None]


@cholesky_inverse.defjvp
def _cholesky_inverse_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    """dL^-1 = -F L^-1, F = L^-1 dS L^-T below the diagonal and half of it on the diagonal."""
    (matrix,), (change,) = primals, tangents
    inverse = cholesky_inverse(matrix)
    whole = _product(_product(inverse, (change + change.T) / 2), inverse.T)
    half = jnp.tril(whole, -1) + jnp.diag(jnp.diagonal(whole) / 2)
    return inverse, -_product(half, inverse)
