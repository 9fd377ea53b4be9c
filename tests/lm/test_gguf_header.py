"""GGUF headers written by hand: good ones, and ones that lie, refused before memory is taken."""

import struct
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jaxmem.lm.weights.gguf_file import read_gguf
from jaxmem.lm.weights.gguf_header import GgufHeader, read_header

pytest.importorskip("gguf")


def text(content: str | bytes) -> bytes:
    content = content.encode() if isinstance(content, str) else content
    return struct.pack("<Q", len(content)) + content


def key(name: str | bytes, kind: int, value: bytes) -> bytes:
    return text(name) + struct.pack("<I", kind) + value


def entry(
    name: str | bytes = "a", shape: tuple[int, ...] = (4, 2), kind: int = 0, offset: int = 0
) -> bytes:
    sizes = struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
    return text(name) + sizes + struct.pack("<IQ", kind, offset)


def pack(
    keys: list[bytes],
    entries: list[bytes],
    data: int = 32,
    magic: bytes = b"GGUF",
    version: int = 3,
    counts: tuple[int, int] | None = None,
) -> bytes:
    tensors, many = counts or (len(entries), len(keys))
    head = magic + struct.pack("<IQQ", version, tensors, many) + b"".join(keys + entries)
    return head + bytes(-len(head) % 32) + bytes(data)


def header_of(content: bytes, path: Path) -> GgufHeader:
    path.write_bytes(content)
    with open(path, "rb") as file:
        return read_header(file)


GOOD = [
    key("n", 4, struct.pack("<I", 7)),
    key("s", 8, text("é")),
    key("b", 7, b"\1"),
    key("f", 12, struct.pack("<d", 0.5)),
    key("texts", 9, struct.pack("<IQ", 8, 2) + text("x") + text("")),
    key("bytes", 9, struct.pack("<IQ", 0, 3) + b"abc"),
    key("flags", 9, struct.pack("<IQ", 7, 2) + b"\0\1"),
]
MANY = struct.pack("<Q", 2**62)
BROKEN = {
    "empty": b"",
    "short": b"GGU",
    "magic only": b"GGUF",
    "another magic": pack([], [], magic=b"ggml"),
    "version 1": pack([], [], version=1),
    "version 4": pack([], [], version=4),
    "big-endian": pack([], [], version=3 << 24),
    "counts past the end": pack([], [], counts=(5, 0)),
    "huge counts": pack([], [], counts=(2**63, 2**63)),
    "more keys than there are": pack(GOOD, [], counts=(0, 60_000)),
    "a key past the end": pack([MANY], []),
    "a key not UTF-8": pack([key(b"\xff", 4, b"abcd")], []),
    "a key twice": pack([GOOD[0], GOOD[0]], []),
    "an unknown type": pack([key("n", 13, b"")], []),
    "a string past the end": pack([key("n", 8, MANY)], []),
    "a flag of 2": pack([key("n", 7, b"\2")], []),
    "an array past the end": pack([key("n", 9, struct.pack("<I", 6) + MANY)], []),
    "an array whose bytes overflow": pack(
        [key("n", 9, struct.pack("<IQ", 10, 2**61 + 1) + bytes(8))], []
    ),
    "strings past the end": pack([key("n", 9, struct.pack("<I", 8) + MANY)], []),
    "an array of arrays": pack([key("n", 9, struct.pack("<IQ", 9, 1) * 20)], []),
    "an array of unknown": pack([key("n", 9, struct.pack("<IQ", 99, 1))], []),
    "alignment 0": pack([key("general.alignment", 4, struct.pack("<I", 0))], []),
    "alignment 24": pack([key("general.alignment", 4, struct.pack("<I", 24))], []),
    "alignment of text": pack([key("general.alignment", 8, text("32"))], []),
    "a name twice": pack([], [entry(), entry(offset=32)], 64),
    "a name past the end": pack([], [MANY]),
    "no axes": pack([], [entry(shape=())]),
    "five axes": pack([], [entry(shape=(1, 1, 1, 1, 1))]),
    "2**32 - 1 axes": pack([], [text("a") + b"\xff\xff\xff\xff"]),
    "a size of 0": pack([], [entry(shape=(0, 2))]),
    "a product past 64 bits": pack([], [entry(shape=(2**32, 2**32, 2**32))]),
    "a product that wraps to 8": pack([], [entry(shape=(2**63 + 4, 2))]),
    "a huge size": pack([], [entry(shape=(2**62,))]),
    "an unknown tensor type": pack([], [entry(kind=99)]),
    "a type that is not read": pack([], [entry(shape=(256,), kind=10)]),
    "a type without numbers": pack([], [entry(kind=26)]),
    "rows not in blocks": pack([], [entry(shape=(16, 2), kind=8)]),
    "an offset past the end": pack([], [entry(offset=4096)]),
    "an offset that wraps": pack([], [entry(offset=2**64 - 32)]),
    "an offset not aligned": pack([], [entry(offset=1)], 64),
    "an overlap": pack([], [entry(shape=(16,)), entry("b", offset=32)], 96),
    "cut short": pack([], [entry()])[:-1],
    "no data": pack([], [entry()], 0),
}


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN.keys())
def test_a_lying_header_is_refused_in_one_line(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "a.gguf"
    file.write_bytes(content)
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="expected") as caught:
            read_gguf(file, "float32")
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()
    assert str(caught.value).startswith(f"{file}: ")
    assert "\n" not in str(caught.value)


def test_a_good_header_is_read(tmp_path: Path) -> None:
    content = pack(GOOD, [entry(), entry("b", (32, 3), 8, 32)], 32 + 3 * 34)
    header = header_of(content, tmp_path / "a.gguf")
    assert header.metadata["texts"] == ["x", ""]
    assert [header.metadata[name] for name in "nsbf"] == [7, "é", True, 0.5]
    assert header.metadata["bytes"].tolist() == [*b"abc"]
    assert header.metadata["flags"].tolist() == [False, True]
    assert header.tensors["a"][:2] == ("F32", (2, 4))
    assert header.tensors["b"][:2] == ("Q8_0", (3, 32))
    assert header.tensors["b"].bytes == 3 * 34
    assert header_of(pack(GOOD, [], 0, version=2), tmp_path / "b.gguf").tensors == {}


@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_any_damage_is_refused_or_harmless(data: st.DataObject, tmp_path: Path) -> None:
    content = bytearray(pack(GOOD, [entry(), entry("b", (32, 3), 8, 32)], 32 + 3 * 34))
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    content = content[: data.draw(st.integers(0, len(content)))]
    try:
        header = header_of(bytes(content), tmp_path / "a.gguf")
    except ValueError as error:
        assert "\n" not in str(error)  # noqa: PT017
    else:
        for tensor in header.tensors.values():
            assert 0 < tensor.offset <= tensor.offset + tensor.bytes <= len(content)
