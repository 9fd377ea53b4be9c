"""Official .pt files load without torch, and pickles that want more than tensors are refused."""

import contextlib
import io
import os
import pickle
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jaxmem.lm.cartridges.formats import torch_pickle
from jaxmem.lm.cartridges.formats.torch_file import load_torch
from jaxmem.lm.config import Config

OFFICIAL = Path(__file__).parent / "data" / "official.pt"
CONFIG = Config(
    vocabulary=16,
    hidden=16,
    layers=2,
    heads=4,
    kv_heads=2,
    head_dim=4,
    feed_forward=8,
    positions=64,
)
MODEL: Any = SimpleNamespace(config=CONFIG, name="tiny", fingerprint="0" * 16)
NUMBERS = np.arange(128, dtype=np.float32).reshape(2, 2, 2, 4, 4)  # key or value, L, G, P, K


class Name(NamedTuple):
    """A name that a pickle asks for."""

    module: str
    name: str


class Call(NamedTuple):
    """A call of a name with arguments."""

    called: Any
    arguments: Any


class Made(NamedTuple):
    """A new object with a state."""

    made: Any
    state: Any


class Stored(NamedTuple):
    """A persistent id."""

    told: Any


def code(thing: Any) -> bytes:
    """Instructions that put a thing on the stack; bytes are instructions themselves."""
    simple = {None: b"N", True: b"\x88", False: b"\x89"}
    match thing:
        case bytes():
            return thing
        case None | True | False:
            return simple[thing]
        case int():
            content = thing.to_bytes(9, "little", signed=True)
            return b"\x8a\x09" + content
        case str():
            return b"X" + len(thing.encode()).to_bytes(4, "little") + thing.encode()
        case Name(module, name):
            return b"c" + f"{module}\n{name}\n".encode()
        case Call(called, arguments):
            return code(called) + code(arguments) + b"R"
        case Made(made, state):
            return code(made) + b")\x81" + code(state) + b"b"
        case Stored(told):
            return code(told) + b"Q"
        case tuple():
            return b"(" + b"".join(map(code, thing)) + b"t"
        case list():
            return b"](" + b"".join(map(code, thing)) + b"e"
        case dict():
            pairs = (code(name) + code(part) for name, part in thing.items())
            return b"}(" + b"".join(pairs) + b"u"
    raise TypeError(thing)


def pickled(thing: Any) -> bytes:
    return b"\x80\x02" + code(thing) + b"."


LIST = Name("torch.nn.modules.container", "ParameterList")
TENSOR = Name("torch._utils", "_rebuild_tensor_v2")
PARAMETER = Name("torch._utils", "_rebuild_parameter")
ORDERED = Call(Name("collections", "OrderedDict"), ())


def zipped(entries: dict[str, bytes], how: int = zipfile.ZIP_STORED) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", how) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return made.getvalue()


class Writer:
    """Writes what torch.save would, with any storage, shape and stride."""

    def __init__(self, kind: str = "FloatStorage") -> None:
        self.kind, self.contents = kind, []  # type: str, list[bytes]

    def storage(self, array: np.ndarray, size: int | None = None) -> Stored:
        self.contents.append(np.ascontiguousarray(array).tobytes())
        key = str(len(self.contents) - 1)
        size = array.size if size is None else size
        return Stored(("storage", Name("torch", self.kind), key, "cuda:0", size))

    def tensor(self, array: np.ndarray, **changes: Any) -> Call:
        strides = tuple(stride // array.itemsize for stride in array.strides)
        told = {"storage": None, "offset": 0, "shape": array.shape, "strides": strides} | changes
        storage = self.storage(array) if told["storage"] is None else told["storage"]
        made = Call(
            TENSOR, (storage, told["offset"], told["shape"], told["strides"], False, ORDERED)
        )
        return Call(PARAMETER, (made, True, ORDERED))

    def layers(self, arrays: Any) -> Made:
        tensors = {str(number): self.tensor(array) for number, array in enumerate(arrays)}
        state = {"training": True, "_parameters": tensors, "_buffers": {}, "_size": len(tensors)}
        return Made(
            LIST, state | {"_modules": ORDERED, "_hooks": Call(Name("builtins", "set"), ([],))}
        )

    def file(self, content: Any) -> bytes:
        stored = {f"a/data/{key}": data for key, data in enumerate(self.contents)}
        head = content if isinstance(content, bytes) else pickled(content)
        return zipped({"a/data.pkl": head, "a/byteorder": b"little", **stored})


def lists(writer: Writer, frozen: int = 1, old: str = "frozen", **changes: Any) -> dict[str, Any]:
    """Keys and values of NUMBERS as the official file has them, with parts replaced."""
    found = {}
    for side, which in enumerate(("keys", "values")):
        for part, some in (("trainable", slice(frozen, None)), (old, slice(0, frozen))):
            arrays = [layer[None, :, some] for layer in NUMBERS[side]]
            found[f"{part}_{which}"] = writer.layers(map(np.ascontiguousarray, arrays))
    return found | changes


def refused(path: Path, content: bytes) -> str:
    """What a file is refused with, which names it in one line."""
    path.write_bytes(content)
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        load_torch(path, MODEL)
    text = str(caught.value)
    assert text.startswith(f"{path}: ")
    assert "\n" not in text
    assert len(text) < 500 + len(str(path))
    return text.removeprefix(f"{path}: ")


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


class Evil:
    """What `pickle.load` would run."""

    def __init__(self, *reduced: Any) -> None:
        self.reduced = reduced

    def __reduce__(self) -> Any:
        return self.reduced


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("where", ["alone", "list", "state"])
def test_nothing_is_run(tmp_path: Path, protocol: int, where: str) -> None:
    mark = tmp_path / "mark"
    evil = Evil(os.system, (f"touch {mark}",))
    thing = {"alone": evil, "list": {"trainable_keys": [evil]}, "state": Evil(dict, (), evil)}[
        where
    ]
    content = pickle.dumps(thing, protocol)
    text = refused(tmp_path / "c.pt", zipped({"a/data.pkl": content}))
    # the oldest forms begin with a step or a name that is refused before
    assert text.startswith("refused: the pickle ")
    assert "system" in text or protocol < 2 or where == "state"
    assert not mark.exists()


def calling(*name: str) -> bytes:
    return pickled(Call(Name(*name), ("echo",)))


LONG = b"\x80\x02\x8b" + (2**20).to_bytes(4, "little") + b"\x7f" * 2**20 + b"."
LAUGHS = b"\x80\x02K\1" + b"q\0h\0\x86" * 60 + b"."
HOSTILE = {
    "os.system": (calling("os", "system"), "refused: the pickle calls os.system"),
    "posix.system": (calling("posix", "system"), "calls posix.system"),
    "eval": (calling("builtins", "eval"), "calls builtins.eval"),
    "eval of Python 2": (calling("__builtin__", "eval"), "calls __builtin__.eval"),
    "getattr": (calling("builtins", "getattr"), "calls builtins.getattr"),
    "torch.load": (calling("torch", "load"), "calls torch.load"),
    "storage from bytes": (
        calling("torch.storage", "_load_from_bytes"),
        "calls torch.storage._load_from_bytes",
    ),
    "dotted": (calling("torch", "FloatStorage.__init__.__globals__"), "__globals__"),
    "long name": (calling("os", "s" * 9000), "refused: the pickle calls os.ss"),
    "odd name": (calling("o\ts", "sys\x7ftem"), "refused: the pickle calls o\\ts.sys\\x7ftem"),
    "named only": (pickled({"a": Name("os", "system")}), "calls os.system"),
    "nested": (
        pickled({"trainable_keys": Made(LIST, {"_parameters": {"0": Name("os", "system")}})}),
        "calls os.system",
    ),
    "as an argument": (pickled(Call(PARAMETER, (Name("os", "system"), 1, 1))), "calls os.system"),
    "stack global": (b"\x80\x04\x8c\2os\x8c\6system\x93.", "calls os.system"),
    "stack global out of the memo": (
        b"\x80\x04\x8c\6system\x94\x8c\2os\x94h\1h\0\x93.",
        "calls os.system",
    ),
    "stack global of no strings": (b"\x80\x04K\1K\2\x93.", "a name that is no string"),
    "memo of 2^32 - 1": (b"\x80\x02Nr\xff\xff\xff\xff" + code(Name("os", "system")), "os.system"),
    "memo that is not there": (b"\x80\x02h\7.", "recalls what is not there"),
    "memo written again": (b"\x80\x02" + code(TENSOR) + b"q\0" + b"Nq\0h\0)R.", "calls nothing"),
    "instance": (b"(X\4\0\0\0echoios\nsystem\n.", "refused: the pickle calls os.system"),
    "object": (b"\x80\x02(cos\nsystem\nX\4\0\0\0echoo.", "calls os.system"),
    "object of a known name": (b"\x80\x02(" + code(LIST) + b"o.", "has the step OBJ"),
    "new with keywords": (b"\x80\x04" + code(LIST) + b")}\x92.", "has the step NEWOBJ_EX"),
    "extension": (b"\x80\x02\x82\1.", "has the step EXT1"),
    "persistent text": (b"Pos.system\n.", "has the step PERSID"),
    "call of a string": (pickled(Call("os.system", ("echo",))), "calls a str"),
    "call of a list": (pickled(Call(LIST, ())), "calls torch.nn.modules.container.ParameterList"),
    "arguments that are no tuple": (pickled(Call(TENSOR, [1])), "with a list"),
    "ordered with arguments": (
        pickled(Call(Name("collections", "OrderedDict"), ([],))),
        "OrderedDict with arguments",
    ),
    "new call": (b"\x80\x02" + code(TENSOR) + b")\x81.", "makes torch._utils._rebuild_tensor_v2"),
    "new list with arguments": (b"\x80\x02" + code(LIST) + b"K\1\x85\x81.", "with arguments"),
    "setstate": (
        pickled(
            {"trainable_keys": Made(LIST, {"__setstate__": Name("collections", "OrderedDict")})}
        ),
        "expected parameters in 'trainable_keys', got nothing",
    ),
    "state of a name": (b"\x80\x02" + code(TENSOR) + code({}) + b"b.", "changes torch._utils._reb"),
    "state of a dict": (b"\x80\x02" + code({}) + code({}) + b"b.", "changes a dict"),
    "state that is none": (pickled(Made(LIST, [1])), "ParameterList to a list"),
    "append to a name": (b"\x80\x02" + code(TENSOR) + b"Na.", "changes torch._utils._rebuild"),
    "key that is a tuple": (pickled(b"}" + code(()) + b"Ns"), "keys other than strings"),
    "half a pair": (b"\x80\x02}(Nu.", "keys other than strings"),
    "huge number": (LONG, "number of more than 63 bits"),
    "huge number as text": (b"\x80\x02L" + b"9" * 5000 + b"L\n.", "expected a sound pickle"),
    "deep lists": (b"\x80\x02" + b"]" * 100_000 + b"a" * 99_999 + b".", "got a list"),
    "deep tuples": (b"\x80\x02N" + b"\x85" * 100_000 + b".", "got a tuple"),
    "deep key": (b"\x80\x02}N" + b"\x85" * 100_000 + b"Ns.", "keys other than strings"),
    "many laughs": (LAUGHS, "lists of tensors by name, got a tuple"),
    "laughs in a call": (
        pickled(Call(TENSOR, LAUGHS[2:-1])),
        "a tensor's storage, offset, size and strides, got others",
    ),
    "a list in itself": (pickled({"trainable_keys": b"]q\0h\0a"}), "got a list"),
    "a dict in itself": (b"\x80\x02}q\0X\1\0\0\0ah\0s.", "list of tensors 'a', got a dict"),
    "empty": (b"", "expected a sound pickle"),
    "no stop": (b"\x80\x02}", "expected a sound pickle"),
    "stop at once": (b"\x80\x02.", "empty stack"),
    "too much": (b"\x80\x02}}.", "leaves something"),
    "no mark": (b"\x80\x02}u.", "without a mark"),
    "below a mark": (b"\x80\x02N(a.", "empty stack"),
    "unknown step": (b"\x80\x02\xff.", "expected a sound pickle"),
    "string too long": (b"\x80\x02X\xff\xff\xff\xffab.", "expected a sound pickle"),
    "bytes": (b"\x80\x03C\1a.", "has the step SHORT_BINBYTES"),
    "buffer": (b"\x80\x05\x97.", "has the step NEXT_BUFFER"),
    "no dictionary": (pickled([1]), "expected a pickle of lists of tensors by name, got a list"),
    "other persistent": (pickled(Stored(("module", 1, 2, 3, 4))), "no storage"),
    "persistent text on the stack": (pickled(Stored("storage")), "stores a str, no storage"),
    "storage of integers": (
        pickled(Stored(("storage", Name("torch", "LongStorage"), "0", "cpu", 1))),
        "calls torch.LongStorage",
    ),
    "storage of lists": (
        pickled(Stored(("storage", LIST, "0", "cpu", 1))),
        "expected a storage of FloatStorage",
    ),
    "storage elsewhere": (
        pickled(Stored(("storage", Name("torch", "FloatStorage"), "../0", "cpu", 1))),
        "expected a storage's number",
    ),
    "storage of less than nothing": (
        pickled(Stored(("storage", Name("torch", "FloatStorage"), "0", "cpu", -1))),
        "expected a storage's number",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_pickles_are_refused(tmp_path: Path, name: str) -> None:
    content, message = HOSTILE[name]
    assert message in refused(tmp_path / "c.pt", zipped({"a/data.pkl": content}))


def test_long_pickles_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_pickle, "_MOST_STEPS", 1000)
    text = refused(tmp_path / "c.pt", zipped({"a/data.pkl": b"N" * 1001}))
    assert text == "expected a pickle of at most 1000 steps, got more"
    content = bytes(torch_pickle.MOST_BYTES + 1)
    assert "bytes, got 16777217" in refused(tmp_path / "c.pt", zipped({"a/data.pkl": content}))
    with pytest.raises(ValueError, match="bytes, got 16777217"):
        torch_pickle.read_tensor_lists(content)


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


PICKLE = zipfile.ZipFile(OFFICIAL).read("official/data.pkl")


@given(
    where=st.lists(st.integers(0, len(PICKLE) - 1), min_size=1, max_size=3),
    flips=st.lists(st.integers(1, 255), min_size=3, max_size=3),
)
@settings(max_examples=200, deadline=None)
def test_flipped_pickles_raise_nothing_but_value_errors(where: list[int], flips: list[int]) -> None:
    content = bytearray(PICKLE)
    for place, flip in zip(where, flips):
        content[place] ^= flip
    with contextlib.suppress(ValueError):
        torch_pickle.read_tensor_lists(bytes(content))


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
