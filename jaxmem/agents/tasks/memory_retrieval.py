"""Deep memory retrieval: a question that only an earlier meeting answers, and its judge."""

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from jaxmem.agents.embedders.embedder import Embedder
from jaxmem.agents.memgpt.agent import Agent
from jaxmem.agents.memgpt.context_queue import Unit
from jaxmem.agents.memgpt.summary import Summariser
from jaxmem.agents.messages import LLM, Message
from jaxmem.agents.stores.sqlite_store import SqliteStore
from jaxmem.agents.tasks.chats import Chat
from jaxmem.agents.words import words
from jaxmem.common import Interval, mean_interval, progress
from jaxmem.common.intervals import wilson_interval
from jaxmem.prompts.encoder import ByteEstimate

JUDGE = """\
You compare an answer with the right one. The answer counts as correct if it says what the right \
answer says, in whatever words; more than that does no harm, less does. Reply with one word: \
CORRECT or WRONG.

Question: {question}
Right answer: {gold}
Answer: {answer}"""
"""What the judge is asked. Judges differ: report which model it was."""

_SUMMARY_ONLY = """\
You know your user from earlier meetings. This is what you remember of them: {summary}

Answer the user from that, in one sentence."""


class Retrieved(NamedTuple):
    """How questions about earlier meetings were answered.

    accuracy: share that the judge found correct, with Wilson's 95 % interval.
    rouge_l: mean of ROUGE-L's recall of the right answer, with its 95 % interval.
    records: question by question: question, gold, answer, correct, rouge_l, calls.
    """

    accuracy: Interval
    rouge_l: Interval
    records: list[dict[str, Any]]


def memory_retrieval(
    chats: Sequence[Chat],
    model: Callable[[Chat], LLM],
    judge: LLM,
    *,
    embedder: Embedder | None = None,
    now_s: float | None = None,
    **options: Any,
) -> Retrieved:
    """Ask an agent whose recall storage holds the earlier meetings.

    Args:
      chats: with a question each.
      model: makes the language model for a chat.
      judge: a language model that compares answers.
      embedder: of the store.
      now_s: when the question is asked, seconds since 1970.
      options: of the agent.

    Returns:
      Accuracy and ROUGE-L.

    Raises:
      ValueError: if a chat has no question, or a model fails.

    Source: Packer et al. 2023, arXiv:2310.08560, section 3.1.1.
    """
    records = []
    at = time.time() if now_s is None else now_s
    for chat in progress(chats, "questions"):
        store = SqliteStore(embedder=embedder)
        chat.fill(store, "agent", at)
        persona = "\n".join(chat.assistant_persona)
        agent = Agent(
            model(chat), store, blocks={"persona": persona, "human": ""}, clock=lambda: at,
            **options,
        )  # fmt: skip
        turn = agent.send(_question(chat))
        records.append(_record(chat, " ".join(turn.sent), judge, turn.calls))
        store.close()
    return _retrieved(records)


def summary_retrieval(
    chats: Sequence[Chat], model: Callable[[Chat], LLM], judge: LLM, summary_tokens: int = 350
) -> Retrieved:
    """The baseline: a model that sees a recursive summary of the meetings and nothing else.

    Args:
      chats: with a question each.
      model: makes the language model for a chat; it also writes the summary.
      judge: a language model that compares answers.
      summary_tokens: of the summary at most.

    Returns:
      Accuracy and ROUGE-L.

    Raises:
      ValueError: if a chat has no question, or a model fails.
    """
    records = []
    for chat in progress(chats, "questions"):
        llm = model(chat)
        summariser = Summariser(llm, ByteEstimate(), 8_000, summary_tokens)
        summary = ""
        for session in chat.sessions:
            said = tuple(Message(who, text) for who, text in session.turns)
            summary = summariser.write(summary, [Unit(0, said, 0)])
        prompt = [
            Message("system", _SUMMARY_ONLY.format(summary=summary)),
            Message("user", _question(chat)),
        ]
        answer = llm.complete(prompt).text
        records.append(_record(chat, answer, judge, len(summariser.calls) + 1))
    return _retrieved(records)


def rouge_l(answer: str, gold: str) -> float:
    """ROUGE-L's recall: the longest common subsequence of words over the right answer's words.

    Args:
      answer: what was said.
      gold: what is right.

    Returns:
      0 to 1; 1 where nothing is to be said.

    Source: Lin 2004, ROUGE: A Package for Automatic Evaluation of Summaries.
    """
    said, wanted = words(answer), words(gold)
    row = [0] * (len(wanted) + 1)
    for word in said:
        previous = 0
        for i, other in enumerate(wanted, 1):
            previous, row[i] = row[i], previous + 1 if word == other else max(row[i], row[i - 1])
    return row[-1] / len(wanted) if wanted else 1.0


def judged(judge: LLM, question: str, gold: str, answer: str) -> bool:
    """Whether a judge finds an answer correct.

    Args:
      judge: a language model.
      question: that was asked.
      gold: what is right.
      answer: what was said.

    Returns:
      Its verdict.

    Raises:
      ValueError: if it gives none.
    """
    told = JUDGE.format(question=question, gold=gold, answer=answer or "(nothing)")
    reply = judge.complete([Message("user", told)]).text
    verdict = words(reply)
    if len(verdict) != 1 or verdict[0] not in ("correct", "wrong"):  # "not correct" is no verdict
        raise ValueError(f"{judge.name}: expected CORRECT or WRONG and no more, got {reply!r:.80}")
    return verdict[0] == "correct"


def _question(chat: Chat) -> str:
    if not chat.question:
        raise ValueError("expected chats with a question, got one without")
    return chat.question


def _record(chat: Chat, answer: str, judge: LLM, calls: int) -> dict[str, Any]:
    return {
        "question": chat.question,
        "gold": chat.answer,
        "answer": answer,
        "correct": judged(judge, chat.question, chat.answer, answer),
        "rouge_l": rouge_l(answer, chat.answer),
        "calls": calls,
    }


def _retrieved(records: list[dict[str, Any]]) -> Retrieved:
    if not records:
        raise ValueError("expected at least one chat, got none")
    right = sum(record["correct"] for record in records)
    share = mean_interval([record["rouge_l"] for record in records])
    return Retrieved(wilson_interval(right, len(records)), share, records)
