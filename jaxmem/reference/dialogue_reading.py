"""How memory systems answer a question: what each shows its reader, and the reader."""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

NEVER = 2**30
PERSON = 2**20
NEWEST, BEFORE, TWO_HOP = range(3)
NONE = -1
MISS = 0.23
PAGE = 3
ANSWER_PROMPT, REPLY_TOKENS, CALL_TOKENS = 200, 30, 30


class Item(NamedTuple):
    """A statement that a reader may be shown.

    key: what it is about.
    time: its time stamp; -1 if it has none, which counts as older than any.
    value: what it says.
    person: who holds the role from then on; -1 if it is no role.
    """

    key: int
    time: int
    value: int
    person: int


class Question(NamedTuple):
    """A question as it is put to a system.

    asks: NEWEST, BEFORE or TWO_HOP.
    key: what it is about.
    predicate: 0 (home town) or 1 (job), for two hops.
    time: statements after it do not count.
    embedding: [D].
    """

    asks: int
    key: int
    predicate: int
    time: int
    embedding: np.ndarray


class Reply(NamedTuple):
    """An answer and what it cost.

    said: the value, or NONE.
    calls: (calls, prefill tokens, generated tokens) by purpose.
    read_tokens: material shown.
    fixed_tokens: the part of it that is the same for all questions.
    found: pieces retrieved.
    """

    said: int
    calls: dict[str, tuple[float, float, float]]
    read_tokens: float
    fixed_tokens: float
    found: int


def rows(questions: Any) -> list[Question]:
    """Questions one by one.

    Args:
      questions: arrays asks, key, predicate, time [Q] and embeddings [Q, D].

    Returns:
      Q questions.
    """
    return [
        Question(
            int(questions.asks[q]),
            int(questions.key[q]),
            int(questions.predicate[q]),
            int(questions.time[q]),
            np.asarray(questions.embeddings[q], np.float64),
        )
        for q in range(len(questions.asks))
    ]


def facts(conversation: Any) -> list[Item]:
    """What the messages of a conversation state, oldest first.

    Args:
      conversation: its facts have key, time and person, each [F], padded with keys of -1.

    Returns:
      The statements.
    """
    said = conversation.facts
    return [
        Item(int(said.key[f]), int(said.time[f]), f, int(said.person[f]))
        for f in range(len(said.key))
        if said.key[f] >= 0
    ]


def by_age(shown: Iterable[Item], key: int, until: int = NEVER) -> list[Item]:
    """Statements about a key, newest first; of equal times the last one comes first.

    Args:
      shown: statements in the order of their numbers.
      key: what about.
      until: later statements do not count.

    Returns:
      The statements.
    """
    mine = [item for item in shown if item.key == key and item.time <= until]
    ages = [(item.time, number) for number, item in enumerate(mine)]
    return [mine[number] for _, number in sorted(ages, reverse=True)]


def holder(shown: Sequence[Item], question: Question) -> int:
    """Who holds the role that is asked about, as far as the reader can see.

    Args:
      shown: statements.
      question: its key is the role.

    Returns:
      The person, or NONE.
    """
    said = by_age(shown, question.key, question.time)
    return said[0].person if said else NONE


def answer(shown: Sequence[Item], question: Question) -> int:
    """What the ideal reader says.

    Args:
      shown: statements.
      question: what it is asked.

    Returns:
      The value, or NONE.
    """
    said = by_age(shown, question.key, question.time)
    if question.asks == NEWEST:
        found = said
    elif question.asks == BEFORE:
        found = [item for item in said if item.value != said[0].value]
    else:
        person = holder(shown, question)
        found = by_age(shown, PERSON + 2 * person + question.predicate) if person >= 0 else []
    return found[0].value if found else NONE


def best(scores: Iterable[float], count: int) -> list[int]:
    """Indices of the highest scores, the first of equal ones.

    Args:
      scores: one a piece.
      count: how many; all if there are fewer.

    Returns:
      The indices, best first.
    """
    ranked = sorted(enumerate(scores), key=lambda pair: (-pair[1], pair[0]))
    return [index for index, _ in ranked[:count]]


def one_call(said: int, read_tokens: float, fixed_tokens: float, found: int) -> Reply:
    """A reply that took one call.

    Args:
      said: the answer.
      read_tokens: material shown.
      fixed_tokens: the part of it that all questions share.
      found: pieces retrieved.

    Returns:
      The reply.
    """
    calls = {"answer": (1.0, ANSWER_PROMPT + read_tokens, float(REPLY_TOKENS))}
    return Reply(said, calls, read_tokens, fixed_tokens, found)


def full_context(
    conversation: Any, questions: Any, window_tokens: float, alpha: float, draws: np.ndarray
) -> list[Reply]:
    """The newest messages that fit into a window, some statements of which are overlooked.

    Args:
      conversation: tokens [M], messages and facts.
      questions: Q of them.
      window_tokens: the window.
      alpha: how much is overlooked.
      draws: [Q, F] uniform.

    Returns:
      Q replies.
    """
    messages = int(conversation.messages)
    start, used = messages, 0.0
    while start > 0 and used + conversation.tokens[start - 1] <= window_tokens:
        start -= 1
        used += float(conversation.tokens[start])
    replies = []
    for q, question in enumerate(rows(questions)):
        shown = []
        for item in facts(conversation):
            if item.time >= start:
                x = (item.time - start + 0.5) / (messages - start)
                miss = alpha * MISS * (math.pi / 2) * math.sin(math.pi * x)
                if draws[q, item.value] >= miss:
                    shown.append(item)
        replies.append(one_call(answer(shown, question), used, used, messages - start))
    return replies


def rag(
    conversation: Any, questions: Any, chunks: Sequence[Sequence[int]], count: int
) -> list[Reply]:
    """The chunks most like a question; a chunk is like the sum of its messages.

    Args:
      conversation: tokens [M], embeddings [M, D] and facts.
      questions: Q of them.
      chunks: messages of each.
      count: chunks a question.

    Returns:
      Q replies.
    """
    vectors = []
    for chunk in chunks:
        total = np.sum([conversation.embeddings[m] for m in chunk], axis=0, dtype=np.float64)
        vectors.append(total / np.linalg.norm(total))
    replies = []
    for question in rows(questions):
        taken = best((float(v @ question.embedding) for v in vectors), count)
        seen = [m for i in taken for m in chunks[i]]
        shown = [item for item in facts(conversation) if item.time in seen]
        tokens = float(sum(conversation.tokens[m] for m in seen))
        replies.append(one_call(answer(shown, question), tokens, 0.0, len(taken)))
    return replies


def from_store(
    candidates: Any,
    live: Sequence[int],
    retired: Collection[int],
    questions: Any,
    count: int,
    *,
    hop: bool = False,
    history: int = 0,
    rank_retired: bool = False,
) -> list[Reply]:
    """The memories most like a question, with their past and with the persons whom they name.

    Args:
      candidates: items [C], embeddings [C, D] and tokens [C].
      live: numbers of the valid memories, one entry a copy.
      retired: numbers of the retired versions.
      questions: Q of them.
      count: places for memories, each for one copy.
      hop: whether retrieved persons bring what is known of them.
      history: retired versions a retrieved key, for questions about the past.
      rank_retired: whether retired versions compete for places.

    Returns:
      Q replies.
    """
    vectors = np.asarray(candidates.embeddings, np.float64)
    items = [Item(*(int(x[c]) for x in candidates.items)) for c in range(len(vectors))]
    ranked = sorted([*live, *(retired if rank_retired else ())])
    replies = []
    for question in rows(questions):
        taken = best((float(vectors[c] @ question.embedding) for c in ranked), count)
        copies = Counter(ranked[i] for i in taken)
        retrieved = sorted(copies)
        brought: set[int] = set()
        if question.asks == BEFORE or question.time < NEVER:
            for key in {items[c].key for c in retrieved}:
                past = sorted((items[c].time, c) for c in retired if items[c].key == key)
                brought |= {c for _, c in past[max(len(past) - history, 0) :]}
        if hop:
            persons = {items[c].person for c in retrieved if items[c].person >= 0}
            theirs = {PERSON + 2 * p + i for p in persons for i in range(2)}
            brought |= {c for c in live if items[c].key in theirs}
        for c in brought:
            copies[c] = max(copies[c], 1)
        tokens = sum(number * float(candidates.tokens[c]) for c, number in copies.items())
        shown = [items[c] for c in sorted(copies)]
        replies.append(one_call(answer(shown, question), tokens, 0.0, sum(copies.values())))
    return replies


def search(
    conversation: Any,
    start: int,
    working: Collection[int],
    main_tokens: float,
    question: Question,
    pages: int,
    goes_on: np.ndarray,
    first: np.ndarray,
    by_name: np.ndarray,
    branches: Counter[str],
) -> Reply:
    """A MemGPT agent at a question: its main context, then pages of search results.

    Args:
      conversation: tokens [M], embeddings [M, D] and facts.
      start: first message still in the queue.
      working: facts in the working context.
      main_tokens: of the main context.
      question: what is asked.
      pages: most pages.
      goes_on: [2, pages] whether the agent does not give up after a page that did not help.
      first: [D] query of the first search.
      by_name: [P, D] queries of the second one, for each person whom the first may find.
      branches: counts how often each thing happens.

    Returns:
      The reply.
    """
    stored = facts(conversation)
    vectors = np.asarray(conversation.embeddings[: conversation.messages], np.float64)
    is_hop = question.asks == TWO_HOP
    seen: set[int] = set()  # messages that searches have brought
    results: list[float] = []  # tokens of each page
    resent = 0.0

    def shown() -> list[Item]:
        return [f for f in stored if f.time >= start or f.value in working or f.time in seen]

    def turn(query: np.ndarray, page: int) -> None:
        nonlocal resent, seen
        ranking = best((float(v) for v in vectors @ np.asarray(query, np.float64)), PAGE * pages)
        messages = ranking[PAGE * page : PAGE * (page + 1)]
        resent += sum(results)
        results.append(float(sum(conversation.tokens[m] for m in messages)))
        seen |= set(messages)
        branches["page turned"] += 1

    def lacks() -> bool:
        return (holder if is_hop else answer)(shown(), question) == NONE

    gives_up = False
    for page in range(pages):
        if lacks() and not gives_up:
            turn(first, page)
            gives_up = lacks() and not goes_on[0, page]
    person = holder(shown(), question) if is_hop else NONE
    for page in range(pages):
        wanting = person >= 0 and answer(shown(), question) == NONE and not gives_up
        branches["no page left to search by name"] += wanting and len(results) == pages
        if wanting and len(results) < pages:
            turn(by_name[person], page)
            branches["searched by name"] += 1
            gives_up = not goes_on[1, page]
    said = answer(shown(), question)
    branches["gave up"] += gives_up and said == NONE

    prompt, calls, read = ANSWER_PROMPT + main_tokens, len(results), sum(results)
    costs = {
        "search": (float(calls), calls * prompt + resent, float(calls * CALL_TOKENS)),
        "answer": (1.0, prompt + read, float(REPLY_TOKENS)),
    }
    return Reply(said, costs, main_tokens + read, main_tokens, PAGE * calls)
