"""Exact search among vectors: a padded matrix on the device, and the best of one product."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxmem.common import check_size

_BLOCK = 128  # rows that are first compared by their best
_LEAST = 1024
_QUERIES = 32  # at once: a product of a matrix uses the device better than many of vectors


class Nearest(NamedTuple):
    """The nearest vectors of each query, best first; of equal ones those added earlier.

    scores: float32 [Q, K] inner products, -inf where there are fewer.
    ids: int64 [Q, K], -1 there.
    """

    scores: np.ndarray
    ids: np.ndarray


class VectorIndex:
    """Vectors by id, added and removed at any time.

    The matrix, a column a vector, has room for some more, so that a program serves many sizes; it
    is copied to the device once, and then only what is new.

    Attributes:
      size: numbers of a vector, D.
    """

    def __init__(self, size: int) -> None:
        """Start empty.

        Args:
          size: numbers of a vector, D.

        Raises:
          ValueError: if it is below 1.
        """
        self.size = check_size("size", size)
        self._ids = np.full(_LEAST, -1, np.int64)
        self._rows: dict[int, int] = {}
        self._matrix: Array = jnp.zeros((self.size, _LEAST), jnp.float32)
        self._live: Array | None = None
        self._count = 0
        self._new: list[np.ndarray] = []

    def __len__(self) -> int:
        """Vectors that are there."""
        return len(self._rows)

    def add(self, ids: np.ndarray, vectors: np.ndarray) -> None:
        """Add vectors.

        Args:
          ids: [N] whole numbers of 0 or more that are not there yet.
          vectors: [N, D].

        Raises:
          ValueError: if an id is there, or a shape or number does not do; nothing is added then.
        """
        added = np.asarray(ids, np.int64).reshape(-1)
        rows = np.asarray(vectors, np.float32)
        if rows.shape != (len(added), self.size) or not np.isfinite(rows).all():
            raise ValueError(
                f"expected {len(added)} finite vectors of {self.size} numbers, got shape "
                f"{list(rows.shape)}"
            )
        fresh = set(added.tolist())
        if len(fresh) < len(added) or fresh & self._rows.keys() or min(fresh, default=0) < 0:
            raise ValueError("expected ids of 0 or more that are not there yet")
        more = _room(self._count + len(added)) - len(self._ids)
        if more > 0:
            self._ids = np.concatenate([self._ids, np.full(more, -1, np.int64)])
        places = range(self._count, self._count + len(added))
        self._ids[places.start : places.stop] = added
        self._rows.update(zip(added.tolist(), places))
        self._count += len(added)
        self._new.append(rows.copy())
        self._live = None

    def remove(self, id: int) -> bool:
        """Take a vector out; its row is not used again.

        Args:
          id: of the vector.

        Returns:
          Whether it was there.
        """
        row = self._rows.pop(id, None)
        if row is None:
            return False
        self._ids[row] = -1
        self._live = None
        return True

    def search(self, queries: np.ndarray, count: int) -> Nearest:
        """The vectors with the largest inner products.

          scores = q M^T, the K largest of each row

        Args:
          queries: [Q, D].
          count: K, at least 1.

        Returns:
          Scores and ids, [Q, K].

        Raises:
          ValueError: if the queries are of another size, or count is below 1.
        """
        asked = np.asarray(queries, np.float32)
        check_size("count", count)
        if asked.ndim != 2 or asked.shape[1] != self.size:
            raise ValueError(f"expected queries [Q, {self.size}], got {list(asked.shape)}")
        self._settle()
        rows = len(self._ids)
        # As many as a power of two: pages of results differ in number, programs should not.
        most = min(1 << (count - 1).bit_length(), rows)
        scores = np.full((len(asked), count), -np.inf, np.float32)
        ids = np.full((len(asked), count), -1, np.int64)
        assert self._live is not None
        for start in range(0, len(asked), _QUERIES):
            some = asked[start : start + _QUERIES]
            if len(some) > 1:  # one shape for all but single queries
                some = np.pad(some, ((0, _QUERIES - len(some)), (0, 0)))
            best, places = _largest(self._matrix, self._live, jnp.asarray(some), most)
            here = slice(start, min(start + _QUERIES, len(asked)))
            kept = min(count, most)
            scores[here, :kept] = np.asarray(best)[: here.stop - start, :kept]
            ids[here, :kept] = self._ids[np.asarray(places)[: here.stop - start, :kept]]
        ids[np.isneginf(scores)] = -1
        return Nearest(scores, ids)

    def _settle(self) -> None:
        """Bring what is new to the device."""
        rows = len(self._ids)
        if self._matrix.shape[1] < rows:
            self._matrix = _grown(self._matrix, rows)
        start = self._count - sum(map(len, self._new))
        new = np.concatenate(self._new) if self._new else np.zeros((0, self.size), np.float32)
        while len(new):
            # Pieces of a power of two, again for few programs; rows behind are not yet in use.
            width = min(1 << (len(new) - 1).bit_length(), rows - start)
            piece = np.zeros((self.size, width), np.float32)
            piece[:, : len(new)] = new[:width].T
            self._matrix = _written(self._matrix, jnp.asarray(piece), start)
            start, new = start + width, new[width:]
        self._new.clear()
        if self._live is None:
            self._live = jnp.asarray(self._ids >= 0)


def _room(count: int) -> int:
    """Columns for so many vectors: eight sizes an octave, so that little is computed in vain."""
    step = max(_LEAST, 1 << max(count - 1, 1).bit_length()) // 16
    return max(_LEAST, -(-count // step) * step)


@partial(jax.jit, static_argnames="rows")
def _grown(matrix: Array, rows: int) -> Array:
    return jnp.pad(matrix, ((0, 0), (0, rows - matrix.shape[1])))


@partial(jax.jit, donate_argnums=0)
def _written(matrix: Array, piece: Array, start: int) -> Array:
    return jax.lax.dynamic_update_slice(matrix, piece, (0, start))


@partial(jax.jit, static_argnames="count")
def _largest(matrix: Array, live: Array, queries: Array, count: int) -> tuple[Array, Array]:
    """The largest inner products, exactly: each of the K best lies in one of the K best blocks."""
    rows = matrix.shape[1]
    one = len(queries) == 1  # a product with a vector is faster than with a matrix of one row
    scores = (queries[0] @ matrix)[None] if one else queries @ matrix  # [Q, N]
    scores = jnp.where(live, scores, -jnp.inf)
    blocks = scores.reshape(len(queries), rows // _BLOCK, _BLOCK)
    _, chosen = jax.lax.top_k(blocks.max(-1), min(count, rows // _BLOCK))
    chosen = jnp.sort(chosen, axis=-1)  # so that of equal scores the first is taken
    near = jnp.take_along_axis(blocks, chosen[:, :, None], 1)
    best, at = jax.lax.top_k(near.reshape(len(queries), -1), count)
    block = jnp.take_along_axis(chosen, at // _BLOCK, 1)
    return best, block * _BLOCK + at % _BLOCK
