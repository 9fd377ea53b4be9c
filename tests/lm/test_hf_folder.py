"""Hugging Face folders: what was saved is read, and what is damaged or hostile is refused."""

import json
import tracemalloc
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jaxmem.lm.config import Config
from jaxmem.lm.parameters import check_params
from jaxmem.lm.weights.hf_folder import read_folder
from jaxmem.lm.weights.read import read_weights
from jaxmem.lm.weights.safetensors_file import file_tensors, folder_tensors

tokenizers = pytest.importorskip("tokenizers")
safetensors = pytest.importorskip("safetensors.numpy")

CONFIG = {
    "model_type": "llama",
    "vocab_size": 300,
    "hidden_size": 8,
    "intermediate_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 4,
    "max_position_embeddings": 32,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
    "eos_token_id": [1, 2],
}
KINDS: list[dict[str, Any]] = [
    {},
    {"tie_word_embeddings": True},
    {"model_type": "mistral", "sliding_window": None},
    {"model_type": "qwen2"},
    {"model_type": "qwen3"},
]
OWN = {  # of a layer: name here, shape [out, in] in the file
    "input_layernorm.weight": ("attention_norm", (8,)),
    "self_attn.q_proj.weight": ("query", (16, 8)),
    "self_attn.k_proj.weight": ("key", (8, 8)),
    "self_attn.v_proj.weight": ("value", (8, 8)),
    "self_attn.o_proj.weight": ("output", (8, 16)),
    "post_attention_layernorm.weight": ("feed_forward_norm", (8,)),
    "mlp.gate_proj.weight": ("gate", (12, 8)),
    "mlp.up_proj.weight": ("up", (12, 8)),
    "mlp.down_proj.weight": ("down", (8, 12)),
}
MORE = {
    "qwen2": {
        "self_attn.q_proj.bias": ("query_bias", (16,)),
        "self_attn.k_proj.bias": ("key_bias", (8,)),
        "self_attn.v_proj.bias": ("value_bias", (8,)),
    },
    "qwen3": {
        "self_attn.q_norm.weight": ("query_norm", (4,)),
        "self_attn.k_norm.weight": ("key_norm", (4,)),
    },
}


def names(config: Mapping[str, Any]) -> dict[str, tuple[str, tuple[int, ...]]]:
    return OWN | MORE.get(config["model_type"], {})


def random_tensors(config: Mapping[str, Any], kind: Any = np.float32) -> dict[str, np.ndarray]:
    random = np.random.default_rng(5)
    shapes = {"model.embed_tokens.weight": (300, 8), "model.norm.weight": (8,)}
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (300, 8)
    for layer in range(config["num_hidden_layers"]):
        for name, (_, shape) in names(config).items():
            shapes[f"model.layers.{layer}.{name}"] = shape
    return {n: random.standard_normal(shape).astype(kind) for n, shape in shapes.items()}


def write(
    path: Path,
    config: Mapping[str, Any] = CONFIG,
    tensors: Mapping[str, np.ndarray] | None = None,
    shards: int = 0,
) -> dict[str, np.ndarray]:
    """A folder with these tensors, in one file or in shards of an index."""
    path.mkdir(exist_ok=True)
    found = dict(random_tensors(config) if tensors is None else tensors)
    (path / "config.json").write_text(json.dumps(config))
    model = tokenizers.models.BPE(
        vocab={
            token: id
            for id, token in enumerate(
                ["<|endoftext|>", *sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())]
            )
        },
        merges=[],
    )
    tokenizers.Tokenizer(model).save(str(path / "tokenizer.json"))
    if not shards:
        safetensors.save_file(found, path / "model.safetensors", metadata={"format": "pt"})
        return found
    places = {}
    for shard in range(shards):
        file = f"model-{shard + 1:05}-of-{shards:05}.safetensors"
        part = {name: found[name] for name in list(found)[shard::shards]}
        safetensors.save_file(part, path / file)
        places |= dict.fromkeys(part, file)
    index = {"metadata": {"total_size": 1}, "weight_map": places}
    (path / "model.safetensors.index.json").write_text(json.dumps(index))
    return found


def check_equal(params: dict[str, Any], tensors: Mapping[str, np.ndarray], dtype: Any) -> None:
    config = {"model_type": "qwen2" if "query_bias" in params["layers"] else "llama"}
    if "query_norm" in params["layers"]:
        config["model_type"] = "qwen3"
    wanted = {"embedding": "model.embed_tokens.weight", "norm": "model.norm.weight"}
    if "head" in params:
        wanted["head"] = "lm_head.weight"
    for own, name in wanted.items():
        np.testing.assert_array_equal(params[own], tensors[name].astype(dtype))
    for name, (own, _) in names(config).items():
        for layer in range(2):
            stored = tensors[f"model.layers.{layer}.{name}"]
            np.testing.assert_array_equal(params["layers"][own][layer], stored.astype(dtype).T)


@pytest.mark.parametrize("change", KINDS, ids=str)
@pytest.mark.parametrize("shards", [0, 3])
def test_what_was_saved_is_read(change: dict[str, Any], shards: int, tmp_path: Path) -> None:
    config = CONFIG | change
    tensors = write(tmp_path, config, shards=shards)
    found, params, tokenizer = read_weights(tmp_path, "float32")
    assert isinstance(found, Config)
    check_params(params, found)
    check_equal(params, tensors, np.float32)
    assert tokenizer.eos == 1
    assert tokenizer.vocabulary == 257


@pytest.mark.parametrize(
    "kind", [np.float32, np.float16, ml_dtypes.bfloat16], ids=lambda k: k.__name__
)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_types_of_numbers(kind: Any, dtype: str, tmp_path: Path) -> None:
    tensors = random_tensors(CONFIG, kind)
    write(tmp_path, tensors=tensors)
    _, params, _ = read_folder(tmp_path, dtype)
    assert params["layers"]["query"].dtype == jnp.dtype(dtype)
    assert params["norm"].dtype == jnp.dtype(dtype)
    check_equal(params, tensors, jnp.dtype(dtype))
    with pytest.raises(ValueError, match="unknown dtype 'int8'"):
        read_folder(tmp_path, "int8")


def test_a_tied_head_may_be_there(tmp_path: Path) -> None:
    config = CONFIG | {"tie_word_embeddings": True}
    tensors = random_tensors(config)
    write(tmp_path, config, tensors | {"lm_head.weight": tensors["model.embed_tokens.weight"]})
    _, params, _ = read_folder(tmp_path, "float32")
    assert "head" not in params
    write(tmp_path, config, tensors | {"lm_head.weight": np.ones((300, 8), np.float32)})
    with pytest.raises(ValueError, match=r"lm_head.weight to be the embedding"):
        read_folder(tmp_path, "float32")


def test_old_tables_of_frequencies_are_passed_over(tmp_path: Path) -> None:
    table = {"model.layers.0.self_attn.rotary_emb.inv_freq": np.ones(2, np.float32)}
    tensors = write(tmp_path, tensors=random_tensors(CONFIG) | table)
    check_equal(read_folder(tmp_path, "float32")[1], tensors, np.float32)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"model.norm.weight": None}, "missing model.norm.weight$"),
        ({"lm_head.weight": None}, "missing lm_head.weight$"),
        ({"model.layers.1.mlp.up_proj.weight": None}, "missing model.layers.1.mlp.up_proj.weight$"),
        ({"model.layers.2.mlp.up_proj.weight": (12, 8)}, "not of this model: model.layers.2"),
        ({"model.layers.0.self_attn.q_proj.bias": (16,)}, "not of this model: .*q_proj.bias"),
        ({"line\nbreak": (1,)}, r"not of this model: line\\nbreak"),
        (
            {"model.layers.0.self_attn.q_proj.weight": (8, 16)},
            r"expected .*q_proj.weight \[16, 8\]",
        ),
        (
            {"model.embed_tokens.weight": (299, 8)},
            r"embed_tokens.weight \[300, 8\], got \[299, 8\]",
        ),
        ({"model.norm.weight": (8, 1)}, r"model.norm.weight \[8\], got \[8, 1\]"),
    ],
    ids=str,
)
def test_tensors_of_another_model(
    change: dict[str, tuple[int, ...] | None], named: str, tmp_path: Path
) -> None:
    tensors = random_tensors(CONFIG)
    for name, shape in change.items():
        if shape is None:
            del tensors[name]
        else:
            tensors[name] = np.ones(shape, np.float32)
    write(tmp_path, tensors=tensors)
    with pytest.raises(ValueError, match=named) as caught:
        read_folder(tmp_path, "float32")
    assert str(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_many_missing_tensors_are_counted(tmp_path: Path) -> None:
    write(tmp_path, tensors={"model.norm.weight": np.ones(8, np.float32)})
    with pytest.raises(ValueError, match=r"missing .*, .*, .* and 17 more$"):
        read_folder(tmp_path, "float32")


def test_a_shape_beyond_the_file_is_not_allocated(tmp_path: Path) -> None:
    write(tmp_path)
    huge = CONFIG | {"vocab_size": 10**9, "hidden_size": 10**6, "num_hidden_layers": 9000}
    (tmp_path / "config.json").write_text(json.dumps(huge))
    with pytest.raises(ValueError, match="missing model.layers.2"):
        read_folder(tmp_path, "float32")


def test_numbers_that_are_not_finite(tmp_path: Path) -> None:
    tensors = random_tensors(CONFIG)
    tensors["model.layers.1.mlp.down_proj.weight"][3, 4] = np.nan
    write(tmp_path, tensors=tensors)
    with pytest.raises(ValueError, match=r"finite numbers in model.layers.1.mlp.down_proj.weight"):
        read_folder(tmp_path, "float32")


def test_a_tokenizer_of_another_vocabulary(tmp_path: Path) -> None:
    config = CONFIG | {"vocab_size": 200}
    tensors = random_tensors(config)
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        tensors[name] = tensors[name][:200]
    write(tmp_path, config, tensors)
    with pytest.raises(ValueError, match="tokenizer of at most 200 tokens, got 257"):
        read_folder(tmp_path, "float32")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda places: places.pop("model.norm.weight"), "'model.norm.weight' in .* got nowhere"),
        (lambda places: places.update(extra=min(places.values())), "'extra' in .* got none"),
        (lambda places: places.update({"model.norm.weight": "b.safetensors"}), "b.safetensors"),
        (lambda places: places.update(x="../model.safetensors"), "names of files beside it"),
        (lambda places: places.update(x="/etc/passwd"), "names of files beside it"),
        (lambda places: places.update(x=3), "names of files beside it"),
        (
            lambda places: places.update({"model.norm.weight": min(places.values())}),
            "in 'model-00002-of-00002.safetensors', got 'model-00001-of-00002",
        ),
        (lambda places: places.clear(), "weight_map"),
    ],
)
def test_an_index_that_lies(change: Any, named: str, tmp_path: Path) -> None:
    write(tmp_path, shards=2)
    file = tmp_path / "model.safetensors.index.json"
    index = json.loads(file.read_text())
    change(index["weight_map"])
    file.write_text(json.dumps(index))
    with pytest.raises(ValueError, match=named) as caught:
        folder_tensors(tmp_path)
    assert "index.json" in str(caught.value)


def test_a_folder_without_weights(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(ValueError, match="expected model.safetensors"):
        read_folder(tmp_path, "float32")
    with pytest.raises(ValueError, match="expected a folder"):
        read_folder(tmp_path / "config.json", "float32")
    with pytest.raises(ValueError, match="no file"):
        file_tensors(tmp_path)


HEADER = {
    "a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
    "b": {"dtype": "BF16", "shape": [4], "data_offsets": [24, 32]},
}
DATA = bytes(range(32))


def pack(header: Any, data: bytes = DATA) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def edited(**change: Any) -> bytes:
    return pack(HEADER | {"a": HEADER["a"] | change})


BROKEN = {
    "empty": b"",
    "short": b"\x01",
    "length past the end": b"\xff\xff\xff\x7f\0\0\0\0{}",
    "length of 2**63": b"\0\0\0\0\0\0\0\x80{}",
    "length 0": bytes(8) + b"{}",
    "no JSON": pack(b"not JSON"),
    "not UTF-8": pack(b'{"\xff": 1}'),
    "nested": pack(b"[" * 100_000),
    "an array": pack([1]),
    "a name twice": pack(
        b'{"a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, "a": {}}'
    ),
    "metadata": pack(HEADER | {"__metadata__": {"format": 3}}),
    "no entry": pack(HEADER | {"a": 3}),
    "unknown dtype": edited(dtype="F8_E4M3"),
    "no dtype": edited(dtype=None),
    "another size": edited(shape=[2, 4]),
    "a size of 0": edited(shape=[0, 3], data_offsets=[0, 0]),
    "a scalar": edited(shape=[]),
    "a negative size": edited(shape=[-2, -3]),
    "a float": edited(shape=[2.0, 3]),
    "a product past 64 bits": edited(shape=[2**40, 2**40, 2**40]),
    "a huge shape": edited(shape=[2**40], data_offsets=[0, 2**42]),
    "an offset past the end": edited(data_offsets=[100, 124]),
    "an overlap": edited(data_offsets=[8, 32]),
    "a gap": pack(HEADER, DATA + b"12"),
    "cut short": pack(HEADER, DATA[:-1]),
    "three offsets": edited(data_offsets=[0, 24, 48]),
}


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN.keys())
def test_a_lying_header_is_refused_in_one_line(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    file.write_bytes(content)
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="expected") as caught:
            file_tensors(file)
        assert tracemalloc.get_traced_memory()[1] < 2**22
    finally:
        tracemalloc.stop()
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_good_header_is_read(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    file.write_bytes(pack(HEADER))
    found = file_tensors(file)
    assert found["a"].read().tobytes() + found["b"].read().tobytes() == DATA
    assert found["a"].read().shape == (2, 3)
    file.write_bytes(pack(HEADER)[:-1])
    with pytest.raises(ValueError, match="expected 4 numbers"):
        found["b"].read()


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_any_damage_is_refused_or_harmless(data: st.DataObject, tmp_path: Path) -> None:
    content = bytearray(pack(HEADER))
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    file = tmp_path / "model.safetensors"
    file.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    try:
        found = file_tensors(file)
    except ValueError as error:
        assert "\n" not in str(error)  # noqa: PT017
    else:
        assert sum(tensor.read().nbytes for tensor in found.values()) <= len(content)
