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
from jaxmem.agents.memgpt.functions import FUNCTIONS, SETS

__all__ = [
    "FUNCTIONS",
    "SETS",
    "Agent",
    "Event",
    "Turn",
    "login",
    "system_message",
    "timer",
    "upload",
    "user_message",
]
