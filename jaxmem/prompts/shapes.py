"""Request bodies of OpenAI's and Anthropic's interfaces as segments, in the order of the prompt."""

import hashlib
import json
from collections.abc import Iterable
from typing import Any

from jaxmem.prompts.log import Segment
from jaxmem.prompts.segments import Part, printable, split, split_plain

# An image's size in tokens is not in the request: OpenAI's documented 765 for 1024 x 1024 at high
# detail and 85 at low, Anthropic's (1000 x 1000) / 750.
OPENAI_IMAGE_TOKENS = 765
OPENAI_LOW_IMAGE_TOKENS = 85
ANTHROPIC_IMAGE_TOKENS = 1_334
FILE_TOKENS = 2_000  # about a page of a document or a minute of sound; nothing says how many
CACHE_CHARS = 32_000_000  # of messages remembered
_DATA_CHARS = 1_000  # a string without blanks from this length on is data, not text


class Prompts:
    """Request bodies to segments; a message seen before is not split again.

    Tools come first, then the answer's schema, then system text, then messages: the order in
    which both providers say the prompt is built. The last message, if it is not the
    assistant's, is of kind "task".
    """

    def __init__(self) -> None:
        """Start with nothing remembered."""
        self._seen: dict[Any, tuple[Segment, ...]] = {}
        self._chars = 0

    def body(self, body: dict[str, Any]) -> list[Segment]:
        """The prompt of a request body.

        Args:
          body: chat completions (`messages`), Anthropic messages (`system`, `messages`) or
            responses (`instructions`, `input`).

        Returns:
          Its segments.

        Raises:
          ValueError: for a field of another type than the interface's.
        """
        prompt: list[Segment] = []
        for field in ("tools", "functions"):
            for tool in _list(body, field):
                prompt.append(self._known(("", "tool", dumps(tool)), tool, _tool)[0])
        schema = body.get("response_format")
        text = body.get("text")
        if schema is None and isinstance(text, dict):
            schema = text.get("format")
        if isinstance(schema, dict) and schema.get("type") == "json_schema":
            prompt.append(Segment("response format", "system", encoded(dumps(schema))))
        for field in ("system", "instructions"):
            if body.get(field):
                prompt += self.message({"role": "system", "content": body[field]})
        messages = body.get("messages", body.get("input"))
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        elif messages is not None and not isinstance(messages, list):
            raise ValueError(
                f"field 'messages': expected a list of messages, got {type(messages).__name__}"
            )
        last: list[Segment] = []
        for index, message in enumerate(messages or ()):
            if isinstance(message, str) and "messages" not in body:
                message = {"role": "user", "content": message}
            if not isinstance(message, dict):
                raise ValueError(
                    f"message {index}: expected a JSON object, got {type(message).__name__}"
                )
            if not any(field in message for field in ("role", "content", "type")):
                raise ValueError(
                    f"message {index}: expected role and content, got the fields "
                    f"{', '.join(list(map(str, message))[:12]) or 'none'}"
                )
            prompt += last
            last = list(self.message(message))
        prompt += _task(last)
        if isinstance(body.get("cache_control"), dict) and prompt:  # Anthropic's automatic caching
            prompt[-1] = prompt[-1]._replace(mark=True)
        return prompt

    def plain(self, text: str) -> list[Segment]:
        """A prompt that is one text.

        Args:
          text: the prompt.

        Returns:
          Its segments, whose contents joined are the text.
        """
        parts = [Segment(label, kind, encoded(t)) for label, kind, t in split_plain(text)]
        return parts[:-1] + _task(parts[-1:])

    def message(self, message: dict[str, Any]) -> tuple[Segment, ...]:
        """One message, or one item of a responses body.

        Args:
          message: as in the body.

        Returns:
          Its segments; the first begins with the role.
        """
        content = message.get("content")
        if isinstance(content, str) and len(message) == 2 and "role" in message:
            key: Any = (str(message["role"]), content)
        else:
            key = dumps(message)
        return self._known(key, message, _message)

    def _known(self, key: Any, value: Any, make: Any) -> tuple[Segment, ...]:
        found = self._seen.get(key)
        if found is None:
            self._chars += sum(map(len, key)) if isinstance(key, tuple) else len(key)
            if self._chars > CACHE_CHARS:
                self._seen.clear()
                self._chars = 0
            found = self._seen[key] = make(value)
        return found


def encoded(text: str) -> bytes:
    """UTF-8 of a text that may hold half a surrogate pair, as JSON can.

    Args:
      text: any string.

    Returns:
      Its bytes.
    """
    return text.encode("utf-8", "surrogatepass")


def dumps(value: Any) -> str:
    """JSON as it is sent: keys in the order given.

    Args:
      value: what was read from JSON.

    Returns:
      The text.
    """
    return json.dumps(value, ensure_ascii=False)


def text_of(content: Any) -> str:
    """The text of an answer: a string, blocks, or anything else as JSON.

    Args:
      content: what was read from JSON.

    Returns:
      The text.
    """
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(text_of(block) for block in content)
    if isinstance(content, dict):
        for field in ("text", "thinking", "content"):
            if isinstance(content.get(field), str):
                return str(content[field])
    return dumps(content)


def _task(segments: list[Segment]) -> list[Segment]:
    if not segments or segments[0].label.startswith(("message assistant", "reasoning")):
        return segments
    return [s._replace(kind="task") if s.kind == "history" else s for s in segments]


def _tool(tool: Any) -> tuple[Segment]:
    if not isinstance(tool, dict):
        return (Segment("tool", "tools", encoded(dumps(tool))),)
    inner = tool.get("function")
    name = tool.get("name") or (isinstance(inner, dict) and inner.get("name")) or tool.get("type")
    label = f"tool {printable(name)}" if isinstance(name, str) else "tool"
    return (Segment(label, "tools", encoded(dumps(_unmarked(tool))), None, _marked(tool)),)


def _message(message: dict[str, Any]) -> tuple[Segment, ...]:
    role = message.get("role")
    role = role if isinstance(role, str) else ""
    what = message.get("type", "message")
    if not role and isinstance(what, str) and what != "message":
        return tuple(_item(message, what))
    head = role
    for field in ("name", "tool_call_id"):
        if isinstance(message.get(field), str):
            head += f" {message[field]}"
    content = message.get("content", message.get("parts"))
    blocks = content if isinstance(content, list) else [content]
    segments: list[Segment] = []
    for block in blocks:
        segments += _block(block, role)
    for field in ("tool_calls", "function_call"):
        if message.get(field):
            text = encoded("\n" + dumps(message[field]))
            segments.append(Segment(f"message {printable(role)}", "history", text))
    if not segments:
        segments = _parts(split("", role))
    if segments[0].tokens is None:
        segments[0] = segments[0]._replace(content=encoded(head + "\n") + segments[0].content)
    else:  # a stand-in has no text to stand the role in
        segments.insert(0, Segment(segments[0].label, "history", encoded(head + "\n")))
    if _marked(message):
        segments[-1] = segments[-1]._replace(mark=True)
    return tuple(_joined(segments))


def _joined(segments: list[Segment]) -> Iterable[Segment]:
    """Without empty texts, such as the empty text beside a tool call; their marks move forward."""
    kept: list[Segment] = []
    for segment in segments:
        if kept and not segment.content:
            kept[-1] = kept[-1]._replace(mark=kept[-1].mark or segment.mark)
        else:
            kept.append(segment)
    return kept


def _item(item: dict[str, Any], what: str) -> Iterable[Segment]:
    """An item of a responses body that is no message."""
    if what.endswith("_output"):
        return _result(f"tool {item.get('call_id', '')}\n", item.get("output"))
    if what in ("reasoning", "compaction", "compaction_summary"):
        label, kind = ("reasoning", "history") if what == "reasoning" else ("summary", "summary")
        hidden = item.get("encrypted_content")
        if isinstance(hidden, str) and hidden:  # base64 of about 4 bytes a token
            return [_stand_in(label, kind, what, hidden, len(hidden) * 3 // 16)]
        text = text_of(item.get("summary")) + text_of(item.get("content"))
        return [Segment(label, kind, encoded(f"{what}\n{text}"))]
    if what == "item_reference":
        return [_stand_in("item reference", "history", "item", str(item.get("id")), 0)]
    if what in ("input_image", "input_file", "input_text", "output_text"):
        return _block(item, "user")
    label = "message assistant" if what.endswith("_call") else f"item {printable(what)}"
    return [Segment(label, "history", encoded("assistant\n" + dumps(_short(item))))]


def _block(block: Any, role: str) -> list[Segment]:
    """A content block of a message, or content that is no list."""
    if block is None:
        return []
    if not isinstance(block, dict):
        return _one_block(_parts(split(block if isinstance(block, str) else dumps(block), role)))
    label = f"message {printable(role)}" if role else "message"
    what = block.get("type")
    text = block.get("text")
    if isinstance(text, str) and what in (None, "text", "input_text", "output_text"):
        segments = _parts(split(text, role))
    elif what in ("image", "image_url", "input_image"):
        segments = [_image(block, what, label)]
    elif what in ("thinking", "reasoning"):
        segments = [Segment("reasoning", "history", encoded(text_of(block)))]
    elif what == "tool_result":
        segments = _result(f"tool_result {block.get('tool_use_id', '')}\n", block.get("content"))
    elif what in ("document", "file", "input_file", "input_audio", "audio", "video"):
        segments = [_file(block, str(what))]
    else:
        kind = "retrieved" if what in ("search_result", "web_search_tool_result") else "history"
        segments = [Segment(label, kind, encoded(dumps(_short(_unmarked(block)))))]
    if _marked(block) and segments:
        segments[-1] = segments[-1]._replace(mark=True)
    return _one_block(segments)


def _one_block(segments: list[Segment]) -> list[Segment]:
    return segments[:1] + [segment._replace(part=True) for segment in segments[1:]]


def _result(head: str, content: Any) -> list[Segment]:
    """What a tool answered, headed by the id of the call."""
    segments: list[Segment] = []
    for part in content if isinstance(content, list) else [content]:
        segments += _block(part, "tool")
    if segments and segments[0].tokens is None:
        segments[0] = segments[0]._replace(content=encoded(head) + segments[0].content)
        return segments
    return [Segment("message tool", "history", encoded(head)), *segments]


def _image(block: dict[str, Any], what: str, label: str) -> Segment:
    source = block.get("source") or block.get("image_url") or block.get("file_id")
    tokens = ANTHROPIC_IMAGE_TOKENS if what == "image" else OPENAI_IMAGE_TOKENS
    detail = block.get("detail")
    if isinstance(source, dict):
        detail = source.get("detail", detail)
        source = next((source[k] for k in ("data", "url", "file_id") if k in source), source)
    if detail == "low" and what != "image":
        tokens = OPENAI_LOW_IMAGE_TOKENS
    return _stand_in(label, "history", "image", source, tokens)


def _file(block: dict[str, Any], what: str) -> Segment:
    source = block.get("source", block.get(what, block))
    if isinstance(source, dict):
        if source.get("type") == "text" and isinstance(source.get("data"), str):
            return Segment("retrieved: document", "retrieved", encoded(source["data"]))
        fields = ("data", "file_data", "url", "file_url", "file_id")
        source = next((source[k] for k in fields if k in source), source)
    kind = "history" if "audio" in what else "retrieved"
    return _stand_in(f"{kind}: {what}", kind, what, source, FILE_TOKENS)


def _stand_in(label: str, kind: str, what: str, data: Any, tokens: int) -> Segment:
    """A short name for data, with a size: equal data have equal names."""
    text = data if isinstance(data, str) else dumps(data)
    return Segment(label, kind, encoded(f"{what} {_sha8(text)}"), tokens)


def _sha8(text: str) -> str:
    return hashlib.sha256(encoded(text)).hexdigest()[:8]


def _parts(parts: list[Part]) -> list[Segment]:
    return [Segment(label, kind, encoded(text)) for label, kind, text in parts]


def _short(value: Any) -> Any:
    """With data (long strings without a blank) named, not spelled out."""
    if isinstance(value, str):
        long = len(value) >= _DATA_CHARS and not any(c.isspace() for c in value[:_DATA_CHARS])
        return f"data {_sha8(value)}" if long else value
    if isinstance(value, list):
        return [_short(item) for item in value]
    if isinstance(value, dict):
        return {key: _short(item) for key, item in value.items()}
    return value


def _unmarked(block: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in block.items() if key != "cache_control"}


def _marked(block: dict[str, Any]) -> bool:
    return isinstance(block.get("cache_control"), dict)


def _list(body: dict[str, Any], field: str) -> list[Any]:
    value = body.get(field)
    if value is not None and not isinstance(value, list):
        raise ValueError(f"field {field!r}: expected a list, got {type(value).__name__}")
    return value or []
