"""Official .pt files load without torch; zips and tensors that lie are refused."""

import pickle
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch_writer import (
    CONFIG,
    LIST,
    MODEL,
    NUMBERS,
    OFFICIAL,
    Made,
    Name,
    Stored,
    Writer,
    lists,
    pickled,
    refused,
    zipped,
)

from jaxmem.lm.cartridges.formats.torch_file import load_torch
from jaxmem.lm.config import Config


def test_a_file_of_torch_loads() -> None:
    before = "torch" in sys.modules
    found = load_torch(OFFICIAL, MODEL)
    assert ("torch" in sys.modules) == before
    assert found.keys.dtype == "bfloat16"
    np.testing.assert_array_equal(np.asarray(found.keys, np.float32), NUMBERS[0])
    np.testing.assert_array_equal(np.asarray(found.values, np.float32), NUMBERS[1])
    np.testing.assert_array_equal(found.positions, np.arange(4))
    assert (found.frozen, found.first_question, found.scale) == (1, 4, CONFIG.scale)


@pytest.mark.parametrize("frozen", [0, 1, 3, 4])
@pytest.mark.parametrize("old", ["frozen", "fixed"])
def test_files_written_here_load(tmp_path: Path, frozen: int, old: str) -> None:
    writer = Writer()
    content = lists(writer, frozen, old)
    if not frozen:
        content |= {f"{old}_keys": writer.layers([]), f"{old}_values": []}
    (tmp_path / "c.pt").write_bytes(writer.file(content))
    found = load_torch(tmp_path / "c.pt", MODEL)
    np.testing.assert_array_equal(found.keys, NUMBERS[0])
    np.testing.assert_array_equal(found.values, NUMBERS[1])
    assert (found.frozen, found.keys.dtype) == (frozen, np.float32)


def test_views_and_lists_load(tmp_path: Path) -> None:
    """Tensors with strides of their own, several in one storage, in plain lists."""
    writer = Writer()
    every = np.moveaxis(NUMBERS, 3, 1)  # key or value, P, L, G, K
    one = writer.storage(every)
    strides = tuple(size // 4 for size in np.ascontiguousarray(every).strides)
    content = {}
    for side, which in enumerate(("keys", "values")):
        content[f"trainable_{which}"] = [
            writer.tensor(
                NUMBERS[side, layer][None],
                storage=one,
                offset=side * strides[0] + layer * strides[2],
                shape=(1, 2, 4, 4),
                strides=(7, strides[3], strides[1], strides[4]),
            )
            for layer in range(2)
        ]
    (tmp_path / "c.pt").write_bytes(writer.file(content))
    found = load_torch(tmp_path / "c.pt", MODEL)
    np.testing.assert_array_equal(found.keys, NUMBERS[0])
    np.testing.assert_array_equal(found.values, NUMBERS[1])
    assert found.frozen == 0


def changed(name: str, **changes: Any) -> bytes:
    """A file whose first tensor of a list is changed."""
    writer = Writer()
    content = lists(writer)
    slots = 1 if name.startswith("frozen") else 3
    first = writer.tensor(np.ones((1, 2, slots, 4), np.float32), **changes)
    second = writer.tensor(np.ones((1, 2, slots, 4), np.float32))
    return writer.file(content | {name: [first, second]})


def shaped(*shape: int, layers: int = 2, name: str = "trainable_keys") -> bytes:
    writer = Writer()
    return writer.file(lists(writer) | {name: writer.layers([np.ones(shape, np.float32)] * layers)})


def of_lists(make: Any) -> bytes:
    writer = Writer()
    return writer.file(make(writer, lists(writer)))


def without(name: str) -> bytes:
    return of_lists(lambda writer, there: {n: part for n, part in there.items() if n != name})


def shared(writer: Writer, there: Any) -> Any:
    """All tensors are the same numbers: more to write than there is."""
    one = writer.tensor(np.ones((1, 2, 4, 4), np.float32))
    key = str(len(writer.contents) - 1)
    stored = Stored(("storage", Name("torch", "FloatStorage"), key, "cpu", 32))
    same = writer.tensor(np.ones((1, 2, 4, 4), np.float32), storage=stored)
    return {"trainable_keys": [one, same], "trainable_values": [same, same]}


BAD_TENSORS = {
    "heads": (shaped(1, 3, 3, 4), "trainable_keys [1, 2, 3, 4] of layer 0, got [1, 3, 3, 4]"),
    "dim": (shaped(1, 2, 3, 8), "[1, 2, 3, 4] of layer 0, got [1, 2, 3, 8]"),
    "batch": (shaped(2, 2, 3, 4), "got [2, 2, 3, 4]"),
    "axes": (shaped(2, 3, 4), "[1, 2, slots, 4] of layer 0, got [2, 3, 4]"),
    "values": (shaped(1, 2, 2, 4, name="trainable_values"), "trainable_values [1, 2, 3, 4]"),
    "layers": (shaped(1, 2, 3, 4, layers=3), "trainable_keys of the model's 2 layers, got 3"),
    "one layer": (shaped(1, 2, 3, 4, layers=1), "2 layers, got 1"),
    "no layers": (shaped(1, 2, 3, 4, layers=0), "2 layers, got 0"),
    "frozen": (shaped(1, 2, 2, 4, name="frozen_values"), "frozen_values [1, 2, 1, 4] of layer 0"),
    "frozen keys only": (without("frozen_values"), "frozen_values of the model's 2 layers, got 0"),
    "no values": (without("trainable_values"), "got none of trainable_values"),
    "other lists": (
        of_lists(lambda writer, there: there | {"beta": []}),
        "trainable_keys, trainable_values, got 'beta'",
    ),
    "frozen and fixed": (
        of_lists(lambda writer, there: there | {"fixed_keys": there["frozen_keys"]}),
        "frozen or fixed slots, got both",
    ),
    "numbers in a list": (
        of_lists(lambda writer, there: there | {"frozen_keys": [1, 2]}),
        "expected tensors in 'frozen_keys', got an int",
    ),
    "names in a list": (
        of_lists(
            lambda writer, there: there | {"frozen_keys": Made(LIST, {"_parameters": {"a": None}})}
        ),
        "expected parameters 0, 1, 2 and so on in 'frozen_keys', got others",
    ),
    "another size": (
        of_lists(
            lambda writer, there: (
                there | {"frozen_keys": Made(LIST, {"_parameters": {}, "_size": 2})}
            )
        ),
        "parameters 0, 1, 2 and so on",
    ),
    "beyond its storage": (
        changed("trainable_keys", offset=1),
        "expected a tensor within its storage of 24 numbers, got [1, 2, 3, 4]",
    ),
    "long strides": (changed("trainable_keys", strides=(24, 12, 4, 3)), "within its storage"),
    "endless strides": (changed("trainable_keys", strides=(2**40, 12, 4, 1)), "sizes and strides"),
    "backwards": (changed("trainable_keys", strides=(24, 12, 4, -1)), "sizes and strides"),
    "stretched": (
        changed("trainable_keys", shape=(1, 2, 2**39, 4), strides=(0, 0, 0, 0)),
        "within its storage",
    ),
    "sizes that overflow": (
        changed("trainable_keys", shape=(2**39,) * 8, strides=(1,) * 8),
        "within its storage",
    ),
    "too many axes": (
        changed("trainable_keys", shape=(1,) * 9, strides=(1,) * 9),
        "a tensor of 1 to 8 sizes",
    ),
    "no axes": (changed("trainable_keys", shape=(), strides=()), "a tensor of 1 to 8 sizes"),
    "strides of other axes": (changed("trainable_keys", strides=(1, 1)), "sizes and strides"),
    "sizes that are flags": (changed("trainable_keys", shape=(True, 2, 3, 4)), "sizes and strides"),
    "shared": (of_lists(shared), "expected tensors with numbers of their own"),
    "storage of another size": (
        changed(
            "trainable_keys",
            storage=Stored(("storage", Name("torch", "FloatStorage"), "0", "cpu", 25)),
        ),
        "expected 100 bytes of data/0, got 96",
    ),
    "no such storage": (
        changed(
            "trainable_keys",
            storage=Stored(("storage", Name("torch", "FloatStorage"), "99", "cpu", 24)),
        ),
        "expected 96 bytes of data/99, got none",
    ),
    "two types": (
        changed(
            "trainable_keys",
            storage=Stored(("storage", Name("torch", "HalfStorage"), "0", "cpu", 48)),
        ),
        "expected numbers of one type, got float16 and float32",
    ),
}


@pytest.mark.parametrize("name", BAD_TENSORS)
def test_tensors_that_do_not_fit_are_refused(tmp_path: Path, name: str) -> None:
    content, message = BAD_TENSORS[name]
    assert message in refused(tmp_path / "c.pt", content)


def test_numbers_that_are_none_are_refused(tmp_path: Path) -> None:
    writer = Writer()
    content = lists(writer)
    writer.contents[0] = np.full(24, np.nan, np.float32).tobytes()
    assert "expected finite keys" in refused(tmp_path / "c.pt", writer.file(content))


def central(content: bytes, offset: int, change: bytes) -> bytes:
    """A zip with bytes of its first central entry changed."""
    place = content.index(b"PK\1\2") + offset
    return content[:place] + change + content[place + len(change) :]


SMALL = zipped({"a/data.pkl": pickled({}), "a/data/0": bytes(64)})
BOMB = zipped({"a/data.pkl": bytes(10**7)}, zipfile.ZIP_DEFLATED)
ENDING = SMALL.index(b"PK\5\6")
ZIPS = {
    "nothing": (b"", "starts with b''"),
    "text": (b"hello", "starts with b'hell'"),
    "pickle": (pickle.dumps({}), "expected a zip as torch.save writes it since 1.6"),
    "start only": (b"PK\3\4", "expected a sound zip"),
    "bomb": (BOMB, "stored as they are in the zip, got 'a/data.pkl' compressed"),
    "sizes that differ": (central(SMALL, 24, b"\xff\xff\xff\x7f"), "stored as they are"),
    "both sizes": (central(SMALL, 20, b"\xff\xff\xff\x7f" * 2), "bytes in the zip, got 2147483711"),
    "smaller": (central(SMALL, 20, b"\1\0\0\0" * 2), "expected a sound zip"),
    "encrypted": (central(SMALL, 8, b"\1"), "'a/data.pkl' encrypted"),
    "another checksum": (central(SMALL, 16, b"\1\2\3\4"), "expected a sound zip, got"),
    "another place": (central(SMALL, 42, b"\xff\xff\xff\x7f"), "expected a sound zip"),
    "another name": (central(SMALL, 46, b"b"), "expected a sound zip"),
    "a later version": (central(SMALL, 6, b"\xff"), "expected a sound zip"),
    "directory elsewhere": (
        SMALL[: ENDING + 16] + b"\xff\xff\xff\x7f" + SMALL[ENDING + 20 :],
        "expected a sound zip",
    ),
    "directory too long": (
        SMALL[: ENDING + 12] + b"\xff\xff\xff\x7f" + SMALL[ENDING + 16 :],
        "expected a sound zip",
    ),
    "no pickle": (zipped({"a/data/0": b"1234"}), "expected one data.pkl in the zip, got 0"),
    "two pickles": (
        zipped({"a/data.pkl": b".", "b/data.pkl": b"."}),
        "expected one data.pkl in the zip, got 2",
    ),
    "big numbers": (
        zipped({"a/data.pkl": pickled({}), "a/byteorder": b"big"}),
        "expected numbers in little byte order, got b'big'",
    ),
    "no lists": (SMALL, "got none of trainable_keys"),
}


@pytest.mark.parametrize("name", ZIPS)
def test_zips_that_lie_are_refused(tmp_path: Path, name: str) -> None:
    content, message = ZIPS[name]
    assert message in refused(tmp_path / "c.pt", content)


def test_names_twice_are_refused(tmp_path: Path) -> None:
    content = zipped({"a/data.pkl": pickled({}), "b/data.pkl": b"."})
    content = content.replace(b"b/data.pkl", b"a/data.pkl")
    assert "'a/data.pkl' twice" in refused(tmp_path / "c.pt", content)


def test_what_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="something that is no file"):
        load_torch(tmp_path, MODEL)
    with pytest.raises(FileNotFoundError):
        load_torch(tmp_path / "none", MODEL)


def test_no_shorter_file_loads(tmp_path: Path) -> None:
    content = OFFICIAL.read_bytes()
    for size in range(0, len(content), 41):
        refused(tmp_path / "c.pt", content[:size])


@given(
    where=st.lists(st.integers(0, OFFICIAL.stat().st_size - 1), min_size=1, max_size=3),
    flips=st.lists(st.integers(1, 255), min_size=3, max_size=3),
)
@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_flipped_bytes_raise_nothing_but_value_errors(
    tmp_path: Path, where: list[int], flips: list[int]
) -> None:
    content = bytearray(OFFICIAL.read_bytes())
    for place, flip in zip(where, flips):
        content[place] ^= flip
    loads_or_is_refused(tmp_path / "c.pt", bytes(content))


def loads_or_is_refused(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    try:
        load_torch(path, MODEL)
    except ValueError as error:
        text = str(error)
    else:
        return
    assert text.startswith(f"{path}: ")
    assert "\n" not in text


def test_another_model_is_refused() -> None:
    for change in ({"layers": 3}, {"kv_heads": 4}, {"head_dim": 8}):
        other = SimpleNamespace(config=Config(**{**vars(CONFIG), **change}))
        with pytest.raises(ValueError, match="expected (frozen|trainable)_keys"):
            load_torch(OFFICIAL, other)  # type: ignore[arg-type]
    short = SimpleNamespace(config=Config(**{**vars(CONFIG), "positions": 4}))
    with pytest.raises(ValueError, match="the model's 4 positions"):
        load_torch(OFFICIAL, short)  # type: ignore[arg-type]
