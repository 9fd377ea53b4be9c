"""Memory systems: full context, RAG, mem0 and its graph, MemGPT, each a `System(write, read)`."""

from jaxmem.dialogue.questions import NONE
from jaxmem.dialogue.reader import answer, statements
from jaxmem.dialogue.systems.extraction import LECTURE_RATES, PERFECT, Rates
from jaxmem.dialogue.systems.full_context import full_context
from jaxmem.dialogue.systems.mem0 import mem0, mem0g
from jaxmem.dialogue.systems.memgpt import memgpt
from jaxmem.dialogue.systems.retrieval import rag, rag_messages
from jaxmem.dialogue.systems.store import Policy
from jaxmem.dialogue.systems.system import PURPOSES, Ledger, System, ledger, one_answer

__all__ = [
    "LECTURE_RATES",
    "NONE",
    "PERFECT",
    "PURPOSES",
    "Ledger",
    "Policy",
    "Rates",
    "System",
    "answer",
    "full_context",
    "ledger",
    "mem0",
    "mem0g",
    "memgpt",
    "one_answer",
    "rag",
    "rag_messages",
    "statements",
]
