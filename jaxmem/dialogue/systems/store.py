"""A store of memories: ADD, UPDATE, DELETE or NOOP for each extracted fact, one after another."""

from typing import Literal, NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from jaxmem.dialogue.reader import Items
from jaxmem.dialogue.systems.extraction import Candidates, Draws, Rates, decide
from jaxmem.dialogue.world import NEVER

Policy = Literal["update", "add_only", "invalidate", "bitemporal"]
"""What becomes of the old value when a new one is stored.

update: it is replaced (mem0 v1: UPDATE, or DELETE and ADD). add_only: it stays (mem0 v3).
invalidate: it is marked as retired and kept (mem0g). bitemporal: as invalidate, but only if both
times are known and in order; a new fact that is older than the stored one is retired itself, and
with a time unknown both stay valid (Graphiti).
"""


class Store(NamedTuple):
    """Memories after a conversation; slot c is for candidate c.

    items: what they say.
    embeddings: [C, D].
    tokens: [C] length of each.
    copies: [C] valid copies, 0 to 2.
    retired: [C] whether a retired version is kept.
    """

    items: Items
    embeddings: Array
    tokens: Array
    copies: Array
    retired: Array


class Events(NamedTuple):
    """What happened while writing, a row a step.

    asked: [S] whether the model was asked what to do with a candidate.
    context_tokens: [S] tokens of as many memories, of mean length, as it would be shown.
    stored: [S] whether the candidate was stored.
    live_tokens: [S] tokens of all valid memories before the step.
    """

    asked: Array
    context_tokens: Array
    stored: Array
    live_tokens: Array


class Schedule(NamedTuple):
    """The order in which candidates are looked at.

    candidate: [S] which.
    again: [S] whether it is a second look, by a consolidation.
    moment: [S] message after which it comes, in order; NEVER for a look that never comes.
    """

    candidate: Array
    again: Array
    moment: Array


def remember(
    candidates: Candidates,
    draws: Draws,
    rates: Rates,
    policy: Policy,
    schedule: Schedule,
    similar: int = 10,
) -> tuple[Store, Events]:
    """Bring candidates into a store one after another.

    A candidate meets the `similar` valid memories nearest to it. If one of them is about the same
    key, the candidate is a change of the nearest such; else it is new. A second look skips what is
    stored or outdated, and clears away duplicates and older values of the key.

    Args:
      candidates: C of them.
      draws: the chances of their judgements.
      rates: how often each judgement is wrong.
      policy: what becomes of old values.
      schedule: S steps.
      similar: memories that the model is shown.

    Returns:
      The store and what happened.
    """
    items, size = candidates.items, candidates.message.size
    likeness = candidates.embeddings @ candidates.embeddings.T  # [C, C]
    keeps = policy in ("invalidate", "bitemporal")
    slots = jnp.arange(size)

    def step(store: tuple[Array, Array], at: Schedule) -> tuple[tuple[Array, Array], Events]:
        copies, retired = store
        c, own = at.candidate, slots == at.candidate
        live = copies > 0
        is_same = live & (items.key == items.key[c])
        live_tokens = jnp.sum(copies * candidates.tokens)
        count = jnp.sum(copies)
        shown_tokens = live_tokens * jnp.minimum(1.0, similar / jnp.maximum(count, 1))

        like = likeness[c]
        likest_same, nearest_same = _likest(like, is_same)
        _, nearest = _likest(like, live)
        closer = jnp.sum(copies * (like > likest_same))
        is_change = is_same.any() & (closer < similar)

        known = (copies[c] > 0) | retired[c]
        dated = items.time[c] >= 0
        ordered = is_same & (items.time >= 0) & dated if policy == "bitemporal" else is_same
        outdated = (ordered & (items.time > items.time[c])).any()
        wanted = jnp.where(
            at.again,
            draws.found[1, c] & ~known & ~outdated,
            candidates.extracted[c],
        )
        happens = at.moment < NEVER
        wanted = wanted & happens
        u = draws.judgement[at.again.astype(jnp.int32), c]
        adds, drops = decide(u, is_change, live.any(), rates)
        if policy == "add_only":
            adds, drops = jnp.bool_(True), jnp.bool_(False)
        adds, drops = adds & wanted, drops & wanted
        old = slots == jnp.where(is_change, nearest_same, nearest)
        expires, dropped = jnp.bool_(False), old & drops
        if policy == "bitemporal":
            # All that is known of the key is contradicted, not only the memory nearest to it.
            met = jnp.where(is_change, is_same, old) & (items.time >= 0) & dated
            expires = drops & adds & (met & (items.time > items.time[c])).any()
            dropped = met & drops & (items.time < items.time[c])

        new_copies = jnp.where(draws.doubled[c] & ~at.again, 2, 1)
        left = 0 if policy == "bitemporal" else copies - 1
        copies = jnp.where(dropped, left, copies)
        stays = adds & ~expires
        copies = jnp.where(own & stays, new_copies, copies)
        if keeps:
            retired = retired | dropped | (own & expires)
        if policy != "add_only":
            clears = at.again & happens & draws.found[1, c] & (copies[c] > 0)
            stale = clears & ordered & (items.time < items.time[c])
            copies = jnp.where(stale, 0, jnp.where(own & clears, 1, copies))
            if keeps:
                retired = retired | stale
        asked = wanted & (policy != "add_only")
        return (copies, retired), Events(asked, shown_tokens, adds, live_tokens)

    empty = jnp.zeros(size, jnp.int32), jnp.zeros(size, bool)
    (copies, retired), events = lax.scan(step, empty, schedule)
    return Store(items, candidates.embeddings, candidates.tokens, copies, retired), events


def _likest(like: Array, mask: Array) -> tuple[Array, Array]:
    """The highest of [C] entries where the mask holds, and the first slot that has it."""
    highest = jnp.max(jnp.where(mask, like, -2.0))
    # Two plain reductions: argmax is not vectorised on a CPU.
    slot = jnp.min(jnp.where(mask & (like == highest), jnp.arange(like.size), like.size))
    return highest, slot


def with_second_looks(
    moment: Array, message: Array, messages: Array, every: int, facts: int
) -> Schedule:
    """Candidates in order, each fact looked at again when its block of messages is complete.

    Args:
      moment: [C] message at which each is looked at first; NEVER if it is not.
      message: [C] message behind it.
      messages: number of messages.
      every: messages of a block.
      facts: candidates below this are statements; made-up ones are not looked at again.

    Returns:
      2 C steps.
    """
    size = message.size
    slots = jnp.arange(size)
    end = (message // every + 1) * every - 1  # the last message before the second look
    end = jnp.where((end < messages) & (slots < facts), end, NEVER)
    moments = jnp.concatenate([moment, end])
    again = jnp.arange(2 * size) >= size
    order = jnp.lexsort((again, moments))
    return Schedule(jnp.tile(slots, 2)[order], again[order], moments[order])
