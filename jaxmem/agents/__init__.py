"""Agents with a memory on real text, with any language model.

- `Agent`: MemGPT; `memgpt` has its events and functions.
- `Endpoint`, `LocalModel`, `Scripted`: language models, each an `LLM`.
- `SqliteStore`: recall and archival storage; `embedders` for it.
- `tasks`: what agents are measured by.
"""

from jaxmem.agents import embedders, memgpt, tasks
from jaxmem.agents.endpoint import Endpoint
from jaxmem.agents.local_model import LocalModel
from jaxmem.agents.memgpt import Agent, Turn
from jaxmem.agents.messages import LLM, Message, Reply, Tool, ToolCall, Usage
from jaxmem.agents.scripted import Scripted
from jaxmem.agents.stores import SqliteStore, Store

__all__ = [
    "LLM",
    "Agent",
    "Endpoint",
    "LocalModel",
    "Message",
    "Reply",
    "Scripted",
    "SqliteStore",
    "Store",
    "Tool",
    "ToolCall",
    "Turn",
    "Usage",
    "embedders",
    "memgpt",
    "tasks",
]
