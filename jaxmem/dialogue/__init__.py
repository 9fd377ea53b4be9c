"""What a memory system remembers, and what each answer cost: simulated conversations.

A world of conversations (`World`, `generate`, `ask`), memory systems as pairs of pure functions
(`jaxmem.dialogue.systems`), and their judgement (`evaluate`, `compare`, `error_sweep`). No language
model is called: each of its judgements is a rule with an error rate, so that mechanisms can be told
apart and each error can be swept. What comes out shows mechanisms, not how good a product is.
"""

from jaxmem.dialogue import systems
from jaxmem.dialogue.conversation import Conversation, generate
from jaxmem.dialogue.error_sweep import error_sweep, sensitivity
from jaxmem.dialogue.judging import (
    Comparison,
    Judged,
    accuracy,
    compare,
    evaluate,
    per_question,
    records,
)
from jaxmem.dialogue.questions import KINDS, LECTURE_KINDS, Questions, ask
from jaxmem.dialogue.world import LOCOMO, World

__all__ = [
    "KINDS",
    "LECTURE_KINDS",
    "LOCOMO",
    "Comparison",
    "Conversation",
    "Judged",
    "Questions",
    "World",
    "accuracy",
    "ask",
    "compare",
    "error_sweep",
    "evaluate",
    "generate",
    "per_question",
    "records",
    "sensitivity",
    "systems",
]
