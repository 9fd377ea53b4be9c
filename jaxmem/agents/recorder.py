"""Every call of a running agent as a log of prompts, for prices, the doctor and the cost model."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from jaxmem.agents.messages import Message, Reply, Tool, chat_message, chat_tool, clean, compact
from jaxmem.prompts import LogBuilder, PromptLog, Segment
from jaxmem.prompts.encoder import Encoder


class Recorder:
    """Keeps each prompt once it was answered; equal parts are kept once."""

    def __init__(self, encoder: Encoder, path: str | os.PathLike[str] | None = None) -> None:
        """Start an empty log.

        Args:
          encoder: text to tokens.
          path: file that requests are added to as well, JSON lines that `read_log` reads.

        Raises:
          ValueError: if there is a file that is no such log.
        """
        self._builder = LogBuilder(encoder)
        self._encoder = encoder
        self._path = None if path is None else Path(path)
        if self._path is not None and self._path.is_file():
            with open(self._path, "rb") as file:
                if file.read(1) not in (b"", b"{"):
                    raise ValueError(f"{path}: expected a log of JSON lines to add to")

    def add(
        self,
        segments: Iterable[Segment],
        messages: Sequence[Message],
        tools: Sequence[Tool],
        reply: Reply,
        *,
        session: str,
        model: str,
        time_s: float,
    ) -> None:
        """Keep a call.

        Args:
          segments: its prompt, in parts.
          messages, tools: its prompt, as it was sent.
          reply: what came back; tokens that the server did not count are counted here.
          session: the agent's name.
          model: the model's.
          time_s: when it was sent, seconds since 1970.
        """
        written = reply.text + "".join(call.name + call.arguments for call in reply.calls)
        units = len(self._encoder.encode(clean(written).encode()))
        counted = -int(-units // self._encoder.unit_bytes)
        usage = reply.usage
        output = counted if usage.output_tokens is None else usage.output_tokens
        cached = -1 if usage.cached_tokens is None else usage.cached_tokens
        self._builder.call(
            segments,
            session=session,
            model=model,
            time_s=time_s,
            output_tokens=output,
            cached_tokens=cached,
        )
        if self._path is not None:
            told: dict[str, Any] = {"completion_tokens": output}
            if usage.prompt_tokens is not None:
                told["prompt_tokens"] = usage.prompt_tokens
            if cached >= 0:
                told["prompt_tokens_details"] = {"cached_tokens": cached}
            line = {
                "timestamp": time_s,
                "session_id": session,
                "request": {
                    "model": model,
                    "messages": [chat_message(message) for message in messages],
                    **({"tools": [chat_tool(tool) for tool in tools]} if tools else {}),
                },
                "response": {"usage": told},
            }
            with open(self._path, "a", encoding="utf-8") as file:
                file.write(clean(compact(line)) + "\n")

    def log(self) -> PromptLog:
        """All calls so far.

        Returns:
          The log.
        """
        return self._builder.build()


def plain_segments(messages: Sequence[Message]) -> list[Segment]:
    """Segments of a prompt without parts of its own.

    Args:
      messages: the prompt.

    Returns:
      A segment each.
    """
    kinds = {"system": "system"}
    return [
        Segment(f"message {one.role}", kinds.get(one.role, "history"), one.content.encode())
        for one in messages
    ]
