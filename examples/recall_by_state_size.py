"""Recall against state size: every linear memory on 128 facts, asked in other words, 8 seeds.

Prints (to ± 0.01):

memory                   256 floats     1,024 floats   4,096 floats   16,384 floats
-----------------------  -------------  -------------  -------------  -------------
outer_product            0.089 ± 0.017  0.412 ± 0.038  0.974 ± 0.016  1.000 ± 0.000
decay                    0.071 ± 0.026  0.363 ± 0.028  0.774 ± 0.025  0.984 ± 0.011
delta_rule               0.087 ± 0.018  0.201 ± 0.019  0.504 ± 0.027  0.977 ± 0.016
gated_delta_rule         0.088 ± 0.019  0.184 ± 0.009  0.396 ± 0.013  0.728 ± 0.027
longhorn                 0.120 ± 0.020  0.326 ± 0.010  0.815 ± 0.041  1.000 ± 0.000
titans                   0.083 ± 0.024  0.417 ± 0.030  0.966 ± 0.012  1.000 ± 0.000
ttt                      0.064 ± 0.019  0.269 ± 0.025  0.594 ± 0.034  0.958 ± 0.014
recursive_least_squares  0.106 ± 0.024  0.516 ± 0.027  0.997 ± 0.003  1.000 ± 0.000
ridge                    0.106 ± 0.024  0.516 ± 0.027  0.997 ± 0.003  1.000 ± 0.000
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
