"""A model behind the chat completions protocol: vLLM, SGLang, Ollama, llama.cpp, hosted ones."""

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from jaxmem.agents.http_json import EndpointError, JsonClient
from jaxmem.agents.messages import (
    Message,
    Reply,
    Tool,
    ToolCall,
    Usage,
    chat_message,
    chat_tool,
    compact,
)
from jaxmem.common.safetensors_header import short

KEY = "JAXMEM_API_KEY"
"""Environment variable with the key of an endpoint. No other variable's key is sent anywhere."""

_CHAT = "chat/completions"


class Endpoint:
    """A language model that a server offers; an `LLM`.

    Attributes:
      name: of the model.
    """

    def __init__(
        self,
        url: str,
        model: str,
        *,
        key: str | None = None,
        stream: bool = False,
        options: Mapping[str, Any] | None = None,
        **http: Any,
    ) -> None:
        """Prepare; nothing is sent.

        Args:
          url: of the API, such as http://localhost:8000/v1.
          model: its name there.
          key: of the API; by default that of the environment variable JAXMEM_API_KEY.
          stream: whether answers are received piece by piece, which keeps slow ones alive.
          options: more fields of the request: temperature, max_tokens, seed.
          http: timeout_s, attempts and sleep of `JsonClient`.

        Raises:
          ValueError: if the URL or the name is none, or httpx is not installed.
        """
        if not isinstance(model, str) or not model:
            raise ValueError(f"expected the name of a model, got {model!r}")
        self.name = model
        self._client = JsonClient(url, os.environ.get(KEY) if key is None else key, **http)
        self._stream = stream
        self._options = dict(options or {})

    def complete(self, messages: Sequence[Message], tools: Sequence[Tool] = ()) -> Reply:
        """One call of the model.

        Args:
          messages: the prompt.
          tools: functions that may be called.

        Returns:
          The reply. Arguments of calls are as the model wrote them.

        Raises:
          EndpointError: if the server cannot be reached, refuses or answers nonsense.
        """
        body = {
            "model": self.name,
            "messages": [chat_message(message) for message in messages],
            **({"tools": [chat_tool(tool) for tool in tools]} if tools else {}),
            **self._options,
        }
        if not self._stream:
            return reply_of(self._client.post(_CHAT, body), self._client.url)
        body |= {"stream": True, "stream_options": {"include_usage": True}}
        return reply_of(self._client.events(_CHAT, body, _gathered), self._client.url)


def reply_of(answer: Mapping[str, Any], where: str = "endpoint") -> Reply:
    """Read an answer of the chat completions protocol.

    Args:
      answer: a JSON object.
      where: it comes from, for messages.

    Returns:
      The reply.

    Raises:
      EndpointError: naming what is missing or of another form.
    """
    message = _first(answer.get("choices")).get("message")
    if not isinstance(message, dict):
        raise EndpointError(f"{where}: expected choices with a message, got {short(dict(answer))}")
    written = message.get("tool_calls") or []
    if not isinstance(written, list) or not all(isinstance(call, dict) for call in written):
        raise EndpointError(f"{where}: expected tool_calls as a list, got {short(written)}")
    calls = tuple(_call(call, number, where) for number, call in enumerate(written))
    text = _text(message.get("content"), where)
    return Reply(text, calls, _usage(answer.get("usage")))


def _first(value: Any) -> dict[str, Any]:
    """The first object of a list, an empty one if there is none."""
    there = isinstance(value, list) and value and isinstance(value[0], dict)
    return value[0] if there else {}


def _call(call: Mapping[str, Any], number: int, where: str) -> ToolCall:
    function = call.get("function")
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise EndpointError(f"{where}: expected a function with a name, got {short(dict(call))}")
    arguments = function.get("arguments") or "{}"
    if not isinstance(arguments, str):  # some servers send them parsed
        arguments = compact(arguments)
    id = call.get("id")
    return ToolCall(
        id if isinstance(id, str) and id else f"call_{number}", function["name"], arguments
    )


def _text(content: Any, where: str) -> str:
    """The text of a message: a string, or parts of which some have text."""
    if content is None:
        return ""
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        return "".join(part for part in parts if isinstance(part, str))
    if not isinstance(content, str):
        raise EndpointError(f"{where}: expected content as text, got {short(content)}")
    return content


def _usage(told: Any) -> Usage:
    """What the server says of tokens, None where it is silent or talks nonsense."""
    if not isinstance(told, dict):
        return Usage()
    details = told.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    counts = (told.get("prompt_tokens"), told.get("completion_tokens"), cached)
    return Usage(*(count if type(count) is int and count >= 0 else None for count in counts))


def _gathered(events: Iterator[Mapping[str, Any]]) -> dict[str, Any]:
    """A streamed answer as if it had come in one piece."""
    text, calls, usage = [], dict[int, dict[str, Any]](), None
    for event in events:
        if "error" in event:
            raise EndpointError(f"expected an answer, got an error: {short(event['error'])}")
        usage = event.get("usage") or usage
        delta = _first(event.get("choices")).get("delta")
        if not isinstance(delta, dict):
            continue
        text.append(delta["content"] if isinstance(delta.get("content"), str) else "")
        for piece in delta.get("tool_calls") or []:
            if isinstance(piece, dict):
                _add_piece(calls, piece)
    whole = [call for _, call in sorted(calls.items())]
    message = {"role": "assistant", "content": "".join(text), "tool_calls": whole}
    return {"choices": [{"message": message}], "usage": usage}


def _add_piece(calls: dict[int, dict[str, Any]], piece: Mapping[str, Any]) -> None:
    number = piece.get("index")
    number = number if type(number) is int else len(calls)
    call = calls.setdefault(number, {"id": "", "function": {"name": "", "arguments": ""}})
    call["id"] = piece.get("id") or call["id"]
    function = piece.get("function")
    for name in ("name", "arguments"):
        more = function.get(name) if isinstance(function, dict) else None
        call["function"][name] += more if isinstance(more, str) else ""
