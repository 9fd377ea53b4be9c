"""Reading prompt logs: every shape, wrapping and time; what is refused; real agents' logs."""

import gzip
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jaxmem.prompts import PromptLog
from jaxmem.prompts.readers import read_log
from jaxmem.prompts.rows import seconds

TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": {"b": 1, "a": 2}}}
CHAT = {
    "model": "gpt-x",
    "tools": [TOOL],
    "messages": [
        {"role": "system", "content": "Be kind.\n\n## Rules\nNone.\n"},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "function": {}}]},
        {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
        {"role": "user", "content": [{"type": "text", "text": "And "}, {"text": "now?"}]},
    ],
}
RESPONSES = {
    "model": "gpt-y",
    "instructions": "Be kind.",
    "tools": [{"type": "function", "name": "get_weather"}],
    "input": [
        {"role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]},
        {"type": "function_call", "call_id": "c1", "name": "get_weather", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "sunny"},
    ],
}
MARK = {"cache_control": {"type": "ephemeral"}}
ANTHROPIC = {
    "model": "claude-x",
    "max_tokens": 10,
    "messages": [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "f"}]},
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": [{"text": "sunny"}]},
                {"type": "text", "text": "Go on", **MARK},
            ],
        },
    ],
    "system": [{"type": "text", "text": "Be kind.", **MARK}],
    "tools": [{"name": "f", "input_schema": {}}, {"name": "g", "input_schema": {}, **MARK}],
}


def write(path: Path, *rows: Any) -> Path:
    path.write_text("".join(r if isinstance(r, str) else json.dumps(r) + "\n" for r in rows))
    return path


def read(path: Path, *rows: Any) -> PromptLog:
    """The log of some rows; that they have no times is no matter here."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*calls have no (time|session)")
        return read_log(write(path, *rows))


def shown(log: PromptLog, call: int = 0) -> list[tuple[str, str, str]]:
    return [(s.label, s.kind, s.content.decode()) for s in log.segments(call)]


def prompt(log: PromptLog, call: int) -> bytes:
    return b"".join(s.content for s in log.segments(call))


def test_chat_completions(tmp_path: Path) -> None:
    log = read(tmp_path / "a.jsonl", CHAT)
    assert shown(log) == [
        ("tool get_weather", "tools", json.dumps(TOOL)),
        ("system", "system", "system\nBe kind.\n\n"),
        ("system: ## Rules", "system", "## Rules\nNone.\n"),
        ("message user", "history", "user\nHi"),
        ("message assistant", "history", 'assistant\n\n[{"id": "c1", "function": {}}]'),
        ("message tool", "history", "tool c1\nsunny"),
        ("message user", "task", "user\nAnd "),
        ("message user", "task", "now?"),
    ]
    assert log.models == ["gpt-x"]


def test_responses(tmp_path: Path) -> None:
    log = read(tmp_path / "a.jsonl", RESPONSES, {**RESPONSES, "input": "Hi"})
    assert [(label, kind) for label, kind, _ in shown(log)] == [
        ("tool get_weather", "tools"),
        ("system", "system"),
        ("message user", "history"),
        ("reasoning", "history"),
        ("message assistant", "history"),
        ("message tool", "task"),
    ]
    assert log.shared_tokens(*log.content[[2, 8]]) == 2  # "user\nHi" is both times the same
    assert log.content[2] == log.content[8]
    with pytest.warns(UserWarning, match="1 calls go on from a previous_response_id"):
        read_log(write(tmp_path / "b.jsonl", {**RESPONSES, "previous_response_id": "r", "ts": 1}))


def test_anthropic_puts_tools_and_system_first(tmp_path: Path) -> None:
    log = read(tmp_path / "a.jsonl", ANTHROPIC)
    assert [(s.label, s.kind, s.mark) for s in log.segments(0)] == [
        ("tool f", "tools", False),
        ("tool g", "tools", True),
        ("system", "system", True),
        ("message user", "history", False),
        ("message assistant", "history", False),
        ("message tool", "task", False),
        ("message user", "task", True),
    ]
    assert b"cache_control" not in prompt(log, 0)
    moved = json.loads(
        json.dumps(ANTHROPIC).replace(', "cache_control": {"type": "ephemeral"}', "")
    )
    again = read(tmp_path / "b.jsonl", ANTHROPIC, moved)
    np.testing.assert_array_equal(again.content[:7], again.content[7:])  # a mark is no change
    automatic = read(tmp_path / "c.jsonl", {**moved, **MARK})
    assert automatic.mark.tolist() == [False] * 6 + [True]


def test_order_of_keys_in_a_tool_is_content(tmp_path: Path) -> None:
    other = {
        "type": "function",
        "function": {"name": "get_weather", "parameters": {"a": 2, "b": 1}},
    }
    log = read(tmp_path / "a.jsonl", CHAT, {**CHAT, "tools": [other]})
    assert log.content[log.starts[0]] != log.content[log.starts[1]]


WRAPPED = {
    "bare": CHAT,
    "request": {"request": CHAT},
    "JSON text": {"request_json": json.dumps(CHAT)},
    "body of a batch": {"custom_id": "1", "method": "POST", "body": CHAT},
    "request.body": {"request": {"method": "POST", "body": json.dumps(CHAT)}},
    "LiteLLM's proxy": {"messages": {}, "proxy_server_request": {"body": CHAT}},
    "LiteLLM's proxy as text": {
        "messages": "{}",
        "proxy_server_request": json.dumps({"url": "u", "body": CHAT}),
    },
    "LiteLLM's payload": {
        "model": "gpt-x",
        "messages": CHAT["messages"],
        "model_parameters": {"tools": CHAT["tools"]},
    },
    "kwargs after a request that is none": {"request": {"id": 7}, "kwargs": CHAT},
    "input": {"input": CHAT, "output": {"role": "assistant", "content": "x"}},
    "input as text": {"input": json.dumps(CHAT)},
}


@pytest.mark.parametrize("name", WRAPPED)
def test_wrappings_hold_the_same_prompt(tmp_path: Path, name: str) -> None:
    log = read(tmp_path / "a.jsonl", {"model": "gpt-x", **WRAPPED[name]})
    assert shown(log) == shown(read(tmp_path / "b.jsonl", CHAT))
    assert log.models == ["gpt-x"]


def test_fields_around_a_body(tmp_path: Path) -> None:
    openai = {
        "startTime": "2025-10-16T04:09:12.5Z",
        "request": {**CHAT, "metadata": {"session_id": "s1"}},
        "response": {
            "usage": {"completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 64}}
        },
    }
    anthropic = {
        "timestamp": 1760587753000,
        "body": {**ANTHROPIC, "metadata": {"user_id": "s2"}},
        "response": json.dumps({"usage": {"output_tokens": 9, "cache_read_input_tokens": 0}}),
    }
    litellm = {
        "startTime": "1760587754.5",
        "messages": CHAT["messages"],
        "completion_tokens": 3,
        "trace_id": 5,
    }
    spoken = {
        "created": 1760587755,
        "request": CHAT,
        "response": {"content": "x" * 40},
        "user": "u",
    }
    log = read_log(write(tmp_path / "a.jsonl", spoken, openai, anthropic, litellm))
    assert log.timed
    np.testing.assert_allclose(log.time_s - 1760587752, [0.5, 1, 2.5, 3])
    assert [log.sessions[i] for i in log.session] == ["s1", "s2", "5", "u"]
    assert log.output_tokens.tolist() == [7, 9, 3, 10]
    assert log.cached_tokens.tolist() == [64, 0, -1, -1]
    assert [s.rsplit(":", 1)[1] for s in log.source] == ["2", "3", "4", "1"]


def test_an_answer_that_is_json_says_nothing_of_the_call(tmp_path: Path) -> None:
    answer = json.dumps({"model": "no", "usage": {"output_tokens": 9}, "created": 5})
    log = read(tmp_path / "a.jsonl", {"input": "x", "output": answer})
    assert (log.timed, list(log.models)) == (False, [""])
    assert log.output_tokens.tolist() == [-(-len(answer) // 4)]


def test_plain_lines(tmp_path: Path) -> None:
    text = "system: Be kind.\nuser: Hi\n\nyou\nassistant: Yes"
    rows = [
        {"timestamp": 1760587752017385, "input": text, "output": "ok", "session_id": "s"},
        {"timestamp": 1760587753017385, "prompt": "One.\n\nTwo.", "session_id": "s"},
    ]
    log = read_log(write(tmp_path / "a.jsonl", *rows))
    assert shown(log) == [
        ("system", "system", "system: Be kind."),
        ("message user", "history", "\nuser: Hi\n\nyou"),
        ("message assistant", "history", "\nassistant: Yes"),
    ]
    assert shown(log, 1) == [("text", "history", "One."), ("text", "task", "\n\nTwo.")]
    assert log.time_s.tolist() == [1760587752.017385, 1760587753.017385]


def test_sharegpt(tmp_path: Path) -> None:
    turns = [("system", "S"), ("human", "a"), ("gpt", "b" * 8), ("human", "c"), ("gpt", "d")]
    row = {"id": "x", "conversations": [{"from": f, "value": v} for f, v in turns]}
    log = read(tmp_path / "a.json", json.dumps([row]))
    assert log.calls == 2
    assert prompt(log, 1).decode() == "system\nSuser\naassistant\nbbbbbbbbuser\nc"
    assert log.output_tokens.tolist() == [2, 1]
    assert log.sessions == ["x"]
    np.testing.assert_array_equal(log.content[:2], log.content[2:4])


def test_arrays_objects_and_lists_of_messages(tmp_path: Path) -> None:
    one = shown(read(tmp_path / "a.jsonl", CHAT))
    for name, text in {
        "array": json.dumps([CHAT, CHAT]),
        "indented": json.dumps([CHAT, CHAT], indent=2),
        "array and blanks": "\n" + json.dumps([CHAT, CHAT]) + "\n\n",
        "object": json.dumps(CHAT, indent=1),
    }.items():
        log = read(tmp_path / f"{name}.json", text)
        assert log.calls == (1 if name == "object" else 2), name
        assert shown(log) == one
    messages = CHAT["messages"]
    assert read(tmp_path / "m.json", json.dumps(messages)).calls == 1
    assert read(tmp_path / "m.jsonl", messages, messages).calls == 2
    line = '[{"role": "user", "content": "a\u2028b"}]\n'  # a line break to Python, not to JSON
    assert prompt(read(tmp_path / "u.jsonl", line, line), 1).decode() == "user\na\u2028b"
    sheets = [{"final_cheatsheet": "Version: 1", "target": "1"}, {"final_cheatsheet": "V"}]
    log = read(tmp_path / "sheets.json", json.dumps(sheets))
    assert shown(log, 1) == [("cheatsheet", "memory", "V")]
    assert log.sessions == ["sheets.json"]


def test_folders_and_gzip(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    row = {"input": "x", "timestamp": 1}
    with gzip.open(tmp_path / "deep" / "b.jsonl.gz", "wt") as file:
        file.write(json.dumps(row) + "\n")
    write(tmp_path / "a.jsonl", {**row, "request": CHAT}, row)
    write(tmp_path / "notes.txt", "no log")
    log = read_log(tmp_path)
    assert [Path(s).name for s in log.source] == ["a.jsonl:1", "a.jsonl:2", "b.jsonl.gz:1"]
    write(tmp_path / "empty.jsonl", "")
    with pytest.warns(UserWarning, match=r"empty\.jsonl: an empty file"):
        assert read_log(tmp_path).calls == 3
    (tmp_path / "none").mkdir()
    with pytest.raises(ValueError, match=r"none: no \.jsonl, .* file in this folder"):
        read_log(tmp_path / "none")


def test_one_missing_time_keeps_the_order_of_lines(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", {"input": "x", "ts": 9}, {"input": "y"})
    with pytest.warns(UserWarning, match="1 of 2 calls have no time"):
        log = read_log(path)
    assert (log.timed, log.time_s.tolist()) == (False, [0, 1])


def test_empty_prompts_and_odd_contents_are_kept(tmp_path: Path) -> None:
    odd = [{"role": "user", "content": 5}, {"role": "user"}, {"content": None}, {"role": None}]
    rows = [{"messages": []}, {"request": {"messages": []}}, {"input": ""}, {"messages": odd}]
    log = read(tmp_path / "a.jsonl", *rows)
    assert log.prompt_tokens.tolist()[:3] == [0, 0, 0]
    assert prompt(log, 3) == b"user\n5user\n\n\n"
    half = read(tmp_path / "b.jsonl", '{"messages": [{"role": "user", "content": "\\ud800"}]}\n')
    assert half.calls == 1


def test_images_and_files_are_names_with_a_size(tmp_path: Path) -> None:
    data = "A" * 5000
    blocks = [
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}},
        {"type": "image_url", "image_url": {"url": "u", "detail": "low"}},
        {"type": "image", "source": {"type": "base64", "data": data}},
        {"type": "document", "source": {"type": "base64", "data": data}},
        {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "image", "source": data}]},
        {"type": "unheard_of", "blob": data},
        {"type": "text", "text": "see"},
    ]
    log = read(tmp_path / "a.jsonl", {"messages": [{"role": "user", "content": blocks}]})
    sizes = [s.tokens for s in log.segments(0)]
    assert sizes == [None, 765, 85, 1334, 2000, None, 1334, None, None]
    assert b"AAAA" not in prompt(log, 0)
    assert prompt(log, 0).startswith(b"user\nimage ")
    hidden = {"type": "reasoning", "encrypted_content": data}
    log = read(tmp_path / "b.jsonl", {"input": [hidden], "store": False})
    assert log.prompt_tokens.tolist() == [937]


def test_times() -> None:
    for value in (1760587752.5, 1760587752500, 1760587752500000, 1760587752500000000):
        assert seconds(value) == 1760587752.5
        assert seconds(str(value)) == 1760587752.5
    for text in (
        "2025-10-16T04:09:12.5Z",
        "2025-10-16 04:09:12.500000123 UTC",
        "2025-10-16T06:09:12.5+02:00",
        "2025-10-16T04:09:12.5",
    ):
        assert seconds(text) == 1760587752.5
    assert seconds(0) == 0
    nothing = [None, True, -1, float("nan"), float("inf"), "now", "", [], {}, 10**400, "9" * 30]
    assert [seconds(value) for value in nothing] == [None] * len(nothing)


TRANSCRIPT = {"type": "user", "sessionId": "s", "uuid": "u", "message": {"role": "user"}}
BAD = {
    "an empty file": ([""], r"a\.jsonl: expected a call a line, got an empty file"),
    "blank lines": (["\n \n"], "empty file"),
    "broken JSON": ([CHAT, '{"messages": [}\n'], r"a\.jsonl: line 2: broken JSON"),
    "broken JSON in line 1": (['{"messages": [}\n', CHAT], "line 1: broken JSON"),
    "a row cut short": ([CHAT, '{"messages": [\n', CHAT], "line 2: broken JSON"),
    "an indented file cut short": ([json.dumps([CHAT], indent=1)[:90]], "line 8: broken JSON"),
    "a number": ([CHAT, "5\n"], "line 2: expected a JSON object, got a number"),
    "an array of numbers": (["[1, 2]"], "item 1: expected a JSON object, got a number"),
    "unknown fields": ([{"foo": 1, "bar": 2}], "line 1: expected a prompt.*foo, bar; shapes known"),
    "no messages": ([{"model": "m", "tools": []}], "request body without messages.*model, tools"),
    "no messages within": ([{"request": {"model": "m"}}], "request body without messages"),
    "messages that are none": ([{"messages": 5}], "line 1: field 'messages': expected a list"),
    "a message that is none": ([{"messages": [{"role": "user"}, 5]}], "message 1: expected"),
    "a message of other fields": ([{"messages": [{"who": "x"}]}], "role and content.*who"),
    "tools that are none": ([{**CHAT, "tools": {}}], "field 'tools': expected a list, got dict"),
    "a block trace": ([{"timestamp": 1, "hash_ids": [1]}], "is a block trace.*jaxmem cache FILE"),
    "sessions": ([{"requests": [], "block_size": 64}], "is a block trace"),
    "a transcript": ([TRANSCRIPT], "Claude Code transcript.*read_transcripts"),
    "ShareGPT of other turns": ([{"conversations": [5]}], "turn 0: expected"),
    "no answers": ([{"conversations": []}], "no call in it"),
    "nested too deeply": (["[" * 100_000 + "\n"], "line 1: broken JSON: nested too deeply"),
    "an integer of 5,000 digits": (['{"messages": ' + "1" * 5001 + "}\n"], "line 1: broken JSON"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_logs_are_refused(tmp_path: Path, name: str) -> None:
    rows, message = BAD[name]
    with pytest.raises(ValueError, match=message) as caught:
        read_log(write(tmp_path / "a.jsonl", *rows))
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(str(tmp_path))


def test_bad_bytes_are_refused(tmp_path: Path) -> None:
    good = (json.dumps(CHAT) + "\n").encode()
    packed = gzip.compress(good * 300)
    for data, message in [
        (good + b"\xff\xfe\n", "after line .*: not UTF-8"),
        (bytes(range(256)), "not UTF-8|broken JSON"),
        (b"\x00" * 64, "line 1: broken JSON"),
        (packed[: len(packed) // 2], "gzip is damaged"),
        (packed[:40] + b"\x00" * 40, "gzip is damaged"),
    ]:
        (tmp_path / "a.jsonl").write_bytes(data)
        with pytest.raises(ValueError, match=message):
            read_log(tmp_path / "a.jsonl")


def test_deep_json_that_parses_is_read_or_refused(tmp_path: Path) -> None:
    deep = '{"messages": [{"role": "user", "content": [{"x": ' + "[" * 900 + "]" * 900 + "}]}]}\n"
    try:
        assert read(tmp_path / "a.jsonl", deep).calls == 1
    except ValueError as error:
        assert "nested too deeply" in str(error)  # noqa: PT017


def test_a_last_line_cut_short_is_left_out(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="line 2: cut short, left out"):
        assert read(tmp_path / "a.jsonl", CHAT, '{"messages": [').calls == 1


@pytest.mark.filterwarnings("ignore:.*no time")
def test_what_tells_sessions_apart(tmp_path: Path) -> None:
    rows = [{**CHAT, "agent": {"x": 1}, "who": name} for name in "aba"]
    path = write(tmp_path / "a.jsonl", *rows)
    with pytest.warns(UserWarning, match="3 of 3 calls have no session"):
        assert read_log(path).sessions == [str(path)]
    log = read_log(tmp_path / "a.jsonl", session_field="who")
    assert log.session.tolist() == [0, 1, 0]
    with pytest.raises(ValueError, match="no call has the field 'whose'"):
        read_log(tmp_path / "a.jsonl", session_field="whose")
    named = [{**CHAT, "agent_id": name} for name in "ab"]
    assert read(tmp_path / "a.jsonl", *named).sessions == ["a", "b"]


def test_one_long_line(tmp_path: Path) -> None:
    text = "word " * 400_000
    log = read(tmp_path / "a.jsonl", {"messages": [{"role": "user", "content": text}]})
    assert log.prompt_tokens.tolist() == [500_002]


@pytest.mark.parametrize("agent", ["taubench", "magagent", "miniswe"])
def test_real_agents(data_dir: Path, agent: str) -> None:
    folder = data_dir / "agent_logs" / agent
    inputs = {
        f"{file}:{number}": json.loads(line)["input"]
        for file in folder.glob("*.jsonl")
        for number, line in enumerate(file.read_text().splitlines(), 1)
    }
    log = read_log(folder)
    assert log.calls == len(inputs)
    assert log.timed
    assert len(log.sessions) == len(list(folder.glob("*.jsonl")))
    for call, source in enumerate(log.source):
        assert prompt(log, call).decode() == inputs[source]


def test_real_rewrites(data_dir: Path) -> None:
    with pytest.warns(UserWarning, match="90 of 90 calls have no time"):
        log = read_log(data_dir / "rewrites")
    assert (log.calls, len(log.sessions), list(log.labels)) == (90, 3, ["cheatsheet"])


def test_real_block_traces_are_pointed_elsewhere(data_dir: Path) -> None:
    for name in ("mooncake/conversation_trace.jsonl", "claude_code/traces_runs.jsonl.gz"):
        with pytest.raises(ValueError, match="is a block trace"):
            read_log(data_dir / name)
