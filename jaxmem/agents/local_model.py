"""A model of `jaxmem.lm` as an agent's: tools in its prompt, calls out of its text."""

import json
import re
from collections.abc import Sequence

import jax
import numpy as np

from jaxmem.agents.messages import Message, Reply, Tool, ToolCall, Usage, chat_tool, compact
from jaxmem.common import check_number, check_size
from jaxmem.lm import Model, generate
from jaxmem.prompts.tokens import TokenEncoder

_PIECE = 128  # prompts are padded to a multiple, so that few programs are compiled
_CALL = re.compile(r"<tool_call>\s*(.*?)\s*(?:</tool_call>|$)", re.DOTALL)
_NAME = re.compile(r'"name"\s*:\s*"([^"\\]+)"')
_TOOLS = """\


You may call one or more of these functions, given as JSON:
{tools}

For each call answer with its name and arguments as JSON between tags, and nothing after it:
<tool_call>
{{"name": "...", "arguments": {{...}}}}
</tool_call>"""


class LocalModel:
    """A language model on this machine; an `LLM`.

    Calls are written as Qwen's and Hermes' models do. They are only ever read out of what the
    model itself writes, never out of a prompt.

    Attributes:
      name: of the model.
      encoder: text to its tokens, by which an agent counts.
    """

    def __init__(
        self, model: Model, *, tokens: int = 256, temperature: float = 0.0, seed: int = 0
    ) -> None:
        """Choose a model.

        Args:
          model: from `jaxmem.lm.load_model` or `smollm2`.
          tokens: of an answer at most.
          temperature: 0 takes the likeliest token each time.
          seed: of the draws of a temperature above 0.

        Raises:
          ValueError: if a number is out of range.
        """
        self.name = model.name
        self.encoder = TokenEncoder(model.tokenizer.wrapped, model.name)
        self._model = model
        self._tokens = check_size("tokens", tokens, 1, model.config.positions - 1)
        check_number("temperature", temperature, 0.0, 1e6, scalar=True)
        self._temperature = temperature
        self._key = jax.random.key(check_size("seed", seed, 0))

    def complete(self, messages: Sequence[Message], tools: Sequence[Tool] = ()) -> Reply:
        """One call of the model.

        Args:
          messages: the prompt.
          tools: functions that may be called.

        Returns:
          The reply.

        Raises:
          ValueError: if the prompt leaves no room for an answer.
        """
        tokenizer, config = self._model.tokenizer, self._model.config
        prompt = tokenizer.chat([_turn(one) for one in _with_tools(messages, tools)])
        if len(prompt) + self._tokens > config.positions:
            raise ValueError(
                f"{self.name}: expected a prompt of at most {config.positions - self._tokens:,} "
                f"tokens, got {len(prompt):,}: make the agent's window smaller"
            )
        length = min(-(-len(prompt) // _PIECE) * _PIECE, config.positions - self._tokens)
        ids = np.zeros((1, length), np.int32)
        ids[0, : len(prompt)] = prompt
        self._key, key = jax.random.split(self._key)
        ends = sorted({tokenizer.end, tokenizer.eos})
        made = generate(
            self._model.params, config, ids, np.array([len(prompt)]),
            steps=self._tokens, key=key, temperature=self._temperature, stop=ends,
        )  # fmt: skip
        told = np.asarray(made.ids[0, : int(made.lengths[0])])
        text = tokenizer.decode(told[~np.isin(told, ends)])
        return parsed(text)._replace(usage=Usage(len(prompt), len(told)))


def parsed(text: str) -> Reply:
    """What a model wrote, its calls taken out.

    Args:
      text: with calls between tags.

    Returns:
      The reply. A call that is no JSON keeps what was written as its arguments: whoever executes
      it tells the model so.
    """
    calls = []
    for number, found in enumerate(_CALL.finditer(text)):
        written = found[1]
        try:
            value = json.loads(written)
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, dict) and isinstance(value.get("name"), str):
            arguments = value.get("arguments", value.get("parameters", {}))
            told = arguments if isinstance(arguments, str) else compact(arguments)
            calls.append(ToolCall(f"call_{number}", value["name"], told))
        else:
            name = _NAME.search(written)
            calls.append(ToolCall(f"call_{number}", name[1] if name else "?", written))
    return Reply(_CALL.sub("", text).strip(), tuple(calls))


def _with_tools(messages: Sequence[Message], tools: Sequence[Tool]) -> list[Message]:
    """The prompt with the tools at the end of its first message."""
    if not tools:
        return list(messages)
    told = _TOOLS.format(tools="\n".join(compact(chat_tool(tool)["function"]) for tool in tools))
    if messages and messages[0].role == "system":
        return [messages[0]._replace(content=messages[0].content + told), *messages[1:]]
    return [Message("system", told.strip()), *messages]


def _turn(message: Message) -> tuple[str, str]:
    if message.role == "tool":
        return "user", f"<tool_response>\n{message.content}\n</tool_response>"
    parts = [message.content] if message.content else []
    for call in message.calls:
        try:
            arguments = json.loads(call.arguments or "{}")
        except (ValueError, RecursionError):
            arguments = call.arguments
        written = compact({"name": call.name, "arguments": arguments})
        parts.append(f"<tool_call>\n{written}\n</tool_call>")
    return message.role, "\n".join(parts)
