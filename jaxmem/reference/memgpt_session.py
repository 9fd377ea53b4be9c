"""A session of MemGPT in plain Python: real queues, real prompts, real common prefixes."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

LAYOUTS = ("front", "last", "log", "frozen")


class Segment(NamedTuple):
    """A piece of a prompt; two with one `id` are the same tokens.

    label: what it is, for a reader.
    kind: system, memory, summary or history.
    id: its identity.
    tokens: its length.
    """

    label: str
    kind: str
    id: tuple[str, int]
    tokens: int


class Call(NamedTuple):
    """A call of the model.

    prompts: the segments of its prompt by layout.
    prompt_tokens: by layout.
    new_tokens: by layout, of what came into being since the call before.
    memory_tokens: by layout, recomputed because of the working context.
    eviction_tokens: by layout, recomputed because of an eviction.
    round: in which it is made.
    """

    prompts: dict[str, list[Segment]]
    prompt_tokens: list[int]
    new_tokens: list[int]
    memory_tokens: list[int]
    eviction_tokens: list[int]
    round: int


class _Agent:
    """The queue, the working context and the queue manager."""

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        self.p = parameters
        window = parameters["window_tokens"]
        self.warn_at = _whole(parameters["warn_share"] * window)
        self.flush_at = _whole(parameters["flush_share"] * window)
        self.evicted = _whole(parameters["evicted_share"] * window)
        self.kept = parameters["kept_share"] * window
        growth = parameters["memory_limit_tokens"] - parameters["memory_tokens"]
        self.room = int(growth // parameters["entry_tokens"])
        self.queue: list[Segment] = []
        self.entries: list[int] = []  # numbers of edits, by place
        self.merged: list[int] = []  # the same at the last eviction
        self.summary: Segment | None = None
        self.pending: list[Segment] = []  # the messages of facts that are not saved
        self.warned = self.flushed = False
        self.looks = True  # whether the next call may cause a flush
        self.count = dict.fromkeys(
            ("calls", "searches", "warnings", "evictions", "facts", "saved_at_once")
            + ("saved_at_warnings", "lost", "overflows", "summariser_tokens", "working_tokens")
            + ("output_tokens",),
            0,
        )
        self.born: dict[tuple[str, int], int] = {}  # the call before which a segment was made
        self.sent: dict[str, list[Segment]] = {layout: [] for layout in LAYOUTS}
        self.messages = 0

    def segment(self, label: str, kind: str, id: tuple[str, int], tokens: float) -> Segment:
        self.born.setdefault(id, self.count["calls"])
        return Segment(label, kind, id, int(tokens))

    def join(self, label: str, tokens: float) -> Segment:
        self.messages += 1
        message = self.segment(label, "history", ("message", self.messages), tokens)
        self.queue.append(message)
        return message

    def edit(self, place: int) -> None:
        """What a call that saves a fact does."""
        number = self.count["saved_at_once"] + self.count["saved_at_warnings"]
        self.join("edit record", self.p["edit_tokens"])
        note = self.segment("edit note", "memory", ("note", number), self.p["note_tokens"])
        self.queue.append(note)
        self.born["entry", number] = self.count["calls"]
        if len(self.entries) < self.room:
            self.entries.append(number)
        else:
            self.entries[place] = number
        self.count["output_tokens"] += int(self.p["edit_tokens"])

    def queue_tokens(self) -> int:
        return sum(m.tokens for m in self.queue if m.id[0] != "note")

    def prompt_tokens(self) -> int:
        """What the thresholds look at."""
        working = self.p["memory_tokens"] + self.p["entry_tokens"] * len(self.entries)
        summary = self.summary.tokens if self.summary else 0
        return int(self.p["system_tokens"] + working + summary + self.queue_tokens())

    def flush(self) -> None:
        """Evict the oldest messages if the prompt has reached the threshold."""
        prompt, queue = self.prompt_tokens(), self.queue_tokens()
        may, self.looks = self.looks, bool(self.p["flush_any_call"])
        if self.flushed or not may or prompt < self.flush_at:
            return
        amount = max(
            self.evicted,
            _whole(
                float(np.float32(self.p["evicted_of_queue"]) * np.float32(queue))
            ),  # as XLA does
            queue - self.p["kept_queue_tokens"],
            prompt - self.kept,
        )
        messages = [m for m in self.queue if m.id[0] != "note"]
        gone: list[Segment] = []
        while sum(m.tokens for m in gone) < amount and len(messages) > 2:
            gone.append(messages.pop(0))
        if not gone:
            return
        self.flushed, self.warned = True, False
        self.count["evictions"] += 1
        self.count["summariser_tokens"] += sum(m.tokens for m in gone)
        self.count["summariser_tokens"] += self.summary.tokens if self.summary else 0
        if self.p["forgets"]:
            self.count["lost"] += sum(fact in gone for fact in self.pending)
            self.pending = [fact for fact in self.pending if fact not in gone]
        self.queue = messages
        self.merged = list(self.entries)
        version = ("summary", self.count["evictions"])
        self.summary = self.segment("summary", "summary", version, self.p["summary_tokens"])

    def prompt(self, layout: str) -> list[Segment]:
        p = self.p
        system = self.segment("system", "system", ("system", 0), p["system_tokens"])
        block = self.segment("working context", "memory", ("memory", 0), p["memory_tokens"])
        shown = self.entries if layout in ("front", "last") else self.merged
        working = [block] + [
            self.segment("working context", "memory", ("entry", number), p["entry_tokens"])
            for number in shown
        ]
        summary = [self.summary] if self.summary else []
        queue = [m for m in self.queue if layout == "log" or m.id[0] != "note"]
        if layout == "last":
            return [system, *summary, *queue, *working]
        return [system, *working, *summary, *queue]

    def call(self, number: int) -> Call:
        self.flush()
        prompts = {layout: self.prompt(layout) for layout in LAYOUTS}
        sums = np.array([self.recomputed(prompts[layout], layout) for layout in LAYOUTS])
        self.sent = prompts
        self.count["calls"] += 1
        working = self.p["memory_tokens"] + self.p["entry_tokens"] * len(self.entries)
        self.count["working_tokens"] += int(working)
        self.count["overflows"] += self.prompt_tokens() > self.p["window_tokens"]
        prompt, new, memory, eviction = sums.T.tolist()
        return Call(prompts, prompt, new, memory, eviction, number)

    def recomputed(self, prompt: list[Segment], layout: str) -> tuple[int, int, int, int]:
        """(prompt, new, memory, eviction) tokens of a prompt after the one sent before."""
        common = 0
        for now, before in zip(prompt, self.sent[layout]):
            if now.id != before.id:
                break
            common += 1
        rest = prompt[common:]
        new = sum(
            s.tokens for s in rest if self.born[s.id] == self.count["calls"] and s.kind != "summary"
        )
        broken = sum(s.tokens for s in rest) - new
        by_eviction = bool(rest) and rest[0].kind == "summary"
        size = sum(s.tokens for s in prompt)
        return size, new, broken * (not by_eviction), broken * by_eviction


def calls(draws: Mapping[str, Any], parameters: Mapping[str, Any]) -> Iterator[Call]:
    """The calls of a session, one by one.

    Args:
      draws: what chance decides, by name: user_tokens, reply_tokens, searches, has_fact, saves,
        each [R], and places [R, most saves a warning + 1].
      parameters: the settings, by name.

    Yields:
      Each call of the agent's model.
    """
    yield from _play(_Agent(parameters), draws)


def _play(agent: _Agent, draws: Mapping[str, Any]) -> Iterator[Call]:
    p, count = agent.p, agent.count
    for r in range(len(draws["searches"])):
        agent.flushed, agent.looks = False, True
        message = agent.join("user", draws["user_tokens"][r])
        if not agent.warned and agent.prompt_tokens() >= agent.warn_at:
            agent.join("pressure warning", p["warning_tokens"])
            agent.warned = True
            count["warnings"] += 1
            most = int(p["saves_a_warning"])
            saving, agent.pending = agent.pending[:most], agent.pending[most:]
            for i in range(len(saving)):
                yield agent.call(r)
                agent.edit(int(draws["places"][r][i]))
                count["saved_at_warnings"] += 1
        yield agent.call(r)
        if draws["searches"][r]:
            agent.join("search results", p["search_tokens"])
            count["searches"] += 1
            yield agent.call(r)
        if draws["saves"][r]:
            agent.edit(int(draws["places"][r][-1]))
            count["saved_at_once"] += 1
            yield agent.call(r)
        agent.join("reply", draws["reply_tokens"][r])
        count["output_tokens"] += int(draws["reply_tokens"][r])
        count["facts"] += int(draws["has_fact"][r])
        if draws["has_fact"][r] and not draws["saves"][r]:
            if message in agent.queue or not p["forgets"]:
                agent.pending.append(message)
            else:
                count["lost"] += 1


def session(draws: Mapping[str, Any], parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The totals of a session.

    Args:
      draws: as of `calls`.
      parameters: as of `calls`.

    Returns:
      Counts of events and, by layout, lists of four sums: prompt_tokens, new_tokens,
      memory_tokens, eviction_tokens.
    """
    agent = _Agent(parameters)
    names = ("prompt_tokens", "new_tokens", "memory_tokens", "eviction_tokens")
    sums = np.zeros((len(names), len(LAYOUTS)), np.int64)
    for call in _play(agent, draws):
        sums += np.array([getattr(call, name) for name in names])
    return agent.count | dict(zip(names, sums.tolist(), strict=True))


def prompts(
    layout: str, draws: Mapping[str, Any], parameters: Mapping[str, Any]
) -> Iterator[list[Segment]]:
    """The prompts of a session in one layout, call by call.

    Args:
      layout: one of `LAYOUTS`.
      draws: as of `calls`.
      parameters: as of `calls`.

    Yields:
      The segments of each prompt, front to back.

    Raises:
      ValueError: if there is no such layout.
    """
    if layout not in LAYOUTS:
        raise ValueError(f"expected a layout among {', '.join(LAYOUTS)}, got {layout!r}")
    for call in _play(_Agent(parameters), draws):
        yield call.prompts[layout]


def _whole(tokens: float) -> int:
    return round(float(min(tokens, 2**30)))
