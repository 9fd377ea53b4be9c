"""`jaxmem doctor` from the command line."""

import json
import re
import socket
from pathlib import Path

import pytest

from jaxmem.cli.main import main

SYSTEM = "You are the zebrafinch assistant. " * 40


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Six calls of one agent whose memory is written on each turn, with a clock ahead of it."""
    rows = []
    messages: list[dict] = []
    for n in range(6):
        messages += [{"role": "user", "content": f"quokka question {n} " * 20}]
        facts = "".join(f"The user owns wombat {k}.\n" for k in range(n))
        memory = f"<memory>\n{facts}</memory>"
        head = {"role": "system", "content": f"Time: 10:0{n}\n{SYSTEM}\n{memory}"}
        body = {"model": "gpt-5", "messages": [head, *messages]}
        usage = {"prompt_tokens": 100, "completion_tokens": 7,
                 "prompt_tokens_details": {"cached_tokens": 50}}  # fmt: skip
        rows.append({"timestamp": 1e9 + 60 * n, "session_id": "s", "turn": n, "request": body,
                     "response": {"usage": usage}})  # fmt: skip
        messages += [{"role": "assistant", "content": f"axolotl answer {n} " * 20}]
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def run(capsys: pytest.CaptureFixture[str], *args: object) -> tuple[int, str, str]:
    code = main(["doctor", *map(str, args)])
    out, err = capsys.readouterr()
    return code, out, err


def test_text(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, log)
    assert (code, err) == (0, "")
    assert "6 calls in 1 session over 5.0 minutes (gpt-5)" in out
    assert '"10:04" -> "10:05"' in out
    assert "only a time stamp changes" in out
    assert "move the lines of it that change behind the history" in out
    assert "the provider says that it read" in out
    for line in out.splitlines():
        assert len(line) <= 130


def test_nothing_of_the_log_is_shown_without_text(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    shown = [
        run(capsys, log, "--no-text")[1],
        run(capsys, log, "--json")[1],
        (run(capsys, log, "--html", page), page.read_text())[1],
    ]
    for text in shown:
        for word in ("zebrafinch", "quokka", "wombat", "axolotl", "10:0", "<memory>"):
            assert word not in text
    with_text = run(capsys, log, "--json", "--with-text")[1]
    assert "10:05" in with_text


def test_json_is_the_same_for_the_same_log(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = (run(capsys, log, "--json")[1] for _ in range(2))
    assert first == second
    found = json.loads(first)
    assert found["log"]["calls"] == 6
    parts = found["tokens"]
    names = ("reused", "fresh", "broken", "expired", "rounding")
    assert parts["prompt"] == sum(parts[name] for name in names)
    assert found["findings"][0]["kind"] == "system"
    assert found["findings"][0]["remedies"][0]["saved_tokens"] > 0
    assert {row["rule"] for row in found["prices"]} >= {"openai", "anthropic-5m", "vllm"}


def test_a_gate_for_ci(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, log, "--fail-on", "0.9")[0] == 0
    code, _, err = run(capsys, log, "--fail-on", "5%")
    assert code == 1
    assert "are computed for nothing, more than 5.0%" in err


def test_no_socket_is_opened(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*args: object, **named: object) -> None:
        raise AssertionError("the doctor opened a socket")

    monkeypatch.setattr(socket.socket, "__init__", refused)
    monkeypatch.setattr(socket, "getaddrinfo", refused)
    assert run(capsys, log, "--html", tmp_path / "page.html", "--rules", "anthropic-5m")[0] == 0


def test_rules_and_options(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = run(capsys, log, "--rules", "openai", "--usd-per-million", "10")[1]
    assert "blocks of 128, from 1,024 tokens on, kept 600 s" in out
    assert "at 10 a million input tokens (as given" in out
    out = run(capsys, log, "--ttl", "30", "--scope", "all", "--block-tokens", "8", "--top", "1")[1]
    assert "expired" in out
    assert "blocks of 8, kept 30 s after use, reused across sessions" in out


def test_money_is_of_the_logs_own_model(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = run(capsys, log)[1]
    assert "at 1.25 a million input tokens (gpt-5, " in out
    assert "openai, yours" in out
    other = log.with_name("other.jsonl")
    other.write_text(log.read_text().replace('"gpt-5"', '"house-model"'))
    out = run(capsys, other)[1]
    assert "gpt-5.4 assumed: the log's models have no known price" in out
    assert "yours" not in out


def test_anthropic_without_breakpoints_reads_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    messages, rows = [], []
    for n in range(6):
        messages.append({"role": "user", "content": f"question {n} " * 90})
        system = [{"type": "text", "text": SYSTEM * 4}]
        rows.append({"model": "claude-sonnet-4-5", "system": system, "messages": messages[:],
                     "max_tokens": 9})  # fmt: skip
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    code, out, _ = run(capsys, path, "--fail-on", "0.5")
    assert code == 1
    assert "none in the log, so that nothing is cached: 0.0% read by Anthropic" in out
    found = json.loads(run(capsys, path, "--json")[1])
    assert found["breakpoints"]["read"] == 0
    assert found["breakpoints"]["best"] > 0.7


def test_the_verdict_does_not_depend_on_what_is_shown(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shares = [
        json.loads(run(capsys, log, "--json", "--top", top)[1])["avoidable_share"] for top in (1, 9)
    ]
    assert shares[0] == shares[1] > 0


def test_sessions_by_a_field(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "in 6 sessions" in run(capsys, log, "--session-key", "turn")[1]
    code, _, err = run(capsys, log, "--session-key", "agent")
    assert code == 2
    assert "no call has the field 'agent'" in err


def test_transcripts_are_read_as_counters(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [
        {"type": "assistant", "sessionId": "s", "uuid": str(n), "requestId": f"r{n}",
         "timestamp": f"2026-01-01T10:{10 * n:02}:00Z",
         "message": {"id": f"m{n}", "model": "claude", "usage": {
             "input_tokens": 5, "cache_read_input_tokens": 1000 if n == 1 else 0,
             "cache_creation_input_tokens": 1000, "output_tokens": 9}}}
        for n in range(3)
    ]  # fmt: skip
    path = tmp_path / "session.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    code, out, _ = run(capsys, path)
    assert code == 0
    assert "3 requests in 1 session of Claude Code" in out
    assert "hold usage counters and no prompts" in out
    found = json.loads(run(capsys, path, "--json")[1])
    assert found["misses"]["expired"] == 1
    with path.open("a") as file:
        file.write('{"type": "assi')  # a session that is being written
    code, _, err = run(capsys, path)
    assert code == 0
    assert err.count("jaxmem: notice: ") == err.count("\n") == 1
    code, _, err = run(capsys, path, "--html", tmp_path / "page.html")
    assert code == 2
    assert "usage counters and no prompts" in err


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ('{"hash_ids": [1], "timestamp": 0, "input_length": 5, "output_length": 1}\n',
         "is a block trace.*jaxmem cache"),
        ('{"colour": "red"}\n', "line 1.*colour"),
        ('{"messages": []}\n{"messages": [\n', "line 2: broken JSON"),
        ("", "empty"),
    ],
)  # fmt: skip
def test_bad_logs_are_one_line(
    content: str, expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(content)
    code, out, err = run(capsys, path)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert re.search(expected, err), err


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--rules", "anthropic"], "anthropic-5m"),
        (["--scope", "sesion"], "scope"),
        (["--ttl", "0"], "--ttl"),
        (["--html", ""], "--html"),
        (["--no-text", "--with-text"], "expected one"),
        (["--tokenizer", "absent.json"], "token"),
    ],
)
def test_bad_options_are_one_line(
    options: list[str], expected: str, log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capsys, log, *options)
    assert (code, out) == (2, "")
    assert expected in err
    assert err.count("\n") == 1


def test_a_prompt_log_is_not_a_block_trace(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cache", str(log)]) == 2
    assert "jaxmem doctor" in capsys.readouterr().err


def test_absent_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, tmp_path / "absent.jsonl")
    assert code == 2
    assert "No such file" in err
