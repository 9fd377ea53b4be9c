"""Cartridge files: what is saved comes back, and what is damaged or hostile is refused."""

import builtins
import contextlib
import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors import safe_open
from safetensors.numpy import save_file

from jaxmem.recall.cartridges.cartridge import Cartridge
from jaxmem.recall.cartridges.files import load_cartridge, read_header, save_cartridge

FLOATS = [np.float32, np.float16, ml_dtypes.bfloat16]
ARRAYS = ("keys", "values", "bias", "mask", "positions")
HEADER = {
    "__metadata__": {
        "format": "jaxmem-cartridge",
        "version": "1",
        "scale": "20.0",
        "dims": '{"lead": [], "slots": 2, "keys": 3, "values": 1}',
        "frozen": "1",
    },
    "keys": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
    "values": {"dtype": "F32", "shape": [2, 1], "data_offsets": [24, 32]},
}
EXTRAS = {
    "bias": {"dtype": "F32", "shape": [2], "data_offsets": [32, 40]},
    "positions": {"dtype": "I32", "shape": [2], "data_offsets": [40, 48]},
    "mask": {"dtype": "BOOL", "shape": [2], "data_offsets": [48, 50]},
}
DATA = np.arange(8, dtype="<f4").tobytes()
EXTRA_DATA = np.float32([0.5, -np.inf]).tobytes() + np.int32([3, 4]).tobytes() + b"\1\0"


def pack(header: Any, data: bytes = DATA) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def edited(**changes: Any) -> dict[str, Any]:
    """HEADER with entries replaced, or left out if None; `meta_x` changes the metadata's x."""
    header: dict[str, Any] = json.loads(json.dumps(HEADER))
    for name, change in changes.items():
        part = header["__metadata__"] if name.startswith("meta_") else header
        name = name.removeprefix("meta_")
        if change is None:
            del part[name]
        elif isinstance(change, dict) and isinstance(part.get(name), dict):
            part[name] |= change
        else:
            part[name] = change
    return header


def check_equal(found: Cartridge, wanted: Cartridge) -> None:
    for name in ARRAYS:
        a, b = getattr(found, name), getattr(wanted, name)
        assert (a is None) == (b is None), name
        if a is not None:
            assert isinstance(a, jax.Array)
            assert (a.dtype, a.shape) == (b.dtype, b.shape), name
            assert np.asarray(a).tobytes() == np.asarray(b).tobytes(), name
    assert found.scale == float(wanted.scale)
    assert found.frozen == wanted.frozen
    assert found.first_question == wanted.first_question


@st.composite
def cartridges(draw: st.DrawFn) -> Cartridge:
    lead = draw(st.lists(st.integers(1, 3), max_size=3).map(tuple))
    slots, dim, value_dim = (draw(st.integers(1, 5)) for _ in range(3))

    def floats(*shape: int) -> np.ndarray:
        kind = draw(st.sampled_from(FLOATS))
        wide = draw(hnp.arrays(np.float32, shape, elements=st.floats(-6e4, 6e4, width=32)))
        return wide.astype(kind)

    def maybe(strategy: st.SearchStrategy) -> Any:
        return draw(st.none() | strategy)

    return Cartridge(
        floats(*lead, slots, dim),
        floats(*lead, slots, value_dim),
        draw(st.floats(allow_nan=False, allow_infinity=False)),
        bias=floats(*lead, slots) if draw(st.booleans()) else None,
        mask=maybe(hnp.arrays(bool, (*lead, slots))),
        positions=maybe(
            hnp.arrays(
                np.int32,
                (*draw(st.sampled_from([(), lead])), slots),
                elements=st.integers(0, 2**31 - 1),
            )
        ),
        first_question=maybe(st.integers(0, 2**31 - 1)),
        frozen=draw(st.integers(0, slots)),
    )


NAMES = st.text(max_size=8).filter(
    lambda n: n not in ("format", "version", "scale", "dims", "frozen", "first_question")
)


@given(made=cartridges(), metadata=st.dictionaries(NAMES, st.text(max_size=20), max_size=3))
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_round_trips(tmp_path: Path, made: Cartridge, metadata: dict[str, str]) -> None:
    path = tmp_path / "c.safetensors"
    save_cartridge(path, made, metadata)
    found, strings = load_cartridge(path)
    check_equal(found, made)
    assert strings == metadata
    assert os.listdir(tmp_path) == ["c.safetensors"]  # no temporary file is left


def test_scales_and_questions_may_be_arrays(tmp_path: Path) -> None:
    made = Cartridge(
        jnp.ones((2, 3)), jnp.ones((2, 1)), jnp.float32(0.1), first_question=jnp.int32(7)
    )
    save_cartridge(tmp_path / "c", made)
    found, _ = load_cartridge(str(tmp_path / "c"))
    assert jnp.float32(found.scale) == jnp.float32(0.1)
    assert found.first_question == 7


def test_doubles(tmp_path: Path) -> None:
    made = Cartridge(np.full((2, 3), 1 / 3), np.ones((2, 1)), 1 / 3)
    save_cartridge(tmp_path / "c", made)
    with jax.enable_x64(True):
        check_equal(load_cartridge(tmp_path / "c")[0], made)
    single = load_cartridge(tmp_path / "c")[0]
    assert single.keys.dtype == jnp.float32
    assert single.scale == 1 / 3
    save_cartridge(tmp_path / "c", Cartridge(np.full((2, 3), 1e300), np.ones((2, 1))))
    with pytest.raises(ValueError, match="finite numbers in keys, got inf"):
        load_cartridge(tmp_path / "c")


def test_views_are_saved_in_their_own_order(tmp_path: Path) -> None:
    keys = np.arange(24, dtype=np.float32).reshape(4, 6).T[::2]
    save_cartridge(tmp_path / "c", Cartridge(keys, np.ones((3, 1), np.float32)))
    np.testing.assert_array_equal(load_cartridge(tmp_path / "c")[0].keys, keys)


def test_the_library_reads_it_and_what_the_library_writes_is_read(tmp_path: Path) -> None:
    made = Cartridge(
        jnp.full((3, 2, 4), 1.1, jnp.float16), jnp.ones((3, 2, 5)), positions=jnp.arange(2)
    )
    save_cartridge(tmp_path / "c", made, {"seed": "7"})
    with safe_open(tmp_path / "c", "np") as file:
        assert sorted(file.keys()) == ["keys", "positions", "values"]
        np.testing.assert_array_equal(file.get_tensor("keys"), made.keys)
        metadata = file.metadata()
    assert metadata == {
        "format": "jaxmem-cartridge",
        "version": "1",
        "scale": "20.0",
        "dims": '{"lead": [3], "slots": 2, "keys": 4, "values": 5}',
        "frozen": "0",
        "seed": "7",
    }
    tensors = {name: np.asarray(getattr(made, name)) for name in ("keys", "values", "positions")}
    save_file(tensors, tmp_path / "d", metadata)
    check_equal(load_cartridge(tmp_path / "d")[0], made)


def test_the_example_of_this_file_loads(tmp_path: Path) -> None:
    path = tmp_path / "c"
    path.write_bytes(pack(HEADER))
    found, strings = load_cartridge(path)
    np.testing.assert_array_equal(found.keys, np.arange(6).reshape(2, 3))
    assert (found.scale, found.frozen, strings) == (20.0, 1, {})
    path.write_bytes(pack(edited(**EXTRAS, meta_first_question="9", meta_a="b"), DATA + EXTRA_DATA))
    found, strings = load_cartridge(path)
    np.testing.assert_array_equal(found.bias, [0.5, -np.inf])
    np.testing.assert_array_equal(found.mask, [True, False])
    np.testing.assert_array_equal(found.positions, [3, 4])
    assert (found.first_question, strings) == (9, {"a": "b"})


def test_headers_are_read_without_the_numbers(tmp_path: Path) -> None:
    path = tmp_path / "c"
    path.write_bytes(pack(edited(**EXTRAS, meta_first_question="9", meta_a="b"), DATA + EXTRA_DATA))
    shapes, types, fields, metadata = read_header(path)
    assert shapes == {
        "keys": (2, 3),
        "values": (2, 1),
        "bias": (2,),
        "positions": (2,),
        "mask": (2,),
    }
    assert (types["keys"], types["mask"]) == ("F32", "BOOL")
    assert fields == {"scale": 20.0, "frozen": 1, "first_question": 9}
    assert metadata == {"a": "b"}
    path.write_bytes(pack(HEADER, DATA[:-1]))
    with pytest.raises(ValueError, match="side by side"):
        read_header(path)


@pytest.mark.parametrize("shape", [(1, 2, 5), (2, 5), (5, 3), (2, 3, 5, 1), (3, 2, 5)])
def test_positions_are_of_slots_or_of_all_there_is(tmp_path: Path, shape: tuple[int, ...]) -> None:
    keys = np.ones((2, 3, 5, 4), np.float32)
    made = Cartridge(keys, keys, positions=np.zeros(shape, np.int32))
    with pytest.raises(ValueError, match=r"positions \(5,\) or \(2, 3, 5\) beside keys"):
        save_cartridge(tmp_path / "c", made)


def doubled(name: str) -> bytes:
    text = json.dumps(HEADER)
    entry = json.dumps(HEADER["keys"])
    return pack(text.replace('"keys": {"dtype"', f'"{name}": {entry}, "keys": {{"dtype"').encode())


HUGE = {"dtype": "F32", "shape": [2**40, 3], "data_offsets": [0, 12 * 2**40]}
DEEP = b'{"keys":' + b"[" * 200_000


DAMAGED = (
    [
        (b"", "got 0 bytes"),
        (b"abc", "got 3 bytes"),
        (np.random.default_rng(0).bytes(4096), "expected a safetensors file"),
        (pickle.dumps({"trainable_keys": [1.0] * 99}), "expected a safetensors file"),
        (b"PK\3\4" + bytes(400), "expected a safetensors file"),  # torch.save writes a zip
        ((2**63).to_bytes(8, "little") + b"{}", "header of 2 to"),
        ((2**64 - 1).to_bytes(8, "little") + b"{}", "header of 2 to"),
        ((2).to_bytes(8, "little") + b"{", "header of 2 to"),
        (pack(b"{}", b""), "expected format 'jaxmem-cartridge', got None"),
        (pack(b"[]", b""), "expected a header of tensors by name, got []"),
        (pack(b"\xff\xfe", b""), "expected a JSON header"),
        (pack(b"{'a': 1}", b""), "expected a JSON header"),
        (pack(DEEP, b""), "expected a JSON header"),
        (pack(b'{"a": ' + b"9" * 5000 + b"}", b""), "expected a JSON header"),
        (pack(HEADER, DATA[:-1]), "expected 32 bytes of tensors side by side, got 31"),
        (pack(HEADER, DATA + b"\0"), "expected 32 bytes of tensors side by side, got 33"),
        (pack(edited(keys=HUGE)), "side by side"),
        (pack(edited(keys={"shape": [2**62, 2**62]})), "bytes of keys"),
        (pack(edited(keys={"shape": [2, 2]})), "expected 16 bytes of keys"),
        (pack(edited(keys={"shape": [2, 3, 0]})), "shape of 1 to 8 sizes"),
        (pack(edited(keys={"shape": []})), "shape of 1 to 8 sizes"),
        (pack(edited(keys={"shape": [1] * 9})), "shape of 1 to 8 sizes"),
        (pack(edited(keys={"shape": [2.0, 3]})), "shape of 1 to 8 sizes"),
        (pack(edited(keys={"shape": [True, 3]})), "shape of 1 to 8 sizes"),
        (pack(edited(keys={"shape": [-2, -3]})), "shape of 1 to 8 sizes"),
        (pack(edited(keys={"shape": [6]})), "keys [..., P, K] and values [..., P, V], got (6,)"),
        (pack(edited(keys={"shape": [3, 2]})), "got (3, 2) and (2, 1)"),
        (pack(edited(keys={"shape": [1, 2, 3]})), "got (1, 2, 3) and (2, 1)"),
        (pack(edited(keys={"dtype": "I32"})), "keys as BF16 or F16 or F32 or F64, got 'I32'"),
        (pack(edited(keys={"dtype": ["F32"]})), "keys as BF16 or F16 or F32 or F64"),
        (pack(edited(keys={"data_offsets": [8, 32]})), "side by side"),
        (pack(edited(keys={"data_offsets": [24, 0]})), "expected 24 bytes of keys"),
        (pack(edited(keys={"data_offsets": [0, 24, 24]})), "two data_offsets"),
        (pack(edited(keys={"data_offsets": "0"})), "two data_offsets"),
        (pack(edited(keys={"extra": 1})), "expected dtype, shape and data_offsets of keys"),
        (pack(edited(keys=[1])), "expected dtype, shape and data_offsets of keys"),
        (pack(edited(keys=None)), "side by side"),
        (pack(edited(keys=None, values=None), b""), "keys and values, got none"),
        (pack(edited(prompt_embeddings=HEADER["keys"])), "got 'prompt_embeddings'"),
        (doubled("keys"), "expected names that differ, got 'keys' twice"),
        (doubled("__metadata__"), "expected names that differ, got '__metadata__' twice"),
        (pack(edited(__metadata__=None)), "expected format"),
        (pack(edited(__metadata__=[])), "metadata of strings by name"),
        (pack(edited(meta_frozen=1)), "metadata of strings by name"),
        (pack(edited(meta_format="pt")), "expected format 'jaxmem-cartridge', got 'pt'"),
        (pack(edited(meta_version="2")), "expected version 1, got '2', written by a newer jaxmem"),
        (pack(edited(meta_version="9" * 5000)), "written by a newer jaxmem"),
        (pack(edited(meta_version="one")), "expected version 1, got 'one'"),
        (pack(edited(meta_version=None)), "expected version 1, got ''"),
        (pack(edited(meta_scale=None)), "got none for scale"),
        (pack(edited(meta_scale="nan")), "expected a finite scale, got 'nan'"),
        (pack(edited(meta_scale="twenty\n")), "expected a number for scale, got 'twenty\\n'"),
        (pack(edited(meta_dims="{}")), "expected dims"),
        (pack(edited(meta_frozen="3")), "expected 0 to 2 frozen slots, got 3"),
        (pack(edited(meta_frozen="-1")), "expected 0 to 2 frozen slots, got -1"),
        (pack(edited(meta_frozen="1.0")), "expected a number for frozen"),
        (pack(edited(meta_frozen="9" * 5000)), "expected a number for frozen"),
        (pack(edited(meta_first_question="-1")), "first_question of 0 or more, got -1"),
        (pack(edited(meta_first_question=str(2**40))), "first_question"),
        (pack(HEADER, b"\0\0\xc0\x7f" + DATA[4:]), "in keys, got nan at [0, 0]"),
        (pack(HEADER, DATA[:-4] + b"\0\0\x80\xff"), "in values, got -inf at [1, 0]"),
    ]
    + [
        (
            pack(edited(**EXTRAS | {name: EXTRAS[name] | {"shape": [1, 2]}}), DATA + EXTRA_DATA),
            f"expected {name} (2,) beside keys (2, 3), got (1, 2)",
        )
        for name in EXTRAS
    ]
    + [
        (
            pack(edited(**EXTRAS), DATA + EXTRA_DATA[:-1] + b"\2"),
            "expected bytes 0 and 1 in mask",
        ),
        (
            pack(edited(**EXTRAS), DATA + EXTRA_DATA[:-3] + b"\xff\1\1"),
            "expected 0 to 2147483647 in positions, got -",
        ),
        (
            pack(edited(**EXTRAS), DATA + b"\0\0\x80\x7f" + EXTRA_DATA[4:]),
            "expected numbers below infinity in bias, got inf at [0]",
        ),
    ]
)


@pytest.mark.parametrize(
    ("content", "message"), DAMAGED, ids=[message[:40] for _, message in DAMAGED]
)
def test_refusals_name_the_file_and_what_was_expected(
    tmp_path: Path, content: bytes, message: str
) -> None:
    path = tmp_path / "c.safetensors"
    path.write_bytes(content)
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        load_cartridge(path)
    text = str(caught.value)
    assert text.startswith(f"{path}: expected ")
    assert message in text
    assert "\n" not in text
    assert len(text) < 400 + len(str(path))


def test_what_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected a cartridge file"):
        load_cartridge(tmp_path)
    with pytest.raises(FileNotFoundError):
        load_cartridge(tmp_path / "none")
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(ValueError, match="expected a cartridge file"):
            load_cartridge(tmp_path / "pipe")


def test_a_claim_of_terabytes_takes_no_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    opened = builtins.open

    class Counted:
        def __init__(self, file: Any) -> None:
            self.file = file

        def fileno(self) -> int:
            return self.file.fileno()

        def read(self, size: int) -> bytes:
            read.append(size)
            return self.file.read(size)

    @contextlib.contextmanager
    def counting(*args: Any):  # type: ignore[no-untyped-def]
        with opened(*args) as file:
            yield Counted(file)

    monkeypatch.setattr("builtins.open", counting)
    claim = edited(keys=HUGE, values={"shape": [2**40, 1], "data_offsets": [12 * 2**40, 2**44]})
    for content in (pack(claim), (2**60).to_bytes(8, "little") + b"{" * 64):
        (tmp_path / "c").write_bytes(content)
        with pytest.raises(ValueError, match="expected"):
            load_cartridge(tmp_path / "c")
    assert sum(read) < 2000


GOOD = pack(edited(**EXTRAS, meta_first_question="9", meta_a="b"), DATA + EXTRA_DATA)


def loads_or_is_refused(path: Path, content: bytes) -> bool:
    path.write_bytes(content)
    try:
        load_cartridge(path)
    except ValueError as error:
        text = str(error)
    else:
        return True
    assert text.startswith(f"{path}: expected ")
    assert "\n" not in text
    return False


@given(
    where=st.lists(st.integers(0, len(GOOD) - 1), min_size=1, max_size=4),
    flips=st.lists(st.integers(1, 255), min_size=4, max_size=4),
)
@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_flipped_bytes_raise_nothing_but_value_errors(
    tmp_path: Path, where: list[int], flips: list[int]
) -> None:
    content = bytearray(GOOD)
    for place, flip in zip(where, flips):
        content[place] ^= flip
    loads_or_is_refused(tmp_path / "c", bytes(content))


def test_no_shorter_or_longer_file_loads(tmp_path: Path) -> None:
    for size in range(len(GOOD)):
        assert not loads_or_is_refused(tmp_path / "c", GOOD[:size])
    assert not loads_or_is_refused(tmp_path / "c", GOOD + b"\0")
    assert loads_or_is_refused(tmp_path / "c", GOOD)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)


@given(name=st.sampled_from(["keys", "bias", "__metadata__"]), part=st.text(max_size=3), value=JSON)
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_other_json_raises_nothing_but_value_errors(
    tmp_path: Path, name: str, part: str, value: Any
) -> None:
    header: Any = edited(**EXTRAS)
    for field in (*header[name], part):
        changed = {**header, name: {**header[name], field: value}}
        loads_or_is_refused(tmp_path / "c", pack(changed, DATA + EXTRA_DATA))
    loads_or_is_refused(tmp_path / "c", pack({**header, name: value}, DATA + EXTRA_DATA))


ONE = np.ones((2, 3), np.float32)


@pytest.mark.parametrize(
    ("make", "metadata", "message"),
    [
        (lambda: Cartridge(ONE * np.nan, ONE), {}, "finite numbers in keys, got nan at [0, 0]"),
        (lambda: Cartridge(ONE, ONE[:1]), {}, "got (2, 3) and (1, 3)"),
        (lambda: Cartridge(ONE[:0], ONE[:0]), {}, "got (0, 3) and (0, 3)"),
        (lambda: Cartridge(ONE.astype(int), ONE), {}, "keys as BF16 or F16 or F32 or F64"),
        (lambda: Cartridge(ONE, ONE, np.nan), {}, "finite scale"),
        (lambda: Cartridge(ONE, ONE, np.ones(2)), {}, "a number for the scale"),
        (lambda: Cartridge(ONE, ONE, frozen=3), {}, "frozen must be at most 2, got 3"),
        (lambda: Cartridge(ONE, ONE, bias=np.ones(3, np.float32)), {}, "bias (2,)"),
        (lambda: Cartridge(ONE, ONE, mask=np.ones(2)), {}, "mask as BOOL"),
        (lambda: Cartridge(ONE, ONE, positions=np.int32([0, -1])), {}, "positions, got -1 at [1]"),
        (lambda: Cartridge(ONE, ONE, first_question=-1), {}, "first_question"),
        (lambda: Cartridge(ONE, ONE, first_question=1.5), {}, "first_question"),
        (lambda: Cartridge(ONE, ONE), {"seed": 7}, "strings by name, got {'seed': 7}"),
        (lambda: Cartridge(ONE, ONE), {"scale": "7"}, "got 'scale'"),
        (lambda: Cartridge(ONE, ONE), {"a": "\ud800"}, "expected text in metadata"),
        (lambda: Cartridge(ONE, ONE), {"a": "b" * 2**20}, "bytes of metadata"),
    ],
    ids=range(16),
)
def test_what_could_not_be_loaded_is_not_saved(
    tmp_path: Path, make: Callable[[], Cartridge], metadata: dict[str, Any], message: str
) -> None:
    path = tmp_path / "c"
    path.write_bytes(b"before")
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        save_cartridge(path, make(), metadata)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert path.read_bytes() == b"before"
    assert os.listdir(tmp_path) == ["c"]


def test_the_same_cartridge_gives_the_same_bytes(tmp_path: Path) -> None:
    told = {f"{name} \u00e9\u20ac\n\x7f": name * 9 for name in "zebra"}
    for number in range(6):  # the library alone orders metadata by chance
        save_cartridge(tmp_path / str(number), Cartridge(ONE, ONE, first_question=3), told)
    assert len({(tmp_path / str(number)).read_bytes() for number in range(6)}) == 1
    assert load_cartridge(tmp_path / "0")[1] == told


def test_saving_without_the_library_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Cartridge(ONE, ONE)
    save_cartridge(tmp_path / "c", made)
    imported = builtins.__import__

    def without(name: str, *args: Any) -> Any:
        if name.startswith("safetensors"):
            raise ImportError(name)
        return imported(name, *args)

    monkeypatch.setattr("builtins.__import__", without)
    with pytest.raises(ValueError, match=r"pip install 'jaxmem\[lm\]'"):
        save_cartridge(tmp_path / "d", made)
    check_equal(load_cartridge(tmp_path / "c")[0], made)  # reading needs no extra


def test_a_failed_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Cartridge(ONE, ONE)
    save_cartridge(tmp_path / "c", made)

    def broken(tensors: Any, path: Path, metadata: Any) -> None:
        Path(path).write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr("safetensors.numpy.save_file", broken)
    with pytest.raises(OSError, match="disk full"):
        save_cartridge(tmp_path / "c", Cartridge(2 * ONE, ONE))
    check_equal(load_cartridge(tmp_path / "c")[0], made)
    assert os.listdir(tmp_path) == ["c"]
