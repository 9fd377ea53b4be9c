"""Vectors of an agent's passages in memory, kept up with what all processes write."""

import sqlite3

import numpy as np

from jaxmem.agents.vectors import VectorIndex


class PassageIndex:
    """The vectors of one agent's archival storage.

    Passages have rising ids, and what is removed is listed: only what is new is read.
    """

    def __init__(self, db: sqlite3.Connection, agent: str, size: int) -> None:
        """Start empty; nothing is read before it is wanted.

        Args:
          db: of the store.
          agent: whose passages.
          size: numbers of a vector.
        """
        self._db, self._agent = db, agent
        self._vectors = VectorIndex(size)
        self._last = self._removed = 0

    def refreshed(self) -> VectorIndex:
        """The vectors as they are now.

        Returns:
          The index, by ids of passages.
        """
        rows = self._db.execute(
            "SELECT id, vector FROM passages WHERE agent = ? AND id > ? ORDER BY id",
            (self._agent, self._last),
        ).fetchall()
        if rows:
            vectors = np.frombuffer(b"".join(vector for _, vector in rows), "<f4")
            ids = np.array([id for id, _ in rows])
            self._vectors.add(ids, vectors.reshape(len(rows), self._vectors.size))
            self._last = rows[-1][0]
        gone = self._db.execute(
            "SELECT number, passage FROM removed WHERE agent = ? AND number > ? ORDER BY number",
            (self._agent, self._removed),
        ).fetchall()
        for number, passage in gone:
            self._vectors.remove(passage)
            self._removed = number
        return self._vectors
