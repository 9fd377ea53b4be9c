"""How messages lie in the rows of a table."""

import json
from typing import Any

from jaxmem.agents.messages import Message, ToolCall, clean, compact
from jaxmem.agents.stores.store import StoredMessage

MESSAGE = "messages.id, time_s, kind, text, message"
"""Columns that `message_of` reads."""


def packed(message: Message) -> str:
    """A message as a column.

    Args:
      message: any.

    Returns:
      JSON.
    """
    return clean(compact([message.role, message.content, message.calls, message.call_id]))


def message_of(row: tuple[Any, ...]) -> StoredMessage:
    """A message of a row.

    Args:
      row: the columns of `MESSAGE`.

    Returns:
      The message.
    """
    id, time_s, kind, text, column = row
    role, content, calls, call_id = json.loads(column)
    message = Message(role, content, tuple(ToolCall(*call) for call in calls), call_id)
    return StoredMessage(id, time_s, kind, text, message)
