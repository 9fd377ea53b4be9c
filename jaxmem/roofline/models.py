"""Models as the cost model sees them: groups of like layers, their weights and their KV."""

import dataclasses
import math
import os
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from jaxmem.common import lookup
from jaxmem.roofline.border import Number

KV_BYTES = {"bf16": 2.0, "fp8": 1.0, "int8": 1.0}


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Attention:
    """A group of `count` attention layers of one shape.

    Latent attention (MLA) has two forms: prefill expands the cached latent to full heads,
    decode absorbs the expansion into the query and attends to the latent itself. For every
    other kind the `decode_` fields equal the others and `expansion` is 0.

    Attributes:
      count: layers in the group.
      heads, kv_heads: query and key/value heads.
      qk_dim, v_dim: width of a head in the scores and in the values.
      cached: elements cached a token a layer.
      window: positions a token attends to, itself included; inf for all before it.
      decode_kv_heads, decode_qk_dim, decode_v_dim: the same at decode.
      expansion: weights that every cached token passes through again at prefill (MLA).
    """

    count: Number
    heads: Number
    kv_heads: Number
    qk_dim: Number
    v_dim: Number
    cached: Number
    window: Number
    decode_kv_heads: Number
    decode_qk_dim: Number
    decode_v_dim: Number
    expansion: Number


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Linear:
    """A group of `count` matrix products of one shape, one kernel call each.

    Attributes:
      count: layers in the group.
      inputs, outputs: of one expert (or of the layer, if there is only one).
      weight_bytes: bytes a weight.
      experts: experts resident, 1 for a dense layer.
      active: experts that each token passes through.
      compute: arithmetic the product runs in, static: "bf16", "fp8" or "int8".
    """

    count: Number
    inputs: Number
    outputs: Number
    weight_bytes: Number = 2.0
    experts: Number = 1.0
    active: Number = 1.0
    compute: str = dataclasses.field(default="bf16", metadata={"static": True})

    def distinct_experts(self, tokens: Array) -> Array:
        """Expected experts that a batch touches under uniform routing.

        E (1 - (1 - k/E)^tokens)

        Args:
          tokens: tokens in the batch, at least 1.

        Returns:
          Experts, in the shape of `tokens`; 1 for a dense layer.
        """
        share = jnp.asarray(self.active) / self.experts
        routed = share < 1.0
        # The unused branch gets a harmless share: log1p(-1) would make the gradient NaN.
        miss = jnp.log1p(-jnp.where(routed, share, 0.5))
        return jnp.where(routed, -self.experts * jnp.expm1(tokens * miss), self.experts)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Model:
    """A decoder-only transformer: what it stores and what a token passes through.

    Attributes:
      attention: groups of attention layers.
      linear: groups of matrix products of the layers (one entry a kernel call).
      head: the product with the vocabulary, run once a prompt and once a new token.
      embedding: weights of the input embedding, 0 where it is tied to the head.
      other: all other weights (norms, biases, sinks).
      other_bytes: bytes of one of those and of an embedding weight.
      kv_bytes: bytes of a cached element.
      name: what it is called.
      notes: what its numbers leave out.
    """

    attention: tuple[Attention, ...]
    linear: tuple[Linear, ...]
    head: Linear
    embedding: Number
    other: Number
    other_bytes: Number = 2.0
    kv_bytes: Number = 2.0
    name: str = dataclasses.field(default="custom", metadata={"static": True})
    notes: str = dataclasses.field(default="", metadata={"static": True})

    @property
    def total_parameters(self) -> Any:
        """Weights stored, all experts counted."""
        groups = sum(g.count * g.experts * g.inputs * g.outputs for g in (*self.linear, self.head))
        return groups + self.embedding + self.other

    @property
    def active_parameters(self) -> Any:
        """Weights that a token passes through: of the experts, the chosen ones only."""
        groups = sum(g.count * g.active * g.inputs * g.outputs for g in (*self.linear, self.head))
        return groups + self.embedding + self.other

    @property
    def weight_bytes(self) -> Any:
        """Bytes of all weights."""
        groups = sum(
            g.count * g.experts * g.inputs * g.outputs * g.weight_bytes
            for g in (*self.linear, self.head)
        )
        return groups + (self.embedding + self.other) * self.other_bytes

    def with_kv_dtype(self, dtype: str) -> "Model":
        """The same model with its KV cache in another type.

        Args:
          dtype: "bf16", "fp8" or "int8"; the scales of the 8-bit types are not counted.

        Returns:
          A model that differs in `kv_bytes` alone.

        Raises:
          ValueError: if the type is none of these.
        """
        return dataclasses.replace(self, kv_bytes=lookup(KV_BYTES, dtype, "KV dtype"))

    @classmethod
    def from_config(
        cls, config: str | os.PathLike[str] | Mapping[str, Any], name: str | None = None
    ) -> "Model":
        """The model that a Hugging Face `config.json` describes.

        Args:
          config: path of a config.json (or of the folder that holds it), or its content.
          name: what to call it; by default the folder's name, or the architecture's.

        Returns:
          The model; its weight count equals that of the published checkpoint.

        Raises:
          ValueError: if the architecture is unknown, or a field is missing or no sensible
            number; the message names the file and the field.
        """
        from jaxmem.roofline.hf_config import read_config

        return read_config(config, name)


def grouped_query(
    count: float, heads: float, kv_heads: float, head_dim: float, window: float = math.inf
) -> Attention:
    """Layers of multi-head, grouped-query or multi-query attention.

    Args:
      count: layers.
      heads, kv_heads: query and key/value heads; the latter divides the former.
      head_dim: width of a head.
      window: positions a token attends to, inf for all.

    Returns:
      The group, caching 2 * kv_heads * head_dim elements a token a layer.
    """
    return Attention(
        count=float(count),
        heads=float(heads),
        kv_heads=float(kv_heads),
        qk_dim=float(head_dim),
        v_dim=float(head_dim),
        cached=2.0 * kv_heads * head_dim,
        window=float(window),
        decode_kv_heads=float(kv_heads),
        decode_qk_dim=float(head_dim),
        decode_v_dim=float(head_dim),
        expansion=0.0,
    )


def latent(
    count: float, heads: float, latent_dim: float, rope_dim: float, nope_dim: float, v_dim: float
) -> Attention:
    """Layers of multi-head latent attention (MLA), which cache one latent a token.

    Args:
      count: layers.
      heads: query heads.
      latent_dim, rope_dim: width of the cached latent and of the cached rotary key.
      nope_dim, v_dim: width of a head's expanded key (without rotation) and value.

    Returns:
      The group, caching latent_dim + rope_dim elements a token a layer.

    Source: DeepSeek-V2, arXiv:2405.04434, section 2.1.
    """
    return Attention(
        count=float(count),
        heads=float(heads),
        kv_heads=float(heads),
        qk_dim=float(nope_dim + rope_dim),
        v_dim=float(v_dim),
        cached=float(latent_dim + rope_dim),
        window=math.inf,
        decode_kv_heads=1.0,
        decode_qk_dim=float(latent_dim + rope_dim),
        decode_v_dim=float(latent_dim),
        expansion=float(latent_dim * heads * (nope_dim + v_dim)),
    )
