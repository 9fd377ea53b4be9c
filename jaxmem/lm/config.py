"""The shape of a decoder-only transformer, and what its parameters are called."""

import dataclasses
import math
from typing import NamedTuple

from jaxmem.common import check_flag, check_number, check_size


class Llama3Scaling(NamedTuple):
    """RoPE frequencies of Llama 3.1 and later, for contexts longer than it was trained on.

    factor: by which the slow frequencies are divided.
    low, high: wavelengths over original / low are divided, those under original / high stay.
    original: context length of the first training, tokens.
    """

    factor: float
    low: float
    high: float
    original: int


@dataclasses.dataclass(frozen=True)
class Config:
    """A decoder of the Llama family: RMSNorm, rotary positions, grouped attention, SwiGLU.

    Hashable, so that it can be a static argument of jit.

    Attributes:
      vocabulary: tokens that there are, V.
      hidden: width of the residual stream, D.
      layers: L.
      heads: query heads, H.
      kv_heads: key and value heads, G; divides H.
      head_dim: width of a head, K.
      feed_forward: width of the gated feed-forward layer, F.
      positions: tokens that it was made for.
      norm_eps: epsilon of RMSNorm.
      rope_theta: base of the rotary frequencies.
      rope_factor: all frequencies are divided by it (linear scaling).
      rope_llama3: Llama 3's scaling instead, or None.
      qkv_bias: whether query, key and value products have a bias (Qwen2).
      qk_norm: whether queries and keys are normalised a head (Qwen3).
      tied: whether the head is the embedding.
    """

    vocabulary: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    feed_forward: int
    positions: int
    norm_eps: float = 1e-5
    rope_theta: float = 10_000.0
    rope_factor: float = 1.0
    rope_llama3: Llama3Scaling | None = None
    qkv_bias: bool = False
    qk_norm: bool = False
    tied: bool = False

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.type in (int, "int"):
                check_size(field.name, value, 1, 2**31 - 1)
            if field.type in (bool, "bool"):
                check_flag(field.name, value)
        if self.heads % self.kv_heads:
            raise ValueError(f"kv_heads must divide heads, got {self.kv_heads} and {self.heads}")
        if self.head_dim % 2:
            raise ValueError(f"head_dim must be even, got {self.head_dim}")
        for name in ("norm_eps", "rope_theta", "rope_factor"):
            check_number(name, getattr(self, name), 0.0, 1e30, scalar=True)
        if self.rope_theta <= 1.0 or self.rope_factor <= 0.0:
            raise ValueError(
                f"expected rope_theta above 1 and rope_factor above 0, got {self.rope_theta} "
                f"and {self.rope_factor}"
            )
        if self.rope_llama3 is not None:
            _check_scaling(self.rope_llama3)

    @property
    def scale(self) -> float:
        """Inverse temperature of attention, 1 / sqrt(K)."""
        return 1.0 / math.sqrt(self.head_dim)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of each parameter by its name; those of layers are stacked in front.

        Products are stored [in, out]: a row of activations times the matrix.
        """
        hidden, layers, dim = self.hidden, self.layers, self.head_dim
        found: dict[str, tuple[int, ...]] = {
            "embedding": (self.vocabulary, hidden),
            "norm": (hidden,),
            "layers.attention_norm": (layers, hidden),
            "layers.query": (layers, hidden, self.heads * dim),
            "layers.key": (layers, hidden, self.kv_heads * dim),
            "layers.value": (layers, hidden, self.kv_heads * dim),
            "layers.output": (layers, self.heads * dim, hidden),
            "layers.feed_forward_norm": (layers, hidden),
            "layers.gate": (layers, hidden, self.feed_forward),
            "layers.up": (layers, hidden, self.feed_forward),
            "layers.down": (layers, self.feed_forward, hidden),
        }
        if not self.tied:
            found["head"] = (self.vocabulary, hidden)
        if self.qkv_bias:
            found["layers.query_bias"] = (layers, self.heads * dim)
            found["layers.key_bias"] = (layers, self.kv_heads * dim)
            found["layers.value_bias"] = (layers, self.kv_heads * dim)
        if self.qk_norm:
            found["layers.query_norm"] = (layers, dim)
            found["layers.key_norm"] = (layers, dim)
        return found

    @property
    def kv_bytes(self) -> int:
        """Bytes of a token in a float32 KV cache."""
        return 2 * self.layers * self.kv_heads * self.head_dim * 4


def _check_scaling(scaling: Llama3Scaling) -> None:
    if not isinstance(scaling, Llama3Scaling):
        raise ValueError(f"expected rope_llama3 as Llama3Scaling, got {scaling!r}")
    check_size("rope_llama3.original", scaling.original, 1, 2**31 - 1)
    for name in ("factor", "low", "high"):
        check_number(f"rope_llama3.{name}", getattr(scaling, name), 0.0, 1e30, scalar=True)
    if not scaling.factor or not 0 < scaling.low < scaling.high:
        raise ValueError(
            f"expected rope_llama3 with a factor above 0 and 0 < low < high, got {scaling}"
        )
