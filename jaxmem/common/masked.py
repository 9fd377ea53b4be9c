"""Softmax and top-k over entries of which some do not count."""

import jax
import jax.numpy as jnp
from jax import Array


def masked_softmax(logits: Array, mask: Array, axis: int = -1) -> Array:
    """Softmax over the entries where `mask` holds; all zeros where none does or all are -inf.

    p_i = m_i exp(x_i) / sum_j m_j exp(x_j)

    Args:
      logits: [..., N].
      mask: boolean, broadcastable to `logits`.
      axis: the axis that is normalised.

    Returns:
      Probabilities with the shape of `logits`, exactly 0 where masked; gradients are finite
      even in a row that is masked throughout (a fill of -inf would give NaN).
    """
    filled = jnp.where(mask, logits, jnp.finfo(logits.dtype).min)
    return jnp.where(mask, jax.nn.softmax(filled, axis=axis), 0)


def masked_top_k(scores: Array, mask: Array, k: int) -> tuple[Array, Array]:
    """The k highest scores among the entries where `mask` holds.

    Args:
      scores: [..., N].
      mask: boolean, broadcastable to `scores`.
      k: how many, at most N.

    Returns:
      (indices [..., k], valid [..., k]): `valid` is False in the places for which there was
      no unmasked entry left.

    Raises:
      ValueError: if k is not in 1..N.
    """
    if not 1 <= k <= scores.shape[-1]:
        raise ValueError(f"k must be in 1..{scores.shape[-1]}, got {k}")
    mask = jnp.broadcast_to(mask, scores.shape)
    # Sorted by mask first: whatever fill value is chosen, a score of -inf would tie with it.
    indices = jnp.lexsort((-scores, ~mask), axis=-1)[..., :k]
    valid = jnp.arange(k) < jnp.sum(mask, axis=-1, keepdims=True)
    return indices, valid
