"""Questions about a conversation, with their answers."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from jaxmem.common import lookup
from jaxmem.dialogue.conversation import Conversation
from jaxmem.dialogue.words import embed, meaning
from jaxmem.dialogue.world import LOCOMO, NEVER, PERSON, World, check_world

KINDS = ("current", "previous", "two_hop", "as_of", "unanswerable")
"""Names of the kinds of questions; `Questions.kind` is the index."""

LECTURE_KINDS = KINDS[:3]
"""The kinds that the lecture asks: its "all questions"."""

NEWEST, BEFORE, TWO_HOP = range(3)
NONE = -1


class Questions(NamedTuple):
    """Questions, padded to Q.

    kind: [Q] index into `KINDS`.
    asks: [Q] NEWEST value of the key, the one BEFORE it, or TWO_HOP.
    key: [Q] the key that is asked about; for two hops, the role.
    predicate: [Q] 0 (home town) or 1 (job), for two hops.
    time: [Q] statements after this message do not count; NEVER where all do.
    answer: [Q] the fact that answers it; NONE if there is none.
    changed: [Q] whether the key has been stated more than once.
    mask: [Q] whether there is such a question.
    embeddings: [Q, D].
    hops: [H] numbers of the questions that ask two hops.
    """

    kind: Array
    asks: Array
    key: Array
    predicate: Array
    time: Array
    answer: Array
    changed: Array
    mask: Array
    embeddings: Array
    hops: Array


def ask(key: Array, conversation: Conversation, world: World = LOCOMO) -> Questions:
    """Every question of each kind that a conversation raises.

    current: each stated attribute and role. previous: each that has changed. two_hop: home town
    and job of each role's holder. as_of: each that has changed, at a random time since it was
    first stated. unanswerable: what was never stated, and what was before a value that never
    changed.

    Args:
      key: scalar typed key.
      conversation: from `generate` with the same world.
      world: what conversations are like.

    Returns:
      The questions.

    Raises:
      ValueError: if the conversation is of another world.
    """
    check_world(world)
    sizes = (world.topics, world.persons, world.facts)
    lexicon = conversation.lexicon
    found = (len(lexicon.topics), len(lexicon.persons), conversation.facts.key.shape[-1])
    if sizes != found:
        raise ValueError(f"expected the world of the conversation {found}, got another {sizes}")
    time_key, wording_key = jax.random.split(key)
    facts = conversation.facts
    roles = jnp.arange(world.first_role, world.topics)
    stated = jnp.concatenate([jnp.arange(world.static + world.changing), roles])
    changing = jnp.concatenate([jnp.arange(world.changing) + world.static, roles])
    unstated = jnp.arange(world.unstated) + world.static + world.changing
    once = jnp.arange(min(world.unstated, world.static))
    parts = (  # kind, asks, key
        ("current", NEWEST, stated),
        ("previous", BEFORE, changing),
        ("two_hop", TWO_HOP, jnp.repeat(roles, 2)),
        ("as_of", NEWEST, changing),
        ("unanswerable", NEWEST, unstated),
        ("unanswerable", BEFORE, once),
    )
    kind = jnp.concatenate([jnp.full(part.size, KINDS.index(name)) for name, _, part in parts])
    asks = jnp.concatenate([jnp.full(part.size, asked) for _, asked, part in parts])
    about = jnp.concatenate([part for _, _, part in parts]).astype(jnp.int32)
    predicate = jnp.where(asks == TWO_HOP, jnp.cumsum(asks == TWO_HOP) % 2, 0)

    newest = partial(newest_index, facts.time)
    same = facts.key == about[:, None]  # [Q, F]
    first_time = jnp.where(same, facts.time, NEVER).min(1, initial=NEVER)
    share = jax.random.uniform(time_key, about.shape, jnp.float32)
    moment = first_time + (share * (conversation.messages - first_time)).astype(jnp.int32)
    time = jnp.where(kind == KINDS.index("as_of"), moment, NEVER)
    latest = newest(same & (facts.time <= time[:, None]))
    before = newest(same & (jnp.arange(facts.time.size) < latest[:, None]))
    holder = facts.person[latest]
    theirs = facts.key == (PERSON + 2 * holder + predicate)[:, None]
    second_hop = jnp.where((latest >= 0) & (holder >= 0), newest(theirs), NONE)
    answer = lax.select_n(asks, latest, before, second_hop)
    unanswerable = kind == KINDS.index("unanswerable")
    needs_change = (kind == KINDS.index("previous")) | (kind == KINDS.index("as_of"))
    changed = same.sum(1) >= 2
    mask = jnp.where(needs_change, changed, unanswerable | (answer >= 0))

    is_hop = asks == TWO_HOP
    meanings = meaning(
        conversation.lexicon,
        about,
        jnp.where(is_hop, world.topics + world.persons + predicate, 0),
        jnp.where(is_hop, conversation.lexicon.predicate_weight, 0.0),
    )
    embeddings = embed(wording_key, meanings, conversation.lexicon)
    hops = stated.size + changing.size + jnp.arange(2 * world.roles)
    return Questions(kind, asks, about, predicate, time, answer, changed, mask, embeddings, hops)


def newest_index(time: Array, mask: Array) -> Array:
    """Index of the latest entry of each row where the mask holds; the last of equal times.

    Args:
      time: [C].
      mask: [Q, C].

    Returns:
      [Q]; NONE where it holds nowhere.
    """
    masked = jnp.where(mask, time, -2)
    last = time.size - 1 - jnp.argmax(masked[:, ::-1], axis=1)
    return jnp.where(mask.any(1), last, NONE).astype(jnp.int32)


def kind_index(kind: str) -> int:
    """Index of a kind of question.

    Args:
      kind: its name.

    Returns:
      The index into `KINDS`.

    Raises:
      ValueError: if there is no such kind.
    """
    return lookup({name: i for i, name in enumerate(KINDS)}, kind, "kind of question")
