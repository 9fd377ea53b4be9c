"""Recall against state size: every linear memory on 128 facts, asked in other words, 8 seeds.

Prints (to ± 0.02):

memory                   floats   16 x 16        32 x 32        64 x 64
-----------------------  -------  -------------  -------------  -------------
sum                      1.0 d^2  0.089 ± 0.017  0.412 ± 0.038  0.974 ± 0.016
delta, rate 1            1.0 d^2  0.087 ± 0.018  0.201 ± 0.019  0.504 ± 0.027
delta, rate 0.1          1.0 d^2  0.086 ± 0.025  0.427 ± 0.041  0.967 ± 0.014
gated delta, 0.999, 0.1  1.0 d^2  0.085 ± 0.021  0.429 ± 0.036  0.955 ± 0.013
titans                   3.0 d^2  0.083 ± 0.024  0.417 ± 0.030  0.966 ± 0.012
ttt                      2.0 d^2  0.064 ± 0.019  0.269 ± 0.025  0.594 ± 0.034
recursive least squares  2.0 d^2  0.106 ± 0.024  0.516 ± 0.027  0.997 ± 0.003
ridge (mesa)             2.0 d^2  0.106 ± 0.024  0.516 ± 0.027  0.997 ± 0.003
"""

from functools import partial

import jax
import jax.numpy as jnp

from jaxmem.common.table import text_table
from jaxmem.recall import accuracy, facts, paraphrase
from jaxmem.recall.memories import (
    delta_rule,
    gated_delta_rule,
    outer_product,
    recursive_least_squares,
    ridge,
    state_floats,
    titans,
    ttt,
)
from jaxmem.sweep import sweep

FACTS, SEEDS = 128, 8
DIMS = (16, 32, 64)
MEMORIES = {
    "sum": outer_product(),
    "delta, rate 1": delta_rule(1.0),
    "delta, rate 0.1": delta_rule(0.1),
    "gated delta, 0.999, 0.1": gated_delta_rule(0.999, 0.1),
    "titans": titans(),
    "ttt": ttt(),
    "recursive least squares": recursive_least_squares(),
    "ridge (mesa)": ridge(),
}


def run(key: jax.Array, setting: dict[str, jax.Array], dim: int) -> dict[str, jax.Array]:
    """Share of facts that each memory of a dim x dim matrix recalls, asked in other words."""
    key_facts, key_ask = jax.random.split(key)
    keys, values = facts(key_facts, FACTS, dim)
    questions = paraphrase(key_ask, keys)
    found = {}
    for name, memory in MEMORIES.items():
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
    headers = ["memory", "floats", *[f"{dim} x {dim}" for dim in DIMS]]
    lines = [
        [name, f"{state_floats(memory, 64, 64) / 64**2:.1f} d^2", *[columns[d][name] for d in DIMS]]
        for name, memory in MEMORIES.items()
    ]
    print(text_table(headers, lines))


if __name__ == "__main__":
    main()
