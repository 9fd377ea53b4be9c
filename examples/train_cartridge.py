"""Train a cartridge of 64 slots for 512 facts, save it, load it, and ask it.

Prints (to ± 0.04):

untrained: recalls 0.12
1,000 steps: recalls 1.00, keys 0.60 long
toy.safetensors, 33,080 bytes: recalls 1.00
"""

import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import optax

from jaxmem.recall import accuracy, facts, paraphrase
from jaxmem.recall.cartridges import (
    Cartridge,
    init_cartridge,
    load_cartridge,
    save_cartridge,
    train_cartridge,
)

FACTS, DIM, SLOTS, STEPS = 512, 64, 64, 1_000


def main() -> None:
    """Train, save, load, ask."""
    key_facts, key_train, key_ask = jax.random.split(jax.random.key(0), 3)
    document = facts(key_facts, FACTS, DIM)
    questions = paraphrase(key_ask, document.keys)

    def recalled(cartridge: Cartridge) -> float:
        output = cartridge.read(questions).output
        return float(accuracy(output, document.values, jnp.arange(FACTS)))

    start = init_cartridge(key_train, document, SLOTS)
    print(f"untrained: recalls {recalled(start):.2f}")
    trained = train_cartridge(
        key_train,
        start,
        document,
        steps=STEPS,
        learning_rate=optax.cosine_decay_schedule(0.05, STEPS),
        batch=128,
        key_norm=0.6,  # keeps the attention over slots from saturating
    )
    length = float(trained.history.key_norm[-1])
    print(f"{STEPS:,} steps: recalls {recalled(trained.cartridge):.2f}, keys {length:.2f} long")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "toy.safetensors"
        save_cartridge(path, trained.cartridge, {"seed": "0"})
        loaded, _ = load_cartridge(path)
        print(f"{path.name}, {path.stat().st_size:,} bytes: recalls {recalled(loaded):.2f}")


if __name__ == "__main__":
    main()
