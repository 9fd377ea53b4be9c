"""The agent on text and the simulation of `jaxmem.sessions` make the same prompts, token by token.

A rule plays the simulation's draws: it saves pending facts after a warning, searches, saves and
replies as drawn, in messages of the drawn lengths. An encoder that counts letters but no digits
makes all records of one kind equally long. In the layouts `log` and `frozen` the two differ on
purpose: the simulation sees the same events in every layout, the agent looks at its own prompts.
"""

import dataclasses
import re
from collections.abc import Sequence

import jax
import numpy as np
import pytest

from jaxmem.agents.memgpt import Agent, system_message, user_message
from jaxmem.agents.memgpt.events import Event
from jaxmem.agents.memgpt.instructions import WARNING
from jaxmem.agents.memgpt.prompt import NOTE, count, summary_message
from jaxmem.agents.messages import Message, Reply, Tool
from jaxmem.agents.scripted import Scripted, calls, says
from jaxmem.sessions import LAYOUTS, PRESETS, Settings
from jaxmem.sessions.session import draws, trace

ROUNDS = 90
SUMMARY = "What we said before. " * 12
FACT = "The user told me something to keep."
KEY = jax.random.key(3)


class Letters:
    """A token a byte, digits for nothing."""

    name, unit_bytes, exact = "letters", 1.0, False

    def encode(self, text: bytes) -> bytes:
        return re.sub(rb"\d", b"", text)


class Player:
    """Plays what was drawn; a rule, no language model."""

    def __init__(self, settings: Settings) -> None:
        self.drawn = jax.tree.map(np.asarray, draws(KEY, settings, ROUNDS))
        self.most = int(settings.saves_a_warning)
        self.round, self.pending, self.plan = -1, 0, list[Reply]()
        self.reply_overhead = 0

    def begin(self, warned: bool) -> None:
        self.round += 1
        drawn, r = self.drawn, self.round
        save = calls("core_memory_append", name="human", content=FACT, request_heartbeat=True)
        saves = min(self.pending, self.most) if warned else 0
        fact = bool(drawn.has_fact[r]) and not bool(drawn.saves[r])
        self.pending += fact - saves
        search = [calls("archival_memory_search", query="it")] * bool(drawn.searches[r])
        at_once = [save] * bool(drawn.saves[r])
        padding = "y" * (int(drawn.reply_tokens[r]) - self.reply_overhead)
        self.plan = [save] * saves + search + at_once + [calls("send_message", message=padding)]

    def __call__(self, messages: Sequence[Message], tools: Sequence[Tool]) -> Reply:
        if not tools:  # the summariser
            return says(SUMMARY)
        return self.plan.pop(0)


def sizes(agent: Agent, settings: Settings) -> Settings:
    """Settings with the sizes that this agent's records have."""
    encoder = agent.main._encoder

    def unit(reply: Reply) -> int:
        other = Agent(Scripted([reply] * 2 + [says("")]), window=10**6, encoder=encoder,
                      blocks={"human": "x" * 100}, block_limit=10**5)  # fmt: skip
        other.main.receive(user_message(""))
        other.act()
        return other.main.units[1].tokens

    def tokens(text: str) -> int:
        return count(encoder, text.encode())

    save = calls("core_memory_append", name="human", content=FACT, request_heartbeat=True)
    warning = system_message(WARNING).message(0.0)
    summary = summary_message(SUMMARY.strip(), 0.0)
    assert summary is not None
    memory = tokens(agent.context().working)
    return dataclasses.replace(
        settings,
        window_tokens=40_000.0,
        system_tokens=float(agent.context().tokens(encoder) - memory),
        memory_tokens=float(memory),
        memory_limit_tokens=float(memory + 10_000),
        entry_tokens=float(tokens(f"\n{FACT}")),
        message_tokens=900.0,
        message_sd=120.0,
        edit_tokens=float(unit(save)),
        search_tokens=float(unit(calls("archival_memory_search", query="it"))),
        note_tokens=float(tokens(Event(NOTE, f"[human, changed]\n+ {FACT}").message(0.0).content)),
        warning_tokens=float(tokens(warning.content)),
        summary_tokens=float(tokens(summary.content)),
        kept_queue_tokens=min(float(settings.kept_queue_tokens), 6_000.0)
        if np.isfinite(settings.kept_queue_tokens)
        else settings.kept_queue_tokens,
    )


@pytest.mark.parametrize(
    ("preset", "layout"),
    [*((preset, "front") for preset in PRESETS), ("paper", "last")],
)
def test_the_same_prompts_as_the_simulation(preset: str, layout: str) -> None:
    def agent(llm: Scripted, settings: Settings | str, window: int | None = None) -> Agent:
        return Agent(
            llm, settings=settings, encoder=Letters(), blocks={"human": "x" * 100},
            block_limit=10**5, window=window, layout=layout, clock=lambda: 1e9,
        )  # fmt: skip

    settings = sizes(agent(Scripted([]), preset, 10**6), PRESETS[preset])
    player = Player(settings)
    reply = Agent(Scripted([calls("send_message", message="")]), encoder=Letters(), window=10**6)
    reply.main.receive(user_message(""))
    reply.act()
    player.reply_overhead = reply.main.units[1].tokens
    wrapping = reply.main.units[0].tokens
    made = agent(Scripted(player), settings)
    evicted = []
    for length in player.drawn.user_tokens:
        warnings = sum(unit.warning for unit in made.main.units)
        made.main.receive(user_message("x" * (int(length) - wrapping)))
        player.begin(sum(unit.warning for unit in made.main.units) > warnings)
        evicted.append(made.act().evicted > 0)

    wanted = trace(KEY, settings, ROUNDS)
    log = made.log
    own = np.array(log.sessions)[log.session] == "agent"
    there = np.asarray(wanted.made)
    np.testing.assert_array_equal(
        log.prompt_tokens[own], np.asarray(wanted.prompt_tokens)[..., LAYOUTS.index(layout)][there]
    )
    np.testing.assert_array_equal(evicted, np.asarray(wanted.evicted).any(1))
    assert sum(evicted) >= 2
