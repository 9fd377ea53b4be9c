"""An embedder that needs no model: words and pieces of words, hashed into a vector."""

import itertools
import math
import zlib
from collections.abc import Iterator, Sequence

import numpy as np

from jaxmem.agents.embedders.embedder import unit
from jaxmem.agents.words import words
from jaxmem.common import check_size

_PIECES = (3, 4)  # letters
_LONGEST = 64  # letters of a word that pieces are made of
_PIECE_WEIGHT = 1.0  # of all pieces of a word together, as much as the word itself


class HashingEmbedder:
    """Texts that share words, or words that share pieces, are near each other.

    v[h(f) mod D] += sign(f) weight(f) sqrt(count of f) over the features f of a text, to length 1

    It knows no meaning: "cat" and "kitten" are as far apart as any two words.

    Attributes:
      name: with the size.
      size: D.

    Source: Weinberger et al. 2009, arXiv:0902.2206.
    """

    def __init__(self, size: int = 384) -> None:
        """Choose a size.

        Args:
          size: numbers of a vector, D; fewer let more features fall together.

        Raises:
          ValueError: if it is below 8.
        """
        self.size = check_size("size", size, 8, 65_536)
        self.name = f"hashing-{self.size}"

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """The vectors of some texts.

        Args:
          texts: N of them.

        Returns:
          float32 [N, D].
        """
        found = np.zeros((len(texts), self.size), np.float32)
        for row, text in zip(found, texts):
            counts: dict[str, list[float]] = {}
            for feature, weight in _features(text):
                entry = counts.setdefault(feature, [weight, 0.0])
                entry[1] += 1.0
            for feature, (weight, count) in counts.items():
                code = zlib.crc32(feature.encode("utf-8", "replace"))
                sign = 1.0 if code >> 31 else -1.0
                row[(code & 0x7FFFFFFF) % self.size] += sign * weight * math.sqrt(count)
        return unit(found)


def _features(text: str) -> Iterator[tuple[str, float]]:
    """Words, pieces of longer ones, and neighbours among words of one letter."""
    found = words(text)
    for word in found:
        yield word, math.log1p(len(word))  # short words say less
        edged = f"<{word[:_LONGEST]}>"
        pieces = [f"#{edged[i : i + n]}" for n in _PIECES for i in range(len(edged) - n + 1)]
        for piece in pieces if len(word) > 2 else ():
            yield piece, _PIECE_WEIGHT * math.log1p(len(word)) / math.sqrt(len(pieces))
    for first, second in itertools.pairwise(found):
        if len(first) == len(second) == 1:
            yield f"{first}{second}", 1.0
