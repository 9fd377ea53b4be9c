"""Main context as messages: instructions, working context, summary, queue, in four layouts."""

from collections.abc import Sequence
from typing import NamedTuple

from jaxmem.agents.memgpt.context_queue import Unit
from jaxmem.agents.memgpt.events import Event
from jaxmem.agents.messages import Message, Tool, chat_message, chat_tool, compact
from jaxmem.prompts import Segment
from jaxmem.prompts.encoder import Encoder

LAST = "last"
"""The layout that shows the working context behind the queue."""

NOTED = "log"
"""The layout in which edits wait as notes in the queue, until messages leave."""

NOTE = "note"
"""Kind of event by which an edit waits."""

EDITED_IN_PLACE = ("front", LAST)
"""Layouts that show an edit at once; the others when messages leave."""


class MainContext(NamedTuple):
    """All that a call shows the model.

    tools: functions offered.
    instructions: read-only text.
    working: working context as it is shown.
    summary: of messages that have left, as a message, or None.
    units: the queue.
    layout: where the working context stands, one of `jaxmem.sessions.LAYOUTS`.
    """

    tools: tuple[Tool, ...]
    instructions: str
    working: str
    summary: Message | None
    units: Sequence[Unit]
    layout: str

    def messages(self) -> list[Message]:
        """The prompt of a call.

        Returns:
          Messages; the first is the system's.
        """
        queue = [message for unit in self.units for message in unit.messages]
        if self.summary is not None:
            queue.insert(0, self.summary)
        if self.layout == LAST:
            return [Message("system", self.instructions), *queue, Message("system", self.working)]
        return [Message("system", f"{self.instructions}\n\n{self.working}"), *queue]

    def segments(self) -> list[Segment]:
        """The prompt as a log of prompts has it, tools first.

        Returns:
          Its parts, front to back.
        """
        tools = compact([chat_tool(tool) for tool in self.tools])
        working = Segment("working context", "memory", self.working.encode())
        found = [
            Segment("tools", "tools", tools.encode()),
            Segment("instructions", "system", self.instructions.encode()),
            *([] if self.layout == LAST else [working._replace(part=True)]),
        ]
        if self.summary is not None:
            found.append(Segment("summary", "summary", self.summary.content.encode()))
        for unit in self.units:
            for message in unit.messages:
                found.append(Segment(f"message {message.role}", "history", _content(message)))
        return [*found, working] if self.layout == LAST else found

    def tokens(self, encoder: Encoder) -> int:
        """Tokens of the prompt; those of units were counted before.

        Args:
          encoder: text to tokens.

        Returns:
          Their number.
        """
        fixed = self._replace(units=()).segments()
        return sum(count(encoder, one.content) for one in fixed) + sum(
            unit.tokens for unit in self.units
        )


def summary_message(text: str, time_s: float) -> Message | None:
    """The head of the queue.

    Args:
      text: summary of the messages that have left; "" if none have.
      time_s: when it was written, seconds since 1970.

    Returns:
      A message, or None.
    """
    return Event("summary", text).message(time_s) if text else None


def unit_of(encoder: Encoder, first: int, messages: Sequence[Message], warning: bool) -> Unit:
    """Messages that enter the queue together.

    Args:
      encoder: text to tokens.
      first: id of the first in recall storage.
      messages: one or more.
      warning: whether it is the warning of memory pressure.

    Returns:
      The unit, with its tokens.
    """
    tokens = sum(count(encoder, _content(message)) for message in messages)
    return Unit(first, tuple(messages), tokens, warning)


def count(encoder: Encoder, content: bytes) -> int:
    """Tokens of a text.

    Args:
      encoder: text to tokens.
      content: UTF-8.

    Returns:
      Whole tokens, rounded up.
    """
    return -int(-len(encoder.encode(content)) // encoder.unit_bytes)


def _content(message: Message) -> bytes:
    """A message for counting: its text, and its calls as JSON."""
    text = message.content
    if message.calls:
        text += compact(chat_message(message)["tool_calls"])
    return text.encode()
