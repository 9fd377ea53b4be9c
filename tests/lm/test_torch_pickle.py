"""Pickles that want more than tensors are refused, and nothing of them is run."""

import contextlib
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_writer import (
    LIST,
    OFFICIAL,
    PARAMETER,
    TENSOR,
    Call,
    Made,
    Name,
    Stored,
    code,
    pickled,
    refused,
    zipped,
)

from jaxmem.lm.cartridges.formats import torch_pickle


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
