"""Files as torch.save writes them, made without torch, whole or changed in a part."""

import io
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest

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
