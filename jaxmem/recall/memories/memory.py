"""What a fixed-size memory is, and the scan over chunks that every one of them shares."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike

from jaxmem.common import check_number


class Memory(NamedTuple):
    """A fixed-size associative memory, as four pure functions; vmap them for many memories.

    init: (key_dim, value_dim) -> state, empty, in the default float.
    write: (state, key [K], value [V], gates=None) -> state.
    write_chunk: (state, keys [T, K], values [T, V], queries=None, gates=None) -> (state, outputs).
      The same as T writes. With queries [T, K], outputs [T, V] are what query t reads after write
      t; without, nothing is read and outputs are [0, V].
    read: (state, query [..., K]) -> [..., V].

    All raise ValueError for wrong shapes and for gates that the memory does not have. Inputs are
    cast to the dtype of the state.
    """

    init: Callable[[int, int], Any]
    write: Callable[..., Any]
    write_chunk: Callable[..., tuple[Any, Array]]
    read: Callable[[Any, ArrayLike], Array]


class Gates(NamedTuple):
    """Numbers that differ from write to write and replace those of the factory.

    Each is None (keep the factory's), a scalar, or [T] for `write_chunk`. A memory that has no
    such number refuses it.

    decay: share of the old state that is kept.
    rate: strength of the write.
    momentum: share of the old momentum that is kept.
    """

    decay: ArrayLike | None = None
    rate: ArrayLike | None = None
    momentum: ArrayLike | None = None


def state_floats(memory: Memory, key_dim: int, value_dim: int) -> int:
    """Floats that the state of a memory holds, for comparisons at equal size.

    Args:
      memory: from one of the factories.
      key_dim: length of a key, K.
      value_dim: length of a value, V.

    Returns:
      K V for a single matrix; Titans, TTT, recursive least squares and ridge keep more.
    """
    state = jax.eval_shape(lambda: memory.init(key_dim, value_dim))
    leaves = [leaf for leaf in jax.tree.leaves(state) if jnp.issubdtype(leaf.dtype, jnp.floating)]
    return sum(leaf.size for leaf in leaves)


class Rows(NamedTuple):
    """Writes in a row, or (with a leading axis of chunks) cut into chunks.

    keys: [T, K].
    values: [T, V].
    queries: [T, K], or None where nothing is read.
    decay: [T], or None if the memory does not decay.
    rate: [T], or None.
    momentum: [T], or None.
    """

    keys: Array
    values: Array
    queries: Array | None
    decay: Any
    rate: Any
    momentum: Any


# A row filled with these leaves every state as it is (given a mask, where there is momentum).
_NEUTRAL = (0.0, 0.0, 0.0, 1.0, 0.0, 1.0)


def _cut(rows: Rows, chunks: int, size: int, offset: ArrayLike = 0) -> Rows:
    """Rows as [chunks, size, ...], with `offset` neutral rows before them and the rest after."""

    def cut(row: Any, fill: float) -> Any:
        if row is None:
            return None
        room = jnp.full((chunks * size, *row.shape[1:]), fill, row.dtype)
        filled = lax.dynamic_update_slice_in_dim(room, row, offset, axis=0)
        return filled.reshape(chunks, size, *row.shape[1:])

    return Rows(*(cut(row, fill) for row, fill in zip(rows, _NEUTRAL)))


def scan_chunks(
    local: Callable[[Rows], Any],
    step: Callable[[Any, Any], tuple[Any, Array | None]],
    state: Any,
    rows: Rows,
    chunk: int,
) -> tuple[Any, Array | None]:
    """Writes by chunks of nearly equal size, at most `chunk`, the last one filled up neutrally.

    Args:
      local: what of a chunk does not depend on the state; done for all chunks at once.
      step: (state, that) -> (state, outputs [C, V] or None).
      state: before the first write.
      rows: T >= 1 writes.
      chunk: most writes a chunk.

    Returns:
      (state, outputs [T, V] or None).
    """
    length = rows.keys.shape[0]
    chunks = -(-length // chunk)
    size = -(-length // chunks)
    state, outputs = lax.scan(step, state, jax.vmap(local)(_cut(rows, chunks, size)))
    if outputs is not None:
        outputs = outputs.reshape(chunks * size, -1)[:length]
    return state, outputs


def scan_mini_batches(
    local: Callable[[Rows, Array], Any],
    step: Callable[[Any, Any], tuple[Any, Array | None]],
    state: Any,
    rows: Rows,
    chunk: int,
    position: Array,
) -> tuple[Any, Array | None]:
    """Writes by the mini-batches of a memory that counts its writes.

    Args:
      local: (rows, real [C] boolean) -> what of a mini-batch does not depend on the state; only
        the real rows, which are a run, are to be written.
      step: (state, that) -> (state, outputs [C, V] or None).
      state: before the first write.
      rows: T >= 1 writes.
      chunk: writes a mini-batch.
      position: how many writes of the first mini-batch came before, 0 to chunk - 1.

    Returns:
      (state, outputs [T, V] or None).
    """
    length = rows.keys.shape[0]
    chunks = -(-(length + chunk - 1) // chunk)  # enough for any position
    slot = jnp.arange(chunks * chunk).reshape(chunks, chunk)
    real = (slot >= position) & (slot < position + length)
    cut = _cut(rows, chunks, chunk, position)
    state, outputs = lax.scan(step, state, jax.vmap(local)(cut, real))
    if outputs is not None:
        flat = outputs.reshape(chunks * chunk, -1)
        outputs = lax.dynamic_slice_in_dim(flat, position, length, axis=0)
    return state, outputs


def decay_products(decay: Array) -> tuple[Array, Array]:
    """How much of the start, and of each write, is left after each write of a chunk.

    c_i = prod_{l <= i} a_l, D_ij = prod_{j < l <= i} a_l for j <= i, else 0

    Args:
      decay: a, [C].

    Returns:
      c [C] and D [C, C].
    """
    left = _segment_products(jnp.concatenate([jnp.ones_like(decay[:1]), decay]))
    return left[1:, 0], left[1:, 1:]


@jax.custom_jvp
def _segment_products(factors: Array) -> Array:
    """D_ij = prod_{j < l <= i} a_l for j <= i, else 0; [C] -> [C, C]."""
    # Products, and not differences of logs: right, with their gradients, where a factor is 0.
    later = jnp.tri(factors.shape[0], k=-1, dtype=bool)
    return jnp.tril(jnp.cumprod(jnp.where(later, factors[:, None], 1), axis=0))


@_segment_products.defjvp
def _segment_products_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    """dD_ij = sum_l D_il da_l D_{l-1,j}: one product of matrices instead of log C levels."""
    (factors,), (change,) = primals, tangents
    products = _segment_products(factors)
    before = jnp.pad(products, ((1, 0), (0, 0)))[:-1]
    return products, products @ (change[:, None] * before)


def build(
    init: Callable[[int, int], Any],
    write: Callable[[Any, Rows], Any],
    write_rows: Callable[[Any, Rows], tuple[Any, Array | None]],
    read: Callable[[Any, Array], Array],
    shape: Callable[[Any], tuple[int, int]],
    gates: Gates,
) -> Memory:
    """A memory from its bare functions: adds the checks, the casts and the factory's numbers.

    Args:
      init: (key_dim, value_dim) -> state.
      write: (state, rows without the axis T and without queries) -> state.
      write_rows: (state, rows with T >= 1) -> (state, outputs [T, V] or None without queries).
      read: (state, query [..., K]) -> [..., V].
      shape: state -> (K, V).
      gates: the factory's scalars; None for what the memory does not have.

    Returns:
      The memory.

    Raises:
      ValueError: (its functions) for wrong shapes, and for gates that the memory does not have.
    """

    def dtype(state: Any) -> Any:
        return jax.tree.leaves(state)[0].dtype

    def filled(given: Gates | None, lead: tuple[int, ...], dtype: Any) -> list[Array | None]:
        given = Gates() if given is None else given
        found: list[Array | None] = []
        for name, own, other in zip(Gates._fields, gates, given):
            if own is None and other is not None:
                has = [field for field, number in zip(Gates._fields, gates) if number is not None]
                raise ValueError(f"this memory has no gate {name}; it has {has}")
            number = own if other is None else other
            if number is not None and jnp.shape(number) not in ((), lead):
                raise ValueError(f"expected gate {name} {list(lead)}, got {jnp.shape(number)}")
            found.append(
                None if number is None else jnp.broadcast_to(jnp.asarray(number, dtype), lead)
            )
        return found

    def checked_init(key_dim: int, value_dim: int) -> Any:
        for name, size in (("key_dim", key_dim), ("value_dim", value_dim)):
            if size < 1:
                raise ValueError(f"{name} must be at least 1, got {size}")
        return init(key_dim, value_dim)

    def checked_write(
        state: Any, key: ArrayLike, value: ArrayLike, gates: Gates | None = None
    ) -> Any:
        kind = dtype(state)
        key, value = jnp.asarray(key, kind), jnp.asarray(value, kind)
        key_dim, value_dim = shape(state)
        if key.shape != (key_dim,) or value.shape != (value_dim,):
            raise ValueError(
                f"expected key [{key_dim}] and value [{value_dim}], got {key.shape}, {value.shape}"
            )
        return write(state, Rows(key, value, None, *filled(gates, (), kind)))

    def checked_write_chunk(
        state: Any,
        keys: ArrayLike,
        values: ArrayLike,
        queries: ArrayLike | None = None,
        gates: Gates | None = None,
    ) -> tuple[Any, Array]:
        kind = dtype(state)
        keys, values = jnp.asarray(keys, kind), jnp.asarray(values, kind)
        key_dim, value_dim = shape(state)
        length = keys.shape[0] if keys.ndim else 0
        if keys.shape != (length, key_dim) or values.shape != (length, value_dim):
            raise ValueError(
                f"expected keys [T, {key_dim}] and values [T, {value_dim}], "
                f"got {keys.shape}, {values.shape}"
            )
        if queries is not None:
            queries = jnp.asarray(queries, kind)
            if queries.shape != keys.shape:
                raise ValueError(f"expected queries {keys.shape}, got {queries.shape}")
        rows = Rows(keys, values, queries, *filled(gates, (length,), kind))
        outputs = None
        if length:
            state, outputs = write_rows(state, rows)
        return state, jnp.zeros((0, value_dim), kind) if outputs is None else outputs

    def checked_read(state: Any, query: ArrayLike) -> Array:
        query = jnp.asarray(query, dtype(state))
        if query.shape[-1:] != shape(state)[:1]:
            raise ValueError(f"expected query [..., {shape(state)[0]}], got {query.shape}")
        return read(state, query)

    return Memory(checked_init, checked_write, checked_write_chunk, checked_read)


def check_factory(
    chunk: int = 1, positive: tuple[str, ...] = (), at_most_1: tuple[str, ...] = (), **numbers: Any
) -> None:
    """Refuse a bad chunk, a number that is no scalar, or one out of its range.

    Traced numbers have no value yet; only their shape is checked.

    Args:
      chunk: static size.
      positive: names of numbers that must be over 0.
      at_most_1: names of numbers that must not be over 1.
      **numbers: scalars by name, none negative.

    Raises:
      ValueError: naming what was expected and what came.
    """
    if isinstance(chunk, bool) or not isinstance(chunk, int) or chunk < 1:
        raise ValueError(f"chunk must be an integer of at least 1, got {chunk!r}")
    for name, number in numbers.items():
        check_number(name, number, scalar=True)
        if isinstance(number, jax.core.Tracer):
            continue
        if name in positive and number == 0:
            raise ValueError(f"{name} must be over 0, got {number}")
        if name in at_most_1 and number > 1:
            raise ValueError(f"{name} must be at most 1, got {number}")
