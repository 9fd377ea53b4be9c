"""The client of the chat completions protocol against a real server, faults included."""

import json
from typing import Any

import pytest
from chat_server import Answer, chat, server

pytest.importorskip("httpx")

from jaxmem.agents.endpoint import Endpoint
from jaxmem.agents.http_json import EndpointError
from jaxmem.agents.messages import Message, Reply, Tool, ToolCall, Usage

HELLO = [Message("system", "Be brief."), Message("user", "Grüß dich 👋")]
TOOL = Tool("look", "Looks.", {"type": "object", "properties": {"at": {"type": "string"}}})


@pytest.fixture
def waits() -> list[float]:
    return []


def endpoint(url: str, waits: list[float], **options: Any) -> Endpoint:
    return Endpoint(
        url, "m", **{"key": "secret", "sleep": waits.append, "timeout_s": 5.0, **options}
    )


def test_a_call_and_its_answer(waits: list[float]) -> None:
    usage = {"prompt_tokens": 9, "completion_tokens": 3,
             "prompt_tokens_details": {"cached_tokens": 4}}  # fmt: skip
    good = chat("Hm.", ("look", '{"at": "sky"}'), usage=usage)
    with server([good]) as (url, asked):
        model = endpoint(url + "/chat/completions", waits, options={"temperature": 0})
        found = model.complete(HELLO, [TOOL])
    assert found == Reply("Hm.", (ToolCall("id0", "look", '{"at": "sky"}'),), Usage(9, 3, 4))
    assert asked[0].path == "/v1/chat/completions"
    assert asked[0].headers["authorization"] == "Bearer secret"
    body = asked[0].body
    assert body["messages"][1] == {"role": "user", "content": "Grüß dich 👋"}
    assert body["tools"][0]["function"]["name"] == "look"
    assert (body["model"], body["temperature"]) == ("m", 0)
    assert "stream" not in body
    assert waits == []


def test_calls_and_results_are_sent_back(waits: list[float]) -> None:
    call = ToolCall("a1", "look", "{broken")
    with server([chat("ok")]) as (url, asked):
        endpoint(url, waits).complete(
            [*HELLO, Message("assistant", "", (call,)), Message("tool", "None.", call_id="a1")]
        )
    sent = asked[0].body["messages"]
    assert sent[2]["tool_calls"][0]["function"] == {"name": "look", "arguments": "{broken"}
    assert sent[3] == {"role": "tool", "content": "None.", "tool_call_id": "a1"}


FAULTS = [
    Answer(b'{"error": {"message": "slow down"}}', 429, (("retry-after", "7"),)),
    Answer(b"oh no", 500),
    Answer(b"{not json"),
    Answer(b'["a list"]'),
    chat("cut short")._replace(cut=9),
    Answer(b"", 503, (("retry-after", "Wed, 21 Oct 2015 07:28:00 GMT"),)),
]


@pytest.mark.parametrize("fault", FAULTS, ids=range(len(FAULTS)))
def test_what_passes_is_tried_again(fault: Answer, waits: list[float]) -> None:
    with server([fault, fault, chat("there")]) as (url, asked):
        assert endpoint(url, waits).complete(HELLO).text == "there"
    assert len(asked) == 3
    assert len(waits) == 2
    if fault.status == 429:
        assert waits == [7.0, 7.0]
    else:
        assert 0.2 < waits[0] <= 0.5 < waits[1] <= 1.0


@pytest.mark.parametrize("fault", FAULTS, ids=range(len(FAULTS)))
def test_what_does_not_pass_is_one_line(fault: Answer, waits: list[float]) -> None:
    with server([fault] * 3) as (url, _), pytest.raises(EndpointError, match="after 3 tries") as e:
        endpoint(url, waits, attempts=3).complete(HELLO)
    assert "\n" not in str(e.value)
    assert "secret" not in str(e.value)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (Answer(b'{"error": {"message": "no such\\nmodel"}}', 404), "status 404: no such model"),
        (Answer(b"denied", 401), "status 401: denied"),
        (Answer(b"", 302, (("location", "http://127.0.0.1:9/"),)), "status 302"),
        (Answer(b'{"choices": []}'), "expected choices with a message"),
        (Answer(b'{"choices": [{"message": {"tool_calls": [{"function": {}}]}}]}'), "a name"),
        (Answer(b'{"choices": [{"message": {"tool_calls": "all"}}]}'), "tool_calls as a list"),
        (Answer(b'{"choices": [{"message": {"content": 7}}]}'), "content as text"),
    ],
)
def test_what_will_not_pass_is_not_tried_again(
    answer: Answer, message: str, waits: list[float]
) -> None:
    with server([answer]) as (url, asked), pytest.raises(EndpointError, match=message) as e:
        endpoint(url, waits).complete(HELLO)
    assert len(asked) == 1
    assert "\n" not in str(e.value)
    assert waits == []


def test_forms_that_servers_have(waits: list[float]) -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}]
    written = {"function": {"name": "f", "arguments": {"x": 1}}}
    body = {"choices": [{"message": {"content": parts, "tool_calls": [written]}}], "usage": "no"}
    with server([Answer(json.dumps(body).encode())]) as (url, _):
        found = endpoint(url, waits).complete(HELLO)
    assert found == Reply("ab", (ToolCall("call_0", "f", '{"x":1}'),))


def stream(*events: Any, done: bool = True) -> Answer:
    lines = [f"data: {json.dumps(event)}\n\n" for event in events] + ["data: [DONE]\n\n"] * done
    return Answer(b": hello\n\n" + "".join(lines).encode())


def delta(**fields: Any) -> dict[str, Any]:
    return {"choices": [{"delta": fields}]}


def test_a_stream_is_gathered_and_tried_again_if_cut(waits: list[float]) -> None:
    def call(**function: str) -> list[dict[str, Any]]:
        return [{"index": 0, **({"id": "c"} if "name" in function else {}), "function": function}]

    events = (
        delta(role="assistant", content="é"), delta(content="h"),
        delta(tool_calls=call(name="f", arguments='{"a"')), delta(tool_calls=call(arguments=":1}")),
        {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 2}},
    )  # fmt: skip
    with server([stream(*events[:2], done=False), stream(*events)]) as (url, asked):
        found = endpoint(url, waits, stream=True).complete(HELLO)
    assert found == Reply("éh", (ToolCall("c", "f", '{"a":1}'),), Usage(5, 2, None))
    assert [request.body["stream"] for request in asked] == [True, True]


def test_nobody_listens(waits: list[float]) -> None:
    with server([]) as (url, _):
        pass
    with pytest.raises(EndpointError, match="no answer after 2 tries: ConnectError"):
        endpoint(url, waits, attempts=2).complete(HELLO)


@pytest.mark.parametrize("url", ["localhost:8000", "", "ftp://x/v1", "http://", None])
def test_what_is_no_url(url: Any) -> None:
    with pytest.raises(ValueError, match="expected a URL such as"):
        Endpoint(url, "m")


def test_only_the_named_key_is_sent(monkeypatch: pytest.MonkeyPatch, waits: list[float]) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "other")
    monkeypatch.delenv("JAXMEM_API_KEY", raising=False)
    with server([chat("a"), chat("b")]) as (url, asked):
        endpoint(url, waits, key=None).complete(HELLO)
        monkeypatch.setenv("JAXMEM_API_KEY", "mine")
        endpoint(url, waits, key=None).complete(HELLO)
    assert "authorization" not in asked[0].headers
    assert asked[1].headers["authorization"] == "Bearer mine"


def test_a_key_is_never_shown(waits: list[float]) -> None:
    for key in ("se\ncret", "sécret", "se cret", "a\0b"):
        with pytest.raises(ValueError, match="plain ASCII text in one line") as e:
            Endpoint("http://x/v1", "m", key=key)
        assert "cret" not in str(e.value)
    with server([Answer(b"no such key: secret", 401), chat("ok")]) as (url, asked):
        with pytest.raises(EndpointError, match=r"no such key: \[key\]"):
            endpoint(url, waits, key=" secret\n").complete(HELLO)
        endpoint(url, waits, key="").complete(HELLO)
    assert asked[0].headers["authorization"] == "Bearer secret"
    assert "authorization" not in asked[1].headers
    for url in ("http://me:secret@x/v1", "http://x/v1?api_key=secret"):
        with pytest.raises(ValueError, match="without user, password and query"):
            Endpoint(url, "m")


def test_text_that_cannot_be_sent(waits: list[float]) -> None:
    with server([]) as (url, _), pytest.raises(EndpointError, match="Unicode characters"):
        endpoint(url, waits).complete([Message("user", "\ud800")])
