"""A conversation and its questions made from the draws by hand: one sorted list of events."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

NEVER = 2**30
PERSON = 2**20
NEWEST, BEFORE, TWO_HOP = range(3)
NONE = -1
KINDS = ("current", "previous", "two_hop", "as_of", "unanswerable")
SHORTEST = 8  # tokens


class Fact(NamedTuple):
    """A statement.

    key: what it is about: a topic, or PERSON + 2 p (+ 1) for home town (job) of person p.
    time: index of the message.
    person: who holds the role from now on; -1 if it is no role.
    words: its meaning, as (word, weight) pairs; a word is a topic, ("person", p) or
      ("predicate", 0 or 1).
    """

    key: int
    time: int
    person: int
    words: tuple[tuple[Any, float], ...]


class Story(NamedTuple):
    """A conversation without its wording.

    facts: statements in order of time.
    touches: (topic, message) of each message that touches a topic without stating anything.
    tokens: of each message.
    overflow: whether statements or messages did not fit.
    """

    facts: list[Fact]
    touches: list[tuple[int, int]]
    tokens: list[int]
    overflow: bool


class Question(NamedTuple):
    """A question.

    kind: index into KINDS.
    asks: NEWEST, BEFORE or TWO_HOP.
    key: what it is about.
    predicate: 0 (home town) or 1 (job), for two hops.
    time: statements after this message do not count.
    answer: number of the fact that answers it, or NONE.
    changed: whether the key has been stated more than once.
    mask: whether there is such a question.
    """

    kind: int
    asks: int
    key: int
    predicate: int
    time: int
    answer: int
    changed: bool
    mask: bool


def first_role(world: Any) -> int:
    """Key of the first role: topics are static, changing, unstated attributes, then roles.

    Args:
      world: with the counts of each.

    Returns:
      The key.
    """
    return world.static + world.changing + world.unstated


def statements(plan: Any, world: Any) -> list[tuple[float, Fact]]:
    """What is stated, with its time in [0, 1).

    Args:
      plan: the draws, `jaxmem.dialogue.conversation.Plan`; shapes are in its docstring.
      world: what conversations are like.

    Returns:
      (time, fact) pairs in no order; the facts have no message yet.
    """
    said: list[tuple[float, Fact]] = []
    for topic in range(world.static):
        said.append((float(plan.static_times[topic]), Fact(topic, NEVER, -1, ((topic, 1.0),))))
    for i in range(world.changing):
        topic = world.static + i
        for moment in plan.change_times[i][: plan.changes[i] + 1]:
            said.append((float(moment), Fact(topic, NEVER, -1, ((topic, 1.0),))))
    most_holders = 1 + (world.most_holders - 1) * world.length
    for role in range(world.roles):
        topic = first_role(world) + role
        starts = sorted(float(t) for t in plan.holder_times[role][: plan.successions[role] + 1])
        for holder, start in enumerate(starts):
            person = role * most_holders + holder
            words: tuple[tuple[Any, float], ...] = ((topic, 1.0), (("person", person), 1.0))
            said.append((start, Fact(topic, NEVER, person, words)))
            end = starts[holder + 1] if holder + 1 < len(starts) else 1.0
            for predicate in range(2):
                share = float(plan.person_times[role][holder][predicate])
                weight = float(world.predicate_weight)
                words = ((("person", person), 1.0), (("predicate", predicate), weight))
                fact = Fact(PERSON + 2 * person + predicate, NEVER, -1, words)
                said.append((start + share * (end - start), fact))
    return said


def tell(plan: Any, world: Any) -> Story:
    """Every message has a time; messages are numbered in the order of these times.

    Small talk fills the conversation up to its number of messages. Statements and mentions beyond
    the room for messages are lost, and so are statements beyond the capacity.

    Args:
      plan: the draws, `jaxmem.dialogue.conversation.Plan`; shapes are in its docstring.
      world: what conversations are like.

    Returns:
      The conversation.
    """
    room = (world.messages + world.spread) * world.length
    said = statements(plan, world)
    mentions = min(int(plan.touches), len(plan.touch_topics))
    events: list[tuple[float, Any]] = list(said)
    for i in range(mentions):
        events.append((float(plan.touch_times[i]), i))
    busy = len(events)
    for i in range(max(int(plan.messages) - busy, 0)):
        events.append((float(plan.small_talk[i]), None))
    events.sort(key=lambda event: event[0])

    facts, touched = [], {}
    for message, (_, what) in enumerate(events[:room]):
        if isinstance(what, Fact):
            facts.append(what._replace(time=message))
        elif what is not None:
            touched[what] = message
    kept = facts if world.fact_capacity is None else facts[: world.fact_capacity]
    touches = [(int(plan.touch_topics[i]), touched[i]) for i in sorted(touched)]
    overflow = len(kept) < len(said) or int(plan.touches) > mentions or busy > room
    messages = min(max(int(plan.messages), busy), room)
    tokens = [max(round(float(x)), SHORTEST) for x in plan.tokens[:messages]]
    return Story(kept, touches, tokens, overflow)


def unit(vector: np.ndarray) -> np.ndarray:
    """A vector scaled to length 1; zeros stay as they are.

    Args:
      vector: [D].

    Returns:
      [D].
    """
    length = float(np.sqrt(vector @ vector))
    return vector / length if length > 0 else vector


def meaning(words: Sequence[tuple[Any, float]], lexicon: Any) -> np.ndarray:
    """unit(sum of weight * word).

    Args:
      words: (word, weight) pairs, as in `Fact`.
      lexicon: with topics [K, D], persons [P, D] and predicates [2, D].

    Returns:
      [D]; zeros for no words.
    """
    total = np.zeros(lexicon.topics.shape[1])
    for word, weight in words:
        if isinstance(word, tuple):
            table = {"person": lexicon.persons, "predicate": lexicon.predicates}[word[0]]
            total += weight * np.asarray(table[word[1]], np.float64)
        else:
            total += weight * np.asarray(lexicon.topics[word], np.float64)
    return unit(total)


def wording(story: Story, lexicon: Any, signs: np.ndarray, noise: float) -> np.ndarray:
    """Embeddings of the messages, unit(meaning + noise * signs).

    Args:
      story: N messages.
      lexicon: what words mean.
      signs: [M, D] random signs of length 1, M >= N.
      noise: length of what wording adds.

    Returns:
      [N, D].
    """
    words: dict[int, Sequence[tuple[Any, float]]] = {}
    for topic, message in story.touches:
        words[message] = [(topic, 1.0)]
    for fact in story.facts:
        words[fact.time] = fact.words
    rows = []
    for message in range(len(story.tokens)):
        meant = meaning(words.get(message, ()), lexicon)
        rows.append(unit(meant + noise * np.asarray(signs[message], np.float64)))
    return np.array(rows)


def asked(world: Any) -> list[tuple[str, int, int, int]]:
    """Every question that a world raises: (kind, what it asks, key, predicate).

    Args:
      world: with the counts of attributes and roles.

    Returns:
      The questions, kind by kind.
    """
    static = list(range(world.static))
    changing = [world.static + i for i in range(world.changing)]
    unstated = [world.static + world.changing + i for i in range(world.unstated)]
    roles = [first_role(world) + r for r in range(world.roles)]
    found = [("current", NEWEST, key, 0) for key in static + changing + roles]
    found += [("previous", BEFORE, key, 0) for key in changing + roles]
    found += [("two_hop", TWO_HOP, role, predicate) for role in roles for predicate in (1, 0)]
    found += [("as_of", NEWEST, key, 0) for key in changing + roles]
    found += [("unanswerable", NEWEST, key, 0) for key in unstated]
    found += [("unanswerable", BEFORE, key, 0) for key in static[: world.unstated]]
    return found


def question_words(question: Question, world: Any) -> tuple[tuple[Any, float], ...]:
    """What a question means: its topic, and for two hops the predicate beside it.

    Args:
      question: one question.
      world: what conversations are like.

    Returns:
      (word, weight) pairs, as in `Fact`.
    """
    if question.asks != TWO_HOP:
        return ((question.key, 1.0),)
    return ((question.key, 1.0), (("predicate", question.predicate), float(world.predicate_weight)))


def ask(facts: Sequence[Fact], world: Any, times: Sequence[int]) -> list[Question]:
    """Questions with their answers, each found by going through the facts.

    Args:
      facts: statements in order of time.
      world: what conversations are like.
      times: for each question, the message as of which it is asked; used by "as_of" only.

    Returns:
      The questions.
    """
    history: dict[int, list[int]] = {}  # key -> its facts, oldest first
    for number, fact in enumerate(facts):
        history.setdefault(fact.key, []).append(number)
    questions = []
    for (kind, asks, key, predicate), moment in zip(asked(world), times, strict=True):
        versions = history.get(key, [])
        until = int(moment) if kind == "as_of" else NEVER
        past = [number for number in versions if facts[number].time <= until]
        if asks == NEWEST:
            found = past[-1:]
        elif asks == BEFORE:
            found = past[-2:-1]
        else:
            holder = [facts[number].person for number in past[-1:]]
            found = [n for p in holder for n in history.get(PERSON + 2 * p + predicate, [])][-1:]
        answer = found[0] if found else NONE
        changed = len(versions) > 1
        if kind in ("previous", "as_of"):
            mask = changed
        else:
            mask = kind == "unanswerable" or answer != NONE
        questions.append(
            Question(KINDS.index(kind), asks, key, predicate, until, answer, changed, mask)
        )
    return questions
