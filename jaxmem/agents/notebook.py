"""A rule in place of a language model that keeps notes and looks things up: for a first look."""

import json
import re
from collections.abc import Sequence

from jaxmem.agents.messages import Message, Reply, Tool
from jaxmem.agents.scripted import Scripted, calls, says
from jaxmem.agents.words import words

_NOTE = 150  # characters


def notebook() -> Scripted:
    """A rule that writes statements into the working context and answers questions by search.

    It understands nothing: a question is what has a question mark, an answer is the earlier
    message or text that the search ranks first.

    Returns:
      The rule.
    """
    return Scripted(_rule, "rule: notebook")


def _rule(messages: Sequence[Message], tools: Sequence[Tool]) -> Reply:
    if not tools:
        return says(_summary(messages[-1].content))
    at, kind, text = _event(messages)
    results = [json.loads(one.content) for one in messages[at + 1 :] if one.role == "tool"]
    if kind == "login":
        return calls("send_message", message="Welcome back.")
    if kind == "upload":
        return calls("send_message", message="I have it. Ask me about it.")
    if kind != "user_message":
        return calls("pause_heartbeats", minutes=0)
    return _answer(text, results) if "?" in text else _note(text, results)


def _event(messages: Sequence[Message]) -> tuple[int, str, str]:
    """Place, kind and text of what the rule reacts to; a warning only follows what it warns of."""
    for at in range(len(messages) - 1, -1, -1):
        if messages[at].role == "user":
            told = json.loads(messages[at].content)
            if told["type"] not in ("system_message", "note", "summary"):
                return at, told["type"], told["message"]
    return len(messages), "", ""


def _note(text: str, results: Sequence[dict[str, str]]) -> Reply:
    if not results:
        note = " ".join(text.split())[:_NOTE]
        return calls("core_memory_append", name="human", content=note, request_heartbeat=True)
    if len(results) == 1 and results[0]["status"] == "Failed":  # the working context is full
        return calls("archival_memory_insert", content=text, request_heartbeat=True)
    return calls("send_message", message="Noted.")


def _answer(question: str, results: Sequence[dict[str, str]]) -> Reply:
    if not results:
        return calls("conversation_search", query=_telling(question))
    said = [
        text
        for text in re.findall(r", user: (.*)", results[0]["message"])
        if text != question and "?" not in text
    ]
    if said:
        return calls("send_message", message=f"You said: {said[0]}")
    if len(results) == 1:
        return calls("archival_memory_search", query=_telling(question))
    kept = re.findall(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d: (.*)", results[1]["message"], re.MULTILINE)
    told = f"I have kept: {kept[0]}" if kept else "I do not know."
    return calls("send_message", message=told)


def _telling(question: str) -> str:
    """The longer words of a question; short ones are everywhere."""
    found = words(question)
    return " ".join([word for word in found if len(word) > 3] or found)


def _summary(read: str) -> str:
    """The first words of what users said."""
    said = re.findall(r'"type":"user_message","message":"((?:[^"\\]|\\.){1,60})', read)
    earlier = re.match(r"Earlier summary: (.*)", read)
    kept = earlier[1] if earlier and earlier[1] != "none" else "The user said:"
    return f"{kept} {'; '.join(said)}"[-1_200:]
