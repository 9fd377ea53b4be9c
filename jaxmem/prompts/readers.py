"""Reading people's prompt logs: the request bodies they have on disk, in whatever wrapping."""

import math
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from jaxmem.prompts.answers import answer_text, answers, first, scalar, usage
from jaxmem.prompts.encoder import Encoder
from jaxmem.prompts.log import LogBuilder, PromptLog, Segment
from jaxmem.prompts.rows import Row, is_messages, json_object, json_rows, log_files, seconds
from jaxmem.prompts.shapes import Prompts, encoded, text_of
from jaxmem.prompts.transcripts import is_transcript

SHAPES = (
    "an OpenAI or Anthropic request body (messages, or input with instructions), bare or under "
    "request, body, kwargs and the like; plain lines (input or prompt as text); ShareGPT "
    "(conversations); a list of messages; cheatsheets (final_cheatsheet)"
)
WRAPPERS = (
    "request",
    "body",
    "request_body",
    "request_json",
    "requestBody",
    "proxy_server_request",
    "kwargs",
    "inputs",
    "input",
)
TIME_FIELDS = (
    "timestamp",
    "startTime",
    "start_time",
    "request_time",
    "time",
    "ts",
    "created_at",
    "createdAt",
    "created",
    "date",
)
SESSION_FIELDS = (
    "session_id",
    "sessionId",
    "session",
    "conversation_id",
    "thread_id",
    "litellm_session_id",
    "prompt_cache_key",
    "trace_id",
    "conversation",
    "chat_id",
    "thread",
    "run_id",
    "agent_id",
    "user_id",
    "user",
    "end_user",
)
_TOOLS_BESIDE = ("optional_params", "model_parameters", "proxy_server_request", "kwargs")
_RESPONSES_ONLY = (
    "instructions",
    "tools",
    "previous_response_id",
    "max_output_tokens",
    "reasoning",
    "store",
)
_SHAREGPT_ROLES = {
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "bing": "assistant",
    "bard": "assistant",
    "assistant": "assistant",
    "model": "assistant",
}
_DEPTH = 4  # wrappers within wrappers


class _Found(NamedTuple):
    """Where in a row the body is: `places` are the objects around it, outermost first."""

    places: list[dict[str, Any]]
    body: dict[str, Any]
    shape: str


class _Call(NamedTuple):
    """What a row says of one call, its prompt apart."""

    session: str
    time_s: float | None
    output_tokens: int
    cached_tokens: int
    model: str


def read_log(
    path: str | os.PathLike[str],
    encoder: Encoder | None = None,
    session_field: str | None = None,
) -> PromptLog:
    """Read a log of prompts; the shape of each row is told by what is in it.

    Request bodies: OpenAI chat completions and responses, Anthropic messages; bare, or under one
    of `WRAPPERS`, as an object or as JSON text. Plain lines: {"input" or "prompt": text}. ShareGPT:
    {"conversations": [{"from", "value"}]}, where each answer is a call whose prompt is all before
    it. A file may also be one JSON array of such rows, or of {"final_cheatsheet"}. Time, session,
    model and usage are looked for beside the body and in it. Where the usage does not say it, the
    length of the answer is that of its text. A negative or unreadable time counts as none; if any
    call has none, the calls keep the order of the lines.

    Images and files are kept as names with a nominal size (see `shapes`). What a provider adds
    to the prompt itself, and prompts it keeps (`previous_response_id`), are not in a log.

    Args:
      path: a file, gzip too, or a folder: every .jsonl, .json, .jsonl.gz and .json.gz below it.
      encoder: text to tokens; an estimate from bytes by default.
      session_field: what tells sessions apart; the first of `SESSION_FIELDS` that a row has by
        default, else the file.

    Returns:
      The log.

    Raises:
      ValueError: naming file and line, for what is not readable or of no known shape, block
        traces, Claude Code transcripts, a path without any call, and if no call has the session
        field.
    """
    reader = _Reader(LogBuilder(encoder), session_field)
    files = log_files(path)
    for file, name in files:
        rows = 0
        for row in json_rows(file, name, last_may_break=True):
            rows += 1
            try:
                reader.row(row, file)
            except RecursionError as error:
                raise ValueError(f"{row.where}: nested too deeply") from error
            except ValueError as error:
                message = str(error)
                if not message.startswith(name):
                    message = f"{row.where}: {message}"
                raise ValueError(message) from error
        if not rows:
            if len(files) == 1:
                raise ValueError(f"{name}: expected a call a line, got an empty file")
            warnings.warn(f"{name}: an empty file", stacklevel=2)
    if not reader.calls:
        raise ValueError(f"{path}: no call in it")
    if session_field is not None and reader.sessionless == reader.calls:
        raise ValueError(f"{path}: no call has the field {session_field!r}")
    if reader.sessionless:
        warnings.warn(
            f"{path}: {reader.sessionless} of {reader.calls} calls have no session (one of "
            f"{', '.join(reader.fields[:4])}, ...): those of a file count as one",
            stacklevel=2,
        )
    if reader.untimed:
        warnings.warn(
            f"{path}: {reader.untimed} of {reader.calls} calls have no time (one of "
            f"{', '.join(TIME_FIELDS[:4])}, ...): the order of the lines is kept",
            stacklevel=2,
        )
    if reader.chained:
        warnings.warn(
            f"{path}: {reader.chained} calls go on from a previous_response_id: what came before "
            "is not in the log and not counted",
            stacklevel=2,
        )
    return reader.builder.build()


class _Reader:
    """Rows to calls of a builder."""

    def __init__(self, builder: LogBuilder, session_field: str | None) -> None:
        self.builder = builder
        self.prompts = Prompts()
        self.fields = SESSION_FIELDS if session_field is None else (session_field,)
        self.calls = self.untimed = self.chained = self.sessionless = 0

    def row(self, row: Row, file: Path) -> None:
        """Add the calls of a row."""
        value = row.value
        if is_messages(value):
            value = {"messages": value}
        if not isinstance(value, dict):
            raise ValueError(f"expected a JSON object, got {_type(value)}")
        found = _find([value])
        if found is None:
            raise ValueError(_unknown(value, row))
        about = self._about(found)
        for segments, call in self._calls(found, about, row, file):
            self.calls += 1
            self.untimed += call.time_s is None
            if not call.session:
                self.sessionless += 1
                call = call._replace(session=str(file))
            self.builder.call(segments, source=row.source, **call._asdict())

    def _calls(
        self, found: _Found, about: _Call, row: Row, file: Path
    ) -> Iterator[tuple[list[Segment], _Call]]:
        body = found.body
        if found.shape == "cheatsheet":
            text = encoded(text_of(body["final_cheatsheet"]))
            session = about.session or file.name
            yield [Segment("cheatsheet", "memory", text)], about._replace(session=session)
        elif found.shape == "sharegpt":
            session = about.session or scalar(body.get("id")) or row.source
            for prompt, answer in self._turns(body):
                tokens = self._tokens(answer)
                yield prompt, about._replace(session=session, output_tokens=tokens)
        elif found.shape == "plain":
            yield self.prompts.plain(body["prompt"]), about
        else:
            self.chained += bool(body.get("previous_response_id"))
            yield self.prompts.body(body), about

    def _about(self, found: _Found) -> _Call:
        """Session, time, usage and model, from the row, the objects within and the body."""
        places = found.places
        answered = [answer for place in places for answer in answers(place)]
        around = places + [p["metadata"] for p in places if isinstance(p.get("metadata"), dict)]
        time_s = first(around, TIME_FIELDS, seconds)
        if time_s is None:
            time_s = first(answered, ("created", "created_at"), seconds)
        session = first(around, self.fields, scalar)
        model = first([*places[::-1], *answered], ("model",), scalar)
        output, cached = usage(places)
        if output is None:
            output = self._tokens(answer_text(places))
        return _Call(session or "", time_s, output, cached, model or "")

    def _tokens(self, text: str) -> int:
        encoder = self.builder.encoder
        return math.ceil(len(encoder.encode(encoded(text))) / encoder.unit_bytes) if text else 0

    def _turns(self, body: dict[str, Any]) -> Iterator[tuple[list[Segment], str]]:
        """(prompt, answer) of each answer of a ShareGPT conversation."""
        turns = body["conversations"]
        before: list[dict[str, Any]] = []
        if isinstance(body.get("system"), str) and body["system"]:
            before.append({"role": "system", "content": body["system"]})
        tools = body.get("tools")
        for index, turn in enumerate(turns):
            if not isinstance(turn, dict) or "from" not in turn:
                raise ValueError(f"conversations: turn {index}: expected {{from, value}}")
            who = str(turn["from"])
            role = _SHAREGPT_ROLES.get(who.lower(), who)
            text = text_of(turn.get("value"))
            if role == "assistant":
                prompt: dict[str, Any] = {"messages": before}
                if isinstance(tools, list):
                    prompt["tools"] = tools
                yield self.prompts.body(prompt), text
            before.append({"role": role, "content": text})


def _find(places: list[dict[str, Any]]) -> _Found | None:
    """The body in the last of `places`: itself, or in what it wraps."""
    place = places[-1]
    messages = place.get("messages")
    if isinstance(messages, str):
        items = json_object(messages)
        if isinstance(items, list):
            return _Found(places, _with_tools({**place, "messages": items}), "body")
        if messages and items is None:
            return _Found(places, {"prompt": messages}, "plain")
    elif messages and not isinstance(messages, dict):
        return _Found(places, _with_tools(place), "body")
    if isinstance(place.get("conversations"), list):
        return _Found(places, place, "sharegpt")
    if "final_cheatsheet" in place:
        return _Found(places, place, "cheatsheet")
    for field in WRAPPERS if len(places) <= _DEPTH else ():
        value = place.get(field)
        inner = json_object(value)
        if isinstance(inner, list):
            if field == "input":
                return _Found(places, {**place, "input": inner}, "body")
            inner = {"messages": inner}
        if inner is None or (
            field == "input" and isinstance(value, str) and "messages" not in inner
        ):
            continue  # among others a prompt that is JSON, and no body
        found = _find([*places, inner])
        if found is not None:
            return found
    return _loose(places, place)


def _loose(places: list[dict[str, Any]], place: dict[str, Any]) -> _Found | None:
    """A prompt under a name that says less, where nothing better was found."""
    content, prompt = place.get("input"), place.get("prompt")
    if isinstance(content, str):
        if len(places) > 1 or any(field in place for field in _RESPONSES_ONLY):
            return _Found(places, place, "body")
        return _Found(places, {"prompt": content}, "plain")
    if isinstance(content, list):
        return _Found(places, place, "body")
    if is_messages(prompt):
        return _Found(places, {**place, "messages": prompt}, "body")
    if isinstance(prompt, (str, list)):
        return _Found(places, {"prompt": text_of(prompt)}, "plain")
    if isinstance(place.get("messages"), list):  # an empty prompt is a call too
        return _Found(places, place, "body")
    instructed = isinstance(place.get("instructions"), str) and "model" in place
    return _Found(places, place, "body") if instructed else None


def _with_tools(body: dict[str, Any]) -> dict[str, Any]:
    """A body whose tools stand in an object beside its messages, as LiteLLM logs them."""
    if "tools" in body:
        return body
    for field in _TOOLS_BESIDE:
        beside = json_object(body.get(field))
        if isinstance(beside, dict) and field == "proxy_server_request":
            beside = json_object(beside.get("body"))
        if isinstance(beside, dict) and isinstance(beside.get("tools"), list):
            return {**body, "tools": beside["tools"]}
    return body


def _unknown(row: dict[str, Any], where: Row) -> str:
    if "hash_ids" in row or ("requests" in row and "block_size" in row):
        return (
            f"{where.where.rsplit(': ', 1)[0]} is a block trace, which holds no text: "
            "`jaxmem cache FILE` reads it"
        )
    if is_transcript(row):
        return (
            "a row of a Claude Code transcript, which holds usage counters and no prompts: "
            "read it with read_transcripts (jaxmem.prompts.transcripts)"
        )
    keys = ", ".join(list(map(str, row))[:12]) or "none"
    if "model" in row or any(isinstance(row.get(f), dict) for f in WRAPPERS):
        return f"a request body without messages, input or prompt (fields: {keys})"
    return f"expected a prompt, got the fields {keys}; shapes known: {SHAPES}"


def _type(value: Any) -> str:
    names = {list: "a list", str: "text", type(None): "null", bool: "a boolean"}
    return names.get(type(value), "a number")
