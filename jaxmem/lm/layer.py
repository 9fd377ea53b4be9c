"""The parts of a layer that reading many tokens and writing one have in common."""

import jax
import jax.numpy as jnp
from jax import Array
from jax.ad_checkpoint import checkpoint_name

from jaxmem.lm.config import Config
from jaxmem.lm.parameters import Params
from jaxmem.lm.product import product
from jaxmem.lm.rope import rotate
from jaxmem.recall.cartridges import Cartridge


def embed(params: Params, ids: Array) -> Array:
    """The stream before the first layer.

    Args:
      params: the model's.
      ids: [B, T] tokens.

    Returns:
      [B, T, D], at least float32.
    """
    stream = params["embedding"][ids]
    return stream.astype(jnp.promote_types(stream.dtype, jnp.float32))


def slots_of(cartridge: Cartridge) -> dict[str, Array]:
    """What layers read of a cartridge.

    Args:
      cartridge: keys [L, G, P, K].

    Returns:
      Arrays by name, the layers in front: keys and values, bias and mask where there are any.
    """
    parts = {name: getattr(cartridge, name) for name in ("keys", "values", "bias", "mask")}
    return {name: part for name, part in parts.items() if part is not None}


def query_key_value(
    config: Config, weights: dict[str, Array], normed: Array, cosine: Array, sine: Array
) -> tuple[Array, Array, Array]:
    """What a layer's attention asks, and what it is asked of the same tokens.

    Args:
      config: the model's shape.
      weights: the layer's.
      normed: [B, T, D] its normalised stream.
      cosine, sine: [B, T, K / 2] of the tokens' positions.

    Returns:
      Queries [B, T, G, R, K], keys and values [B, T, G, K]; queries and keys are rotated.
    """
    rows = normed.shape[:2]

    def project(name: str, *shape: int) -> Array:
        made = _named(normed, weights[name])
        if config.qkv_bias:
            made = made + weights[f"{name}_bias"]
        made = made.reshape(*rows, *shape, config.head_dim)
        if config.qk_norm and name != "value":
            made = rms_norm(made, weights[f"{name}_norm"], config.norm_eps)
        return made

    repeats = config.heads // config.kv_heads
    query = project("query", config.kv_heads, repeats)
    keys, values = project("key", config.kv_heads), project("value", config.kv_heads)
    cosine, sine = cosine[:, :, None], sine[:, :, None]
    query = rotate(query, cosine[:, :, None], sine[:, :, None])
    keys = rotate(keys, cosine, sine)
    return query, keys, values


def after_attention(
    config: Config, weights: dict[str, Array], stream: Array, output: Array
) -> Array:
    """The stream after a layer: x + attention, then x + down(silu(gate) * up) of its norm.

    Args:
      config: the model's shape.
      weights: the layer's.
      stream: [B, T, D] before it.
      output: [B, T, G, R, K] of its attention.

    Returns:
      [B, T, D].
    """
    stream = stream + _named(output.reshape(*stream.shape[:2], -1), weights["output"])
    normed = rms_norm(stream, weights["feed_forward_norm"], config.norm_eps)
    gated = jax.nn.silu(_named(normed, weights["gate"])) * _named(normed, weights["up"])
    return stream + _named(gated, weights["down"])


def rms_norm(rows: Array, weight: Array, eps: float) -> Array:
    """Rows with a root mean square of 1, times a weight each column.

    x / sqrt(mean(x^2) + eps) * w

    Args:
      rows: [..., D].
      weight: [D].
      eps: keeps empty rows finite.

    Returns:
      [..., D].
    """
    square = jnp.mean(jnp.square(rows), axis=-1, keepdims=True)
    return rows * jax.lax.rsqrt(square + eps) * weight


def _named(rows: Array, weights: Array) -> Array:
    """A product that a gradient may keep."""
    return checkpoint_name(product(rows, weights), "product")
