"""The settings of a sweep: a product of axes, records or stacked arrays, made one pytree."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

# Column names of records and summaries.
RESERVED = {"seed", "setting", "metric", "mean", "sd", "low", "high", "n_seeds", "n_not_finite"}


def grid(**axes: Iterable[Any]) -> list[dict[str, Any]]:
    """Every combination of the axes' values, the last axis running fastest.

    Args:
      axes: the values of each field, by name.

    Returns:
      The settings, a dict each; [{}] if there is no axis.

    Raises:
      ValueError: if an axis is no list of values, or is empty.
    """
    values = {}
    for name, axis in axes.items():
        if isinstance(axis, (str, bytes)) or not np.iterable(axis):
            raise ValueError(f"axis {name!r}: expected a list of values, got {short(axis)}")
        values[name] = axis.tolist() if hasattr(axis, "tolist") else list(axis)
        if not values[name]:
            raise ValueError(f"axis {name!r}: expected at least one value, got none")
    return [dict(zip(values, choice)) for choice in itertools.product(*values.values())]


def stack(
    settings: Sequence[Mapping[str, Any]] | Mapping[str, Any],
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Settings as rows for records and as one pytree to be traced.

    Args:
      settings: dicts of the same fields, or one dict of arrays or pytrees with a leading axis.

    Returns:
      The fields of each setting that are scalars (and its number, `setting`, if some are not), and
      the pytree, each leaf [settings, ...] in the type jax gives it.

    Raises:
      ValueError: if there is no setting, fields or shapes differ, or a value is no number.
    """
    if isinstance(settings, Mapping):
        tree = {name: _leaves(name, value) for name, value in settings.items()}
        count = _length(tree)
    else:
        if not np.iterable(settings):
            raise ValueError(f"expected settings as dicts or a dict, got {short(settings)}")
        records = list(settings)
        tree, count = _joined(records), len(records)
    for name in tree:
        if not isinstance(name, str) or name in RESERVED:
            raise ValueError(f"settings: {name!r} cannot be the name of a field")
    columns = {k: v.tolist() for k, v in tree.items() if isinstance(v, np.ndarray) and v.ndim == 1}
    if len(columns) < len(tree):
        columns["setting"] = list(range(count))
    rows = [{name: column[i] for name, column in columns.items()} for i in range(count)]
    return rows, {name: jax.tree.map(_typed(name), value) for name, value in tree.items()}


def short(value: Any) -> str:
    """A value for a message, on one line of at most 80 characters.

    Args:
      value: anything.

    Returns:
      Its text.
    """
    text = " ".join(repr(value).split())
    return text if len(text) <= 80 else text[:77] + "..."


def _joined(records: list[Mapping[str, Any]]) -> dict[str, Any]:
    """Records of the same fields, stacked field by field."""
    if not records:
        raise ValueError("expected at least one setting, got none")
    for i, record in enumerate(records):
        if not isinstance(record, Mapping):
            raise ValueError(f"setting {i}: expected a dict, got {short(record)}")
        if set(record) != set(records[0]):
            raise ValueError(
                f"setting {i}: expected the fields {sorted(records[0])}, got {sorted(record)}"
            )
    tree = {}
    for name in records[0]:
        values = [_leaves(name, record[name]) for record in records]
        try:
            tree[name] = jax.tree.map(lambda *leaves: np.stack(leaves), *values)
        except ValueError as error:
            raise ValueError(f"field {name!r}: shapes differ between settings") from error
    return tree


def _leaves(name: str, value: Any) -> Any:
    """`value` with numpy arrays of numbers as leaves."""

    def leaf(x: Any) -> np.ndarray:
        try:
            array = np.asarray(x)
        except (TypeError, ValueError) as error:
            raise ValueError(f"field {name!r}: expected numbers, got {short(x)}") from error
        if not any(
            jnp.issubdtype(array.dtype, kind) for kind in (np.bool_, np.integer, np.floating)
        ):
            raise ValueError(f"field {name!r}: expected numbers, got {short(x)}")
        return array

    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return leaf(value)  # a list of numbers is an array; pytrees are dicts and NamedTuples
    tree = jax.tree.map(leaf, value, is_leaf=lambda x: x is None)
    if not jax.tree.leaves(tree):
        raise ValueError(f"field {name!r}: expected numbers, got {short(value)}")
    return tree


def _length(tree: dict[str, Any]) -> int:
    """The leading axis that all leaves share."""
    leaves = jax.tree.leaves(tree)
    lengths = {leaf.shape[0] if leaf.ndim else None for leaf in leaves}
    if len(lengths) != 1 or lengths & {0, None}:
        raise ValueError(
            "settings: expected arrays with one leading axis of at least 1, "
            f"got shapes {[leaf.shape for leaf in leaves]}"
        )
    return int(leaves[0].shape[0])


def _typed(name: str) -> Any:
    """Cast to the type jax would give (32 bits, unless x64 is on), refusing what does not fit."""

    def cast(array: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore"):
            typed = array.astype(jax.dtypes.canonicalize_dtype(array.dtype))
        if jnp.issubdtype(array.dtype, np.floating):
            lost = np.isfinite(typed) != np.isfinite(array)
        else:
            lost = typed != array
        if lost.any():
            raise ValueError(f"field {name!r}: {array[lost][0]} exceeds {typed.dtype}")
        return typed

    return cast
