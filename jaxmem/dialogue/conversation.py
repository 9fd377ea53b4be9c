"""A conversation, drawn from a world: who says what when, and what is true in it."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxmem.dialogue.words import Lexicon, meaning, random_signs, uniforms, unit, whole
from jaxmem.dialogue.world import LOCOMO, NEVER, PERSON, World, check_world


class Facts(NamedTuple):
    """Statements in order of time, padded to F; fact f states version f of its key.

    key: [F] what it is about: a topic, or PERSON + 2 p (+ 1) for person p; -1 beyond the last.
    time: [F] index of the message that states it; NEVER beyond the last.
    person: [F] who holds the role from now on; -1 if it is no role.
    first, second, weight: [F] its meaning, see `meaning`.
    """

    key: Array
    time: Array
    person: Array
    first: Array
    second: Array
    weight: Array


class Touches(NamedTuple):
    """Messages that touch a topic without stating anything, padded to T, in no order.

    key: [T] the topic; -1 beyond the last.
    time: [T] index of the message; NEVER beyond the last.
    """

    key: Array
    time: Array


class Conversation(NamedTuple):
    """One conversation, and what is true in it.

    tokens: [M] tokens of each message; 0 beyond the last.
    messages: number of messages.
    embeddings: [M, D]; zeros beyond the last.
    facts: what is stated.
    touches: what is touched on.
    lexicon: what its words mean.
    overflow: whether messages that state or touch something were lost for want of room.
    """

    tokens: Array
    messages: Array
    embeddings: Array
    facts: Facts
    touches: Touches
    lexicon: Lexicon
    overflow: Array


class Plan(NamedTuple):
    """The draws behind a conversation, all but its embeddings.

    messages: number of messages.
    tokens: [M] before rounding.
    small_talk: [M] uniform times.
    changes: [changing] how often each attribute changes.
    successions: [roles] how often each role passes on.
    static_times: [static] uniform.
    change_times: [changing, versions] uniform, in no order.
    holder_times: [roles, holders] uniform, in no order.
    person_times: [roles, holders, 2] share of the tenure after which home and job are stated.
    touches: number of messages that touch a topic.
    touch_topics: [T].
    touch_times: [T] uniform.
    """

    messages: Array
    tokens: Array
    small_talk: Array
    changes: Array
    successions: Array
    static_times: Array
    change_times: Array
    holder_times: Array
    person_times: Array
    touches: Array
    touch_topics: Array
    touch_times: Array


def generate(key: Array, world: World = LOCOMO) -> Conversation:
    """A random conversation; vmap over keys for many, jit with the world as an argument.

    Args:
      key: scalar typed key.
      world: what conversations are like.

    Returns:
      The conversation.

    Raises:
      ValueError: if the world is none.
    """
    check_world(world)
    plan_key, word_key, wording_key = jax.random.split(key, 3)
    words = random_signs(word_key, world.topics + world.persons + 2, world.dim)
    parts = jnp.split(words, [world.topics, world.topics + world.persons])
    scales = (jnp.asarray(x, jnp.float32) for x in (world.noise, world.predicate_weight))
    lexicon = Lexicon(parts[0], parts[1], parts[2], *scales)
    return build(draw_plan(plan_key, world), lexicon, wording_key, world)


def draw_plan(key: Array, world: World) -> Plan:
    """The random times and counts of a conversation.

    Args:
      key: typed key.
      world: what conversations are like.

    Returns:
      The draws.
    """
    uniform_key, token_key = jax.random.split(key)
    length, low = world.length, world.messages - world.spread
    (counts, small_talk, changes, successions, static_times, change_times, holder_times,
     person_times, touches, touch_topics, touch_times) = uniforms(
        uniform_key, (length,), (world.longest,), (length, world.changing), (length, world.roles),
        (world.static,), (world.changing, world.versions), (world.roles, world.holders),
        (world.roles, world.holders, 2), (), (world.touches,), (world.touches,),
    )  # fmt: skip
    normal = jax.random.normal(token_key, (world.longest,), jnp.float32)
    return Plan(
        messages=jnp.sum(low + whole(counts, 2 * world.spread + 1)),
        tokens=jnp.asarray(world.message_tokens + world.message_tokens_sd * normal),
        small_talk=small_talk,
        changes=jnp.sum(1 + whole(changes, world.most_changes), axis=0),
        successions=jnp.sum(whole(successions, world.most_holders), axis=0),
        static_times=static_times,
        change_times=change_times,
        holder_times=holder_times,
        person_times=person_times,
        touches=jnp.sum(touches > _poisson_cdf(world.mean_touches, world.touches)),
        touch_topics=whole(touch_topics, world.topics),
        touch_times=touch_times,
    )


def build(plan: Plan, lexicon: Lexicon, key: Array, world: World) -> Conversation:
    """The conversation that follows from the draws.

    Every message has a time in [0, 1): statements and mentions their own, small talk uniform ones;
    messages are numbered in the order of these times.

    Args:
      plan: the draws.
      lexicon: what words mean.
      key: typed key of the wording.
      world: what conversations are like.

    Returns:
      The conversation.
    """
    stated, times = _statements(plan, world)
    touched = jnp.arange(world.touches) < plan.touches
    touch_times = jnp.where(touched, plan.touch_times, jnp.inf)
    said = jnp.isfinite(times).sum() + touched.sum()
    talk = jnp.arange(world.longest) < plan.messages - said
    talk_times = jnp.where(talk, plan.small_talk, jnp.inf)

    moments = jnp.concatenate([times, touch_times, talk_times])  # [E]
    order = jnp.argsort(moments)
    place = jnp.zeros_like(order).at[order].set(jnp.arange(order.size))
    place = jnp.where(jnp.isfinite(moments), place, NEVER)
    fact_place, touch_place = jnp.split(place[: times.size + touched.size], [times.size])
    is_room = fact_place < world.longest
    by_time = jnp.argsort(jnp.where(is_room, fact_place, NEVER))[: world.facts]
    here = is_room[by_time]
    facts = Facts(
        key=jnp.where(here, stated.key[by_time], -1),
        time=jnp.where(here, fact_place[by_time], NEVER),
        person=jnp.where(here, stated.person[by_time], -1),
        first=stated.first[by_time],
        second=stated.second[by_time],
        weight=stated.weight[by_time],
    )
    touch_here = touch_place < world.longest
    touches = Touches(
        key=jnp.where(touch_here, plan.touch_topics, -1),
        time=jnp.where(touch_here, touch_place, NEVER),
    )

    messages = jnp.minimum(jnp.maximum(plan.messages, said), world.longest)
    exists = jnp.arange(world.longest) < messages
    tokens = jnp.where(exists, jnp.maximum(jnp.round(plan.tokens), 8.0), 0.0).astype(jnp.int32)
    embeddings = _embeddings(key, lexicon, facts, touches, exists, world)
    overflow = (jnp.isfinite(times).sum() > here.sum()) | (said > world.longest)
    return Conversation(tokens, messages, embeddings, facts, touches, lexicon, overflow)


def _poisson_cdf(mean: float, size: int) -> np.ndarray:
    """P(N <= n) for n = 0 .. size - 1."""
    log_factorial = np.cumsum(np.log(np.maximum(np.arange(size), 1)))
    if mean == 0.0:
        return np.ones(size)
    return np.cumsum(np.exp(np.arange(size) * math.log(mean) - mean - log_factorial))


def _embeddings(
    key: Array, lexicon: Lexicon, facts: Facts, touches: Touches, exists: Array, world: World
) -> Array:
    """[M, D]: small talk is a random direction, the rest unit(meaning + noise of its wording)."""
    wording = random_signs(key, world.longest, world.dim)
    wording = jnp.where(exists[:, None], wording, 0.0)
    nothing = jnp.zeros_like(touches.key)
    meanings = meaning(
        lexicon,
        jnp.concatenate([facts.first, touches.key]),
        jnp.concatenate([facts.second, nothing]),
        jnp.concatenate([facts.weight, nothing]),
    )
    time = jnp.concatenate([facts.time, touches.time])
    said = unit(meanings + lexicon.noise * wording.at[time].get(mode="fill", fill_value=0.0))
    return wording.at[time].set(said, mode="drop")


def _statements(plan: Plan, world: World) -> tuple[Facts, Array]:
    """All statements [S] with their times in [0, 1), infinite where there is none."""
    tenure = jnp.arange(world.holders) <= plan.successions[:, None]  # [R, H]
    start = jnp.sort(jnp.where(tenure, plan.holder_times, jnp.inf))
    end = jnp.minimum(jnp.pad(start[:, 1:], ((0, 0), (0, 1)), constant_values=1.0), 1.0)
    told = start[..., None] + plan.person_times * (end - jnp.where(tenure, start, 0.0))[..., None]
    version = jnp.arange(world.versions) <= plan.changes[:, None]  # [A, V]
    changed = jnp.sort(jnp.where(version, plan.change_times, jnp.inf))
    times = jnp.concatenate([plan.static_times, changed.ravel(), start.ravel(), told.ravel()])

    changing = jnp.repeat(jnp.arange(world.changing), world.versions) + world.static
    role = jnp.repeat(jnp.arange(world.roles), world.holders) + world.first_role
    person = jnp.arange(world.persons)
    predicate = jnp.tile(jnp.arange(2), world.persons)
    owner = jnp.repeat(person, 2)
    attribute = jnp.concatenate([jnp.arange(world.static), changing])
    none = jnp.zeros_like(attribute)
    facts = Facts(
        key=jnp.concatenate([attribute, role, PERSON + 2 * owner + predicate]),
        time=jnp.zeros(times.size, jnp.int32),
        person=jnp.concatenate([none - 1, person, jnp.full_like(owner, -1)]),
        first=jnp.concatenate([attribute, role, world.topics + owner]),
        second=jnp.concatenate(
            [none, world.topics + person, world.topics + world.persons + predicate]
        ),
        weight=jnp.concatenate(
            [
                jnp.zeros(attribute.size, jnp.float32),
                jnp.ones(role.size, jnp.float32),
                jnp.full(owner.size, world.predicate_weight, jnp.float32),
            ]
        ),
    )
    return facts, times
