"""MemGPT: an agent whose context is paged by itself."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxmem.agents.gpu_cost import GpuCost, gpu_cost
from jaxmem.agents.memgpt.context_queue import thresholds
from jaxmem.agents.memgpt.events import Event, user_message
from jaxmem.agents.memgpt.executor import execute
from jaxmem.agents.memgpt.functions import Function, tools
from jaxmem.agents.memgpt.instructions import INSTRUCTIONS
from jaxmem.agents.memgpt.main_memory import MainMemory
from jaxmem.agents.memgpt.memory import PAGE, Memory
from jaxmem.agents.memgpt.prompt import MainContext
from jaxmem.agents.memgpt.summary import Summariser
from jaxmem.agents.memgpt.working_context import LIMIT, first_context
from jaxmem.agents.messages import LLM, Message, Reply, Tool, ToolCall, clean
from jaxmem.agents.recorder import Recorder, plain_segments
from jaxmem.agents.stores.sqlite_store import SqliteStore
from jaxmem.agents.stores.store import Store
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
      main: what is in view.

    Source: Packer et al. 2023, arXiv:2310.08560.
    """

    def __init__(
        self,
        llm: LLM,
        store: Store | str | os.PathLike[str] | None = None,
        name: str = "agent",
        *,
        blocks: Mapping[str, str] = BLOCKS,
        block_limit: int = LIMIT,
        settings: str | Settings = "paper",
        window: int | None = None,
        layout: str = "front",
        functions: str = "memgpt",
        own: Sequence[Function] = (),
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
          store: recall and archival storage, or the path of a file for one; by default one in
            memory, which ends with it.
          name: of the agent, one of many in a store.
          blocks: working context of a new agent; one that is taken up has its own.
          block_limit: characters of a block of a new agent.
          settings: thresholds of the queue: a name of `jaxmem.sessions.PRESETS`, or settings.
          window: tokens of the model's window, in place of the settings'; leave room for the
            answer.
          layout: where the working context stands: one of `jaxmem.sessions.LAYOUTS`. `last` sends
            a second system message, which some servers refuse.
          functions: names that the model is offered: one of `SETS`.
          own: more functions, of yours. Each is given the agent's memory and the arguments, and
            returns what the model is told; what it raises, the model is told too.
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
        limits, offered = thresholds(chosen, window), tools(functions, own)
        if not isinstance(name, str) or not name.strip() or not name.isprintable():
            raise ValueError(f"expected a name of printable characters, got {name!r:.80}")
        self.name = name
        self._llm, self._clock = llm, clock
        self._most_steps = check_size("most_steps", most_steps)
        counted: Encoder = encoder or getattr(llm, "encoder", None) or ByteEstimate()
        longest = round(float(np.asarray(chosen.summary_tokens)))
        self._summariser = Summariser(summariser or llm, counted, limits.window, longest)
        self._recorder = Recorder(counted, log)
        self.memory = Memory(
            _opened(store), name, first_context(blocks, block_limit),
            archive=archive, own=own, page=check_size("page", page), clock=clock,
            # A quarter of the window at most, at four characters a token.
            most_characters=max(400, limits.window),
        )  # fmt: skip
        self.main = MainMemory(
            self.memory, counted, limits, choice(LAYOUTS, layout, "layout"),
            offered, clean(instructions),
        )  # fmt: skip
        fixed, most = self.main.fixed_tokens(), int(_FIXED_SHARE * limits.flush_at)
        if fixed > most:
            raise ValueError(
                f"window must be larger, {-int(-limits.window * fixed // most):,} tokens at least: "
                f"instructions, tools and working context have {fixed:,}, got {limits.window:,}"
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
        return self.handle(user_message(text))

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
        if not isinstance(event.text, str) or not event.text.strip():
            raise ValueError(f"expected an event with words in it, got {event.text!r:.80}")
        if event.kind == "timer" and self._clock() < self.memory.paused_until_s:
            return Turn((), 0, 0, 0, "done")
        self.main.receive(event)
        return self.act()

    def act(self) -> Turn:
        """Call the model upon what the queue ends with, until it has done.

        Returns:
          What the agent did.

        Raises:
          ValueError: as `handle`.
        """
        sent = self.memory.sent
        sent.clear()
        failed = evicted = 0
        for step in range(1, self._most_steps + 1):
            if step == 1 or self.main.limits.any_call:
                evicted += self._make_room()
            reply = self._called()
            working, before = self.memory.working, len(sent)
            results = [execute(self.memory, call) for call in reply.calls]
            if not reply.calls and reply.text.strip():
                sent.append(reply.text)  # a model that does not call means its words
            told = [result.message for result in results]
            self.main.remember(reply, told, working, sent[before:])
            failed += sum(not result.ok for result in results)
            if not any(result.heartbeat for result in results):
                return Turn(tuple(sent), step, failed, evicted, "done")
        return Turn(tuple(sent), self._most_steps, failed, evicted, "limit")

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
        self.memory.store.add_passages(self.memory.archive, found, source, self._clock())
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
        return self.main.context()

    def _make_room(self) -> int:
        """Evict the oldest messages if the threshold is reached; they are summarised first."""
        gone = self.main.leaving()
        if gone:
            summary = self._summariser.write(self.main.summary, gone)
            for prompt, reply in self._summariser.calls:
                self._record(plain_segments(prompt), prompt, (), reply, f"{self.name} summariser")
            self._summariser.calls.clear()
            self.main.evict(gone, summary)
        return sum(len(unit.messages) for unit in gone)

    def _called(self) -> Reply:
        context = self.context()
        messages = context.messages()
        said = self._llm.complete(messages, context.tools)
        if not isinstance(said, Reply):
            raise ValueError(
                f"{self._llm.name}: expected complete() to return a Reply, got {said!r:.80}"
            )
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


def _opened(store: Store | str | os.PathLike[str] | None) -> Store:
    if store is None:
        return SqliteStore()
    return SqliteStore(store) if isinstance(store, str | os.PathLike) else store
