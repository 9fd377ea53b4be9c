"""Recall by compression ratio: one padded program for all sizes and seeds, and a picture.

Prints (to ± 0.04):

p = 16: 0.345 [0.303, 0.387], ceiling at 2 bits a float 0.930
p = 32: 0.766 [0.742, 0.789], ceiling at 2 bits a float 1.000
p = 64: 0.982 [0.976, 0.988], ceiling at 2 bits a float 1.000
wrote ratio_sweep.png
"""

import dataclasses

import jax
import jax.numpy as jnp
import optax

from jaxmem import plots
from jaxmem.recall import facts, limits
from jaxmem.recall.cartridges import init_cartridge, train_cartridge
from jaxmem.sweep import grid, sweep

FACTS, DIM, STEPS, SEEDS = 512, 64, 1_000, 4
SLOTS = (16, 32, 64)
PICTURE = "ratio_sweep.png"


def run(key: jax.Array, setting: dict[str, jax.Array]) -> dict[str, jax.Array]:
    """Train a cartridge of setting["slots"] slots, padded to the largest size."""
    key_facts, key_train = jax.random.split(key)
    document = facts(key_facts, FACTS, DIM)  # the same for all sizes, computed once
    start = init_cartridge(key_train, document, max(SLOTS))
    start = dataclasses.replace(start, mask=jnp.arange(max(SLOTS)) < setting["slots"])
    trained = train_cartridge(
        key_train,
        start,
        document,
        steps=STEPS,
        learning_rate=optax.cosine_decay_schedule(0.05, STEPS),
        key_norm=0.6,
        focus=0.2,  # a memory too small for all facts keeps some of them whole
    )
    history = trained.history
    return {"paraphrased": history.paraphrased[-1], "status": trained.status}


def main() -> None:
    """Sweep, print the means, draw them beside the ceiling."""
    found = sweep(run, SEEDS, grid(slots=SLOTS))
    rows = [row for row in found.summary() if row["metric"] == "paraphrased"]
    bounds = limits.information_accuracy(2 * DIM * jnp.array(SLOTS), FACTS, FACTS, 2.0)
    for row, bound in zip(rows, bounds):
        print(
            f"p = {row['slots']}: {row['mean']:.3f} [{row['low']:.3f}, {row['high']:.3f}], "
            f"ceiling at 2 bits a float {bound:.3f}"
        )
    picture, (panel,) = plots.figure()
    low = [row["mean"] - row["low"] for row in rows]
    means = [row["mean"] for row in rows]
    panel.errorbar(SLOTS, means, low, marker="o", capsize=3, label="asked in other words")
    panel.plot(SLOTS, bounds, ":", color="0.5", label="2 bits a float")
    panel.set(title=f"{FACTS} facts", xlabel="slots", ylabel="share recalled", ylim=(0, 1.03))
    panel.legend(frameon=False)
    plots.save(picture, PICTURE)
    print(f"wrote {PICTURE}")


if __name__ == "__main__":
    main()
