"""What a cartridge is trained on: conversations about a document.

- `template_conversations`: questions made by rule from the document's own sentences; english,
  tagging, phrases, clauses and forms are the rules.
- `self_study`: a model asks itself, after seed prompts of five kinds, and answers.
- `read_questions`: those that a user brings.
- `loosened`: the same questions with answers out of order, for distillation.
"""

from jaxmem.lm.self_study.conversations import (
    Conversation,
    load_conversations,
    read_questions,
    save_conversations,
    shared_runs,
    without_shared_runs,
)
from jaxmem.lm.self_study.loose import loosened
from jaxmem.lm.self_study.sampled import self_study
from jaxmem.lm.self_study.seeds import SEED_KINDS
from jaxmem.lm.self_study.templates import template_conversations

__all__ = [
    "SEED_KINDS",
    "Conversation",
    "load_conversations",
    "loosened",
    "read_questions",
    "save_conversations",
    "self_study",
    "shared_runs",
    "template_conversations",
    "without_shared_runs",
]
