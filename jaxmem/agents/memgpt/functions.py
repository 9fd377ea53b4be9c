"""The functions by which a model reads and writes its memory, in one table.

Names are those of MemGPT's code of October 2023; the paper's and Letta's of today work too.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from jaxmem.agents.memgpt.memory import Memory
from jaxmem.agents.messages import Tool
from jaxmem.agents.stores.store import Page, StoredMessage
from jaxmem.agents.times import day_s, stamp
from jaxmem.common import choice, lookup

LONGEST_PAUSE = 360
"""Minutes."""

_DAY_S = 86_400.0
_BLOCK = "human"  # where a function of the paper, which knows no blocks, writes


class Parameter(NamedTuple):
    """An argument of a function.

    name: of it.
    kind: JSON's: "string", "integer" or "boolean".
    description: for the model.
    required: whether it must be given.
    """

    name: str
    kind: str
    description: str
    required: bool = True


class Alias(NamedTuple):
    """Another name of a function.

    renames: what it calls arguments, by that name the function's own.
    omits: arguments of the function that it does not have.
    """

    renames: Mapping[str, str] = {}
    omits: tuple[str, ...] = ()


class Function(NamedTuple):
    """A function that the model can call.

    name: of it.
    description: for the model.
    parameters: arguments, without `request_heartbeat`.
    run: does it, and says what the model is told.
    heartbeat: when the model goes on at once: "asked" (if the call says so), "always", "never".
    aliases: other names.
    """

    name: str
    description: str
    parameters: tuple[Parameter, ...]
    run: Callable[[Memory, Mapping[str, Any]], str]
    heartbeat: str = "asked"
    aliases: Mapping[str, Alias] = {}


HEARTBEAT = Parameter(
    "request_heartbeat",
    "boolean",
    "Request an immediate heartbeat after this call: true to go on with another call.",
    required=False,
)
"""The argument of functions that the model may go on after."""


def _send_message(memory: Memory, given: Mapping[str, Any]) -> str:
    memory.sent.append(given["message"])
    return "Sent."


def _pause_heartbeats(memory: Memory, given: Mapping[str, Any]) -> str:
    minutes = min(max(given["minutes"], 0), LONGEST_PAUSE)
    memory.paused_until_s = memory.clock() + 60.0 * minutes
    return f"Timed heartbeats are paused for {minutes} minutes."


def _core_memory_append(memory: Memory, given: Mapping[str, Any]) -> str:
    memory.working = memory.working.append(given.get("name", _BLOCK), given["content"])
    return "Appended."


def _core_memory_replace(memory: Memory, given: Mapping[str, Any]) -> str:
    label = given.get("name", _BLOCK)
    memory.working = memory.working.replace(label, given["old_content"], given["new_content"])
    return "Replaced."


def _memory_insert(memory: Memory, given: Mapping[str, Any]) -> str:
    line = given.get("insert_line", -1)
    memory.working = memory.working.insert(given["label"], given["new_str"], line)
    return "Inserted."


def _memory_rethink(memory: Memory, given: Mapping[str, Any]) -> str:
    memory.working = memory.working.rethink(given["label"], given["new_memory"])
    return "Written."


def _conversation_search(memory: Memory, given: Mapping[str, Any]) -> str:
    start, count = _window(memory, given)
    found = memory.store.find_messages(memory.agent, given["query"], start, count)
    return _shown(memory, found, _said(found))


def _conversation_search_date(memory: Memory, given: Mapping[str, Any]) -> str:
    low_s, high_s = day_s(given["start_date"]), day_s(given["end_date"]) + _DAY_S
    if high_s <= low_s:
        raise ValueError("expected a start_date that is not after end_date")
    start, count = _window(memory, given)
    found = memory.store.messages_between(memory.agent, low_s, high_s, start, count)
    return _shown(memory, found, _said(found))


def _archival_memory_insert(memory: Memory, given: Mapping[str, Any]) -> str:
    if not given["content"].strip():
        raise ValueError("expected content with words in it, got an empty one")
    memory.store.add_passages(memory.archive, [given["content"]], time_s=memory.clock())
    return "Inserted."


def _archival_memory_search(memory: Memory, given: Mapping[str, Any]) -> str:
    start, count = _window(memory, given)
    found = memory.store.find_passages(memory.archive, given["query"], start, count)
    return _shown(memory, found, [f"{stamp(one.time_s)}: {one.text}" for one in found.items])


def _window(memory: Memory, given: Mapping[str, Any]) -> tuple[int, int]:
    page = given.get("page", 0)
    if not 0 <= page < 10**9:
        raise ValueError(f"expected a page of 0 or more, got {page}")
    return page * memory.page, memory.page


def _said(found: Page[StoredMessage]) -> list[str]:
    return [f"{stamp(one.time_s)}, {one.kind}: {one.text}" for one in found.items]


def _shown(memory: Memory, found: Page[Any], texts: Sequence[str]) -> str:
    """Results a line each after the count of all; long ones are cut, and say so."""
    if not found.total:
        return "No results found."
    page, last = found.start // memory.page, (found.total - 1) // memory.page
    if not texts:
        return f"No results on page {page}: the last page is {last} ({found.total} results)."
    most = max(80, memory.most_characters // len(texts))
    cut = [
        text if len(text) <= most else f"{text[:most]} [... {len(text) - most} more characters]"
        for text in texts
    ]
    head = f"Showing {len(texts)} of {found.total} results (page {page}/{last}):"
    return "\n".join([head, *cut])


_PAGE = Parameter("page", "integer", "Which page of results, from 0 (default 0).", False)
_QUERY = Parameter("query", "string", "What to look for.")
_NAME = Parameter("name", "string", "Block of the working context, such as persona or human.")

FUNCTIONS = (
    Function(
        "send_message",
        "Sends a message to the human user. It is the only way to be heard.",
        (Parameter("message", "string", "The message; any language."),),
        _send_message,
        "never",
    ),
    Function(
        "pause_heartbeats",
        "Ignores timed heartbeats for a while; messages of the user still arrive.",
        (Parameter("minutes", "integer", f"How long, at most {LONGEST_PAUSE}."),),
        _pause_heartbeats,
        "never",
    ),
    Function(
        "core_memory_append",
        "Appends a line to a block of the working context, which is always in view.",
        (_NAME, Parameter("content", "string", "What to write.")),
        _core_memory_append,
        aliases={"working_context.append": Alias({"text": "content"}, ("name",))},
    ),
    Function(
        "core_memory_replace",
        "Replaces text in a block of the working context; an empty new_content deletes it.",
        (
            _NAME,
            Parameter("old_content", "string", "Text to replace, exactly as it stands there."),
            Parameter("new_content", "string", "Text instead."),
        ),
        _core_memory_replace,
        aliases={
            "working_context.replace": Alias(
                {"old": "old_content", "new": "new_content"}, ("name",)
            ),
            "memory_replace": Alias(
                {"label": "name", "old_str": "old_content", "new_str": "new_content"}
            ),
        },
    ),
    Function(
        "conversation_search",
        "Searches the whole history of the conversation by words.",
        (_QUERY, _PAGE),
        _conversation_search,
        "always",
        {"recall_storage.search": Alias(), "recall_memory_search": Alias()},
    ),
    Function(
        "conversation_search_date",
        "Shows what was said from one day to another, both included.",
        (
            Parameter("start_date", "string", "Such as 2023-10-05."),
            Parameter("end_date", "string", "Such as 2023-10-06."),
            _PAGE,
        ),
        _conversation_search_date,
        "always",
    ),
    Function(
        "archival_memory_insert",
        "Puts a text into archival memory, which is out of view and has no limit.",
        (Parameter("content", "string", "What to keep; complete sentences are found best."),),
        _archival_memory_insert,
        aliases={"archival_storage.insert": Alias({"text": "content"})},
    ),
    Function(
        "archival_memory_search",
        "Searches archival memory by meaning.",
        (_QUERY, _PAGE),
        _archival_memory_search,
        "always",
        {"archival_storage.search": Alias()},
    ),
    Function(
        "memory_insert",
        "Inserts text into a block of the working context at a line.",
        (
            Parameter("label", "string", "The block."),
            Parameter("new_str", "string", "What to insert."),
            Parameter("insert_line", "integer", "Before which line, from 0; -1 at the end.", False),
        ),
        _memory_insert,
    ),
    Function(
        "memory_rethink",
        "Writes a block of the working context anew.",
        (
            Parameter("label", "string", "The block."),
            Parameter("new_memory", "string", "All of its new text."),
        ),
        _memory_rethink,
    ),
)
"""Every function there is."""

_SEARCHES = ("conversation_search", "conversation_search_date")
_ARCHIVE = ("archival_memory_insert", "archival_memory_search")
SETS: dict[str, tuple[str, ...]] = {
    "memgpt": (
        "send_message", "pause_heartbeats", "core_memory_append", "core_memory_replace",
        *_SEARCHES, *_ARCHIVE,
    ),
    "paper": (
        "send_message", "working_context.append", "working_context.replace",
        "recall_storage.search", "archival_storage.insert", "archival_storage.search",
    ),
    "letta": (
        "send_message", "memory_insert", "memory_replace", "memory_rethink", *_SEARCHES, *_ARCHIVE,
    ),
}  # fmt: skip
"""Names that a model is offered. Called, all names of `FUNCTIONS` work."""

_BY_NAME: dict[str, tuple[Function, Alias]] = {
    **{one.name: (one, Alias()) for one in FUNCTIONS},
    **{name: (one, alias) for one in FUNCTIONS for name, alias in one.aliases.items()},
}


def function(name: str, own: Mapping[str, Function] = {}) -> tuple[Function, Alias]:
    """The function of a name.

    Args:
      name: any that it has; a dot may be an underscore.
      own: functions that a user has added, by name.

    Returns:
      The function, and what is different under that name.

    Raises:
      ValueError: if there is none, with the nearest name.
    """
    known = _BY_NAME | {one.name: (one, Alias()) for one in own.values()}
    dotted = {one.replace(".", "_"): one for one in _BY_NAME}
    return lookup(known, dotted.get(name, name), "function")


def tools(names: str = "memgpt", own: Sequence[Function] = ()) -> tuple[Tool, ...]:
    """Schemas of the functions that a model is offered.

    Args:
      names: one of `SETS`.
      own: functions that a user adds.

    Returns:
      A tool each. Dots become underscores: the protocol has none in names.

    Raises:
      ValueError: if there is no such set, or a user's function is none or has a name that is taken.
    """
    offered = SETS[choice(SETS, names, "set of functions")]
    taken = {name.replace(".", "_") for name in _BY_NAME}
    for one in own:
        if not isinstance(one, Function) or not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", one.name):
            raise ValueError(
                f"expected a Function with a name of letters, digits, _ and -, got {one!r:.80}"
            )
        if one.name in taken:
            raise ValueError(f"expected functions of other names, {one.name!r} is taken")
        taken.add(one.name)
    table = {one.name: one for one in own}
    return tuple(_tool(name, table) for name in (*offered, *table))


def _tool(name: str, own: Mapping[str, Function]) -> Tool:
    found, alias = function(name, own)
    called = {ours: theirs for theirs, ours in alias.renames.items()}
    given = [
        *(
            one._replace(name=called.get(one.name, one.name))
            for one in found.parameters
            if one.name not in alias.omits
        ),
        *([HEARTBEAT] if found.heartbeat == "asked" else []),
    ]
    schema = {
        "type": "object",
        "properties": {
            one.name: {"type": one.kind, "description": one.description} for one in given
        },
        "required": [one.name for one in given if one.required],
    }
    return Tool(name.replace(".", "_"), found.description, schema)
