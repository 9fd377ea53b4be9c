"""Texts as what a prefix cache compares: tokens, or an estimate of them."""

import dataclasses
from typing import Protocol


class Encoder(Protocol):
    """Text as what a prefix cache compares: tokens, each of `unit_bytes` bytes."""

    @property
    def name(self) -> str:
        """For reports."""
        ...

    @property
    def unit_bytes(self) -> float:
        """Bytes a token takes in the encoded form; an estimate may be fractional."""
        ...

    @property
    def exact(self) -> bool:
        """Whether tokens are a tokenizer's, not an estimate."""
        ...

    def encode(self, text: bytes) -> bytes:
        """Encode a text.

        Args:
          text: UTF-8, as a rule.

        Returns:
          Its tokens, one after another.
        """
        ...


@dataclasses.dataclass(frozen=True)
class ByteEstimate:
    """Tokens estimated from bytes: about 4 a token in English text and code.

    Attributes:
      unit_bytes: bytes a token.
    """

    unit_bytes: float = 4.0
    exact = False

    @property
    def name(self) -> str:
        """What a report calls it."""
        return f"estimated, {self.unit_bytes:g} bytes a token"

    def encode(self, text: bytes) -> bytes:
        """The text itself.

        Args:
          text: any bytes.

        Returns:
          The same.
        """
        return text
