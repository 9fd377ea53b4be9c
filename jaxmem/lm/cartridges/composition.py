"""Cartridges of several documents read together."""

from jaxmem.lm.cartridges.starts import reposition
from jaxmem.lm.config import Config
from jaxmem.lm.fit import first_question
from jaxmem.recall import cartridges
from jaxmem.recall.cartridges import Cartridge
from jaxmem.recall.cartridges.cartridge import drop


def compose(
    config: Config,
    first: Cartridge,
    *others: Cartridge,
    drop_sinks: bool = True,
    move: bool = False,
) -> Cartridge:
    """Cartridges side by side, as if their documents stood one after the other.

    Args:
      config: the model's shape.
      first: a cartridge of this model.
      others: more of them.
      drop_sinks: leave out the frozen slots of the others: each brought an attention sink, and
        more than one draws attention from the documents.
      move: turn the keys of each to positions behind those of the one before, and the questions
        behind all. Otherwise each stays at its own positions, and questions stand where those of
        the longest would.

    Returns:
      A cartridge of all their slots; frozen are the first's.

    Raises:
      ValueError: if one is no cartridge, they do not fit together, a position is beyond the
        model's, or nothing is left of one.

    Source: Eyuboglu et al. 2025, arXiv:2506.06266, section 5.4; sinks: arXiv:2608.30647.
    """
    for one in (first, *others):
        if not isinstance(one, Cartridge):
            raise ValueError(f"expected cartridges one by one, got {type(one).__name__}")
    parts, behind = [first], first_question(first)
    for other in others:
        if drop_sinks:
            other = drop(other, other.frozen)
        if move:
            other = reposition(config, other, behind)
            behind = first_question(other)
        parts.append(other)
    return cartridges.compose(*parts, drop_sinks=False)
