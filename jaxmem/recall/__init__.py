"""What fits in a memory of fixed size: facts and questions, attention, memories, limits.

- `jaxmem.recall.memories`: linear memories, one matrix each.
- `jaxmem.recall.cartridges`: trained KV caches.
- `jaxmem.recall.limits`: closed forms and bounds.
"""

from jaxmem.recall import limits
from jaxmem.recall.attention import Read, attend, merge
from jaxmem.recall.facts import Document, facts, paraphrase
from jaxmem.recall.mqar import FILLER, QUERY, WRITE, Stream, accuracy, mqar

from jaxmem.recall import cartridges, memories  # isort: skip

__all__ = [
    "FILLER",
    "QUERY",
    "WRITE",
    "Document",
    "Read",
    "Stream",
    "accuracy",
    "attend",
    "cartridges",
    "facts",
    "limits",
    "memories",
    "merge",
    "mqar",
    "paraphrase",
]
