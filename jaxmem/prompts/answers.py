"""What a row says of the answer: its text, and what the provider counted."""

from collections.abc import Callable
from typing import Any

from jaxmem.prompts.rows import json_object
from jaxmem.prompts.shapes import dumps, text_of

RESPONSES = (
    "response",
    "response_body",
    "response_json",
    "responseBody",
    "output",
    "completion",
    "result",
)


def usage(places: list[dict[str, Any]]) -> tuple[int | None, int]:
    """Tokens of the answer, and of the prompt those that the provider's cache served.

    Args:
      places: the objects of a row, outermost first.

    Returns:
      (output tokens or None, cached tokens or -1 where nothing says).
    """
    answered = [answer for place in places for answer in answers(place)]
    usages = [p["usage"] for p in answered + places if isinstance(p.get("usage"), dict)]
    usages += places
    output = first(usages, ("completion_tokens", "output_tokens"), _count)
    cached = None
    for usage in usages:
        details = [usage.get(f) for f in ("prompt_tokens_details", "input_tokens_details")]
        inner = [d for d in details if isinstance(d, dict)]
        cached = first(inner, ("cached_tokens",), _count)
        if cached is None:
            names = ("cache_read_input_tokens", "prompt_cache_hit_tokens", "cached_tokens")
            cached = first([usage], names, _count)
        if cached is not None:
            break
    return output, -1 if cached is None else cached


def answers(place: dict[str, Any]) -> list[dict[str, Any]]:
    """The response objects beside a body; of a stream, its chunks from the last.

    Args:
      place: an object of a row.

    Returns:
      The objects, and those within them that hold usage or text.
    """
    found: list[dict[str, Any]] = []
    for field in RESPONSES:
        value = place.get(field)
        if isinstance(value, str):
            value = _response(field, value)
        chunks = value[::-1] if isinstance(value, list) else [value]
        for chunk in chunks:
            if isinstance(chunk, dict):
                found.append(chunk)
                found += [chunk[f] for f in ("body", "message") if isinstance(chunk.get(f), dict)]
    return found


def _response(field: str, text: str) -> dict[str, Any] | None:
    """A response object that stands as JSON text; an answer that is JSON is none."""
    if not field.startswith("response") or text[:1] != "{":
        return None
    value = json_object(text)
    fits = isinstance(value, dict) and any(f in value for f in ("choices", "usage", "output"))
    return value if fits and isinstance(value, dict) else None


def answer_text(places: list[dict[str, Any]]) -> str:
    """The text of the answer, tool calls included.

    Args:
      places: the objects of a row, outermost first.

    Returns:
      It, or "" where there is none.
    """
    for place in places:
        for field in RESPONSES:
            value = place.get(field)
            if isinstance(value, str) and not _response(field, value):
                return value
            if isinstance(value, list):
                return text_of(value)
        for answer in answers(place):
            choices = answer.get("choices")
            if isinstance(choices, list) and choices and isinstance(choices[0], dict):
                message = choices[0].get("message")
                if isinstance(message, dict):
                    calls = message.get("tool_calls")
                    return text_of(message.get("content")) + (dumps(calls) if calls else "")
                return text_of(choices[0].get("text"))
            for field in ("content", "output", "output_text", "text"):
                if answer.get(field):
                    return text_of(answer[field])
    return ""


def first(places: list[dict[str, Any]], fields: tuple[str, ...], read: Callable[[Any], Any]) -> Any:
    """The first field, by order of `fields`, that some place has and `read` makes sense of.

    Args:
      places: objects.
      fields: names.
      read: a value to what is wanted, or None.

    Returns:
      What `read` made of it; None if there is none.
    """
    for field in fields:
        for place in places:
            if field in place:
                value = read(place[field])
                if value is not None:
                    return value
    return None


def scalar(value: Any) -> str | None:
    """A name: text, an integer, or the id of an object.

    Args:
      value: what was read from JSON.

    Returns:
      It as text, or None.
    """
    if isinstance(value, dict):
        value = value.get("id")
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode() or None
    return str(value) if type(value) is int else None


def _count(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < 2**40 else None
