"""Every call of a running agent as a log of prompts, for prices, the doctor and the cost model."""

from collections.abc import Iterable, Sequence

from jaxmem.agents.messages import Message, Reply
from jaxmem.prompts import LogBuilder, PromptLog, Segment
from jaxmem.prompts.encoder import Encoder


class Recorder:
    """Keeps each prompt once it was answered; equal parts are kept once."""

    def __init__(self, encoder: Encoder) -> None:
        """Start an empty log.

        Args:
          encoder: text to tokens.
        """
        self._builder = LogBuilder(encoder)
        self._encoder = encoder

    def add(
        self, segments: Iterable[Segment], reply: Reply, *, session: str, model: str, time_s: float
    ) -> None:
        """Keep a call.

        Args:
          segments: its prompt.
          reply: what came back; tokens that the server did not count are counted here.
          session: the agent's name.
          model: the model's.
          time_s: when it was sent, seconds since 1970.
        """
        written = reply.text + "".join(call.name + call.arguments for call in reply.calls)
        units = len(self._encoder.encode(written.encode("utf-8", "replace")))
        counted = -int(-units // self._encoder.unit_bytes)
        usage = reply.usage
        self._builder.call(
            segments,
            session=session,
            model=model,
            time_s=time_s,
            output_tokens=counted if usage.output_tokens is None else usage.output_tokens,
            cached_tokens=-1 if usage.cached_tokens is None else usage.cached_tokens,
        )

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
