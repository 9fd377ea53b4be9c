"""The conversation opener: does an agent's first line show that it knows its user?"""

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxmem.agents.embedders.embedder import Embedder
from jaxmem.agents.memgpt.agent import Agent
from jaxmem.agents.memgpt.events import Event
from jaxmem.agents.messages import LLM
from jaxmem.agents.stores.sqlite_store import SqliteStore
from jaxmem.agents.tasks.chats import Chat
from jaxmem.common import Interval, mean_interval, progress

_MOST = 3  # sentences about the user that an opener is compared with


class Opened(NamedTuple):
    """How near openers are to what is known, as cosines of embeddings, with 95 % intervals.

    sim_1: to the nearest sentence about the user.
    sim_3: mean over the three nearest.
    sim_human: to the human's opener; None where no chat has one.
    human_1, human_3: the same of the human's opener, to compare with; None where there is none.
    records: chat by chat: opener, and the numbers.
    """

    sim_1: Interval
    sim_3: Interval
    sim_human: Interval | None
    human_1: Interval | None
    human_3: Interval | None
    records: list[dict[str, Any]]


def conversation_opener(
    chats: Sequence[Chat],
    model: Callable[[Chat], LLM],
    embedder: Embedder,
    *,
    now_s: float | None = None,
    **options: Any,
) -> Opened:
    """Let an agent that has met its user before open the next meeting.

    Args:
      chats: with sentences about the user.
      model: makes the language model for a chat.
      embedder: that compares. One that knows no meaning measures shared words.
      now_s: when they meet again, seconds since 1970.
      options: of the agent.

    Returns:
      Similarities.

    Raises:
      ValueError: if there is no chat, one says nothing about the user, or a model fails.

    Source: Packer et al. 2023, arXiv:2310.08560, section 3.1.2.
    """
    records: list[dict[str, Any]] = []
    at = time.time() if now_s is None else now_s
    for chat in progress(chats, "openers"):
        if not chat.user_persona:
            raise ValueError("expected chats with sentences about the user, got one without")
        store = SqliteStore()
        chat.fill(store, "agent", at)
        blocks = {
            "persona": "\n".join(chat.assistant_persona), "human": "\n".join(chat.user_persona),
        }  # fmt: skip
        agent = Agent(model(chat), store, blocks=blocks, clock=lambda: at, **options)
        turn = agent.handle(Event("login", "The user is back. Greet them in one or two sentences."))
        said = " ".join(turn.sent)
        sim_1, sim_3 = _near(embedder, said, chat.user_persona)
        record = {"opener": said, "sim_1": sim_1, "sim_3": sim_3}
        if chat.opener:
            vectors = embedder.embed([said, chat.opener])
            record["sim_human"] = float(vectors[0] @ vectors[1])
            record["human_1"], record["human_3"] = _near(embedder, chat.opener, chat.user_persona)
        records.append(record)
        store.close()

    def mean(name: str) -> Interval | None:
        found = [record[name] for record in records if name in record]
        return mean_interval(found) if found else None

    nearest, three = mean("sim_1"), mean("sim_3")
    if nearest is None or three is None:
        raise ValueError("expected at least one chat, got none")
    return Opened(nearest, three, mean("sim_human"), mean("human_1"), mean("human_3"), records)


def _near(embedder: Embedder, said: str, persona: Sequence[str]) -> tuple[float, float]:
    vectors = embedder.embed([said, *persona])
    cosines = np.sort(vectors[1:] @ vectors[0])[::-1]
    return float(cosines[0]), float(cosines[:_MOST].mean())
