"""Tensors of a file, one a layer, as parameters with layers stacked: checked before any is read."""

from collections.abc import Callable, Mapping

import jax.numpy as jnp
import ml_dtypes
import numpy as np

from jaxmem.common import choice
from jaxmem.lm.config import Config
from jaxmem.lm.parameters import Params, nested

DTYPES: dict[str, np.dtype] = {
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float32": np.dtype(np.float32),
}
"""Types that weights are read as."""

_MOST_LAYERS = 10_000


def file_names(config: Config, names: Mapping[str, str]) -> dict[str, tuple[int, ...]]:
    """The tensors that a file of such a model holds.

    Args:
      config: the model's shape.
      names: the file's name of each parameter, with {} for the layer where it has one.

    Returns:
      Shape of each by the file's name: products [out, in], embedding and head [V, D].

    Raises:
      ValueError: if there are too many layers to name.
    """
    if config.layers > _MOST_LAYERS:
        raise ValueError(f"expected at most {_MOST_LAYERS} layers, got {config.layers}")
    found = {}
    for name, shape in config.shapes.items():
        if name.startswith("layers."):
            for layer in range(config.layers):
                found[names[name].format(layer)] = shape[:0:-1]
        else:
            found[names[name]] = shape
    return found


def check_tensors(
    expected: Mapping[str, tuple[int, ...]], stored: Mapping[str, tuple[int, ...]]
) -> None:
    """Refuse a file whose tensors are not those of the model.

    Args:
      expected: shape by name, of the model.
      stored: shape by name, of the file; what may be there unused is left out by the caller.

    Raises:
      ValueError: naming the first tensors that are missing, unknown or of another shape.
    """
    missing = [name for name in expected if name not in stored]
    if missing:
        raise ValueError(f"missing {_first(missing)}")
    extra = [name for name in stored if name not in expected]
    if extra:
        raise ValueError(f"not of this model: {_first(extra)}")
    for name, shape in expected.items():
        if stored[name] != shape:
            raise ValueError(f"expected {name} {[*shape]}, got {[*stored[name]]}")


def stacked(
    config: Config,
    names: Mapping[str, str],
    read: Callable[[str], np.ndarray],
    dtype: str,
    source: str,
) -> Params:
    """The parameters, read a tensor at a time.

    Args:
      config: the model's shape, which the file was checked against.
      names: as in `file_names`.
      read: a tensor of the file by its name, shape as in `file_names`.
      dtype: "bfloat16" or "float32".
      source: the file, for messages.

    Returns:
      The pytree of arrays.

    Raises:
      ValueError: if a tensor holds what is no finite number, or for an unknown dtype.
    """
    kind = DTYPES[choice(DTYPES, dtype, "dtype")]

    def number(name: str) -> np.ndarray:
        tensor = read(name)
        if not np.isfinite(tensor).all():
            raise ValueError(f"{source}: expected finite numbers in {name}, got others")
        with np.errstate(over="ignore"):
            return tensor.astype(kind, copy=False)

    found = {}
    for name, shape in config.shapes.items():
        if name.startswith("layers."):
            whole = np.empty(shape, kind)  # [L, in, out]
            for layer in range(config.layers):
                whole[layer] = number(names[name].format(layer)).T
            found[name] = jnp.asarray(whole)
        else:
            found[name] = jnp.asarray(number(names[name]))
    return nested(found)


def _first(names: list[str]) -> str:
    rest = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(ascii(name)[1:-1][:100] for name in names[:3]) + rest
