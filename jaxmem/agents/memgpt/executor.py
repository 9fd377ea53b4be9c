"""The function executor: from what a model wrote to what happened, errors told to the model."""

import json
from typing import Any, NamedTuple

from jaxmem.agents.memgpt.functions import HEARTBEAT, Alias, Function, Parameter, function
from jaxmem.agents.memgpt.memory import Memory
from jaxmem.agents.messages import Message, ToolCall, clean, compact
from jaxmem.agents.times import stamp

_TYPES: dict[str, type] = {"string": str, "integer": int, "boolean": bool}


class Result(NamedTuple):
    """What came of a call.

    message: for the model.
    ok: whether it was done; what failed changed nothing.
    heartbeat: whether the model goes on at once.
    name: of the function under its first name; "" for an unknown one.
    """

    message: Message
    ok: bool
    heartbeat: bool
    name: str


def execute(memory: Memory, call: ToolCall) -> Result:
    """Do what a model asked for, or tell it why not.

    Args:
      memory: what functions work on.
      call: as the model wrote it.

    Returns:
      The result. After an error the model always goes on, so that it can do better.
    """
    name = ""
    try:
        found, alias = function(call.name, memory.own)
        name = found.name
        given = _arguments(call, found, alias)
        asked = bool(given.pop(HEARTBEAT.name, False))
        told, ok = _run(memory, found, given), True
        goes_on = {"always": True, "never": False}.get(found.heartbeat, asked)
    except ValueError as error:
        told, ok, goes_on = " ".join(str(error).splitlines()), False, True
    said = {
        "status": "OK" if ok else "Failed",
        "message": told,
        "time": stamp(memory.clock()),
    }
    return Result(Message("tool", compact(said), call_id=call.id), ok, goes_on, name)


def _run(memory: Memory, found: Function, given: dict[str, Any]) -> str:
    """What a function says; a user's may raise anything, and says it to the model too."""
    if found.name not in memory.own:
        return found.run(memory, given)
    try:
        return clean(str(found.run(memory, given)))[: memory.most_characters]
    except Exception as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error


def _arguments(call: ToolCall, found: Function, alias: Alias) -> dict[str, Any]:
    """The arguments of a call under our names, each of its type."""
    try:
        written = json.loads(call.arguments or "{}")
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{call.name}: expected arguments as JSON, got {error}") from error
    if not isinstance(written, dict):
        raise ValueError(f"{call.name}: expected arguments as a JSON object")
    known = {one.name: one for one in (*found.parameters, HEARTBEAT)}
    given = {}
    for name, value in written.items():
        ours = alias.renames.get(name, name)
        if ours not in known:
            raise ValueError(
                f"{call.name}: expected arguments {', '.join(known)}, got {ascii(name)[:80]}"
            )
        if value is None and not known[ours].required:
            continue  # models write null for what they leave out
        given[ours] = _typed(call.name, known[ours], value)
    for one in found.parameters:
        if one.required and one.name not in given and one.name not in alias.omits:
            raise ValueError(f"{call.name}: expected the argument {one.name}, it is missing")
    return given


def _typed(where: str, parameter: Parameter, value: Any) -> Any:
    if parameter.kind == "boolean" and value in ("true", "false", "True", "False"):
        return value in ("true", "True")
    if parameter.kind == "integer" and isinstance(value, str | float):
        try:  # models write "0" and 0.0
            whole = int(float(value))
        except (ValueError, OverflowError):
            whole = None
        if whole is not None and float(value) == whole:
            return whole
    if type(value) is not _TYPES[parameter.kind]:
        raise ValueError(
            f"{where}: expected {parameter.name} as {parameter.kind}, got {ascii(value)[:80]}"
        )
    return clean(value) if isinstance(value, str) else value
