"""Softmax attention as a read that can be split over slots and merged again."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike


class Read(NamedTuple):
    """What attention over some slots gives.

    output: [..., V] weighted mean of the values; 0 where no slot counts.
    log_sum_exp: [...] log of the softmax denominator; -inf where no slot counts.
    """

    output: Array
    log_sum_exp: Array


def slot_logits(
    query: Array,
    keys: Array,
    scale: ArrayLike,
    bias: Array | None = None,
    mask: Array | None = None,
) -> Array:
    """Attention logits of queries on slots.

    x_i = scale q . k_i + b_i, the smallest finite number where masked

    Args:
      query: [..., K].
      keys: [P, K].
      scale: inverse temperature.
      bias: [P] added to the logits.
      mask: [P] or [..., P] boolean, True where a slot counts.

    Returns:
      [..., P].
    """
    logits = jnp.multiply(scale, query @ keys.T)
    if bias is not None:
        logits = logits + bias
    # Finite, so that gradients of rows without any slot are 0 and not NaN.
    return logits if mask is None else jnp.where(mask, logits, jnp.finfo(logits.dtype).min)


def attend(
    query: Array,
    keys: Array,
    values: Array,
    scale: ArrayLike,
    bias: Array | None = None,
    mask: Array | None = None,
) -> Read:
    """Softmax attention of queries over slots.

    o = sum_i e^{x_i} v_i / Z, Z = sum_i e^{x_i}, x_i = scale q . k_i + b_i

    Args:
      query: [..., K].
      keys: [P, K].
      values: [P, V].
      scale: inverse temperature (1 / sqrt(K) in a transformer, 20 in the lecture's toy).
      bias: [P] added to the logits.
      mask: [P], or [..., P] a query, boolean, True where a slot counts.

    Returns:
      The output [..., V] and log Z [...], so that reads of parts can be merged.

    Raises:
      ValueError: if the numbers of slots or the lengths of queries and keys differ.
    """
    _check(query, keys, values, bias, mask)
    logits = slot_logits(query, keys, scale, bias, mask)
    # Cancels, so no gradient: that of max is 0 / 0 where XLA recomputes the logits otherwise.
    lowest = jnp.finfo(logits.dtype).min
    top = jax.lax.stop_gradient(jnp.max(logits, axis=-1, keepdims=True, initial=lowest))
    weights = jnp.exp(logits - top)
    if mask is not None:
        weights = jnp.where(mask, weights, 0)
        if mask.ndim == 1:  # what a slot holds that does not count must not, not even NaN
            values = jnp.where(mask[:, None], values, 0)
    total = jnp.sum(weights, axis=-1, keepdims=True)
    some = total != 0  # NaN stays NaN: a broken read is not an empty one
    output = weights @ values / jnp.where(some, total, 1)
    log_sum_exp = jnp.where(some, top + jnp.log(jnp.where(some, total, 1)), -jnp.inf)
    return Read(output, log_sum_exp[..., 0])


def merge(reads: Sequence[Read]) -> Read:
    """The read over all slots from reads over parts of them (cascade attention).

    Z = sum_j Z_j, o = sum_j (Z_j / Z) o_j

    Args:
      reads: of disjoint sets of slots by the same queries; outputs [..., V].

    Returns:
      What one read of all the slots gives, up to rounding.

    Raises:
      ValueError: if there is no read, or their shapes differ.

    Source: Ye et al. 2024, cascade inference; Dao et al. 2022, arXiv:2205.14135.
    """
    if not reads:
        raise ValueError("expected at least one read to merge, got none")
    shapes = {read.output.shape for read in reads}
    if len(shapes) > 1:
        raise ValueError(f"expected reads of one shape, got {sorted(shapes)}")
    parts = jnp.stack([read.log_sum_exp for read in reads])  # [J, ...]
    outputs = jnp.stack([read.output for read in reads])  # [J, ..., V]
    top = jax.lax.stop_gradient(jnp.max(parts, axis=0))
    some = top > -jnp.inf
    shares = jnp.exp(parts - jnp.where(some, top, 0))  # all 0 where no part has a slot
    total = jnp.where(some, jnp.sum(shares, axis=0), 1)
    output = jnp.einsum("j...,j...v->...v", shares, outputs) / total[..., None]
    return Read(output, jnp.where(some, top + jnp.log(total), -jnp.inf))


def _check(
    query: Array, keys: Array, values: Array, bias: Array | None, mask: Array | None
) -> None:
    slots = keys.shape[0]
    if keys.ndim != 2 or values.ndim != 2 or values.shape[0] != slots:
        raise ValueError(
            f"expected keys [P, K] and values [P, V], got {keys.shape} and {values.shape}"
        )
    if query.shape[-1:] != keys.shape[1:]:
        raise ValueError(f"expected queries [..., {keys.shape[1]}], got {query.shape}")
    if bias is not None and bias.shape != (slots,):
        raise ValueError(f"expected bias [{slots}], got {bias.shape}")
    if mask is not None and mask.shape not in ((slots,), (*query.shape[:-1], slots)):
        raise ValueError(f"expected mask [{slots}] or one row a query, got {mask.shape}")
