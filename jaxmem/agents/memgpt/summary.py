"""The recursive summary: the earlier one and the messages that leave become the next."""

from collections.abc import Sequence

from jaxmem.agents.memgpt.context_queue import Unit
from jaxmem.agents.memgpt.instructions import SUMMARISE
from jaxmem.agents.memgpt.prompt import count
from jaxmem.agents.messages import LLM, Message, Reply, clean
from jaxmem.prompts.encoder import Encoder


def summary_prompt(earlier: str, units: Sequence[Unit], words: int) -> list[Message]:
    """What the summariser reads.

    Args:
      earlier: summary so far, or "".
      units: that leave, oldest first.
      words: of the answer at most.

    Returns:
      A prompt.
    """
    lines = [f"Earlier summary: {earlier or 'none'}", "", "Messages:"]
    for message in (message for unit in units for message in unit.messages):
        called = [f" {call.name}({call.arguments})" for call in message.calls]
        lines.append(f"{message.role}: {message.content}{''.join(called)}")
    return [Message("system", SUMMARISE.format(words=words)), Message("user", "\n".join(lines))]


class Summariser:
    """Writes summaries by a language model, in several steps where much leaves at once."""

    def __init__(self, llm: LLM, encoder: Encoder, window: int, tokens: int) -> None:
        """Choose a model.

        Args:
          llm: that writes.
          encoder: text to tokens.
          window: tokens that the model sees at once.
          tokens: of a summary at most.
        """
        self._llm, self._encoder = llm, encoder
        self._room, self._tokens = max(1, window * 3 // 4), tokens
        self.calls: list[tuple[list[Message], Reply]] = []

    def write(self, earlier: str, units: Sequence[Unit]) -> str:
        """The next summary.

        Args:
          earlier: summary so far, or "".
          units: that leave, oldest first.

        Returns:
          Its text, cut where it is too long. The calls that it took are in `calls`.

        Raises:
          ValueError: what the model's call raises, or if it answers nothing.
        """
        prompt = summary_prompt(earlier, units, max(10, self._tokens * 3 // 5))
        size = sum(count(self._encoder, message.content.encode()) for message in prompt)
        if size > self._room and len(units) > 1:
            half = len(units) // 2
            return self.write(self.write(earlier, units[:half]), units[half:])
        reply = self._llm.complete(prompt)
        self.calls.append((prompt, reply))
        text = clean(reply.text).strip()
        if not text:
            raise ValueError(f"{self._llm.name}: expected a summary, got an empty answer")
        while count(self._encoder, text.encode()) > self._tokens:
            text = text[: len(text) * 9 // 10].rstrip()
        return text
