"""What an embedder is: texts to vectors of length 1."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np


class Embedder(Protocol):
    """Texts as vectors, near each other where the texts are about the same."""

    @property
    def name(self) -> str:
        """Says which embedder it is: vectors of two names are not compared."""
        ...

    @property
    def size(self) -> int:
        """Numbers of a vector, D."""
        ...

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """The vectors of some texts.

        Args:
          texts: N of them.

        Returns:
          float32 [N, D], each of length 1, or 0 for a text without anything in it.
        """
        ...


def unit(vectors: np.ndarray) -> np.ndarray:
    """Vectors at length 1, those of length 0 as they are.

    Args:
      vectors: [N, D].

    Returns:
      float32 [N, D].
    """
    found = np.asarray(vectors, np.float32)
    length = np.linalg.norm(found.astype(np.float64), axis=-1, keepdims=True)
    return (found / np.where(length > 0, length, 1.0)).astype(np.float32)
