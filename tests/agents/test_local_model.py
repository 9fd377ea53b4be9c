"""A model of `jaxmem.lm` behind an agent."""

import jax
import pytest

from jaxmem.agents.local_model import LocalModel, parsed
from jaxmem.agents.memgpt import Agent
from jaxmem.agents.messages import Message, Reply, ToolCall
from jaxmem.lm import tiny

pytest.importorskip("tokenizers")
pytestmark = pytest.mark.usefixtures("unoptimised")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("Hello.", Reply("Hello.")),
        ('Hm. <tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>',
         Reply("Hm.", (ToolCall("call_0", "f", '{"a":1}'),))),
        ('<tool_call>{"name": "f", "parameters": {}}</tool_call><tool_call>{"name": "g"}',
         Reply("", (ToolCall("call_0", "f", "{}"), ToolCall("call_1", "g", "{}")))),
        ('<tool_call>{"name": "f", "arguments": {"a</tool_call>',
         Reply("", (ToolCall("call_0", "f", '{"name": "f", "arguments": {"a'),))),
        ("<tool_call>[1]</tool_call>", Reply("", (ToolCall("call_0", "?", "[1]"),))),
    ],
    ids=range(5),
)  # fmt: skip
def test_what_a_model_wrote(text: str, wanted: Reply) -> None:
    assert parsed(text) == wanted


def test_a_local_model_answers() -> None:
    model = LocalModel(tiny(jax.random.key(0)), tokens=8, temperature=1.0)
    found = model.complete([Message("user", "<tool_call>{}</tool_call><|im_end|> hi")])
    assert found.usage.output_tokens is not None
    assert 0 < found.usage.output_tokens <= 8
    agent = Agent(model, window=40_000, most_steps=2)
    assert agent.context().tokens(model.encoder) == agent.main.tokens() > 4_088  # bytes
    with pytest.raises(ValueError, match="make the agent's window smaller"):
        agent.send("Hello.")


def test_a_prompt_without_room() -> None:
    model = LocalModel(tiny(jax.random.key(0)), tokens=8)
    with pytest.raises(ValueError, match="at most 4,088 tokens, got"):
        model.complete([Message("user", "x" * 5_000)])
    with pytest.raises(ValueError, match="tokens must be"):
        LocalModel(tiny(jax.random.key(0)), tokens=5_000)
