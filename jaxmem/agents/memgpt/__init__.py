"""MemGPT on text: virtual context, a queue manager, function calls, storages, events."""

from jaxmem.agents.memgpt.agent import Agent, Turn
from jaxmem.agents.memgpt.events import (
    Event,
    login,
    system_message,
    timer,
    upload,
    user_message,
)
from jaxmem.agents.memgpt.functions import FUNCTIONS, SETS, Function, Parameter
from jaxmem.agents.memgpt.memory import Memory

__all__ = [
    "FUNCTIONS",
    "SETS",
    "Agent",
    "Event",
    "Function",
    "Memory",
    "Parameter",
    "Turn",
    "login",
    "system_message",
    "timer",
    "upload",
    "user_message",
]
