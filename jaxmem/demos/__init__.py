"""The lecture's experiments, one function each, and the figures it states."""

from jaxmem.demos.agent_sessions import agent_sessions
from jaxmem.demos.cartridge_recall import cartridge_recall
from jaxmem.demos.context_cost import context_cost
from jaxmem.demos.dialogue_memory import dialogue_memory
from jaxmem.demos.lecture import Figure, LectureFigure, beside_lecture, lecture_figures
from jaxmem.demos.result import Demo, DemoResult, Extent, Table

DEMOS: dict[str, Demo] = {
    "01": Demo("What a context costs: memory, latency, throughput, break-even", context_cost),
    "02": Demo("Memory systems: what is remembered, and what it costs", dialogue_memory),
    "03": Demo("Agent sessions: what edits of a memory do to the prefix cache", agent_sessions),
    "04": Demo("Cartridges: what a small trained KV cache remembers", cartridge_recall),
}
"""Demos by number."""

__all__ = [
    "DEMOS",
    "Demo",
    "DemoResult",
    "Extent",
    "Figure",
    "LectureFigure",
    "Table",
    "beside_lecture",
    "lecture_figures",
]
