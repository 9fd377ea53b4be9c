"""MemGPT: an agent whose context is paged by itself."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxmem.agents.gpu_cost import GpuCost, gpu_cost
from jaxmem.agents.memgpt import events
from jaxmem.agents.memgpt.context_queue import Unit, thresholds
from jaxmem.agents.memgpt.events import Event
from jaxmem.agents.memgpt.executor import Result, execute
from jaxmem.agents.memgpt.functions import PAGE, Memory, tools
from jaxmem.agents.memgpt.instructions import INSTRUCTIONS, WARNING
from jaxmem.agents.memgpt.prompt import (
    EDITED_IN_PLACE,
    NOTE,
    NOTED,
    MainContext,
    summary_message,
    unit_of,
)
from jaxmem.agents.memgpt.summary import Summariser
from jaxmem.agents.memgpt.working_context import LIMIT, WorkingContext, first_context
from jaxmem.agents.messages import LLM, Message, Reply, Tool, ToolCall, clean
from jaxmem.agents.recorder import Recorder, plain_segments
from jaxmem.agents.stores.sqlite_store import SqliteStore
from jaxmem.agents.stores.store import NewMessage, Store
from jaxmem.common import check_size, choice
from jaxmem.lm.self_study.document import chunks
from jaxmem.prompts import LogPrice, PromptLog, Segment, price
from jaxmem.prompts.encoder import ByteEstimate, Encoder
from jaxmem.roofline import Accelerator, Model
from jaxmem.sessions import LAYOUTS, PRESETS, Settings

_FIXED_SHARE = 0.6  # of what causes an eviction, that instructions and the like may take

BLOCKS = {"persona": "I am a helpful companion who remembers.", "human": ""}
"""Working context of a new agent."""


class Turn(NamedTuple):
    """What an agent did upon an event.

    sent: texts for the user.
    calls: of the model, the summariser's not counted.
    failed: function calls that failed.
    evicted: messages that left the queue.
    stopped: "done", or "limit" where the chain was cut off.
    """

    sent: tuple[str, ...]
    calls: int
    failed: int
    evicted: int
    stopped: str


class Agent:
    """An agent with a virtual context.

    prompt = instructions | working context | summary | queue

    Every message goes into recall storage before the model sees it; the model edits its working
    context and searches its storages by function calls; the queue manager warns and evicts by the
    thresholds of `jaxmem.sessions`. What the store has acknowledged survives the process: an
    agent of the same name on the same store goes on where the last one was.

    Attributes:
      name: of the agent.
      memory: working context and storages.

    Source: Packer et al. 2023, arXiv:2310.08560.
    """

    def __init__(
        self,
        llm: LLM,
        store: Store | None = None,
        name: str = "agent",
        *,
        blocks: Mapping[str, str] = BLOCKS,
        block_limit: int = LIMIT,
        settings: str | Settings = "paper",
        window: int | None = None,
        layout: str = "front",
        functions: str = "memgpt",
        instructions: str = INSTRUCTIONS,
        summariser: LLM | None = None,
        archive: str | None = None,
        page: int = PAGE,
        most_steps: int = 20,
        encoder: Encoder | None = None,
        log: str | os.PathLike[str] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Make an agent, or take up one that the store has.

        Args:
          llm: that acts.
          store: recall and archival storage; by default one in memory, which ends with it.
          name: of the agent, one of many in a store.
          blocks: working context of a new agent; one that is taken up has its own.
          block_limit: characters of a block of a new agent.
          settings: thresholds of the queue: a name of `jaxmem.sessions.PRESETS`, or settings.
          window: tokens of the model's window, in place of the settings'; leave room for the
            answer.
          layout: where the working context stands: one of `jaxmem.sessions.LAYOUTS`. `last` sends
            a second system message, which some servers refuse.
          functions: names that the model is offered: one of `SETS`.
          instructions: read-only text at the head.
          summariser: writes the summaries; the same model by default.
          archive: name of an archival storage that several agents share; its own by default.
          page: results of a search that are shown at once.
          most_steps: calls of the model upon one event.
          encoder: text to tokens; by default the model's own where it has one, or an estimate from
            bytes.
          log: file that every request is added to, for `jaxmem doctor`; it holds all texts.
          clock: the time now, seconds since 1970.

        Raises:
          ValueError: if a name is unknown, a number out of range, or the window does not hold the
            instructions, the tools and the working context with something in the queue.
        """
        chosen = settings if isinstance(settings, Settings) else PRESETS[
            choice(PRESETS, settings, "preset")
        ]  # fmt: skip
        self._limits = thresholds(chosen, window)
        self.name = name
        self._llm, self._clock = llm, clock
        self._encoder: Encoder = encoder or getattr(llm, "encoder", None) or ByteEstimate()
        self._layout = choice(LAYOUTS, layout, "layout")
        self._tools, self._instructions = tools(functions), clean(instructions)
        self._most_steps = check_size("most_steps", most_steps)
        # A message of a quarter of the window at most, at four characters a token.
        self._most_characters = max(400, self._limits.window)
        longest = round(float(np.asarray(chosen.summary_tokens)))
        self._summariser = Summariser(
            summariser or llm, self._encoder, self._limits.window, longest
        )
        self._recorder = Recorder(self._encoder, log)
        self._store: Store = SqliteStore() if store is None else store
        self.memory = Memory(
            self._store, name, first_context(blocks, block_limit), archive=archive,
            page=check_size("page", page), most_characters=self._most_characters, clock=clock,
        )  # fmt: skip
        self._summary, self._summary_s, self._first = "", 0.0, 0
        self._last, self._merged = 0, 0  # ids: newest message, newest whose notes are merged
        self._shown, self._warned, self._version = "", False, 0
        self._units: list[Unit] = []
        self._take_up()
        fixed, most = self._fixed_tokens(), int(_FIXED_SHARE * self._limits.flush_at)
        if fixed > most:
            raise ValueError(
                f"window must be larger: instructions, tools and working context have {fixed:,} "
                f"tokens, expected at most {most:,}, so that messages fit beside them"
            )

    def send(self, text: str) -> Turn:
        """A user says something.

        Args:
          text: what.

        Returns:
          What the agent did; `sent` is the answer.

        Raises:
          ValueError: as `handle`.
        """
        return self.handle(events.user_message(text))

    def handle(self, event: Event) -> Turn:
        """Something happens: the agent acts until it has done.

        Args:
          event: what.

        Returns:
          What the agent did; nothing for a timer while timed heartbeats are paused.

        Raises:
          ValueError: if the model cannot be reached or understood; the event is kept, and the next
            one goes on from there. If another process has changed the agent.
        """
        if event.kind == "timer" and self._clock() < self.memory.paused_until_s:
            return Turn((), 0, 0, 0, "done")
        self._receive(event)
        return self._act()

    def _act(self) -> Turn:
        """The chain of calls upon what the queue ends with."""
        self.memory.sent.clear()
        failed = evicted = 0
        for step in range(1, self._most_steps + 1):
            if step == 1 or self._limits.any_call:
                evicted += self._make_room()
            reply = self._called()
            working, said = self.memory.working, len(self.memory.sent)
            results = [execute(self.memory, call) for call in reply.calls]
            self._remember(reply, results, working, said)
            failed += sum(not result.ok for result in results)
            if not any(result.heartbeat for result in results):
                return Turn(tuple(self.memory.sent), step, failed, evicted, "done")
        return Turn(tuple(self.memory.sent), self._most_steps, failed, evicted, "limit")

    def add_document(self, text: str, source: str, characters: int = 1_000) -> int:
        """Put a document into archival storage, cut at the ends of paragraphs and sentences.

        Args:
          text: of it.
          source: its name.
          characters: of a passage at most.

        Returns:
          Passages; tell the agent of them by `handle(upload(source, passages))`.

        Raises:
          ValueError: if it holds no word.
        """
        found = [one.text for one in chunks(text, characters, lambda some: range(len(some)))]
        if not found:
            raise ValueError(f"{source}: expected a document with words in it, got an empty one")
        self._store.add_passages(self.memory.archive, found, source, self._clock())
        return len(found)

    @property
    def log(self) -> PromptLog:
        """Every call since the agent was made, for `jaxmem.prompts`: reuse, diagnose, price."""
        return self._recorder.log()

    def cost(self, rules: str, **prices: Any) -> LogPrice:
        """What the calls so far cost at a provider's prices, its prefix cache included.

        Args:
          rules: a name of `jaxmem.prompts.RULES`.
          prices: as `jaxmem.prompts.price`.

        Returns:
          Tokens by call and money.

        Raises:
          ValueError: as `jaxmem.prompts.price`.
        """
        return price(self.log, rules, **{"marks": "automatic", **prices})

    def gpu_cost(self, model: Model, accelerator: Accelerator, *, devices: float = 1) -> GpuCost:
        """What the calls so far take on an accelerator, with and without a prefix cache.

        Args:
          model: the language model as the cost model sees it, such as one of `roofline.MODELS`.
          accelerator: one device, such as one of `roofline.ACCELERATORS`.
          devices: devices that serve together.

        Returns:
          GPU seconds.

        Raises:
          ValueError: as `jaxmem.agents.gpu_cost.gpu_cost`.
        """
        return gpu_cost(self.log, model, accelerator, devices=devices)

    def context(self) -> MainContext:
        """What the next call would show the model.

        Returns:
          Main context.
        """
        return MainContext(
            self._tools, self._instructions, self._shown,
            summary_message(self._summary, self._summary_s), tuple(self._units), self._layout,
        )  # fmt: skip

    def _prompt_tokens(self) -> int:
        return self.context().tokens(self._encoder)

    def _fixed_tokens(self) -> int:
        """Tokens of a prompt without queue."""
        return self.context()._replace(summary=None, units=()).tokens(self._encoder)

    def _take_up(self) -> None:
        """The state that the store has, or a first one."""
        saved = self._store.load(self.name)
        if saved is None:
            earlier = self._store.messages(self.name)  # a past that it finds by searching only
            self._first = earlier[-1].id + 1 if earlier else 0
            self._shown = self._show()
            self._save()
            return
        state, self._version = saved
        self.memory.working = WorkingContext(state["blocks"], state["limit"])
        self.memory.paused_until_s = state["paused_until_s"]
        self._summary, self._summary_s = state["summary"], state["summary_s"]
        self._first, self._shown, self._warned = state["first"], state["shown"], state["warned"]
        self._merged = state["merged"]
        held: list[list[Any]] = []
        for stored in self._store.messages(self.name, self._first):
            if stored.kind == "tool" and held:
                held[-1].append(stored)  # with the call that it is a result of
            else:
                held.append([stored])
        for unit in held:
            warning = unit[0].kind == "system" and unit[0].text == WARNING
            messages = [one.message for one in unit]
            if unit[-1].id <= self._merged:
                messages = _unnoted(messages)
            self._units.append(self._unit(unit[0].id, messages, warning))
            self._last = unit[-1].id

    def _save(self) -> None:
        paused_s = self.memory.paused_until_s
        self._version = self._store.save(
            self.name,
            {
                "blocks": dict(self.memory.working.blocks),
                "limit": self.memory.working.limit,
                "paused_until_s": max(paused_s, 0.0),
                "summary": self._summary,
                "summary_s": self._summary_s,
                "first": self._first,
                "merged": self._merged,
                "shown": self._shown,
                "warned": self._warned,
            },
            self._version,
        )

    def _show(self) -> str:
        messages, _ = self._store.counts(self.name)
        _, passages = self._store.counts(self.memory.archive)
        counted = f"{messages} messages in recall memory, {passages} texts in archival memory."
        return f"{self.memory.working.show()}\n[{counted}]"

    def _receive(self, event: Event) -> None:
        """An event joins the queue, and the warning after it if it is due."""
        kind = "user" if event.kind == "user_message" else "system"
        told = clean(event.text)
        cut = told[: self._most_characters]
        if len(cut) < len(told):
            cut += f" [... {len(told) - len(cut)} more characters: see recall memory]"
        message = event._replace(text=cut).message(self._clock())
        with self._store.transaction():
            self._join(kind, told, message)
            if not self._warned and self._limits.warns(self._prompt_tokens()):
                warning = events.system_message(WARNING).message(self._clock())
                self._warned = True
                self._join("system", WARNING, warning, warning=True)
            self._save()

    def _join(self, kind: str, text: str, message: Message, warning: bool = False) -> None:
        (id,) = self._store.add_messages(
            self.name, [NewMessage(self._clock(), kind, text, message)]
        )
        self._units.append(self._unit(id, [message], warning))
        self._last = id

    def _unit(self, first: int, messages: Sequence[Message], warning: bool = False) -> Unit:
        return unit_of(self._encoder, first, messages, warning)

    def _make_room(self) -> int:
        """Evict the oldest messages if the threshold is reached; they are summarised first."""
        leaving = self._limits.leaving(self._units, self._prompt_tokens())
        if not leaving:
            return 0
        gone, stays = self._units[:leaving], self._units[leaving:]
        stays = [self._unit(unit.first, _unnoted(unit.messages), unit.warning) for unit in stays]
        self._summary = self._summariser.write(self._summary, gone)
        for prompt, reply in self._summariser.calls:
            self._record(plain_segments(prompt), prompt, (), reply, f"{self.name} summariser")
        self._summariser.calls.clear()
        self._summary_s, self._units, self._first = self._clock(), stays, stays[0].first
        self._merged = self._last
        self._warned, self._shown = False, self._show()
        self._save()
        return sum(len(unit.messages) for unit in gone)

    def _called(self) -> Reply:
        context = self.context()
        messages = context.messages()
        said = self._llm.complete(messages, context.tools)
        reply = said._replace(
            text=clean(said.text),
            calls=tuple(ToolCall(*map(clean, call)) for call in said.calls),
        )
        self._record(context.segments(), messages, context.tools, reply, self.name)
        return reply

    def _record(
        self,
        segments: Sequence[Segment],
        messages: Sequence[Message],
        tools: Sequence[Tool],
        reply: Reply,
        session: str,
    ) -> None:
        self._recorder.add(
            segments, messages, tools, reply,
            session=session, model=self._llm.name, time_s=self._clock(),
        )  # fmt: skip

    def _remember(
        self, reply: Reply, results: Sequence[Result], before: WorkingContext, said: int
    ) -> None:
        """What the model said and what came of it, and the state after that: all or nothing.

        Args:
          reply: of the model.
          results: of its calls.
          before: the working context before them.
          said: texts sent to the user before them.
        """
        if not reply.calls and reply.text.strip():
            self.memory.sent.append(reply.text)  # a model that does not call means its words
            told = [reply.text]
        else:
            told = [*filter(None, [reply.text]), *self.memory.sent[said:]]
        now = self._clock()
        answer = Message("assistant", reply.text, reply.calls)
        new = [NewMessage(now, "assistant", "\n".join(told), answer)]
        new += [NewMessage(now, "tool", one.message.content, one.message) for one in results]
        if self.memory.working is not before:
            if self._layout in EDITED_IN_PLACE:
                self._shown = self._show()
            elif self._layout == NOTED:
                note = self.memory.working.changes(before)
                new.append(NewMessage(now, "tool", note, Event(NOTE, note).message(now)))
        with self._store.transaction():
            ids = self._store.add_messages(self.name, new)
            self._units.append(self._unit(ids[0], [one.message for one in new]))
            self._last = ids[-1]
            self._save()


def _unnoted(messages: Sequence[Message]) -> list[Message]:
    """Messages of a unit without the note of an edit that is shown by now."""
    return [messages[0], *(one for one in messages[1:] if one.role != "user")]
