"""Questions about documents in archival storage: as many pages as it takes, or the first K."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jaxmem.agents.embedders.embedder import Embedder
from jaxmem.agents.memgpt.agent import Agent
from jaxmem.agents.messages import LLM, Message, Reply, Tool
from jaxmem.agents.scripted import Scripted, calls
from jaxmem.agents.stores.sqlite_store import SqliteStore
from jaxmem.agents.words import words
from jaxmem.common import check_size
from jaxmem.common.intervals import wilson_interval


def holds(text: str, answer: str) -> bool:
    """Whether the words of an answer stand in a text, one after another.

    Args:
      text: where.
      answer: what.

    Returns:
      Whether they do.
    """
    return f" {' '.join(words(answer))} " in f" {' '.join(words(text))} "


def turn_pages(answer: str, pages: int | None = None) -> Scripted:
    """A rule in place of a language model: searches, and turns pages until the answer is there.

    It knows the answer when it sees it: it measures what a search brings into view, not reading.

    Args:
      answer: what is right.
      pages: that it looks at, at most; None for all.

    Returns:
      The rule.
    """

    def rule(messages: Sequence[Message], tools: Sequence[Tool]) -> Reply:
        last = max(i for i, message in enumerate(messages) if message.role == "user")
        question = json.loads(messages[last].content)["message"]
        seen = [json.loads(one.content)["message"] for one in messages[last:] if one.role == "tool"]
        if seen and holds(seen[-1], answer):
            return calls("send_message", message=answer)
        if (seen and not seen[-1].startswith("Showing")) or len(seen) == pages:
            return calls("send_message", message="I do not know.")
        return calls("archival_memory_search", query=question, page=len(seen))

    return Scripted(rule, "rule: turn pages")


def document_qa(
    documents: Mapping[str, str],
    questions: Sequence[tuple[str, str]],
    model: Callable[[str, str], LLM],
    *,
    embedder: Embedder | None = None,
    characters: int = 500,
    **options: Any,
) -> dict[str, Any]:
    """Ask an agent about documents in its archival storage.

    Args:
      documents: texts by name.
      questions: with the words that the answer must hold.
      model: makes the language model for a question and its answer; only a rule looks at that.
      embedder: of the store.
      characters: of a passage at most.
      options: of the agent; `page` is how many passages it sees at once.

    Returns:
      A record: questions, accuracy with its 95 % interval (Wilson), calls and prompt tokens a
      question.

    Raises:
      ValueError: if there is no question, a document is empty, or a model fails.

    Source: Packer et al. 2023, arXiv:2310.08560, section 3.2.1.
    """
    check_size("questions", len(questions))
    store = SqliteStore(embedder=embedder)
    right = made = read = 0
    first: Agent | None = None
    for number, (question, answer) in enumerate(questions):
        # One agent a question, all with the same archive: what one has seen the next has not.
        agent = Agent(model(question, answer), store, f"agent {number}", archive="documents",
                      most_steps=1_000, **options)  # fmt: skip
        if first is None:
            first = agent
            for name, text in documents.items():
                agent.add_document(text, name, characters)
        turn = agent.send(question)
        right += holds(" ".join(turn.sent), answer)
        made += turn.calls
        read += int(agent.log.prompt_tokens.sum())
    share = wilson_interval(right, len(questions))
    store.close()
    return {
        "questions": len(questions),
        "accuracy": share.mean,
        "accuracy_low": share.low,
        "accuracy_high": share.high,
        "calls": made / len(questions),
        "prompt_tokens": read / len(questions),
    }
