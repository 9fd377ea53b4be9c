"""A stand-in for a language model that follows a list or a rule: for tests and for a first look."""

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from jaxmem.agents.messages import Message, Reply, Tool, ToolCall

Rule = Callable[[Sequence[Message], Sequence[Tool]], Reply]
"""From a prompt to a reply."""


def says(text: str) -> Reply:
    """A reply without calls.

    Args:
      text: of the reply.

    Returns:
      The reply.
    """
    return Reply(text)


def calls(name: str, /, **arguments: Any) -> Reply:
    """A reply that calls one function.

    Args:
      name: of the function.
      arguments: of the call.

    Returns:
      The reply; `Scripted` gives the call a number.
    """
    return Reply("", (ToolCall("", name, json.dumps(arguments, ensure_ascii=False)),))


class Scripted:
    """A language model that follows a script. It is rule-based: it shows machinery, not skill.

    Attributes:
      name: for reports.
      prompts: every prompt that it was sent.
    """

    def __init__(self, script: Iterable[Reply] | Rule, name: str = "scripted") -> None:
        """Take a script.

        Args:
          script: replies in order, or a rule that makes one of a prompt.
          name: for reports.
        """
        self.name = name
        self.prompts: list[tuple[Message, ...]] = []
        self._rule = script if callable(script) else None
        self._replies = iter(()) if callable(script) else iter(script)
        self._calls = 0

    def complete(self, messages: Sequence[Message], tools: Sequence[Tool] = ()) -> Reply:
        """The next reply of the list, or what the rule says.

        Args:
          messages: the prompt.
          tools: functions that may be called.

        Returns:
          The reply, its calls numbered.

        Raises:
          ValueError: if the list is at its end.
        """
        self.prompts.append(tuple(messages))
        if self._rule is not None:
            reply = self._rule(messages, tools)
        else:
            found = next(self._replies, None)
            if found is None:
                raise ValueError(f"expected a script of more than {len(self.prompts) - 1} replies")
            reply = found
        return reply._replace(calls=tuple(map(self._numbered, reply.calls)))

    def _numbered(self, call: ToolCall) -> ToolCall:
        self._calls += 1
        return call._replace(id=call.id or f"call_{self._calls}")
