"""Two cartridges trained apart, read side by side: what each loses to the other's slots.

Prints (to ± 0.08):

questions about A, read with A: 0.99 right
questions about A, read with A and B: 0.61 right
questions about A, read with B: 0.00 right
attention that A's questions lose to B's slots: 0.41
"""

import jax
import jax.numpy as jnp
import optax

from jaxmem.recall import Document, accuracy, facts, paraphrase
from jaxmem.recall.cartridges import (
    Cartridge,
    attention_shares,
    compose,
    init_cartridge,
    train_cartridge,
)

FACTS, DIM, SLOTS, STEPS = 512, 64, 64, 1_500


def main() -> None:
    """Train A and B, ask A's questions of A alone and of both."""
    key_facts, key_train, key_ask = jax.random.split(jax.random.key(0), 3)
    both = facts(key_facts, 2 * FACTS, DIM)  # one vocabulary of 1,024 answers
    halves = [
        Document(both.keys[part], both.values[part]) for part in (slice(FACTS), slice(FACTS, None))
    ]

    def train(document: Document) -> Cartridge:
        return train_cartridge(
            key_train,
            init_cartridge(key_train, document, SLOTS),
            document,
            steps=STEPS,
            learning_rate=optax.cosine_decay_schedule(0.02, STEPS),
            key_norm=0.75,
            vocabulary=both.values,
        ).cartridge

    a, b = (train(document) for document in halves)
    questions = paraphrase(key_ask, halves[0].keys)
    for name, cartridge in (("A", a), ("A and B", compose(a, b)), ("B", b)):
        output = cartridge.read(questions).output
        right = float(accuracy(output, both.values, jnp.arange(FACTS)))
        print(f"questions about A, read with {name}: {right:.2f} right")
    lost = 1 - float(attention_shares([a, b], questions)[0].mean())
    print(f"attention that A's questions lose to B's slots: {lost:.2f}")


if __name__ == "__main__":
    main()
