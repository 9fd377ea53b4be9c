"""Cartridges of a language model: a document trained into a small KV cache, and used.

- `prepare` and `make`: the whole path, from a text to a cartridge.
- `read_document`, `course_of`, `train`: its steps one by one.
- `start_cartridge`, `evict`, `attention_matching`: smaller caches at once, without training.
- `answer`: a question put to one; `exam`, `grade`, `closed`: what is known afterwards.
- `compose`, `reposition`; `save`, `load`; `formats`: those of PEFT, torch and Hugging Face.
"""

from jaxmem.lm.cartridges.answers import answer
from jaxmem.lm.cartridges.compaction import attention_matching, evict, reference_queries
from jaxmem.lm.cartridges.composition import compose
from jaxmem.lm.cartridges.evaluation import closed, exam, grade
from jaxmem.lm.cartridges.files import load, save
from jaxmem.lm.cartridges.reading import course_of, read_document
from jaxmem.lm.cartridges.recipe import Recipe
from jaxmem.lm.cartridges.starts import reposition, start_cartridge
from jaxmem.lm.cartridges.study import make, prepare
from jaxmem.lm.cartridges.training import train

__all__ = [
    "Recipe",
    "answer",
    "attention_matching",
    "closed",
    "compose",
    "course_of",
    "evict",
    "exam",
    "grade",
    "load",
    "make",
    "prepare",
    "read_document",
    "reference_queries",
    "reposition",
    "save",
    "start_cartridge",
    "train",
]
