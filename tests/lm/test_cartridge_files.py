"""Files of cartridges of a model: what they say, whom they refuse, and what caches hold of them."""

import dataclasses
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from safetensors import safe_open

import jaxmem
from jaxmem.lm.cartridges.files import describe, load, provenance_of, save
from jaxmem.lm.cartridges.formats.hf_cache_file import save_hf_cache
from jaxmem.lm.config import Config, Llama3Scaling
from jaxmem.lm.model import Model
from jaxmem.recall.cartridges import Cartridge, load_cartridge, save_cartridge

CONFIG = Config(
    vocabulary=16,
    hidden=16,
    layers=2,
    heads=4,
    kv_heads=2,
    head_dim=6,
    feed_forward=8,
    positions=64,
    rope_theta=1e5,
)
TOKENIZER: Any = SimpleNamespace(fingerprint="b" * 64)
MODEL = Model(CONFIG, {}, TOKENIZER, "tiny", "0123456789abcdef")
LEAD = (2, 2, 5)  # layers, heads, slots


def cartridge(extras: bool = False, **changes: Any) -> Cartridge:
    rng = np.random.default_rng(0)
    made = Cartridge(
        jnp.float32(rng.normal(size=(*LEAD, 6))),
        jnp.float32(rng.normal(size=(*LEAD, 6))),
        CONFIG.scale,
        positions=jnp.arange(5),
        first_question=5,
        frozen=1,
    )
    if extras:
        made = dataclasses.replace(
            made,
            bias=jnp.float32(rng.normal(size=LEAD)),
            mask=jnp.asarray(rng.random(LEAD) < 0.5),
            positions=jnp.asarray(rng.integers(0, 40, LEAD)),
            first_question=40,
        )
    return dataclasses.replace(made, **changes)


def model(fingerprint: str = MODEL.fingerprint, tokens: str = "b" * 64, **changes: Any) -> Model:
    config = dataclasses.replace(CONFIG, **changes)
    return Model(config, {}, SimpleNamespace(fingerprint=tokens), "other", fingerprint)  # type: ignore[arg-type]


@pytest.mark.parametrize("extras", [False, True])
def test_round_trips(tmp_path: Path, extras: bool) -> None:
    made = cartridge(extras)
    told = provenance_of("/home/me/notes.txt", "the text", 40, "self-study", 100, 0)
    save(tmp_path / "c", made, MODEL, told)
    found, provenance = load(tmp_path / "c", MODEL)
    for name in ("keys", "values", "bias", "mask", "positions"):
        a, b = getattr(found, name), getattr(made, name)
        assert (a is None) == (b is None)
        if a is not None:
            np.testing.assert_array_equal(a, b)
            assert a.dtype == b.dtype
    assert (found.scale, found.frozen) == (CONFIG.scale, 1)
    assert found.first_question == made.first_question
    assert provenance == told
    np.testing.assert_array_equal(load_cartridge(tmp_path / "c")[0].keys, made.keys)


def test_provenance_holds_no_text() -> None:
    found = provenance_of("/home/me/notes.txt", "the text", 40, "self-study", 100, 0)
    assert found.pop("date")[:2] == "20"
    assert found == {
        "document": "notes.txt",
        "sha256": hashlib.sha256(b"the text").hexdigest(),
        "tokens": "40",
        "method": "self-study",
        "steps": "100",
        "seed": "0",
        "jaxmem": jaxmem.__version__,
    }
    bare = provenance_of("notes", "\ud800", 1, "first tokens")
    assert set(bare) == {"document", "sha256", "tokens", "method", "jaxmem", "date"}


@pytest.mark.parametrize("extras", [False, True])
def test_a_file_describes_itself(tmp_path: Path, extras: bool) -> None:
    scaling = Llama3Scaling(8.0, 1.0, 4.0, 32) if extras else None
    own = dataclasses.replace(MODEL, config=dataclasses.replace(CONFIG, rope_llama3=scaling))
    save(tmp_path / "c", cartridge(extras), own, {"document": "notes"})
    found = describe(tmp_path / "c")
    assert json.loads(json.dumps(found)) == found
    assert found == {
        "model": "tiny",
        "fingerprint": MODEL.fingerprint,
        "tokenizer": "b" * 64,
        "layers": 2,
        "kv_heads": 2,
        "head_dim": 6,
        "rope_theta": 1e5,
        "rope_factor": 1.0,
        "rope_llama3": [8.0, 1.0, 4.0, 32] if extras else None,
        "slots": 5,
        "frozen": 1,
        "first_question": 40 if extras else 5,
        "bias": extras,
        "mask": extras,
        "type": "F32",
        "bytes": 2 * 20 * 6 * 4 + (20 * 4 + 20 + 20 * 4 if extras else 5 * 4),
        "provenance": {"document": "notes"},
    }
    assert load(tmp_path / "c", own)[1] == {"document": "notes"}


@pytest.mark.parametrize(
    ("other", "parts"),
    [
        (model("f" * 16), ["of other", "f" * 16, "'tiny'", MODEL.fingerprint]),
        (model(tokens="a" * 64), ["tokenizer " + "a" * 64, "'" + "b" * 64]),
        (model(layers=3), ["expected layers 3 of other, got 2"]),
        (model(kv_heads=4), ["expected kv_heads 4 of other, got 2"]),
        (model(head_dim=8), ["expected head_dim 8 of other, got 6"]),
        (model(rope_theta=1e4), ["expected rope_theta 10000.0 of other, got 100000.0"]),
        (model(rope_factor=2.0), ["expected rope_factor 2.0 of other, got 1.0"]),
        (
            model(rope_llama3=Llama3Scaling(8.0, 1.0, 4.0, 32)),
            ["expected rope_llama3 [8.0, 1.0, 4.0, 32] of other, got None"],
        ),
        (model(positions=5), ["within the model's 5 positions", "slot at 4 and questions from 5"]),
    ],
    ids=range(9),
)
def test_a_cartridge_of_another_model_is_refused(
    tmp_path: Path, other: Model, parts: list[str]
) -> None:
    path = tmp_path / "c"
    save(path, cartridge(), MODEL, {})
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        load(path, other)
    text = str(caught.value)
    assert text.startswith(f"{path}: expected ")
    assert all(part in text for part in parts), text
    assert "\n" not in text


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: cartridge(keys=jnp.ones((2, 2, 5, 4))), "keys and values [2, 2, slots, 6]"),
        (lambda: cartridge(keys=jnp.ones((3, 2, 5, 6)), values=jnp.ones((3, 2, 5, 6))), "[3, 2, 5"),
        (lambda: cartridge(keys=jnp.ones((2, 5, 6)), values=jnp.ones((2, 5, 6))), "got [2, 5, 6]"),
        (lambda: cartridge(scale=20.0), "the model's scale of attention, 0.40824829046386"),
        (lambda: cartridge(positions=jnp.arange(4)), "positions (5,) or (2, 2, 5), got (4,)"),
        (lambda: cartridge(positions=jnp.arange(60, 65)), "slot at 64 and questions from 5"),
        (lambda: cartridge(first_question=64), "questions from 64"),
        (lambda: cartridge(bias=jnp.ones(5)), "bias (2, 2, 5), got (5,)"),
        (lambda: cartridge(keys=jnp.full((*LEAD, 6), jnp.nan)), "finite keys"),
        (lambda: {"keys": 1}, "expected a cartridge, got dict"),
    ],
    ids=range(10),
)
def test_what_does_not_fit_is_not_saved(
    tmp_path: Path, make: Callable[[], Any], message: str
) -> None:
    for write in (lambda made: save(tmp_path / "c", made, MODEL, {}), hf_cache(tmp_path)):
        with pytest.raises(ValueError) as caught:  # noqa: PT011
            write(make())
        assert message in str(caught.value)
        assert not (tmp_path / "c").exists()


def hf_cache(folder: Path) -> Callable[[Any], None]:
    return lambda made: save_hf_cache(folder / "c", made, MODEL)


@pytest.mark.parametrize(
    "provenance",
    [
        {"text": "a" * 201},
        {"text": "two\nlines"},
        {"a\nb": "c"},
        {"tokens": 7},
        {7: "tokens"},
        {"a": "\ud800"},
    ],
    ids=range(6),
)
def test_texts_are_not_saved(tmp_path: Path, provenance: Any) -> None:
    with pytest.raises(ValueError, match="expected provenance of one line") as caught:
        save(tmp_path / "c", cartridge(), MODEL, provenance)
    assert len(str(caught.value)) < 200
    assert not (tmp_path / "c").exists()


GOOD = {
    "model": "tiny",
    "fingerprint": MODEL.fingerprint,
    "tokenizer": "b" * 64,
    "layers": "2",
    "kv_heads": "2",
    "head_dim": "6",
    "rope_theta": "100000.0",
    "rope_factor": "1.0",
}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layers": "3"}, "expected keys and values [3, 2, slots, 6], got [2, 2, 5, 6]"),
        ({"head_dim": "4"}, "expected keys and values [2, 2, slots, 4]"),
        ({"layers": "two"}, "expected a number for layers, got 'two'"),
        ({"layers": "true"}, "expected a number for layers, got 'true'"),
        ({"layers": "9" * 5000}, "expected a number for layers, got '999"),
        ({"rope_theta": "-1"}, "expected a number for rope_theta, got '-1'"),
        ({"rope_theta": "NaN"}, "expected a number for rope_theta, got 'NaN'"),
        ({"rope_theta": "[" * 150}, "expected a number for rope_theta"),
        ({"rope_theta": "null"}, "expected a number for rope_theta, got 'null'"),
        ({"rope_llama3": '["8"]'}, "expected a number for rope_llama3"),
        ({"rope_llama3": "[8.0, 1.0]"}, "expected rope_llama3 null of tiny, got [8.0, 1.0]"),
        ({"fingerprint": "a\nb"}, "got one of 'tiny' (fingerprint 'a\\nb')"),
        ({"model": None}, "expected a cartridge of a language model, got one without model"),
        ({"rope_factor": None}, "got one without rope_factor"),
    ],
    ids=range(14),
)
def test_files_that_lie_are_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    path = tmp_path / "c"
    metadata = {name: text for name, text in (GOOD | changes).items() if text is not None}
    save_cartridge(path, cartridge(), metadata)
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        load(path, MODEL)
    text = str(caught.value)
    assert text.startswith(f"{path}: ")
    assert message in text
    assert "\n" not in text
    assert len(text) < 400 + len(str(path))


def test_lying_tensors_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "c"
    save_cartridge(path, cartridge(), GOOD)
    load(path, MODEL)
    save_cartridge(path, cartridge(scale=20.0), GOOD)
    with pytest.raises(ValueError, match="the model's scale of attention"):
        load(path, MODEL)
    save_cartridge(path, cartridge(values=jnp.ones((*LEAD, 4))), GOOD)
    with pytest.raises(ValueError, match=r"\[2, 2, 5, 6\] and \[2, 2, 5, 4\]"):
        describe(path)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match="side by side"):
        describe(path)


def test_a_model_without_a_tokenizer_fits_its_own(tmp_path: Path) -> None:
    bare = dataclasses.replace(MODEL, tokenizer=None)
    save(tmp_path / "c", cartridge(), bare, {})
    load(tmp_path / "c", bare)
    with pytest.raises(ValueError, match="got one made with 'none'"):
        load(tmp_path / "c", MODEL)


@pytest.mark.parametrize("kind", [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize("each", [False, True])
def test_caches_hold_keys_and_values_a_layer(tmp_path: Path, kind: Any, each: bool) -> None:
    made = cartridge(first_question=40)
    made = dataclasses.replace(made, keys=made.keys.astype(kind), values=made.values.astype(kind))
    if each:
        made = dataclasses.replace(made, positions=jnp.arange(20).reshape(LEAD))
    made = dataclasses.replace(made, bias=jnp.zeros(LEAD), mask=jnp.ones(LEAD, bool))  # no effect
    save_hf_cache(tmp_path / "c", made, MODEL)
    with safe_open(tmp_path / "c", "np") as file:
        metadata = file.metadata()
        assert sorted(file.keys()) == [
            f"layers.{layer}.{name}" for layer in range(2) for name in ("key", "value")
        ]
        for layer in range(2):
            for name, array in (("key", made.keys), ("value", made.values)):
                found = file.get_tensor(f"layers.{layer}.{name}")
                assert found.dtype == array.dtype
                np.testing.assert_array_equal(found, array[layer][None])
    assert json.loads(metadata.pop("positions")) == np.asarray(made.positions).tolist()
    assert metadata == {
        "format": "pt",
        "model": "tiny",
        "fingerprint": MODEL.fingerprint,
        "slots": "5",
        "frozen": "1",
        "first_question": "40",
    }


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"bias": jnp.zeros(LEAD).at[1, 1, 4].set(0.1)},
            "without bias, a cache holds keys and val",
        ),
        (
            {"mask": jnp.ones(LEAD, bool).at[0, 0, 0].set(False)},
            "slots all count, a cache holds no",
        ),
    ],
    ids=["bias", "mask"],
)
def test_caches_hold_no_bias_and_no_mask(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        save_hf_cache(tmp_path / "c", cartridge(**changes), MODEL)
    assert not (tmp_path / "c").exists()
