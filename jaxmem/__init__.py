"""jaxmem: what giving a language model a memory costs, and what it remembers.

- `jaxmem.roofline`: the time and memory that a context takes on an accelerator.
- `jaxmem.prefix_cache`: how much of a request trace a prefix cache of any size serves.
- `jaxmem.recall`: what fits in a memory of fixed size: linear memories, cartridges, limits.
- `jaxmem.dialogue`: what memory systems remember of simulated conversations, at what cost.
- `jaxmem.sweep`: seeds x settings in one call.
- `jaxmem.results`: tidy records, to JSON and CSV.
"""

from jaxmem import dialogue, prefix_cache, recall, results, roofline, sweep

__version__ = "0.1.0"
__all__ = ["__version__", "dialogue", "prefix_cache", "recall", "results", "roofline", "sweep"]
