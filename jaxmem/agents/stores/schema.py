"""The tables of a store in SQLite, and how they came to be."""

import os
import sqlite3
from pathlib import Path

from jaxmem.common.safetensors_header import UnfitError

APPLICATION = 0x6A786D6D
"""What the header of the file says it is: "jxmm"."""

MIGRATIONS = [
    # Our words are already parted by spaces: whatever stands between spaces is one token.
    """
    CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE agents (name TEXT PRIMARY KEY, state TEXT NOT NULL, version INTEGER NOT NULL);
    CREATE TABLE messages (
      id INTEGER PRIMARY KEY AUTOINCREMENT, agent TEXT NOT NULL, time_s REAL NOT NULL,
      kind TEXT NOT NULL, text TEXT NOT NULL, message TEXT NOT NULL);
    CREATE INDEX messages_by_agent ON messages (agent, id);
    CREATE INDEX messages_by_time ON messages (agent, time_s, id);
    CREATE VIRTUAL TABLE message_words USING fts5 (
      words, tokenize = "unicode61 remove_diacritics 0 categories 'L* M* N* P* S* Co'");
    CREATE TABLE passages (
      id INTEGER PRIMARY KEY AUTOINCREMENT, agent TEXT NOT NULL, time_s REAL NOT NULL,
      text TEXT NOT NULL, source TEXT NOT NULL, vector BLOB NOT NULL);
    CREATE INDEX passages_by_agent ON passages (agent, id);
    CREATE TABLE removed (
      number INTEGER PRIMARY KEY AUTOINCREMENT, agent TEXT NOT NULL, passage INTEGER NOT NULL);
    """,
]
"""SQL from each version of the schema to the next; a new file takes all of them."""


def migrate(db: sqlite3.Connection) -> None:
    """Bring a database to the newest version; a new one gets its tables.

    Args:
      db: a connection without an open transaction.

    Raises:
      UnfitError: if it is another application's, or of a newer version.
      sqlite3.DatabaseError: if it is no database.
    """
    db.execute("PRAGMA trusted_schema = OFF")  # a file from elsewhere runs nothing
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    db.execute("BEGIN IMMEDIATE")
    try:
        _migrate(db)
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def _migrate(db: sqlite3.Connection) -> None:
    def number(sql: str) -> int:
        return int(db.execute(sql).fetchone()[0])

    version = number("PRAGMA user_version")
    others = number("SELECT count(*) FROM sqlite_schema") or version
    if number("PRAGMA application_id") != APPLICATION and others:
        raise UnfitError("expected a store of jaxmem, got another SQLite database")
    if version > len(MIGRATIONS):
        raise UnfitError(
            f"expected a store of version {len(MIGRATIONS)} or earlier, got {version}: a newer "
            "jaxmem reads it"
        )
    for step in MIGRATIONS[version:]:
        for statement in step.split(";"):
            db.execute(statement)
    db.execute(f"PRAGMA application_id = {APPLICATION}")
    db.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")


def stored_embedder(path: str | os.PathLike[str]) -> str | None:
    """With which embedder the texts of a store were stored.

    Args:
      path: of the file.

    Returns:
      Its name; None if the file is not there, holds no text or is no store: opening it says so.
    """
    if not Path(path).is_file():
        return None
    try:
        db = sqlite3.connect(f"{Path(path).resolve().as_uri()}?mode=ro", uri=True)
        try:
            row = db.execute("SELECT value FROM settings WHERE name = 'embedder'").fetchone()
        finally:
            db.close()
    except sqlite3.DatabaseError:
        return None
    return None if row is None else str(row[0])
