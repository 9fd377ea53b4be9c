"""The ideal reader: it answers from what it is shown, the newest valid statement by time stamp."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from jaxmem.dialogue.conversation import Conversation
from jaxmem.dialogue.questions import NONE, Questions, newest_index
from jaxmem.dialogue.world import PERSON


class Items(NamedTuple):
    """Statements that a reader may be shown: messages that state a fact, or memories of one.

    key: [C] what each is about; -1 where there is none.
    time: [C] its time stamp; UNDATED if it has none, which counts as older than any.
    value: [C] what it says: the number of the fact, or one that is true of nothing.
    person: [C] who holds the role from then on; -1 if it is no role.
    """

    key: Array
    time: Array
    value: Array
    person: Array


UNDATED = -1


def statements(conversation: Conversation) -> Items:
    """What the messages of a conversation state, as they stand.

    Args:
      conversation: from `generate`.

    Returns:
      An item a fact.
    """
    facts = conversation.facts
    value = jnp.arange(facts.key.size)
    return Items(facts.key, facts.time, value, facts.person)


def answer(items: Items, visible: Array, questions: Questions) -> Array:
    """What the reader says to each question.

    The newest value is the latest visible statement of the key, up to the time that is asked
    about; the one before it is the latest visible one that says something else; two hops take the
    newest visible holder of the role and the newest visible statement about that person.

    Args:
      items: statements.
      visible: [Q, C] which of them the reader is shown with each question.
      questions: Q of them.

    Returns:
      [Q] values; NONE where it finds no answer.
    """
    said = _asked(items, visible, questions)
    latest = newest_index(items.time, said)
    newest = _take(items.value, latest)
    other = (
        said & (items.value != newest[:, None]) & (items.time <= _take(items.time, latest)[:, None])
    )
    before = _take(items.value, newest_index(items.time, other))
    holder = _take(items.person, latest)
    about = items.key == (PERSON + 2 * holder + questions.predicate)[:, None]
    theirs = _take(items.value, newest_index(items.time, visible & about))
    hop = jnp.where(holder >= 0, theirs, NONE)
    return lax.select_n(questions.asks, newest, before, hop)


def holders(items: Items, visible: Array, questions: Questions) -> Array:
    """Who holds the role that is asked about, as far as the reader can see.

    Args:
      items: statements.
      visible: [Q, C] which of them the reader is shown with each question.
      questions: Q of them.

    Returns:
      [Q] persons; NONE where no holder is visible.
    """
    return _take(items.person, newest_index(items.time, _asked(items, visible, questions)))


def _asked(items: Items, visible: Array, questions: Questions) -> Array:
    """[Q, C] visible statements of the key that is asked about, up to the time asked about."""
    same = items.key == questions.key[:, None]
    return visible & same & (items.time <= questions.time[:, None])


def _take(values: Array, index: Array) -> Array:
    return jnp.where(index >= 0, values[index], NONE)
