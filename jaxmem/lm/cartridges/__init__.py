"""Cartridges of a language model: a document trained into a small KV cache, and used.

- reading: a document in the model's context, whole or by windows (`read_document`).
- what is asked about it: `template_conversations`, `self_study`, `read_questions`.
- smaller caches at once: `start_cartridge`, `evict`, `attention_matching`.
- training: `course_of`, `train`; what is known afterwards: `exam`, `grade`, `closed`.
- files: `save`, `load`; PEFT folders, `.pt` files and Hugging Face caches in their own modules.
"""

from jaxmem.lm.cartridges.compaction import attention_matching, evict, reference_queries
from jaxmem.lm.cartridges.composition import compose
from jaxmem.lm.cartridges.conversations import Conversation
from jaxmem.lm.cartridges.evaluation import closed, exam, grade
from jaxmem.lm.cartridges.files import load, save
from jaxmem.lm.cartridges.reading import course_of, read_document
from jaxmem.lm.cartridges.self_study import self_study
from jaxmem.lm.cartridges.starts import reposition, start_cartridge
from jaxmem.lm.cartridges.templates import template_conversations
from jaxmem.lm.cartridges.training import Recipe, train

__all__ = [
    "Conversation",
    "Recipe",
    "attention_matching",
    "closed",
    "compose",
    "course_of",
    "evict",
    "exam",
    "grade",
    "load",
    "read_document",
    "reference_queries",
    "reposition",
    "save",
    "self_study",
    "start_cartridge",
    "template_conversations",
    "train",
]
