"""How a cartridge is trained: steps, rates, and which parts."""

import dataclasses
import math

from jaxmem.common import check_number, check_size


@dataclasses.dataclass(frozen=True)
class Recipe:
    """How a cartridge is trained.

    Attributes:
      steps: of the optimiser.
      batch: rows a step.
      learning_rate: of Adam, in units of each layer's root mean square key or value.
      warm_up: share of the steps over which the rate rises.
      floor: share of the rate that is left at the end; 1 for a constant rate.
      clip: largest norm of a gradient, or None.
      keys, values, bias: which parts are trained; a bias that is not there is made.
      evaluate: times that held-out rows are looked at; the best of these moments is kept.
      remat: whether memory is saved by computing everything twice.
    """

    steps: int = 100
    batch: int = 4
    learning_rate: float = 0.02
    warm_up: float = 0.05
    floor: float = 0.05
    clip: float | None = 1.0
    keys: bool = True
    values: bool = True
    bias: bool = False
    evaluate: int = 4
    remat: bool = False

    def __post_init__(self) -> None:
        for name in ("steps", "batch", "evaluate"):
            check_size(name, getattr(self, name))
        for name, high in (("learning_rate", 10.0), ("warm_up", 1.0), ("floor", 1.0)):
            check_number(name, getattr(self, name), 0.0, high, scalar=True)
        if self.clip is not None:
            check_number("clip", self.clip, 1e-12, scalar=True)
        if not (self.keys or self.values or self.bias):
            raise ValueError("expected keys, values or bias to be trained, got none of them")

    def rate(self, step: int) -> float:
        """The learning rate of a step: warm-up and cosine decay.

        Args:
          step: steps done.

        Returns:
          The rate.
        """
        rise = max(1.0, self.warm_up * self.steps)
        done = min(max((step - rise) / max(1.0, self.steps - rise), 0.0), 1.0)
        decay = self.floor + (1.0 - self.floor) * 0.5 * (1.0 + math.cos(math.pi * done))
        return self.learning_rate * min((step + 1.0) / rise, 1.0) * decay

    @property
    def kind(self) -> "Recipe":
        """The recipe without what changes no program: equal kinds share a compiled step."""
        return dataclasses.replace(
            self, steps=1, batch=1, learning_rate=0.0, warm_up=0.0, floor=0.0, evaluate=1
        )
