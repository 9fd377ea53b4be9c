"""What goes to a language model and comes back: messages, tools, replies; and the model itself."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

ROLES = ("system", "user", "assistant", "tool")


class ToolCall(NamedTuple):
    """A function that the model wants to be called.

    id: names the call; its result has it too.
    name: of the function, as the model wrote it.
    arguments: JSON, as the model wrote it: it may be broken.
    """

    id: str
    name: str
    arguments: str


class Message(NamedTuple):
    """One message of a chat.

    role: one of `ROLES`; "tool" for the result of a call.
    content: its text.
    calls: of an assistant's message.
    call_id: of the call that a tool's message answers.
    """

    role: str
    content: str
    calls: tuple[ToolCall, ...] = ()
    call_id: str = ""


class Tool(NamedTuple):
    """A function that the model may call.

    name: of the function.
    description: what it does, for the model.
    parameters: JSON schema of its arguments, an object.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]


class Usage(NamedTuple):
    """Tokens of a call as the model's server counts them; None where it does not say.

    prompt_tokens: read.
    output_tokens: written.
    cached_tokens: of those read, served from a cache.
    """

    prompt_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None


class Reply(NamedTuple):
    """What the model answers.

    text: beside the calls, or all of it.
    calls: functions that it wants to be called, in order.
    usage: tokens.
    """

    text: str
    calls: tuple[ToolCall, ...] = ()
    usage: Usage = Usage()


class LLM(Protocol):
    """A language model behind whatever interface: messages and tools in, a reply out."""

    @property
    def name(self) -> str:
        """Of the model, for prices and reports."""
        ...

    def complete(self, messages: Sequence[Message], tools: Sequence[Tool] = ()) -> Reply:
        """One call.

        Args:
          messages: the prompt.
          tools: functions that may be called.

        Returns:
          The reply.

        Raises:
          ValueError: if the model cannot be reached or its answer cannot be understood.
        """
        ...


def chat_message(message: Message) -> dict[str, Any]:
    """A message in the form of the chat completions protocol.

    Args:
      message: any.

    Returns:
      A JSON object.
    """
    found: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.calls:
        found["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in message.calls
        ]
    if message.role == "tool":
        found["tool_call_id"] = message.call_id
    return found


def chat_tool(tool: Tool) -> dict[str, Any]:
    """A tool in the form of the chat completions protocol.

    Args:
      tool: any.

    Returns:
      A JSON object.
    """
    return {
        "type": "function",
        "function": {
            "name": tool.name,
            "description": tool.description,
            "parameters": dict(tool.parameters),
        },
    }


def compact(value: Any) -> str:
    """JSON in one line, as short as it can be, letters of any script as they are.

    Args:
      value: what JSON can hold.

    Returns:
      The text.
    """
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def clean(text: str) -> str:
    """A text as UTF-8 can hold it.

    Args:
      text: any.

    Returns:
      The text, halves of surrogate pairs replaced.
    """
    return text.encode("utf-8", "replace").decode("utf-8")
