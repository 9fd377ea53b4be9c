"""When training a cartridge pays for itself against reading the document in context."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxmem.roofline.accelerators import Accelerator
from jaxmem.roofline.border import number
from jaxmem.roofline.cost import Efficiency, prefill, throughput
from jaxmem.roofline.models import Model

COMPRESSION = 38.6  # context over cartridge size at equal quality: arXiv:2506.06266
TRAINING_S = 14_400.0  # 30 minutes on 8 H100: arXiv:2506.06266


class BreakEven(NamedTuple):
    """Queries that repay a training.

    Attributes:
      queries: training cost over the saving of a query; infinite if nothing is saved, 0 if
        the document does not fit into memory at all.
      context_s: GPU seconds of a query with the document in context.
      cartridge_s: GPU seconds of a query with the cartridge.
    """

    queries: Array
    context_s: Array
    cartridge_s: Array


def break_even_queries(
    model: Model,
    accelerator: Accelerator,
    document_tokens: ArrayLike,
    answer_tokens: ArrayLike = 200,
    *,
    cached: bool = True,
    compression: ArrayLike = COMPRESSION,
    training_s: ArrayLike = TRAINING_S,
    price_ratio: ArrayLike = 1.0,
    devices: ArrayLike = 1,
    efficiency: Efficiency = None,
) -> BreakEven:
    """Queries after which a trained cartridge has cost less than in-context reading.

    queries = training_s * price_ratio / (context_s - cartridge_s), where a query takes its
    share of devices that are full of users with a document each: answer_tokens / tokens_s.
    The question's own prefill, alike on both sides, is left out.

    Args:
      model: the model.
      accelerator: the device.
      document_tokens: length of the document.
      answer_tokens: tokens generated a query.
      cached: whether the document's KV is kept; if not, each query reads it anew.
      compression: document tokens a cartridge token.
      training_s: GPU seconds of the training.
      price_ratio: price of a GPU second of training over one of serving.
      devices: devices that serve together.
      efficiency: see `resolve`.

    Returns:
      Queries and GPU seconds, broadcast over all arguments.

    Raises:
      ValueError: if a number is out of range, or efficiency was not measured there.
    """
    document = number(document_tokens, "document_tokens", 1)
    smaller = number(compression, "compression", 1)
    cost_s = number(training_s, "training_s") * number(price_ratio, "price_ratio")
    context_s, cartridge_s = (
        share_s(model, accelerator, tokens, 0.0, answer_tokens, devices, efficiency)
        for tokens in (document, document / smaller)
    )
    if not cached:
        whole = accelerator.times(devices)
        reading_s = prefill(model, whole, document, efficiency=efficiency).total_s
        context_s = context_s + reading_s * number(devices, "devices", 1)
    saved_s = context_s - cartridge_s
    repaid = saved_s > 0.0
    queries = jnp.where(repaid, cost_s / jnp.where(repaid, saved_s, 1.0), jnp.inf)
    return BreakEven(*jnp.broadcast_arrays(queries, context_s, cartridge_s))


def share_s(
    model: Model,
    accelerator: Accelerator,
    context_tokens: ArrayLike,
    shared_tokens: ArrayLike,
    answer_tokens: ArrayLike,
    devices: ArrayLike = 1,
    efficiency: Efficiency = None,
) -> Array:
    """GPU seconds of one answer's share of devices that are full of such users.

    Args:
      model: the model.
      accelerator: the device.
      context_tokens: each user's own context.
      shared_tokens: context that all users share.
      answer_tokens: tokens generated.
      devices: devices that serve together.
      efficiency: see `resolve`.

    Returns:
      GPU seconds; infinite where not even one user fits.

    Raises:
      ValueError: if a number is out of range, or efficiency was not measured there.
    """
    full = throughput(
        model,
        accelerator,
        context_tokens,
        shared_tokens,
        answer_tokens,
        devices,
        efficiency=efficiency,
    )
    fits = full.users > 0.0
    busy_s = number(answer_tokens, "answer_tokens", 1) * number(devices, "devices", 1)
    return jnp.where(fits, busy_s / jnp.where(fits, full.tokens_s, 1.0), jnp.inf)
