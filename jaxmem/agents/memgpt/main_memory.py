"""What an agent has in view: working context, summary and queue, as the store keeps them."""

from collections.abc import Sequence
from typing import Any

from jaxmem.agents.memgpt import events
from jaxmem.agents.memgpt.context_queue import Thresholds, Unit
from jaxmem.agents.memgpt.events import Event
from jaxmem.agents.memgpt.instructions import WARNING
from jaxmem.agents.memgpt.memory import Memory
from jaxmem.agents.memgpt.prompt import (
    EDITED_IN_PLACE,
    NOTE,
    NOTED,
    MainContext,
    summary_message,
    unit_of,
)
from jaxmem.agents.memgpt.working_context import WorkingContext
from jaxmem.agents.messages import Message, Reply, Tool, clean
from jaxmem.agents.stores.store import NewMessage
from jaxmem.prompts.encoder import Encoder


class MainMemory:
    """Main context over time: what joins it, what leaves it, and its state in the store.

    Everything that joins is in recall storage before, in one transaction with the state.

    Attributes:
      memory: working context and storages, what functions work on.
      units: the queue, oldest first.
      warned: whether the warning has come since the last eviction.
      limits: thresholds of the queue.
    """

    def __init__(
        self,
        memory: Memory,
        encoder: Encoder,
        limits: Thresholds,
        layout: str,
        tools: tuple[Tool, ...],
        instructions: str,
    ) -> None:
        """Take up what the store has of the agent, or make its first state.

        Args:
          memory: working context and storages.
          encoder: text to tokens.
          limits: thresholds of the queue.
          layout: one of `jaxmem.sessions.LAYOUTS`.
          tools: functions that the model is offered.
          instructions: read-only text.
        """
        self.memory, self.limits = memory, limits
        self.units: list[Unit] = []
        self.warned = False
        self._encoder, self._layout = encoder, layout
        self._tools, self._instructions = tools, instructions
        self._summary, self._summary_s, self._shown = "", 0.0, ""
        self._first = 0  # id of the oldest message in the queue
        self._last, self._merged = 0, 0  # ids: the newest, and that whose notes are merged
        self._version = 0
        self._take_up()

    def context(self) -> MainContext:
        """What the next call would show the model.

        Returns:
          Main context.
        """
        return MainContext(
            self._tools, self._instructions, self._shown,
            summary_message(self._summary, self._summary_s), tuple(self.units), self._layout,
        )  # fmt: skip

    def tokens(self) -> int:
        """Tokens of the next prompt.

        Returns:
          Their number.
        """
        return self.context().tokens(self._encoder)

    def fixed_tokens(self) -> int:
        """Tokens of a prompt without summary and queue.

        Returns:
          Their number.
        """
        return self.context()._replace(summary=None, units=()).tokens(self._encoder)

    def receive(self, event: Event) -> None:
        """An event joins the queue, and the warning after it if it is due.

        Args:
          event: what happened.
        """
        kind = "user" if event.kind == "user_message" else "system"
        told, most = clean(event.text), self.memory.most_characters
        cut = told[:most]
        if len(cut) < len(told):
            cut += f" [... {len(told) - len(cut)} more characters: see recall memory]"
        with self.memory.store.transaction():
            self._join(kind, told, event._replace(text=cut))
            if not self.warned and self.limits.warns(self.tokens()):
                self.warned = True
                self._join("system", WARNING, events.system_message(WARNING), warning=True)
            self._save()

    def remember(
        self, reply: Reply, results: Sequence[Message], before: WorkingContext, sent: Sequence[str]
    ) -> None:
        """What the model said and what came of it join the queue, as one.

        Args:
          reply: of the model.
          results: of its calls, in order.
          before: the working context before them.
          sent: texts that the user was sent by it.
        """
        now = self.memory.clock()
        told = "\n".join(dict.fromkeys([*filter(None, [reply.text]), *sent]))
        answer = Message("assistant", reply.text, reply.calls)
        new = [NewMessage(now, "assistant", told, answer)]
        new += [NewMessage(now, "tool", one.content, one) for one in results]
        if self.memory.working is not before:
            if self._layout in EDITED_IN_PLACE:
                self._shown = self._show()
            elif self._layout == NOTED:
                note = self.memory.working.changes(before)
                new.append(NewMessage(now, "tool", note, Event(NOTE, note).message(now)))
        with self.memory.store.transaction():
            self._add(new)
            self._save()

    def leaving(self) -> list[Unit]:
        """The oldest units, if the flush threshold is reached.

        Returns:
          Those that are to leave.
        """
        return self.units[: self.limits.leaving(self.units, self.tokens())]

    def evict(self, gone: Sequence[Unit], summary: str) -> None:
        """Let the oldest units go; edits that waited are shown from now on.

        Args:
          gone: from `leaving`.
          summary: that has them in it.
        """
        self.units = [
            self._unit(one.first, _unnoted(one.messages), one.warning)
            for one in self.units[len(gone) :]
        ]
        self._summary, self._summary_s = summary, self.memory.clock()
        self._first, self._merged = self.units[0].first, self._last
        self.warned, self._shown = False, self._show()
        self._save()

    @property
    def summary(self) -> str:
        """Of the messages that have left; "" if none have."""
        return self._summary

    def _join(self, kind: str, text: str, event: Event, warning: bool = False) -> None:
        now = self.memory.clock()
        self._add([NewMessage(now, kind, text, event.message(now))], warning)

    def _add(self, new: Sequence[NewMessage], warning: bool = False) -> None:
        ids = self.memory.store.add_messages(self.memory.agent, new)
        self.units.append(self._unit(ids[0], [one.message for one in new], warning))
        self._last = ids[-1]

    def _unit(self, first: int, messages: Sequence[Message], warning: bool = False) -> Unit:
        return unit_of(self._encoder, first, messages, warning)

    def _show(self) -> str:
        messages, _ = self.memory.store.counts(self.memory.agent)
        _, passages = self.memory.store.counts(self.memory.archive)
        counted = f"{messages} messages in recall memory, {passages} texts in archival memory."
        return f"{self.memory.working.show()}\n[{counted}]"

    def _take_up(self) -> None:
        store, agent = self.memory.store, self.memory.agent
        saved = store.load(agent)
        if saved is None:
            earlier = store.messages(agent)  # a past that it finds by searching only
            self._first = earlier[-1].id + 1 if earlier else 0
            self._shown = self._show()
            self._save()
            return
        state, self._version = saved
        self.memory.working = WorkingContext(state["blocks"], state["limit"])
        self.memory.paused_until_s = state["paused_until_s"]
        self._summary, self._summary_s = state["summary"], state["summary_s"]
        self._first, self._merged = state["first"], state["merged"]
        self._shown, self.warned = state["shown"], state["warned"]
        held: list[list[Any]] = []
        for stored in store.messages(agent, self._first):
            if stored.kind == "tool" and held:
                held[-1].append(stored)  # with the call that it is a result of
            else:
                held.append([stored])
        for unit in held:
            warning = unit[0].kind == "system" and unit[0].text == WARNING
            messages = [one.message for one in unit]
            if unit[-1].id <= self._merged:
                messages = _unnoted(messages)
            self.units.append(self._unit(unit[0].id, messages, warning))
            self._last = unit[-1].id

    def _save(self) -> None:
        state = {
            "blocks": dict(self.memory.working.blocks),
            "limit": self.memory.working.limit,
            "paused_until_s": max(self.memory.paused_until_s, 0.0),
            "summary": self._summary,
            "summary_s": self._summary_s,
            "first": self._first,
            "merged": self._merged,
            "shown": self._shown,
            "warned": self.warned,
        }
        self._version = self.memory.store.save(self.memory.agent, state, self._version)


def _unnoted(messages: Sequence[Message]) -> list[Message]:
    """Messages of a unit without the note of an edit that is shown by now."""
    return [messages[0], *(one for one in messages[1:] if one.role != "user")]
