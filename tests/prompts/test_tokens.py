"""Tokens counted by a tokenizer.json, with the package that reads it."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from jaxmem.cli.main import main
from jaxmem.prompts import read_log, reuse
from jaxmem.prompts.tokens import token_encoder

ROWS = [
    {"input": "system: be kind and brief user: one two", "session_id": "s", "timestamp": n,
     "output": "three words here"}
    for n in range(2)
]  # fmt: skip


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    """A token a word."""
    tokenizers = pytest.importorskip("tokenizers")
    words = sorted({word for row in ROWS for word in str(row).replace(":", " :").split()})
    model = tokenizers.models.WordLevel({w: n for n, w in enumerate(["?", *words])}, unk_token="?")
    made = tokenizers.Tokenizer(model)
    made.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    made.save(str(tmp_path / "tokenizer.json"))
    return tmp_path / "tokenizer.json"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return path


def test_a_tokenizer_counts(tokenizer: Path, log: Path) -> None:
    for path in (tokenizer, tokenizer.parent):  # the file, or the folder of its model
        encoder = token_encoder(path)
        units = np.frombuffer(encoder.encode(b"one two one"), "<u4")
        assert (units[0] == units[2] != units[1], len(units)) == (True, 3)
        found = read_log(log, encoder)
        assert found.prompt_tokens.tolist() == [8, 8]
        assert found.output_tokens.tolist() == [3, 3]
        assert found.encoder.exact
        assert reuse(found).reused.tolist() == [0, 8]


def test_the_doctor_counts_with_it(
    tokenizer: Path, log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", str(log), "--tokenizer", str(tokenizer), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["log"]["exact"] is True
    assert found["tokens"]["prompt"] == 16


def test_no_tokenizer_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    (tmp_path / "bad.json").write_text("{}")
    for name in ("bad.json", "absent.json"):
        with pytest.raises(ValueError, match=f"{name}: expected a tokenizer.json"):
            token_encoder(tmp_path / name)


def test_without_the_package_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ValueError, match=r"pip install jaxmem\[lm\]"):
        token_encoder(tmp_path / "tokenizer.json")
