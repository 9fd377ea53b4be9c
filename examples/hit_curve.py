"""How much of a chat service's prompts does a prefix cache serve, and how large must it be?

Prints:

 200 blocks:  20.7 % of the prompt tokens
2000 blocks:  57.5 % of the prompt tokens
20000 blocks:  85.2 % of the prompt tokens
half of all blocks hit from 1,086 blocks on
"""

import jax
import numpy as np

from jaxmem.prefix_cache import lru_curve, synthetic_trace

USERS, TURNS = 200, 8
CAPACITIES = (200, 2000, 20_000)


def main() -> None:
    """Draw a trace, take the whole curve in one pass, read it at a few places."""
    trace = synthetic_trace(jax.random.key(0), users=USERS, turns=TURNS)
    curve = lru_curve(trace, "vllm")
    for capacity, ratio in zip(CAPACITIES, curve.token_ratio(np.array(CAPACITIES))):
        print(f"{capacity:4d} blocks: {ratio:6.1%} of the prompt tokens".replace("%", " %"))
    print(f"half of all blocks hit from {float(curve.capacity_for(0.5)):,.0f} blocks on")


if __name__ == "__main__":
    main()
