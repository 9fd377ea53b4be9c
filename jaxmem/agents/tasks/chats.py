"""Chats over several sessions, in the shape of the Multi-Session Chat data, as an agent's past."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from jaxmem.agents.memgpt.events import Event
from jaxmem.agents.messages import Message
from jaxmem.agents.stores.store import NewMessage, Store
from jaxmem.common.safetensors_header import short

_UNITS = {"hour": 3_600.0, "day": 86_400.0, "week": 604_800.0, "month": 2_629_746.0}
_TURN_S = 60.0


class Session(NamedTuple):
    """One meeting.

    age_s: how long it was ago, seconds.
    turns: (who, text); who is "assistant" or "user".
    """

    age_s: float
    turns: list[tuple[str, str]]


class Chat(NamedTuple):
    """An assistant and a user who have met several times.

    sessions: earlier meetings, oldest first.
    question: of the user about them, or "".
    answer: what is right.
    user_persona, assistant_persona: sentences about both.
    opener: how a human, in the assistant's place, opened the next meeting, or "".
    """

    sessions: list[Session]
    question: str
    answer: str
    user_persona: list[str]
    assistant_persona: list[str]
    opener: str

    def fill(self, store: Store, agent: str, now_s: float) -> None:
        """Put the sessions into recall storage.

        Args:
          store: where.
          agent: whose.
          now_s: when the next meeting is, seconds since 1970.
        """
        new = []
        for session in self.sessions:
            for number, (who, text) in enumerate(session.turns):
                at = now_s - session.age_s + _TURN_S * number
                said = Message(who, text)
                message = Event("user_message", text).message(at) if who == "user" else said
                new.append(NewMessage(at, who, text, message))
        store.add_messages(agent, new)


def read_chats(path: str | os.PathLike[str]) -> list[Chat]:
    """Read chats.

    Rows as MSC-Self-Instruct has them: `previous_dialogs` (each with `dialog`, `time_num`,
    `time_unit`), `dialog` (the next meeting), `self_instruct` ({"B": question, "A": answer}),
    `summary_speaker_1`, `summary_speaker_2`. Speaker 1, who says the first line, is A: the
    assistant.

    Args:
      path: JSON lines, or one JSON list.

    Returns:
      The chats.

    Raises:
      ValueError: naming the row and what is missing.
      OSError: if the file cannot be read.
    """
    text = Path(path).read_text(encoding="utf-8")
    try:
        whole = text.lstrip().startswith("[")
        rows = (
            json.loads(text) if whole else [json.loads(x) for x in text.splitlines() if x.strip()]
        )
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: expected JSON, got {error}") from error
    return [_chat(row, f"{path}: row {number}") for number, row in enumerate(rows, 1)]


def _chat(row: Any, where: str) -> Chat:
    if not isinstance(row, dict) or not isinstance(row.get("previous_dialogs"), list):
        raise ValueError(f"{where}: expected an object with previous_dialogs, got {short(row)}")
    sessions = [_session(one, where) for one in row["previous_dialogs"]]
    asked = row.get("self_instruct") or {}
    following = _turns(row.get("dialog") or [], where)
    return Chat(
        sorted(sessions, key=lambda one: -one.age_s),
        _text(asked, "B", where),
        _text(asked, "A", where),
        [str(line) for line in row.get("summary_speaker_2") or []],
        [str(line) for line in row.get("summary_speaker_1") or []],
        next((text for who, text in following if who == "assistant"), ""),
    )


def _session(one: Any, where: str) -> Session:
    if not isinstance(one, dict):
        raise ValueError(f"{where}: expected dialogs as objects, got {short(one)}")
    unit = str(one.get("time_unit", "days")).rstrip("s").lower()
    number = one.get("time_num", 1)
    if unit not in _UNITS or not isinstance(number, int | float) or number < 0:
        raise ValueError(f"{where}: expected time_num {', '.join(_UNITS)}, got {number!r} {unit!r}")
    return Session(float(number) * _UNITS[unit], _turns(one.get("dialog"), where))


def _turns(dialog: Any, where: str) -> list[tuple[str, str]]:
    if not isinstance(dialog, list) or not all(isinstance(turn, Mapping) for turn in dialog):
        raise ValueError(f"{where}: expected a dialog of turns with text, got {short(dialog)}")
    found = []
    for number, turn in enumerate(dialog):
        second = str(turn.get("id", f"Speaker {number % 2 + 1}")).endswith("2")
        found.append(("user" if second else "assistant", _text(turn, "text", where)))
    return found


def _text(holder: Mapping[str, Any], name: str, where: str) -> str:
    value = holder.get(name, "")
    if not isinstance(value, str):
        raise ValueError(f"{where}: expected {name} as text, got {short(value)}")
    return value
