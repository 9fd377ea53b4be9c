"""Recall against state size: every linear memory on documents of 8 to 512 facts.

Prints:

placeholder
"""

from functools import partial

import jax
import jax.numpy as jnp

from jaxmem.common.table import text_table
from jaxmem.recall import accuracy, facts, paraphrase
from jaxmem.recall.memories import MEMORIES
from jaxmem.sweep import sweep

FACTS, SEEDS = 128, 8
DIMS = (16, 32, 64, 128)


def run(key: jax.Array, setting: dict[str, jax.Array], dim: int) -> dict[str, jax.Array]:
    """Share of facts that each memory of dim x dim floats recalls, asked in other words."""
    key_facts, key_ask = jax.random.split(key)
    keys, values = facts(key_facts, FACTS, dim)
    questions = paraphrase(key_ask, keys)
    found = {}
    for name, factory in MEMORIES.items():
        memory = factory()
        state, _ = memory.write_chunk(memory.init(dim, dim), keys, values)
        found[name] = accuracy(memory.read(state, questions), values, jnp.arange(FACTS))
    return found


def main() -> None:
    """One sweep a state size, one row a memory."""
    columns = {}
    for dim in DIMS:
        rows = sweep(partial(run, dim=dim), SEEDS, [{}], label=f"{dim} x {dim}").summary()
        columns[dim] = {
            row["metric"]: f"{row['mean']:.3f} ± {row['high'] - row['mean']:.3f}" for row in rows
        }
    headers = ["memory", *[f"{dim * dim:,} floats" for dim in DIMS]]
    print(text_table(headers, [[name, *[columns[d][name] for d in DIMS]] for name in MEMORIES]))


if __name__ == "__main__":
    main()
