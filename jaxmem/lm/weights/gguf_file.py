"""Weights, shape and tokenizer out of one GGUF file, as llama.cpp and its converters write it."""

import dataclasses
import math
import os
import stat
from collections.abc import Mapping
from typing import Any, BinaryIO

import ml_dtypes
import numpy as np

from jaxmem.common.safetensors_header import short
from jaxmem.lm.config import Config, Llama3Scaling
from jaxmem.lm.parameters import Params
from jaxmem.lm.rope import frequencies
from jaxmem.lm.tokenizer import Tokenizer, tokenizer_from_gguf
from jaxmem.lm.weights.gguf_header import GgufHeader, GgufTensor, read_header, tensor_content
from jaxmem.lm.weights.stacking import check_tensors, file_names, stacked

_NAMES = {
    "embedding": "token_embd.weight",
    "norm": "output_norm.weight",
    "head": "output.weight",
    "layers.attention_norm": "blk.{}.attn_norm.weight",
    "layers.query": "blk.{}.attn_q.weight",
    "layers.key": "blk.{}.attn_k.weight",
    "layers.value": "blk.{}.attn_v.weight",
    "layers.output": "blk.{}.attn_output.weight",
    "layers.feed_forward_norm": "blk.{}.ffn_norm.weight",
    "layers.gate": "blk.{}.ffn_gate.weight",
    "layers.up": "blk.{}.ffn_up.weight",
    "layers.down": "blk.{}.ffn_down.weight",
    "layers.query_bias": "blk.{}.attn_q.bias",
    "layers.key_bias": "blk.{}.attn_k.bias",
    "layers.value_bias": "blk.{}.attn_v.bias",
    "layers.query_norm": "blk.{}.attn_q_norm.weight",
    "layers.key_norm": "blk.{}.attn_k_norm.weight",
}
_ARCHITECTURES: dict[str, dict[str, Any]] = {  # Mistral's files say llama
    "llama": {},
    "qwen2": {"qkv_bias": True},
    "qwen3": {"qk_norm": True},
}
_KNOWN = {
    "block_count",
    "context_length",
    "embedding_length",
    "feed_forward_length",
    "vocab_size",
    "attention.head_count",
    "attention.head_count_kv",
    "attention.layer_norm_rms_epsilon",
    "attention.key_length",
    "attention.value_length",
    "attention.sliding_window",
    "rope.freq_base",
    "rope.dimension_count",
    "rope.scaling.type",
    "rope.scaling.factor",
    "rope.scaling.original_context_length",
    "rope.scaling.finetuned",
}
_ROPE = "rope_freqs.weight"
_PIECE = 2**22  # weights that are dequantised at a time: a large embedding is never there twice
_PLAIN = {
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype(ml_dtypes.bfloat16),
}


def read_gguf(path: str | os.PathLike[str], dtype: str) -> tuple[Config, Params, Tokenizer]:
    """Read a model of the architectures llama (also Mistral's), qwen2 and qwen3.

    The header is checked before anything is believed. Weights F32, F16, BF16, Q8_0, Q4_0, Q4_1,
    Q5_0, Q5_1, Q4_K, Q5_K and Q6_K, dequantised by the `gguf` package. llama.cpp's converter
    interleaves the halves of the heads of llama's queries and keys: that is undone.

    Args:
      path: the file.
      dtype: "bfloat16" or "float32".

    Returns:
      The model's shape, its parameters and its tokenizer.

    Raises:
      ValueError: one line that names the file, what was expected and what came.
      OSError: if it cannot be read.
    """
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise ValueError(f"{path}: expected a GGUF file, got something that is no file")
    with open(path, "rb") as file:
        try:
            header = read_header(file)
            config = _config(header, file)
            stored = {n: t.shape for n, t in header.tensors.items() if n != _ROPE}
            check_tensors(file_names(config, _NAMES), stored)
            tokenizer = tokenizer_from_gguf(header.metadata)
            if tokenizer.vocabulary > config.vocabulary:
                raise ValueError(
                    f"expected a tokenizer of at most {config.vocabulary} tokens, got "
                    f"{tokenizer.vocabulary}"
                )
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
        turned = {"attn_q": config.heads, "attn_k": config.kv_heads}
        llama = header.metadata["general.architecture"] == "llama"

        def read(name: str) -> np.ndarray:
            tensor = weights(file, name, header.tensors[name])
            heads = turned.get(name.split(".")[-2]) if llama else None
            return tensor if heads is None else _halves(tensor, heads)

        return config, stacked(config, _NAMES, read, dtype, str(path)), tokenizer


def weights(file: BinaryIO, name: str, tensor: GgufTensor) -> np.ndarray:
    """A tensor's numbers.

    Args:
      file: the file that the header was read from.
      name: of the tensor.
      tensor: its entry in the header.

    Returns:
      The numbers in the header's shape, float32 unless they are stored as other floats.

    Raises:
      ValueError: if the `gguf` package is needed and not installed, or the file is cut short.
    """
    content = tensor_content(file, name, tensor)  # [..., row bytes]
    if tensor.kind in _PLAIN:
        return content.view(_PLAIN[tensor.kind]).reshape(tensor.shape)
    try:
        from gguf import GGMLQuantizationType
        from gguf.quants import dequantize
    except ImportError as error:
        raise ValueError("quantised weights need gguf: pip install 'jaxmem[lm]'") from error
    kind = GGMLQuantizationType[tensor.kind]
    rows = content.reshape(-1, content.shape[-1])
    numbers = np.empty((len(rows), tensor.shape[-1]), np.float32)
    step = max(1, _PIECE // tensor.shape[-1])
    for start in range(0, len(rows), step):
        with np.errstate(invalid="ignore", over="ignore"):  # the caller checks the numbers
            numbers[start : start + step] = dequantize(rows[start : start + step], kind)
    return numbers.reshape(tensor.shape)


def _halves(weights: np.ndarray, heads: int) -> np.ndarray:
    """Rows of each head from pairs side by side back to a first and a second half."""
    pairs = weights.reshape(heads, -1, 2, *weights.shape[1:])
    return pairs.swapaxes(1, 2).reshape(weights.shape)


class _Keys:
    """Typed access to an architecture's keys."""

    def __init__(self, metadata: Mapping[str, Any], architecture: str) -> None:
        self.metadata, self.prefix = metadata, f"{architecture}."

    def get(self, key: str, default: Any = None) -> Any:
        return self.metadata.get(self.prefix + key, default)

    def size(self, key: str, default: int | None = None) -> int:
        value = self.get(key, default)
        if value is None:
            raise ValueError(f"missing key {self.prefix}{key}")
        if type(value) is not int or not 1 <= value < 2**31:
            raise ValueError(f"expected a size for {self.prefix}{key}, got {short(value)}")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        value = self.get(key, default)
        if value is None:
            raise ValueError(f"missing key {self.prefix}{key}")
        if type(value) not in (int, float) or not math.isfinite(value):
            raise ValueError(f"expected a number for {self.prefix}{key}, got {short(value)}")
        return float(value)


def _config(header: GgufHeader, file: BinaryIO) -> Config:
    metadata, tensors = header.metadata, header.tensors
    architecture = metadata.get("general.architecture")
    if not isinstance(architecture, str) or architecture not in _ARCHITECTURES:
        raise ValueError(
            f"expected an architecture of {', '.join(_ARCHITECTURES)}, got {short(architecture)}"
        )
    parts = metadata.get("split.count", 1)
    if type(parts) is not int or parts > 1:
        raise ValueError(f"expected a whole model, got one file of {short(parts)}")
    keys = _Keys(metadata, architecture)
    for name, value in metadata.items():
        known = not name.startswith(keys.prefix) or name.removeprefix(keys.prefix) in _KNOWN
        if not known and not (np.ndim(value) == 0 and value in (0, False, "")):
            raise ValueError(f"unknown key {short(name)} = {short(value)}: it may change the maths")
    embedding = tensors.get(_NAMES["embedding"])
    if embedding is None or len(embedding.shape) != 2:
        raise ValueError(f"expected a tensor {_NAMES['embedding']} [V, D]")
    hidden, heads = keys.size("embedding_length"), keys.size("attention.head_count")
    head_dim = keys.size("attention.key_length", hidden // heads)
    for name in ("attention.value_length", "rope.dimension_count"):
        if keys.size(name, head_dim) != head_dim:
            raise ValueError(f"expected {keys.prefix}{name} = {head_dim}, got {keys.get(name)}")
    vocabulary = keys.size("vocab_size", embedding.shape[0])
    positions = keys.size("context_length")
    if keys.number(
        "attention.sliding_window", 0.0
    ):  # up to there the maths is that of full attention
        positions = min(positions, keys.size("attention.sliding_window"))
    config = Config(
        vocabulary=vocabulary,
        hidden=hidden,
        layers=keys.size("block_count"),
        heads=heads,
        kv_heads=keys.size("attention.head_count_kv", heads),
        head_dim=head_dim,
        feed_forward=keys.size("feed_forward_length"),
        positions=positions,
        norm_eps=_decimal(keys.number("attention.layer_norm_rms_epsilon")),
        rope_theta=_decimal(keys.number("rope.freq_base", 10_000.0)),
        rope_factor=_rope_factor(keys),
        tied=_NAMES["head"] not in tensors,
        **_ARCHITECTURES[architecture],
    )
    if _ROPE not in tensors:
        return config
    if tensors[_ROPE].shape != (head_dim // 2,):
        raise ValueError(f"expected {_ROPE} [{head_dim // 2}], got {[*tensors[_ROPE].shape]}")
    divisors = weights(file, _ROPE, tensors[_ROPE]).astype(np.float64)
    return dataclasses.replace(config, rope_llama3=_llama3(divisors, config))


def _rope_factor(keys: _Keys) -> float:
    kind = keys.get("rope.scaling.type", "linear")
    if kind not in ("none", "linear"):
        raise ValueError(
            f"expected {keys.prefix}rope.scaling.type none or linear, got {short(kind)}"
        )
    factor = keys.number("rope.scaling.factor", 1.0)
    return 1.0 if kind == "none" or factor == 0.0 else factor  # 0: not set


def _llama3(divisors: np.ndarray, config: Config) -> Llama3Scaling | None:
    """The scaling of Llama 3 that makes these divisors of the frequencies.

    A file holds only the divisors; low = 1 and high = 4 in every Llama since 3.1, which leaves
    the factor, their maximum, and the original length, told by a frequency in between.
    """
    if not np.all(np.isfinite(divisors) & (divisors >= 1)):
        raise ValueError(f"expected numbers of 1 or more in {_ROPE}, got others")
    factor = float(divisors.max())
    if factor == 1.0:
        return None
    speeds = frequencies(config)
    share = (1 / divisors - 1 / factor) / (1 - 1 / factor)  # s of the formula
    lengths = 2 * math.pi / speeds * (share * 3 + 1)
    between = (share > 0.01) & (share < 0.99)
    for original in (8192, *(round(float(length)) for length in lengths[between])):
        scaling = Llama3Scaling(_decimal(factor), 1.0, 4.0, original)
        scaled = frequencies(dataclasses.replace(config, rope_llama3=scaling))
        if np.allclose(speeds / scaled, divisors, rtol=1e-4):
            return scaling
    raise ValueError(f"expected Llama 3's scaling in {_ROPE}, got other numbers")


def _decimal(number: float) -> float:
    """The short decimal that was rounded to a float32: 1e-05 for 9.999999747378752e-06."""
    return float(str(np.float32(number)))
