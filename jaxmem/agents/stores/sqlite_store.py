"""A store in one file of SQLite: many processes, transactions, full-text and vector search."""

import json
import os
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from jaxmem.agents.embedders.embedder import Embedder, unit
from jaxmem.agents.embedders.hashing import HashingEmbedder
from jaxmem.agents.messages import clean, compact
from jaxmem.agents.stores.passage_index import PassageIndex
from jaxmem.agents.stores.rows import MESSAGE, message_of, packed
from jaxmem.agents.stores.schema import migrate
from jaxmem.agents.stores.store import KINDS, NewMessage, Page, Passage, Saved, StoredMessage
from jaxmem.agents.words import words
from jaxmem.common import check_number, check_size, choice
from jaxmem.common.safetensors_header import UnfitError, short

_WAIT_S = 30.0  # for other processes' writings
_SEARCHED = KINDS[:2]
_MOST_WORDS = 64  # of a query


class SqliteStore:
    """A `Store` in a file, or in memory.

    Writing is acknowledged when it is on disk (write-ahead log, synchronous). A store belongs to
    the thread that made it; several processes may have one on the same file.

    Attributes:
      path: of the file.
      embedder: of passages and queries.
    """

    def __init__(
        self, path: str | os.PathLike[str] = ":memory:", embedder: Embedder | None = None
    ) -> None:
        """Open a store, a new one if there is none.

        Args:
          path: of the file, or ":memory:".
          embedder: by default `HashingEmbedder`; a store has the same one always.

        Raises:
          ValueError: if the file is no such store, one of a newer version, damaged, or made with
            another embedder.
          OSError: if it cannot be opened.
        """
        self.path = os.fspath(path)
        self.embedder: Embedder = HashingEmbedder() if embedder is None else embedder
        self._indexes: dict[str, PassageIndex] = {}
        self._open = False  # a transaction
        self._db = self._connected()
        try:
            migrate(self._db)
            self._check_embedder()
        except (sqlite3.DatabaseError, UnfitError) as error:
            self._db.close()
            raise ValueError(f"{self.path}: {error}") from error

    def close(self) -> None:
        """Close the file; the store cannot be used after that."""
        self._db.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Several writings together.

        Yields:
          Nothing. All of them are kept, or none if the block raises.
        """
        if self._open:
            yield
            return
        self._db.execute("BEGIN IMMEDIATE")
        self._open = True
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        finally:
            self._open = False

    def agents(self) -> list[str]:
        """Names of the agents that have a state.

        Returns:
          The names in order.
        """
        return [name for (name,) in self._db.execute("SELECT name FROM agents ORDER BY name")]

    def load(self, agent: str) -> Saved | None:
        """The state of an agent.

        Args:
          agent: its name.

        Returns:
          The state, None if it has none.
        """
        row = self._db.execute(
            "SELECT state, version FROM agents WHERE name = ?", (agent,)
        ).fetchone()
        return None if row is None else Saved(json.loads(row[0]), row[1])

    def save(self, agent: str, state: Mapping[str, Any], version: int) -> int:
        """Write the state of an agent.

        Args:
          agent: its name.
          state: JSON object.
          version: that it had when it was read; 0 if there was none.

        Returns:
          The new version.

        Raises:
          ValueError: if it has another version by now.
        """
        text = clean(compact(dict(state)))
        with self.transaction():
            if version == 0:
                done = self._db.execute(
                    "INSERT OR IGNORE INTO agents VALUES (?, ?, 1)", (clean(agent), text)
                )
            else:
                done = self._db.execute(
                    "UPDATE agents SET state = ?, version = version + 1"
                    " WHERE name = ? AND version = ?",
                    (text, clean(agent), version),
                )
            if done.rowcount != 1:
                raise ValueError(
                    f"{self.path}: agent {short(agent)} was changed by somebody else: load it again"
                )
        return version + 1

    def add_messages(self, agent: str, messages: Sequence[NewMessage]) -> list[int]:
        """Put messages into recall storage, all of them or none.

        Args:
          agent: whose.
          messages: in order.

        Returns:
          Their ids.

        Raises:
          ValueError: if a kind is none of `KINDS`, or a time no number.
        """
        ids = []
        with self.transaction():
            for new in messages:
                choice(KINDS, new.kind, "kind of message")
                check_number("time_s", new.time_s, -1e14, 1e14, scalar=True)
                row = (clean(agent), new.time_s, new.kind, clean(new.text), packed(new.message))
                done = self._db.execute(
                    "INSERT INTO messages (agent, time_s, kind, text, message)"
                    " VALUES (?, ?, ?, ?, ?)",
                    row,
                )
                assert done.lastrowid is not None
                ids.append(done.lastrowid)
                if new.kind in _SEARCHED:
                    self._db.execute(
                        "INSERT INTO message_words (rowid, words) VALUES (?, ?)",
                        (done.lastrowid, " ".join(words(new.text))),
                    )
        return ids

    def messages(self, agent: str, first: int = 0) -> list[StoredMessage]:
        """Messages from an id on.

        Args:
          agent: whose.
          first: the smallest id.

        Returns:
          The messages, in order.
        """
        rows = self._db.execute(
            f"SELECT {MESSAGE} FROM messages WHERE agent = ? AND id >= ? ORDER BY id",
            (agent, first),
        )
        return [message_of(row) for row in rows]

    def find_messages(
        self, agent: str, query: str, start: int = 0, count: int = 5
    ) -> Page[StoredMessage]:
        """Search what was said.

        Args:
          agent: whose.
          query: words.
          start: number of the first to return.
          count: of those to return.

        Returns:
          Those with any of the words; best first by BM25, of equal ones the newest.

        Raises:
          ValueError: if start or count is no size.
        """
        check_size("start", start, 0)
        check_size("count", count)
        quoted = [f'"{word}"' for word in dict.fromkeys(words(query)[:_MOST_WORDS])]
        if not quoted:
            return Page([], start, 0)
        source = (  # CROSS: first the words, then their messages
            "FROM message_words CROSS JOIN messages ON messages.id = message_words.rowid"
            " WHERE message_words MATCH ? AND agent = ?"
        )
        asked = (" OR ".join(quoted), agent)
        rows = self._db.execute(
            f"SELECT {MESSAGE} {source} ORDER BY bm25(message_words), id DESC LIMIT ? OFFSET ?",
            (*asked, count, start),
        )
        found = [message_of(row) for row in rows]
        return Page(found, start, self._total(f"SELECT count(*) {source}", asked))

    def messages_between(
        self, agent: str, low_s: float, high_s: float, start: int = 0, count: int = 5
    ) -> Page[StoredMessage]:
        """What was said in a time.

        Args:
          agent: whose.
          low_s, high_s: seconds since 1970; the first is in it, the last not.
          start, count: as `find_messages`.

        Returns:
          The messages, oldest first.

        Raises:
          ValueError: if start or count is no size.
        """
        check_size("start", start, 0)
        check_size("count", count)
        source = (
            "FROM messages WHERE agent = ? AND time_s >= ? AND time_s < ?"
            f" AND kind IN ({', '.join('?' for _ in _SEARCHED)})"
        )
        asked = (agent, low_s, high_s, *_SEARCHED)
        rows = self._db.execute(
            f"SELECT {MESSAGE} {source} ORDER BY time_s, id LIMIT ? OFFSET ?",
            (*asked, count, start),
        )
        found = [message_of(row) for row in rows]
        return Page(found, start, self._total(f"SELECT count(*) {source}", asked))

    def add_passages(
        self, agent: str, texts: Sequence[str], source: str = "", time_s: float | None = None
    ) -> list[int]:
        """Put texts into archival storage, all of them or none.

        Args:
          agent: whose.
          texts: of any length.
          source: the document that they come from.
          time_s: seconds since 1970, now by default.

        Returns:
          Their ids.
        """
        at = time.time() if time_s is None else time_s
        check_number("time_s", at, -1e14, 1e14, scalar=True)
        vectors = self._embedded(texts)  # slow, so before others must wait
        ids = []
        with self.transaction():
            self._db.execute(
                "INSERT OR IGNORE INTO settings VALUES ('embedder', ?)", (self.embedder.name,)
            )
            self._check_embedder()
            for text, vector in zip(texts, vectors, strict=True):
                row = (clean(agent), at, clean(text), clean(source), vector.tobytes())
                done = self._db.execute(
                    "INSERT INTO passages (agent, time_s, text, source, vector)"
                    " VALUES (?, ?, ?, ?, ?)",
                    row,
                )
                assert done.lastrowid is not None
                ids.append(done.lastrowid)
        return ids

    def find_passages(
        self, agent: str, query: str, start: int = 0, count: int = 5
    ) -> Page[Passage]:
        """Search archival storage by cosine.

        Args:
          agent: whose.
          query: any text.
          start: number of the first to return.
          count: of those to return.

        Returns:
          The nearest; `total` counts all there are.

        Raises:
          ValueError: if start or count is no size, or within a transaction.
        """
        check_size("start", start, 0)
        check_size("count", count)
        if self._open:
            raise ValueError("expected a search of archival storage outside of a transaction")
        vectors = self._index(agent).refreshed()
        total = len(vectors)
        if start >= total:
            return Page([], start, total)
        nearest = vectors.search(self._embedded([query]), min(start + count, total))
        items = []
        for id, score in zip(nearest.ids[0, start:].tolist(), nearest.scores[0, start:].tolist()):
            row = self._db.execute(
                "SELECT id, time_s, text, source FROM passages WHERE id = ?", (id,)
            ).fetchone()
            if row is not None:  # another process may have removed it just now
                id, at, text, source = row
                items.append(Passage(id, at, text, source, score))
        return Page(items, start, total)

    def remove_passage(self, agent: str, id: int) -> bool:
        """Forget a text.

        Args:
          agent: whose.
          id: of the text.

        Returns:
          Whether it was there.
        """
        with self.transaction():
            done = self._db.execute("DELETE FROM passages WHERE agent = ? AND id = ?", (agent, id))
            if done.rowcount:  # other processes have its vector in memory
                self._db.execute("INSERT INTO removed (agent, passage) VALUES (?, ?)", (agent, id))
            return bool(done.rowcount)

    def counts(self, agent: str) -> tuple[int, int]:
        """How much there is.

        Args:
          agent: whose.

        Returns:
          Messages in recall storage, texts in archival storage.
        """
        return (
            self._total("SELECT count(*) FROM messages WHERE agent = ?", (agent,)),
            self._total("SELECT count(*) FROM passages WHERE agent = ?", (agent,)),
        )

    def _connected(self) -> sqlite3.Connection:
        if self.path != ":memory:" and not Path(self.path).parent.is_dir():
            raise FileNotFoundError(2, "No such folder", str(Path(self.path).parent))
        try:
            return sqlite3.connect(self.path, timeout=_WAIT_S, isolation_level=None)
        except sqlite3.OperationalError as error:
            raise OSError(f"{self.path}: {error}") from error

    def _check_embedder(self) -> None:
        row = self._db.execute("SELECT value FROM settings WHERE name = 'embedder'").fetchone()
        if row is not None and row[0] != self.embedder.name:
            raise UnfitError(
                f"expected the embedder that the texts were stored with, {short(row[0])}, got "
                f"{short(self.embedder.name)}"
            )

    def _embedded(self, texts: Sequence[str]) -> np.ndarray:
        """Vectors of length 1, whatever the embedder's are."""
        found = unit(np.asarray(self.embedder.embed(texts), "<f4"))
        if found.shape != (len(texts), self.embedder.size) or not np.isfinite(found).all():
            raise ValueError(
                f"{self.embedder.name}: expected {len(texts)} vectors of {self.embedder.size} "
                f"finite numbers, got shape {list(found.shape)}"
            )
        return found

    def _index(self, agent: str) -> PassageIndex:
        if agent not in self._indexes:
            self._indexes[agent] = PassageIndex(self._db, agent, self.embedder.size)
        return self._indexes[agent]

    def _total(self, sql: str, values: tuple[Any, ...] = ()) -> int:
        return int(self._db.execute(sql, values).fetchone()[0])
