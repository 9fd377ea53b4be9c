"""Cartridges as PEFT's adapters: the layout, both ways, and what it cannot hold."""

import dataclasses
import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

from jaxmem.lm.cartridges.formats.peft_file import load_peft, save_peft
from jaxmem.lm.config import Config
from jaxmem.lm.model import Model
from jaxmem.recall.cartridges import Cartridge

CONFIG = Config(
    vocabulary=16,
    hidden=16,
    layers=3,
    heads=4,
    kv_heads=2,
    head_dim=6,
    feed_forward=8,
    positions=64,
)
MODEL = Model(CONFIG, {}, SimpleNamespace(fingerprint="b" * 64), "org/tiny", "0" * 16)  # type: ignore[arg-type]
LEAD = (3, 2, 5)  # layers, heads, slots


def cartridge(**changes: Any) -> Cartridge:
    rng = np.random.default_rng(0)
    made = Cartridge(
        jnp.float32(rng.normal(size=(*LEAD, 6))),
        jnp.float32(rng.normal(size=(*LEAD, 6))),
        CONFIG.scale,
        positions=jnp.arange(5),
        first_question=5,
        frozen=2,
    )
    return dataclasses.replace(made, **changes)


@pytest.mark.parametrize("kind", [jnp.float32, jnp.bfloat16])
def test_round_trips(tmp_path: Path, kind: Any) -> None:
    made = cartridge()
    made = dataclasses.replace(made, keys=made.keys.astype(kind), values=made.values.astype(kind))
    save_peft(tmp_path / "a", made, MODEL)
    found = load_peft(tmp_path / "a", MODEL)
    for name in ("keys", "values", "positions"):
        assert getattr(found, name).dtype == getattr(made, name).dtype
        np.testing.assert_array_equal(getattr(found, name), getattr(made, name))
    assert (found.frozen, found.first_question, found.scale) == (2, 5, CONFIG.scale)
    assert sorted(os.listdir(tmp_path / "a")) == [
        "adapter_config.json",
        "adapter_model.safetensors",
    ]


def test_the_layout_is_peft_s(tmp_path: Path) -> None:
    made = cartridge()
    save_peft(tmp_path / "a", made, MODEL)
    with safe_open(tmp_path / "a" / "adapter_model.safetensors", "np") as file:
        assert list(file.keys()) == ["prompt_embeddings"]
        assert file.metadata() == {"format": "pt"}
        rows = file.get_tensor("prompt_embeddings")
    assert rows.shape == (5, 3 * 2 * 2 * 6)
    for slot, layer, head in np.ndindex(5, 3, 2):
        for side, array in enumerate((made.keys, made.values)):
            start = ((2 * layer + side) * 2 + head) * 6
            np.testing.assert_array_equal(rows[slot, start : start + 6], array[layer, head, slot])
    fields = json.loads((tmp_path / "a" / "adapter_config.json").read_text())
    assert fields == {
        "auto_mapping": None,
        "base_model_name_or_path": "org/tiny",
        "inference_mode": True,
        "modules_to_save": None,
        "num_attention_heads": 2,
        "num_frozen_tokens": 2,
        "num_layers": 3,
        "num_transformer_submodules": 1,
        "num_virtual_tokens": 5,
        "peft_type": "CARTRIDGE",
        "peft_version": "0.21.2",
        "revision": None,
        "task_type": "CAUSAL_LM",
        "token_dim": 12,
    }


def test_positions_that_are_not_said_are_packed(tmp_path: Path) -> None:
    save_peft(tmp_path / "a", cartridge(positions=None, first_question=None), MODEL)
    save_peft(tmp_path / "a", cartridge(positions=jnp.broadcast_to(jnp.arange(5), LEAD)), MODEL)
    np.testing.assert_array_equal(load_peft(tmp_path / "a", MODEL).positions, jnp.arange(5))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"first_question": 9},
            "questions from 5, as PEFT has them, got 5 slots and .* from 9: sta",
        ),
        (
            {"positions": jnp.arange(5) * 2, "first_question": 9},
            "kept positions and questions from",
        ),
        ({"positions": jnp.arange(5) * 2}, "kept positions and questions from 5"),
        ({"bias": jnp.ones(LEAD)}, "without bias, PEFT holds keys and values only: start"),
        ({"mask": jnp.zeros(LEAD, bool)}, "slots all count, PEFT holds no mask: leave out"),
        ({"scale": 20.0}, "the model's scale of attention"),
        ({"keys": jnp.ones((3, 2, 5, 8))}, r"expected keys and values \[3, 2, slots, 6\]"),
    ],
    ids=range(7),
)
def test_what_the_layout_cannot_hold_is_refused(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        save_peft(tmp_path / "a", cartridge(**changes), MODEL)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"peft_type": "LORA"}, "expected peft_type CARTRIDGE, got 'LORA'"),
        ({"peft_type": "PREFIX_TUNING"}, "expected peft_type CARTRIDGE, got 'PREFIX_TUNING'"),
        ({"peft_type": ["CARTRIDGE"]}, "expected peft_type CARTRIDGE"),
        ({"num_layers": 4}, "expected num_layers 3, got 4"),
        ({"num_layers": None}, "expected num_layers 3, got None"),
        ({"num_attention_heads": 4}, "expected num_attention_heads 2, got 4"),
        ({"token_dim": 24}, "expected token_dim 12, got 24"),
        ({"num_transformer_submodules": 2}, "expected num_transformer_submodules 1, got 2"),
        ({"num_transformer_submodules": True}, "expected num_transformer_submodules 1, got True"),
        ({"modules_to_save": ["lm_head"]}, "expected modules_to_save None, got"),
        ({"num_virtual_tokens": 0, "num_frozen_tokens": 0}, "num_virtual_tokens of 1 or more"),
        ({"num_virtual_tokens": 5.0}, "got 5.0 and 2"),
        ({"num_virtual_tokens": True}, "got True and 2"),
        (
            {"num_virtual_tokens": 10**12},
            "expected one tensor prompt_embeddings [1000000000000, 72]",
        ),
        (
            {"num_virtual_tokens": 6},
            "prompt_embeddings [6, 72], got {'prompt_embeddings': [5, 72]}",
        ),
        ({"num_frozen_tokens": 6}, "got 5 and 6"),
        ({"num_frozen_tokens": -1}, "got 5 and -1"),
    ],
    ids=range(17),
)
def test_configs_that_do_not_fit_are_refused(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    save_peft(tmp_path, cartridge(), MODEL)
    config = tmp_path / "adapter_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | changes))
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        load_peft(tmp_path, MODEL)
    assert message in str(caught.value)
    assert str(caught.value).startswith(str(tmp_path))
    assert "\n" not in str(caught.value)


def test_frozen_slots_are_one_where_none_are_told(tmp_path: Path) -> None:
    save_peft(tmp_path, cartridge(), MODEL)
    config = tmp_path / "adapter_config.json"
    fields = json.loads(config.read_text())
    del fields["num_frozen_tokens"]
    config.write_text(
        json.dumps(fields | {"runtime_config": {}, "num_transformer_submodules": None})
    )
    assert load_peft(tmp_path, MODEL).frozen == 1


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"prompt_embeddings": np.ones((5, 71), np.float32)}, "got {'prompt_embeddings': [5, 71]}"),
        ({"prompt_embeddings": np.ones((72, 5), np.float32)}, "got {'prompt_embeddings': [72, 5]}"),
        ({"other": np.ones((5, 72), np.float32)}, "got {'other': [5, 72]}"),
        (
            {"prompt_embeddings": np.ones((5, 72), np.float32), "b": np.ones(1, np.float32)},
            "expected one tensor prompt_embeddings [5, 72]",
        ),
        ({"prompt_embeddings": np.ones((5, 72), np.int32)}, "prompt_embeddings as F32 or F16"),
        ({"prompt_embeddings": np.full((5, 72), np.inf, np.float32)}, "expected finite keys"),
    ],
    ids=range(6),
)
def test_weights_that_do_not_fit_are_refused(
    tmp_path: Path, tensors: dict[str, np.ndarray], message: str
) -> None:
    save_peft(tmp_path, cartridge(), MODEL)
    save_file(tensors, tmp_path / "adapter_model.safetensors")
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        load_peft(tmp_path, MODEL)
    assert message in str(caught.value)
    assert str(caught.value).startswith(str(tmp_path))


def test_damaged_folders_are_refused(tmp_path: Path) -> None:
    save_peft(tmp_path, cartridge(), MODEL)
    weights, config = tmp_path / "adapter_model.safetensors", tmp_path / "adapter_config.json"
    content = weights.read_bytes()
    for size in range(0, len(content), 97):
        weights.write_bytes(content[:size])
        with pytest.raises(ValueError, match="expected"):
            load_peft(tmp_path, MODEL)
    weights.unlink()
    with pytest.raises(FileNotFoundError):
        load_peft(tmp_path, MODEL)
    for text in ("", "[]", "{", "[" * 10**5, '{"peft_type": NaN}', "\xff"):
        config.write_text(text, encoding="latin-1")
        with pytest.raises(ValueError, match=r"adapter_config\.json"):
            load_peft(tmp_path, MODEL)
    config.unlink()
    with pytest.raises(FileNotFoundError):
        load_peft(tmp_path, MODEL)


def test_a_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("")
    with pytest.raises((ValueError, OSError)):
        save_peft(tmp_path / "a", cartridge(), MODEL)
    with pytest.raises((ValueError, OSError)):
        load_peft(tmp_path / "a", MODEL)
