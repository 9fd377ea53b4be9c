"""Events that wake an agent: messages, alarms, documents."""

from typing import NamedTuple

from jaxmem.agents.messages import Message, compact
from jaxmem.agents.times import stamp

EVENTS = ("user_message", "system_message", "login", "timer", "upload", "heartbeat", "summary")


class Event(NamedTuple):
    """Something that happens to an agent.

    kind: one of `EVENTS`; the last two the agent makes itself.
    text: what the model is told.
    """

    kind: str
    text: str

    def message(self, time_s: float) -> Message:
        """The event as the model sees it.

        It is JSON, so that what a user writes cannot pass for what the system says.

        Args:
          time_s: when it happens, seconds since 1970.

        Returns:
          A user's message.
        """
        told = {"type": self.kind, "message": self.text, "time": stamp(time_s)}
        return Message("user", compact(told))


def user_message(text: str) -> Event:
    """A user says something.

    Args:
      text: what.

    Returns:
      The event.
    """
    return Event("user_message", text)


def system_message(text: str) -> Event:
    """The system tells the agent something that the user does not see.

    Args:
      text: what.

    Returns:
      The event.
    """
    return Event("system_message", text)


def login(user: str, note: str = "") -> Event:
    """A user is there again.

    Args:
      user: name.
      note: more, such as when they were last there.

    Returns:
      The event.
    """
    return Event("login", f"{user} logged in. {note}".strip())


def timer(reason: str = "scheduled") -> Event:
    """A clock rings: the agent may look after its memory, or write to the user.

    Args:
      reason: what it was set for.

    Returns:
      The event.
    """
    return Event("timer", f"Timer: {reason}. No user is waiting for an answer.")


def upload(document: str, passages: int) -> Event:
    """A document was put into archival storage.

    Args:
      document: its name.
      passages: that it was cut into.

    Returns:
      The event.
    """
    text = f"The document {document!r} was put into archival memory, {passages} passages."
    return Event("upload", text)
