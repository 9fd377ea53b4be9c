"""LoRA, what cartridges are measured against: low-rank changes of the model's products."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxmem.common import check_size
from jaxmem.lm.config import Config
from jaxmem.lm.parameters import Params

Adapters = dict[str, tuple[Array, Array]]
"""LoRA: W + A B for some of the layers' products, pairs ([L, I, r], [L, r, O]) by name."""


def lora(
    key: Array, config: Config, rank: int, names: tuple[str, ...] = ("query", "value")
) -> Adapters:
    """Low-rank changes of the layers' products, none yet: B is 0.

    Args:
      key: PRNG key.
      config: the model's shape.
      rank: r.
      names: of the products.

    Returns:
      A [L, I, r], normal with deviation 1 / sqrt(I), and B [L, r, O] by name.

    Raises:
      ValueError: if there is no such product, or the rank is below 1.

    Source: Hu et al. 2021, arXiv:2106.09685.
    """
    check_size("rank", rank)
    made = {}
    for number, name in enumerate(names):
        shape = config.shapes.get(f"layers.{name}", ())
        if len(shape) != 3:
            raise ValueError(f"expected the name of a product of the layers, got {name!r}")
        layers, inputs, outputs = shape
        first = jax.random.normal(jax.random.fold_in(key, number), (layers, inputs, rank))
        made[name] = first / np.sqrt(inputs), jnp.zeros((layers, rank, outputs))
    return made


def lora_rank(config: Config, slots: int, names: tuple[str, ...] = ("query", "value")) -> int:
    """The rank at which adapters have the bytes of a cartridge, or the next below.

    Args:
      config: the model's shape.
      slots: of the cartridge.
      names: of the products.

    Returns:
      The rank, at least 1.
    """
    shapes = [config.shapes[f"layers.{name}"] for name in names]
    each = sum(layers * (inputs + outputs) for layers, inputs, outputs in shapes)
    return max(1, slots * 2 * config.layers * config.kv_heads * config.head_dim // each)


def adapted(params: Params, adapters: Adapters) -> Params:
    """The model with its products changed, W + A B.

    Args:
      params: the model's.
      adapters: A [L, I, r] and B [L, r, O] by name.

    Returns:
      Parameters of the same types.
    """
    layers = dict(params["layers"])
    for name, (first, second) in adapters.items():
        change = jnp.einsum("lir,lro->lio", first, second)
        layers[name] = (layers[name] + change).astype(layers[name].dtype)
    return {**params, "layers": layers}
