"""Extraction: what a model takes for facts in a conversation, and how often it is wrong."""

from dataclasses import dataclass, fields
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jaxmem.common import check_number, is_given
from jaxmem.dialogue.conversation import Conversation
from jaxmem.dialogue.reader import UNDATED, Items
from jaxmem.dialogue.systems.system import ITEM_TOKENS
from jaxmem.dialogue.words import embed, meaning, uniforms
from jaxmem.dialogue.world import NEVER

ITEM_TOKENS_SD, SHORTEST_ITEM = 5.0, 6.0


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Rates:
    """How often each judgement of the model is right (recall, precision) or wrong (the rest).

    All are probabilities and may be traced; answers are discrete, so that gradients by them are 0
    (`sensitivity` has slopes). The defaults reproduce the lecture.

    recall: a statement is extracted.
    precision: what is extracted was stated; the rest is made up from messages that touch a topic
      without stating anything (at most one each, so very low values are not reached).
    change_as_known: a change is taken for known, and the new value is dropped.
    change_as_new: a change is taken for a fact of its own, and both are kept.
    delete_only: a change deletes the old value and does not add the new one.
    made_up_id: a change names a memory that does not exist, and is lost.
    new_as_known: a new fact is taken for known, and dropped.
    false_merge: a new fact replaces the most similar memory, which is about something else.
    duplicate: two writers add the same fact at once, and both copies stay.
    undated: a memory loses its time stamp.
    misdated: a memory gets the time of an earlier message, drawn uniformly.

    Raises:
      ValueError: if one is outside [0, 1], or those that exclude each other (of a change, of a new
        fact, of a time stamp) sum to more than 1.
    """

    recall: ArrayLike = 0.94
    precision: ArrayLike = 1.0
    change_as_known: ArrayLike = 0.10
    change_as_new: ArrayLike = 0.01
    delete_only: ArrayLike = 0.0
    made_up_id: ArrayLike = 0.0
    new_as_known: ArrayLike = 0.0
    false_merge: ArrayLike = 0.0
    duplicate: ArrayLike = 0.0
    undated: ArrayLike = 0.0
    misdated: ArrayLike = 0.0

    def __post_init__(self) -> None:
        for name in (field.name for field in fields(self)):
            if is_given(getattr(self, name)):
                check_number(name, getattr(self, name), 0.0, 1.0)
        for names in _EXCLUSIVE:
            rates = [getattr(self, name) for name in names]
            if all(map(is_given, rates)):
                check_number(" + ".join(names), sum(map(np.asarray, rates)), 0.0, 1.0 + 1e-6)


_EXCLUSIVE = (
    ("change_as_known", "change_as_new", "delete_only", "made_up_id"),
    ("new_as_known", "false_merge"),
    ("undated", "misdated"),
)

LECTURE_RATES = Rates()
"""What reproduces the lecture's figures."""

PERFECT = Rates(recall=1.0, change_as_known=0.0, change_as_new=0.0)
"""No judgement is wrong."""


def is_zero(rate: ArrayLike) -> bool:
    """Whether a rate is known to be 0 when tracing, so that what it would cause can be left out.

    Args:
      rate: scalar.

    Returns:
      False if it is traced.
    """
    return isinstance(rate, (int, float)) and rate == 0.0


def check_rates(rates: Rates) -> None:
    """Refuse what no system can use.

    Args:
      rates: what was given to a factory.

    Raises:
      ValueError: if it is no `Rates` of scalars.
    """
    if not isinstance(rates, Rates):
        raise ValueError(f"expected Rates, got {rates!r}")
    for field in fields(rates):
        value = getattr(rates, field.name)
        if value is None:
            raise ValueError(f"{field.name} must be a number, got None")
        check_number(field.name, value, 0.0, 1.0, scalar=True)


class Draws(NamedTuple):
    """The chances behind the judgements of a conversation: first looks, then second looks.

    found: [2, C] whether the model sees a statement when it looks.
    judgement: [2, C] uniform: what it does with it, see `decide`.
    doubled: [C] whether two writers file it at once.
    """

    found: Array
    judgement: Array
    doubled: Array


def draw(key: Array, facts: int, made_up: int, rates: Rates) -> Draws:
    """Draws for the filing of C candidates; those of the facts are the same without the rest.

    Args:
      key: typed key.
      facts: F.
      made_up: C - F.
      rates: how often the model errs.

    Returns:
      The draws.
    """
    parts = []
    for part, size in zip(jax.random.split(key), (facts, made_up)):
        found, judgement, doubled = uniforms(part, (2, size), (2, size), (size,))
        parts.append(Draws(found < rates.recall, judgement, doubled < rates.duplicate))
    return jax.tree.map(lambda x, y: jnp.concatenate([x, y], axis=-1), *parts)


def decide(u: Array, is_change: Array, is_any: Array, rates: Rates) -> tuple[Array, Array]:
    """What the model does with a fact: add it, drop the memory that it meets, both or neither.

    Args:
      u: scalar uniform draw.
      is_change: scalar, whether it meets a memory of its own key.
      is_any: scalar, whether there is another memory that it could be merged with.
      rates: how often each judgement is wrong.

    Returns:
      (whether it is added, whether the memory is dropped), scalars of bool.
    """
    known = rates.change_as_known
    new = known + rates.change_as_new
    deleted = new + rates.delete_only
    lost = deleted + rates.made_up_id
    is_update = u >= lost
    adds_change = is_update | ((u >= known) & (u < new))
    drops_change = is_update | ((u >= new) & (u < deleted))
    missed = u < rates.new_as_known
    merges = ~missed & (u < rates.new_as_known + rates.false_merge) & is_any
    return jnp.where(is_change, adds_change, ~missed), jnp.where(is_change, drops_change, merges)


class Candidates(NamedTuple):
    """What could be extracted from a conversation: the F facts, then what is made up of touches.

    items: what each says.
    message: [C] index of the message behind it; NEVER where there is none.
    extracted: [C] whether the model extracts it.
    embeddings: [C, D] of the memory's own words.
    tokens: [C] length of the memory.
    """

    items: Items
    message: Array
    extracted: Array
    embeddings: Array
    tokens: Array


def extract(key: Array, conversation: Conversation, rates: Rates) -> Candidates:
    """Extraction over a whole conversation.

    Args:
      key: typed key.
      conversation: from `generate`.
      rates: how often the model errs.

    Returns:
      The candidates; made-up ones are left out if precision is the number 1.
    """
    fact_key, touch_key = jax.random.split(key)
    facts, touches = conversation.facts, conversation.touches
    said = _candidates(
        fact_key, conversation, rates,
        chance=rates.recall,
        key_of=facts.key, message=facts.time, person=facts.person,
        first=facts.first, second=facts.second, weight=facts.weight, value=0,
    )  # fmt: skip
    if isinstance(rates.precision, (int, float)) and is_zero(1.0 - rates.precision):
        return said
    count = (facts.key >= 0).sum()
    share = rates.recall * count / jnp.maximum((touches.key >= 0).sum(), 1)
    wrong = share * (1.0 - rates.precision) / jnp.maximum(rates.precision, 1e-9)
    nothing = jnp.zeros_like(touches.key)
    made_up = _candidates(
        touch_key, conversation, rates,
        chance=jnp.minimum(wrong, 1.0),
        key_of=touches.key, message=touches.time, person=nothing - 1,
        first=touches.key, second=nothing, weight=nothing.astype(jnp.float32),
        value=facts.key.size,
    )  # fmt: skip
    return jax.tree.map(lambda *parts: jnp.concatenate(parts), said, made_up)


def _candidates(
    key: Array,
    conversation: Conversation,
    rates: Rates,
    *,
    chance: ArrayLike,
    key_of: Array,
    message: Array,
    person: Array,
    first: Array,
    second: Array,
    weight: Array,
    value: int,
) -> Candidates:
    """Candidates of one kind, whose values are numbered from `value`."""
    size = key_of.size
    lexicon = conversation.lexicon
    chance_key, wording_key, token_key = jax.random.split(key, 3)
    extracted, date, moment = uniforms(chance_key, (size,), (size,), (size,))
    earlier = (moment * message).astype(jnp.int32)
    stamp = jnp.where(
        date < rates.undated,
        UNDATED,
        jnp.where(date < rates.undated + rates.misdated, earlier, message),
    )
    tokens = ITEM_TOKENS + ITEM_TOKENS_SD * jax.random.normal(token_key, (size,), jnp.float32)
    return Candidates(
        items=Items(key_of, stamp, value + jnp.arange(size), person),
        message=message,
        extracted=(extracted < chance) & (message < NEVER),
        embeddings=embed(wording_key, meaning(lexicon, first, second, weight), lexicon),
        tokens=jnp.maximum(jnp.round(tokens), SHORTEST_ITEM),
    )
