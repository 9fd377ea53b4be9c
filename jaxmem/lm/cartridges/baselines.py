"""What trained cartridges are measured against: nothing, everything, caches made untrained."""

import jax
import jax.numpy as jnp
from jax import Array

from jaxmem.common import check_size
from jaxmem.lm.cartridges.prefix import take
from jaxmem.lm.cartridges.starts import check_slots
from jaxmem.lm.cartridges.study import Prepared, begin
from jaxmem.lm.model import Model
from jaxmem.recall.cartridges import Cartridge

BASELINES = (
    "no context",
    "full context",
    "first tokens",
    "random tokens",
    "attention",
    "attention matching",
)
"""Names of the caches that need no training."""

_STARTS = {"first tokens": "first", "attention": "attention", "attention matching": "matching"}


def baselines(
    prepared: Prepared, model: Model, slots: int, seed: int = 0
) -> dict[str, Cartridge | None]:
    """Every cache of `BASELINES` at one size.

    Args:
      prepared: from `prepare`.
      model: that reads them.
      slots: P, those of "full context" and "no context" excepted.
      seed: of "random tokens".

    Returns:
      Cartridges by name; None for no context.

    Raises:
      ValueError: if the document has fewer tokens than slots.
    """
    return {name: baseline(name, prepared, model, slots, seed) for name in BASELINES}


def baseline(
    name: str, prepared: Prepared, model: Model, slots: int, seed: int = 0
) -> Cartridge | None:
    """One of the caches of `baselines`.

    Args:
      name: one of `BASELINES`.
      prepared: from `prepare`.
      model: that reads it.
      slots: P.
      seed: of what is drawn.

    Returns:
      The cartridge, or None for no context.

    Raises:
      ValueError: if there is no such baseline, or the document has fewer tokens than slots.
    """
    if name not in BASELINES:
        raise ValueError(f"expected one of {', '.join(BASELINES)}, got {name!r}")
    if name == "no context":
        return None
    whole = prepared.reading.whole
    if name == "full context":
        return whole
    if name == "random tokens":
        check_slots(prepared.reading, slots)
        return take(whole, random_tokens(jax.random.key(seed), whole, slots))
    return begin(prepared, model, slots, _STARTS[name], seed)


def random_tokens(key: Array, whole: Cartridge, slots: int) -> Array:
    """Numbers of tokens drawn without replacement, anew for each layer and head.

    Args:
      key: PRNG key.
      whole: the document's whole prefix, N slots, keys [L, G, N, K].
      slots: P, at most N.

    Returns:
      [L, G, P] in rising order, the first token always among them.

    Raises:
      ValueError: if there are more slots than tokens.
    """
    check_size("slots", slots, 1, whole.slots)
    drawn = jax.random.uniform(key, whole.keys.shape[:3]).at[..., 0].set(2.0)
    return jnp.sort(jax.lax.top_k(drawn, slots)[1], axis=-1)


def nbytes(cartridge: Cartridge | None) -> int:
    """Bytes of a cartridge's keys, values and biases.

    Args:
      cartridge: or None.

    Returns:
      Bytes, 0 without one.
    """
    if cartridge is None:
        return 0
    parts = (cartridge.keys, cartridge.values, cartridge.bias)
    return sum(part.nbytes for part in parts if part is not None)
