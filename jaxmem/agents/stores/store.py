"""What a store is: all that an agent keeps outside of the context, and its own state."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from jaxmem.agents.messages import Message

T = TypeVar("T")

KINDS = ("user", "assistant", "tool", "system")
"""Kinds of messages; a search of the conversation looks at the first two."""


class NewMessage(NamedTuple):
    """A message on its way into recall storage.

    time_s: seconds since 1970.
    kind: one of `KINDS`: who it is from. An event of the system has the role of a user.
    text: what was said, for searches and people; without the wrapping of the message.
    message: as the model sees it.
    """

    time_s: float
    kind: str
    text: str
    message: Message


class StoredMessage(NamedTuple):
    """A message in recall storage.

    id: rises in the order of storing.
    time_s, kind, text, message: as in `NewMessage`.
    """

    id: int
    time_s: float
    kind: str
    text: str
    message: Message


class Passage(NamedTuple):
    """A text in archival storage.

    id: rises in the order of storing.
    time_s: seconds since 1970.
    text: of it.
    source: the document that it comes from, or "".
    score: cosine to the query where it was searched for, else 0.
    """

    id: int
    time_s: float
    text: str
    source: str
    score: float = 0.0


class Page(NamedTuple, Generic[T]):
    """Some of what a search found.

    items: in order, best first.
    start: number of the first among all.
    total: how many there are.
    """

    items: list[T]
    start: int
    total: int


class Saved(NamedTuple):
    """An agent's state.

    state: JSON object.
    version: rises by one at each saving.
    """

    state: dict[str, Any]
    version: int


class Store(Protocol):
    """Recall storage, archival storage and states of agents; what is returned from is kept."""

    def transaction(self) -> AbstractContextManager[None]:
        """Several writings together: all of them, or none if the block raises."""
        ...

    def agents(self) -> list[str]:
        """Names of the agents that have a state."""
        ...

    def load(self, agent: str) -> Saved | None:
        """The state of an agent.

        Args:
          agent: its name.

        Returns:
          The state, None if it has none.
        """
        ...

    def save(self, agent: str, state: Mapping[str, Any], version: int) -> int:
        """Write the state of an agent.

        Args:
          agent: its name.
          state: JSON object.
          version: that it had when it was read; 0 if there was none.

        Returns:
          The new version.

        Raises:
          ValueError: if it has another version by now: somebody else has written.
        """
        ...

    def add_messages(self, agent: str, messages: Sequence[NewMessage]) -> list[int]:
        """Put messages into recall storage.

        Args:
          agent: whose.
          messages: in order.

        Returns:
          Their ids.
        """
        ...

    def messages(self, agent: str, first: int = 0) -> list[StoredMessage]:
        """Messages from an id on.

        Args:
          agent: whose.
          first: the smallest id.

        Returns:
          The messages, in order.
        """
        ...

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
          Those with any of the words; best first.
        """
        ...

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
        """
        ...

    def add_passages(
        self, agent: str, texts: Sequence[str], source: str = "", time_s: float | None = None
    ) -> list[int]:
        """Put texts into archival storage.

        Args:
          agent: whose.
          texts: of any length.
          source: the document that they come from.
          time_s: seconds since 1970, now by default.

        Returns:
          Their ids.
        """
        ...

    def find_passages(
        self, agent: str, query: str, start: int = 0, count: int = 5
    ) -> Page[Passage]:
        """Search archival storage by what it is about.

        Args:
          agent: whose.
          query: any text.
          start: number of the first to return.
          count: of those to return.

        Returns:
          The nearest; `total` counts all there are.
        """
        ...

    def remove_passage(self, agent: str, id: int) -> bool:
        """Forget a text.

        Args:
          agent: whose.
          id: of the text.

        Returns:
          Whether it was there.
        """
        ...

    def counts(self, agent: str) -> tuple[int, int]:
        """How much there is.

        Args:
          agent: whose.

        Returns:
          Messages in recall storage, texts in archival storage.
        """
        ...
