"""What agents keep outside of the context: a protocol, and SQLite in one file."""

from jaxmem.agents.stores.sqlite_store import SqliteStore
from jaxmem.agents.stores.store import NewMessage, Page, Passage, Saved, Store, StoredMessage

__all__ = ["NewMessage", "Page", "Passage", "Saved", "SqliteStore", "Store", "StoredMessage"]
