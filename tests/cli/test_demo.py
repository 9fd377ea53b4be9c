"""`jaxmem demo` and the small parsers of numbers."""

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from jaxmem import demos
from jaxmem.cli import arguments
from jaxmem.cli import demo as command
from jaxmem.cli.main import main
from jaxmem.demos import Demo, DemoResult, Extent, Figure, Table, beside_lecture


def small(extent: Extent) -> DemoResult:
    """A demo that takes no time: one exact figure, one gap, one stochastic."""
    figures = {
        "kv-8b": beside_lecture("kv-8b", 131072),
        "prefill-250": beside_lecture("prefill-250", 6.0, note="why", beside={"measured": 7.5}),
        "mem-mem0-current": beside_lecture("mem-mem0-current", 0.9, 0.8, 1.0),
    }
    table = Table(
        "A table", ["x", "y"], [[1, 2.5 if extent.full else 1.5], ["z", None]], ["a note"]
    )

    def draw() -> object:
        from jaxmem import plots

        return plots.figure()[0]

    return DemoResult([table], figures, {"empty.png": draw}, ["a choice"])  # type: ignore[dict-item]


@pytest.fixture(autouse=True)
def only_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "DEMOS", {"01": Demo("Small", small)})


def test_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo"]) == 0
    out = capsys.readouterr().out
    for piece in ("Demo 01. Small", "A table", "a note", "a choice", "prefill-250: why"):
        assert piece in out
    lines = {line.split()[0]: line.split() for line in out.splitlines() if line.strip()}
    assert lines["kv-8b"][-1] == "ok"
    assert lines["mem-mem0-current"][3:6] == ["0.8", "..", "1"]
    assert any("prefill-250" in x and x.rstrip().endswith("gap") for x in out.splitlines())


def test_json_is_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "1", "--json", "--full"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert list(document) == ["stamp", "figures", "tables"]
    assert document["tables"]["01"][0]["headers"] == ["x", "y"]
    figure = document["figures"]["prefill-250"]
    assert (figure["value"], figure["lecture"], figure["within"]) == (6.0, 7.0, False)
    assert figure["beside"] == {"measured": 7.5}
    assert document["figures"]["mem-mem0-current"]["low"] == 0.8


def test_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    folder = tmp_path / "new" / "folder"
    assert main(["demo", "01", "--out", str(folder)]) == 0
    assert sorted(p.name for p in folder.iterdir()) == ["01_empty.png", "figures.json"]
    assert "wrote" in capsys.readouterr().out
    assert "kv-8b" in json.loads((folder / "figures.json").read_text())["figures"]


@pytest.mark.parametrize("kind", ["file", ""])
def test_out_must_be_a_folder(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Refused before the demo runs, not after."""
    target = tmp_path / "taken"
    target.write_text("mine")
    assert main(["demo", "01", "--out", str(target) if kind else ""]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("jaxmem: --out: expected a folder")
    assert target.read_text() == "mine"


def test_unknown_demo(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "07"]) == 2
    captured = capsys.readouterr()
    assert captured.err == "jaxmem: unknown demo '07' (did you mean '01'?)\n" or (
        captured.err.startswith("jaxmem: unknown demo '07'") and captured.err.count("\n") == 1
    )
    assert captured.out == ""


def test_registry_numbers_have_two_digits() -> None:
    for number, entry in demos.DEMOS.items():
        assert len(number) == 2
        assert entry.title


def test_a_figure_that_is_not_finite_is_null(capsys: pytest.CaptureFixture[str]) -> None:
    figure = beside_lecture("kv-8b", float("inf"))
    assert isinstance(figure, Figure)
    assert json.loads(command._document({"kv-8b": figure}, {}))["figures"]["kv-8b"]["value"] is None


@pytest.mark.parametrize(
    ("parse", "text", "value"),
    [
        (arguments.tokens, "0", 0),
        (arguments.tokens, "128k", 128_000),
        (arguments.tokens, "1.5M", 1_500_000),
        (arguments.tokens, "128,000", 128_000),
        (arguments.some_tokens, "1", 1),
        (arguments.memory_bytes, "40GB", 40 * 10**9),
        (arguments.memory_bytes, "40GiB", 40 * 2**30),
        (arguments.memory_bytes, "1.5 tb", 15 * 10**11),
        (arguments.memory_bytes, "512", 512),
        (arguments.positive_int, "7", 7),
        (arguments.rate, "0.5", 0.5),
    ],
)
def test_numbers(parse: Callable[[str], float], text: str, value: float) -> None:
    assert parse(text) == value


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (arguments.tokens, "-1"),
        (arguments.tokens, "1GB"),
        (arguments.tokens, "1.0005k5"),
        (arguments.tokens, "0.0001k"),
        (arguments.tokens, "1e5"),
        (arguments.tokens, ""),
        (arguments.some_tokens, "0"),
        (arguments.memory_bytes, "0GB"),
        (arguments.memory_bytes, "40G"),
        (arguments.memory_bytes, "GB"),
        (arguments.memory_bytes, "99999999TB"),
        (arguments.positive_int, "0"),
        (arguments.positive_int, "1.5"),
        (arguments.rate, "nan"),
        (arguments.rate, "-1"),
        (arguments.rate, "many"),
    ],
)
def test_bad_numbers(parse: Callable[[str], float], text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError) as caught:
        parse(text)
    assert repr(text) in str(caught.value)
    assert "\n" not in str(caught.value)
