"""This machine, measured, as the cost model sees one: when does training here pay for itself?"""

import os
import time
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxmem.lm.config import Config
from jaxmem.lm.generation import generate
from jaxmem.lm.model import Model
from jaxmem.lm.product import product
from jaxmem.recall.cartridges import Cartridge
from jaxmem.roofline import Accelerator, break_even_queries
from jaxmem.roofline import Model as Shape
from jaxmem.roofline.efficiency import Constant
from jaxmem.roofline.models import Linear, grouped_query

_SIDE = 1024  # of the square products that are timed
_READ_BYTES = 2**27  # more than a last-level cache holds
_SPEND_S = 0.3  # on each measurement


def memory_bytes() -> int:
    """Memory of this machine, or of its first accelerator.

    Returns:
      Bytes.
    """
    stats = jax.devices()[0].memory_stats() or {}
    if "bytes_limit" in stats:
        return int(stats["bytes_limit"])
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def this_machine(dtype: str = "bfloat16") -> Accelerator:
    """Peak arithmetic and bandwidth of the device that JAX computes on, as measured now.

    FLOP/s of the decoder's product with a square matrix, and bytes/s of summing an array larger
    than caches, the best of a few tries; about a second.

    Args:
      dtype: "bfloat16" or "float32" of the matrices, as the model's weights.

    Returns:
      The accelerator; what it says of 8-bit units is that there are none.
    """
    rows, weights = jnp.ones((_SIDE, _SIDE)), jnp.ones((_SIDE, _SIDE), jnp.dtype(dtype))
    array = jnp.zeros(_READ_BYTES // 4, jnp.float32)
    device = jax.devices()[0]
    return Accelerator(
        bf16_flops=2.0 * _SIDE**3 / _best_s(jax.jit(product), rows, weights),
        fp8_flops=0.0,
        int8_flops=0.0,
        bytes_s=_READ_BYTES / _best_s(jax.jit(jnp.sum), array),
        capacity_bytes=float(memory_bytes()),
        multiprocessors=float(os.cpu_count() or 1),
        name=f"this machine ({device.device_kind})",
        source=f"measured, {dtype} products of {_SIDE:,} x {_SIDE:,}",
    )


def shape_of(config: Config, weight_bytes: float = 2.0, kv_bytes: float = 4.0) -> Shape:
    """A decoder as the cost model sees it.

    Args:
      config: its shape.
      weight_bytes: bytes of a weight.
      kv_bytes: bytes of a number in the KV cache.

    Returns:
      The model; its parameters are those of `Config.shapes`.
    """
    layers, hidden, dim = config.layers, config.hidden, config.head_dim
    products = (
        (hidden, (config.heads + 2 * config.kv_heads) * dim),
        (config.heads * dim, hidden),
        (hidden, 2 * config.feed_forward),
        (config.feed_forward, hidden),
    )
    head = config.vocabulary * hidden
    in_products = layers * sum(inputs * outputs for inputs, outputs in products)
    total = sum(int(np.prod(shape)) for shape in config.shapes.values())
    embedding = 0 if config.tied else head
    return Shape(
        attention=(grouped_query(layers, config.heads, config.kv_heads, dim),),
        linear=tuple(Linear(float(layers), float(i), float(o), weight_bytes) for i, o in products),
        head=Linear(1.0, float(hidden), float(config.vocabulary), weight_bytes),
        embedding=float(embedding),
        other=float(total - in_products - head - embedding),
        other_bytes=weight_bytes,
        kv_bytes=kv_bytes,
    )


class Repaid(NamedTuple):
    """After how many questions a cartridge has cost less than its document in the context.

    cached: where the document's cache is kept between questions; infinite for never.
    uncached: where each question reads the document anew.
    context_s: seconds of a question's share, the document's cache kept.
    cartridge_s: the same with the cartridge.
    """

    cached: float
    uncached: float
    context_s: float
    cartridge_s: float


def repaid(
    config: Config,
    machine: Accelerator,
    document_tokens: int,
    slots: int,
    training_s: float,
    answer_tokens: int = 64,
    weight_bytes: float = 2.0,
) -> Repaid:
    """When training pays for itself on a machine that is full of users with a document each.

    See `jaxmem.roofline.break_even_queries`. The machine's numbers are what was reached, so they
    are taken in full.

    Args:
      config: the model's shape.
      machine: from `this_machine`.
      document_tokens: N.
      slots: P.
      training_s: what everything took, from reading to the last step.
      answer_tokens: tokens of an answer.
      weight_bytes: bytes of a weight.

    Returns:
      Questions, infinite for never.
    """
    shape = shape_of(config, weight_bytes)
    found = [
        break_even_queries(
            shape, machine, document_tokens, answer_tokens, cached=cached,
            compression=max(1.0, document_tokens / slots), training_s=training_s,
            efficiency=Constant(1.0, 1.0),
        )
        for cached in (True, False)
    ]  # fmt: skip
    cached, uncached = found
    return Repaid(
        float(cached.queries),
        float(uncached.queries),
        float(cached.context_s),
        float(cached.cartridge_s),
    )


def answer_tokens_s(model: Model, cartridge: Cartridge | None, tokens: int = 32) -> float:
    """Speed of a greedy answer to a short question, the question's own reading included.

    Args:
      model: that answers.
      cartridge: that it reads, or None.
      tokens: of the answer.

    Returns:
      Tokens a second, the better of two tries after one that compiles.
    """
    ids = np.asarray([model.tokenizer.chat([("user", "What is it about?")])], np.int32)
    lengths = np.full(1, ids.shape[1])

    def answer() -> Array:
        made = generate(model.params, model.config, ids, lengths, steps=tokens, cartridge=cartridge)
        return made.ids

    return tokens / _best_s(answer, spend_s=0.0)


def _best_s(function: Callable[..., Array], *arguments: Array, spend_s: float = _SPEND_S) -> float:
    """Seconds of the fastest of a few calls, at least two, the first left out."""
    jax.block_until_ready(function(*arguments))
    times: list[float] = []
    while len(times) < 2 or sum(times) < spend_s:
        began = time.perf_counter()
        jax.block_until_ready(function(*arguments))
        times.append(time.perf_counter() - began)
    return min(times)
