"""Linear memories of fixed size: `init`, `write`, `write_chunk` and `read` of one state."""

from collections.abc import Callable

from jaxmem.recall.memories.cross_entropy import cross_entropy_map
from jaxmem.recall.memories.delta import delta_rule, gated_delta_rule, longhorn
from jaxmem.recall.memories.least_squares import least_squares, recursive_least_squares, ridge
from jaxmem.recall.memories.memory import Gates, Memory, state_floats
from jaxmem.recall.memories.sums import decay, outer_product
from jaxmem.recall.memories.titans import titans
from jaxmem.recall.memories.ttt import ttt

# Each can be called without arguments.
MEMORIES: dict[str, Callable[..., Memory]] = {
    "outer_product": outer_product,
    "decay": decay,
    "delta_rule": delta_rule,
    "gated_delta_rule": gated_delta_rule,
    "longhorn": longhorn,
    "titans": titans,
    "ttt": ttt,
    "recursive_least_squares": recursive_least_squares,
    "ridge": ridge,
}

__all__ = [
    "MEMORIES",
    "Gates",
    "Memory",
    "cross_entropy_map",
    "decay",
    "delta_rule",
    "gated_delta_rule",
    "least_squares",
    "longhorn",
    "outer_product",
    "recursive_least_squares",
    "ridge",
    "state_floats",
    "titans",
    "ttt",
]
