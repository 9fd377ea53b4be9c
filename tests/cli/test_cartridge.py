"""`jaxmem cartridge` from the command line, with a tiny model of random weights on disk."""

import argparse
import gzip
import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from tiny_folder import write_folder

from jaxmem.cli import cartridge_eval, cartridge_train
from jaxmem.cli.main import main
from jaxmem.lm.cartridges import machine, runs, study
from jaxmem.lm.cartridges.baselines import BASELINES
from jaxmem.lm.cartridges.files import describe
from jaxmem.lm.tiny import tiny
from jaxmem.recall.cartridges import Cartridge, load_cartridge

pytest.importorskip("tokenizers")
pytest.importorskip("safetensors")

Run = Callable[..., tuple[int, str, str]]
TEXT = (
    "The tower on Copper Rock was finished in 1868 by Arthur Finch. It is 41 metres tall and built"
    " of granite.\n\nThe keeper winds the clock every six hours, because its weights fall slowly."
    " In winter the supply boat comes once a week from Raven Point."
)
FEW = ("--templates", "30", "--slots", "40")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model and a document."""
    path = tmp_path_factory.mktemp("cartridge")
    write_folder(path / "model", tiny(jax.random.key(0)))
    (path / "notes.txt").write_text(TEXT)
    return path


@pytest.fixture
def run(folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the command in the folder: exit code, standard output, standard error."""
    monkeypatch.chdir(folder)

    def call(what: str, *arguments: str) -> tuple[int, str, str]:
        model = () if what == "show" else ("--model", "model", "--float32")
        try:
            code = main(["cartridge", what, *arguments, *model])
        except SystemExit as leaving:
            code = int(leaving.code or 0)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture
def made(folder: Path, run: Run) -> Path:
    """A trained cartridge."""
    path = folder / "made.safetensors"
    if not path.exists():
        code, out, err = run("train", "notes.txt", "-o", path.name, *FEW, "--steps", "4")
        assert (code, err) in ((0, ""), (0, _WORSE))
        assert "wrote made.safetensors: 40 slots, " in out
        assert "before training" in out
    return path


_WORSE = (
    "jaxmem: notice: training ended worse on held-out questions than it began: the best moment is"
    " kept\n"
)


def record(out: str) -> dict[str, Any]:
    return json.loads(out)["records"][0]


def test_ask_and_show(run: Run, made: Path) -> None:
    code, out, err = run("ask", made.name, "Who finished the tower?", "--tokens", "8")
    assert (code, err) == (0, "")
    assert all(c.isprintable() or c == "\n" for c in out)
    _, warm, _ = run("ask", made.name, "Who?", "--temperature", "1", "--tokens", "8", "--json")
    _, other, _ = run("ask", made.name, "Who?", "--temperature", "1", "--tokens", "8", "--seed",
                      "1", "--json")  # fmt: skip
    assert record(warm)["answer"] != record(other)["answer"]
    assert record(warm)["tokens"] == 8
    assert record(warm)["slots"] == 40
    code, out, _ = run("show", made.name)
    assert code == 0
    assert "notes.txt" in out
    assert "Arthur" not in out
    assert json.loads(run("show", made.name, "--json")[1])["slots"] == 40
    found = record(run("ask", made.name, "Who?", "--with", made.name, "--tokens", "8", "--json")[1])
    assert found["slots"] == 79  # the second sink is dropped


def test_a_question_to_all_readers(run: Run, made: Path) -> None:
    arguments = ("ask", made.name, "Who?", "--tokens", "8", "--document", "notes.txt")
    code, out, err = run(*arguments)
    assert (code, err) == (0, "")
    told = [line.split(": ")[0] for line in out.splitlines() if ": " in line]
    assert [name for name in told if name in READERS] == READERS
    records = json.loads(run(*arguments, "--json")[1])["records"]
    assert [one["reader"] for one in records] == READERS
    assert records[2]["slots"] == 0 < records[0]["slots"] < records[1]["slots"]


READERS = ["cartridge", "full context", "no context"]


def test_a_cartridge_for_other_libraries(run: Run, made: Path, folder: Path) -> None:
    code, out, err = run("export", made.name, "--to", "hf-cache", "-o", "cache")
    assert (code, out) == (2, "")
    assert "without bias" in err
    run("train", "notes.txt", "-o", "plain", *FEW, "--steps", "0", "--start", "first")
    for form, there in (("hf-cache", "cache"), ("peft", "adapter/adapter_config.json")):
        code, out, err = run("export", "plain", "--to", form, "-o", there.split("/")[0])
        assert (code, err) == (0, "")
        assert out.startswith("wrote ")
        assert (folder / there).is_file()
    assert "is the cartridge" in run("export", "plain", "--to", "hf-cache", "-o", "plain")[2]


def test_rows_are_saved_and_read(run: Run, folder: Path) -> None:
    (folder / "asked.txt").write_text("Who finished the tower?\n")
    code, out, _ = run("train", "notes.txt", "-o", "a.safetensors", *FEW, "--steps", "0",
                       "--questions", "asked.txt", "--json",
                       "--save-rows", "rows.jsonl")  # fmt: skip
    assert code == 0
    first = record(out)
    assert first["steps"] == 0
    assert first["training_tokens_s"] is None
    assert '"kind": "user"' in (folder / "rows.jsonl").read_text()
    code, out, _ = run("train", "notes.txt", "-o", "b.safetensors", "--slots", "40", "--steps", "0",
                       "--rows", "rows.jsonl", "--json")  # fmt: skip
    assert code == 0
    assert record(out)["questions"] + record(out)["held_out_questions"] == (
        first["questions"] + first["held_out_questions"]
    )
    (folder / "other.txt").write_text(TEXT + " And more.")
    code, out, err = run("train", "other.txt", "-o", "c.safetensors", "--rows", "rows.jsonl")
    assert (code, out) == (2, "")
    assert "expected conversations about other.txt" in err
    assert not (folder / "c.safetensors").exists()


def same(first: Path, second: Path) -> bool:
    """Equal bit for bit; only the order of the metadata is the library's to choose."""
    one, other = (load_cartridge(path)[0] for path in (first, second))
    equal = [a.tobytes() == b.tobytes() for a, b in zip(*map(numbers, (one, other)))]
    return len(equal) > 3 and all(equal) and describe(first) == describe(second)


def numbers(cartridge: Cartridge) -> list[np.ndarray]:
    return [np.asarray(part) for part in jax.tree.leaves(cartridge)]


KILLED = """
import os, signal
import jax
jax.config.update("jax_disable_most_optimizations", True)
from jaxmem.cli import cartridge_train
from jaxmem.cli.main import main
from jaxmem.lm.cartridges import checkpoint
cartridge_train.SAVE_S, save, saved = 0.0, checkpoint.save_state, []
def killing(path, state, identity):
    save(path, state, identity)
    saved.append(state)
    if len(saved) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
checkpoint.save_state = killing
main(%r)
"""


def test_a_killed_run_goes_on_to_the_same_bytes(
    run: Run, made: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["train", "notes.txt", "-o", "killed.safetensors", *FEW, "--steps", "4"]
    model = ["--model", "model", "--float32"]
    done = subprocess.run(
        [sys.executable, "-c", KILLED % ["cartridge", *arguments, *model]], cwd=folder, check=False
    )
    assert done.returncode == -signal.SIGKILL
    partial = folder / "killed.safetensors.partial"
    assert partial.exists()
    assert not (folder / "killed.safetensors").exists()
    code, _, err = run(*arguments, "--resume", "--seed", "1")
    assert code == 2
    assert "another run's: expected seed '1', got '0'" in err
    (folder / "other.txt").write_text(TEXT + " And more.")
    code, _, err = run("train", "other.txt", *arguments[2:], "--resume")
    assert code == 2
    assert "expected document" in err
    code, _, err = run(*arguments, "--resume")
    assert code == 0
    assert "going on with killed.safetensors.partial at step 2 of 4" in err
    assert same(folder / "killed.safetensors", made)
    assert not partial.exists()


def test_minutes_choose_steps(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ("train", "notes.txt", "-o", "m.safetensors", "--slots", "40", "--json")
    monkeypatch.setattr(study, "_MOST", 30)
    monkeypatch.setattr(runs, "step_seconds", lambda *_: (1000.0, 0.0))
    code, out, err = run(*arguments, "--minutes", "10")
    assert code == 0
    assert "no time is left for training" in err
    assert record(out)["steps"] == 0
    monkeypatch.setattr(runs, "step_seconds", lambda *_: (100.0, 0.0))
    code, out, err = run(*arguments, "--minutes", "10")
    assert code == 0
    assert " questions, 5 steps of 100.00 s: 8 min 20 s of the 10 minutes" in err
    found = record(out)
    assert found["steps"] == 5
    assert found["questions"] == 30


def test_a_table(run: Run, made: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(machine, "_SPEND_S", 0.0)
    monkeypatch.setattr(machine, "answer_tokens_s", lambda *_: 1234.5)
    items = [{"question": "Who finished the tower?", "answer": "Arthur Finch."},
             {"question": "How tall is it?", "answer": "41 metres."}]  # fmt: skip
    (folder / "test.json").write_text(json.dumps(items))
    methods = "no context,full context,attention matching,recitation,self-study"
    arguments = ("eval", "notes.txt", *FEW, "--steps", "2", "--methods", methods)
    code, out, _ = run(*arguments, "--questions", "test.json", "--cartridge", made.name,
                       "--plot", "kl.png")  # fmt: skip
    assert code == 0
    assert "2 questions of test.json" in out
    for name in (*methods.split(","), made.name):
        assert f"\n{name}  " in out
    assert "  1,234.5  " in out
    assert "repaid after" in out or "repaid never" in out
    assert (folder / "kl.png").read_bytes().startswith(b"\x89PNG")
    code, out, _ = run("eval", "notes.txt", *FEW, "--steps", "0", "--json", "--methods",
                       "no context,full context,attention matching",
                       "--questions", "test.json")  # fmt: skip
    assert code == 0
    found = json.loads(out)
    rows = {row["method"]: row for row in found["records"]}
    assert found["test"] == 2
    assert [one["method"] for one in found["break_even"]] == ["attention matching"]
    assert rows["no context"]["closed"] == 0
    assert rows["no context"]["bytes"] == 0
    assert rows["full context"]["closed"] == pytest.approx(1.0, abs=1e-5)
    assert rows["full context"]["kl"] == pytest.approx(0.0, abs=1e-6)
    assert rows["no context"]["off_topic_perplexity_change"] == pytest.approx(0.0, abs=1e-5)
    assert rows["attention matching"]["slots"] == 40


def test_questions_where_none_are_brought() -> None:
    tests = cartridge_eval._tests(argparse.Namespace(questions=None, seed=0), TEXT)
    questions = {one.question for one in tests}
    assert 10 < len(questions) == len(tests) <= 40


def test_the_names_of_methods() -> None:
    assert cartridge_eval.METHODS[: len(BASELINES)] == BASELINES
    assert cartridge_train.SAVE_S == 20.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("train", "none.txt", "-o", "x"), "none.txt: No such file"),
        (("train", "empty.txt", "-o", "x"), "empty.txt: expected a document with words"),
        (("train", "bad.txt", "-o", "x"), "bad.txt: expected UTF-8 text, got byte 0xff"),
        (("train", ".", "-o", "x"), "DOCUMENT: expected a text file, got '.'"),
        (("train", "notes.txt", "-o", "."), "--out: .: expected a file to write"),
        (("train", "notes.txt", "-o", "notes.txt"), "--out: notes.txt is the document, which"),
        (("train", "w.partial", "-o", "w"), "unfinished run: w.partial is the document"),
        (("train", "notes.txt", "-o", "x", "--save-rows", "x"), "--save-rows: x is --out too"),
        (("train", "notes.txt", "-o", "model/config.json"), "model/config.json is --model, which"),
        (("train", "notes.txt", "-o", "bad.txt", "--questions", "bad.txt"), "is --questions"),
        (("train", "notes.txt", "-o", "other"), "other.partial: expected"),
        (("train", "notes.txt", "-o", "notes.txt/x"), "otes.txt/x: Not a directory"),
        (("train", "notes.txt", "-o", 300 * "x"), "File name too long"),
        (("train", "notes.txt", "-o", "a\0b"), "--out: expected a file to write"),
        (("train", "torn.gz", "-o", "x"), "torn.gz: expected a whole gzip file, got a damaged"),
        (("train", "notes.txt", "-o", "x", "--slots", "9999"), "at most the document's"),
        (("train", "notes.txt", "-o", "x", "--slots", "1"), "expected at least 2"),
        (("train", "notes.txt", "-o", "x", "--slots", "0"), "at least 1, got '0'"),
        (("train", "notes.txt", "-o", "x", "--ratio", "0.5"), "a ratio of at least 1"),
        (("train", "notes.txt", "-o", "x", "--rate", "0"), "--rate: expected more than 0"),
        (("train", "notes.txt", "-o", "x", "--start", "mtching"), "did you mean 'matching'"),
        (("train", "notes.txt", "-o", "x", "--steps", "1", "--minutes", "1"), "not allowed with"),
        (("train", "notes.txt", "-o", "x", "--minutes", "0"), "expected minutes above 0"),
        (("train", "notes.txt", "-o", "x", "--rows", "r", "--sampled", "3"), "one of them"),
        (("train", "notes.txt", "-o", "x", "--window", "9"), "a window of at least 32"),
        (("train", "notes.txt", "-o", "x", "--templates", "0"), "--sampled or --questions"),
        (("train", "notes.txt", "-o", "x", "--templates", "1m"), "at most 100,000 questions"),
        (("train", "notes.txt", "-o", "x", "--questions", "empty.txt"), "expected questions"),
        (("ask", "notes.txt", "Who?"), "expected a safetensors file"),
        (("ask", "none", "Who?"), "none: No such file"),
        (("ask", "notes.txt", " "), "QUESTION: expected a question"),
        (("show", "model/model.safetensors"), "expected"),
        (("eval", "notes.txt", "--methods", "full contex"), "did you mean 'full context'"),
        (("eval", "notes.txt", "--plot", "x.png", "--methods", "no context"), "keep something"),
        (("ask", "x", "Who?", "--document", "none"), "No such file"),
        (("eval", "notes.txt", "--plot", "x.txt"), ".png, .svg or .pdf"),
        (("eval", "notes.txt", "--questions", "notes.txt"), "expected an answer to each question"),
        (("eval", "notes.txt", "--ratio", "8,no"), "got 'no'"),
        (("eval", "notes.txt", "--cartridge", "notes.txt"), "expected a safetensors file"),
    ],
)
def test_one_line_for_what_is_wrong(
    run: Run, folder: Path, arguments: tuple[str, ...], message: str
) -> None:
    (folder / "empty.txt").write_text("\n")
    (folder / "bad.txt").write_bytes(b"caf\xff")
    for name in ("w.partial", "other.partial"):
        (folder / name).write_text(TEXT)
    torn = bytearray(gzip.compress(TEXT.encode()))
    torn[40:44] = b"\xff" * 4
    (folder / "torn.gz").write_bytes(torn)
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
    assert not (folder / "x").exists()
    assert all((folder / name).read_text() == TEXT for name in ("w.partial", "other.partial"))


def test_a_model_that_is_not_there(
    capsys: pytest.CaptureFixture[str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("JAXMEM_SMOLLM2", "nowhere.gguf")
    assert main(["cartridge", "train", "notes.txt", "-o", "x"]) == 2
    assert "JAXMEM_SMOLLM2" in capsys.readouterr().err
    assert main(["cartridge", "train", "notes.txt", "-o", "x", "--model", "nowhere"]) == 2
    assert "there is no 'nowhere'" in capsys.readouterr().err


def test_a_cartridge_of_another_model_is_refused(
    made: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_folder(folder / "second", tiny(jax.random.key(1)))
    arguments = ["cartridge", "ask", str(made), "Who?", "--model", str(folder / "second")]
    assert main([*arguments, "--float32"]) == 2
    assert "expected a cartridge of second (fingerprint" in capsys.readouterr().err


def test_help_is_quick() -> None:
    code = "import sys; from jaxmem.cli import main; print('jaxmem.lm' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
