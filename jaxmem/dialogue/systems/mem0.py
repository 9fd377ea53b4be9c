"""mem0 and its graph: facts extracted pair by pair, kept consistent, found by likeness."""

from typing import get_args

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxmem.common import check_flag, check_size, choice
from jaxmem.dialogue.conversation import Conversation
from jaxmem.dialogue.questions import BEFORE, Questions
from jaxmem.dialogue.reader import answer
from jaxmem.dialogue.systems.extraction import (
    LECTURE_RATES,
    Candidates,
    Rates,
    check_rates,
    draw,
    extract,
    is_zero,
)
from jaxmem.dialogue.systems.retrieval import ABSENT, among, nearest
from jaxmem.dialogue.systems.store import (
    Events,
    Policy,
    Schedule,
    Store,
    remember,
    with_second_looks,
)
from jaxmem.dialogue.systems.system import (
    CALL_TOKENS,
    CONSOLIDATE_PROMPT,
    EXTRACT_PROMPT,
    ITEM_TOKENS,
    UPDATE_PROMPT,
    Ledger,
    System,
    ledger,
    one_answer,
)
from jaxmem.dialogue.world import NEVER, PERSON

RECENT = 10  # messages before the pair that extraction is shown


def mem0(
    rates: Rates = LECTURE_RATES,
    policy: Policy = "update",
    count: int = 10,
    *,
    similar: int = 10,
    consolidate_every: int | None = None,
) -> System:
    """mem0: a call to extract from each pair of messages, one to file each fact that was found.

    Questions are answered from the `count` valid memories most like them.

    Args:
      rates: how often the model errs.
      policy: what becomes of old values: "update" (mem0 v1) or "add_only" (v3, which asks nothing
        at filing); the others as in `mem0g`.
      count: memories a question.
      similar: memories that filing is shown.
      consolidate_every: messages between two consolidations in the background ("sleep time"): each
        rereads the messages since the last one and the store, adds what was missed, clears away
        what is outdated or double; None for none.

    Returns:
      The system.

    Raises:
      ValueError: if the policy is unknown or a number is out of range.

    Source: Chhikara et al. 2025, arXiv:2504.19413.
    """
    return mem0g(
        rates, policy, count, hop=False, history=0, similar=similar,
        consolidate_every=consolidate_every,
    )  # fmt: skip


def mem0g(
    rates: Rates = LECTURE_RATES,
    policy: Policy = "invalidate",
    count: int = 10,
    *,
    hop: bool = True,
    history: int = 3,
    rank_retired: bool = False,
    similar: int = 10,
    consolidate_every: int | None = None,
) -> System:
    """mem0's graph: old values are retired and kept, and persons lead to what is known of them.

    Questions are answered from the `count` valid memories most like them; questions about the past
    bring the newest retired versions of each key found; with a hop, each person whom a retrieved
    memory names brings what is known of that person.

    Args:
      rates: how often the model errs.
      policy: what becomes of old values. "update": they are replaced. "add_only": they stay.
        "invalidate": they are retired and kept. "bitemporal" (Graphiti): as "invalidate", but only
        if both times are known and in order; a new fact older than the stored one is retired
        itself, and with a time unknown both stay valid.
      count: memories a question.
      hop: whether retrieved persons are expanded.
      history: retired versions a key, for questions about the past.
      rank_retired: whether retired versions compete with valid ones for the `count` places: they
        crowd them out as a conversation grows.
      similar: memories that filing is shown.
      consolidate_every: as in `mem0`.

    Returns:
      The system.

    Raises:
      ValueError: if the policy is unknown or a number is out of range.

    Source: Chhikara et al. 2025, arXiv:2504.19413, section 2.2.
    """
    check_rates(rates)
    policy = choice(get_args(Policy), policy, "policy")
    check_size("count", count)
    check_flag("hop", hop)
    check_flag("rank_retired", rank_retired)
    check_size("similar", similar)
    check_size("history", history, 0)
    if consolidate_every is not None:
        check_size("consolidate_every", consolidate_every)

    def write(key: Array, conversation: Conversation) -> tuple[Store, Ledger]:
        extract_key, file_key = jax.random.split(key)
        candidates = extract(extract_key, conversation, rates)
        schedule = plan(candidates, conversation, consolidate_every)
        facts = conversation.facts.key.size
        draws = draw(file_key, facts, candidates.message.size - facts, rates)
        store, events = remember(candidates, draws, rates, policy, schedule, similar)
        cost = _cost(
            conversation, candidates, store, events, schedule, policy, similar, consolidate_every
        )
        return store, cost

    def read(key: Array, memory: Store, questions: Questions) -> tuple[Array, Ledger]:
        del key
        items, size = memory.items, memory.copies.size
        scores = questions.embeddings @ memory.embeddings.T  # [Q, C]
        ranked = memory.copies + jnp.where(rank_retired, memory.retired, 0)
        # A memory with two copies takes two of the places.
        most = 1 if is_zero(rates.duplicate) else 2
        copies = [jnp.where(ranked > i, scores, ABSENT) for i in range(most)]
        best = nearest(jnp.concatenate(copies, axis=1), count)
        taken = [among(best, jnp.arange(size) + i * size) for i in range(most)]
        visible, number = jnp.any(jnp.array(taken), 0), jnp.sum(jnp.array(taken, jnp.float32), 0)

        shown = visible
        if history:
            about_past = (questions.asks == BEFORE) | (questions.time < NEVER)
            past = _newest_retired(memory, history)
            same = items.key[:, None] == items.key
            brought = ((visible.astype(jnp.float32) @ same) > 0) & past & about_past[:, None]
            shown = shown | brought
        if hop:
            person = PERSON + 2 * items.person  # [C] the first of its keys
            known = (items.key >= person[:, None]) & (items.key < person[:, None] + 2)
            theirs = known & (items.person >= 0)[:, None]
            valid = (memory.copies > 0) & (items.key >= 0)
            brought = ((visible.astype(jnp.float32) @ theirs) > 0) & valid
            shown = shown | brought
        number = jnp.maximum(number, shown)
        read_tokens = number @ memory.tokens
        return answer(items, shown, questions), one_answer(read_tokens, 0.0, number.sum(1))

    return System(write, read)


def plan(
    candidates: Candidates, conversation: Conversation, consolidate_every: int | None
) -> Schedule:
    """The order of a conversation's candidates, with second looks where there are any.

    Args:
      candidates: C of them, the facts in order of time.
      conversation: they are from.
      consolidate_every: messages between two consolidations, or None.

    Returns:
      C steps, or 2 C.
    """
    size, facts = candidates.message.size, conversation.facts.key.size
    slots = jnp.arange(size)
    if consolidate_every is None:
        order = slots if size == facts else jnp.argsort(candidates.message)
        return Schedule(order, jnp.zeros(size, bool), candidates.message[order])
    return with_second_looks(
        candidates.message, candidates.message, conversation.messages, consolidate_every, facts
    )


def _newest_retired(store: Store, history: int) -> Array:
    """[C] whether a retired version is among the newest of its key."""
    items = store.items
    newer = (items.time > items.time[:, None]) | (
        (items.time == items.time[:, None])
        & (jnp.arange(items.time.size) > jnp.arange(items.time.size)[:, None])
    )
    same = store.retired & (items.key == items.key[:, None])
    return store.retired & ((same & newer).sum(1) < history)


def _cost(
    conversation: Conversation,
    candidates: Candidates,
    store: Store,
    events: Events,
    schedule: Schedule,
    policy: Policy,
    similar: int,
    consolidate_every: int | None,
) -> Ledger:
    """The ledger of writing."""
    size = conversation.tokens.size
    total = jnp.concatenate([jnp.zeros(1), jnp.cumsum(conversation.tokens.astype(jnp.float32))])
    live_tokens = jnp.append(events.live_tokens, jnp.sum(store.copies * store.tokens))
    share = jnp.minimum(1.0, similar / jnp.maximum(store.copies.sum(), 1))
    context_tokens = jnp.append(events.context_tokens, live_tokens[-1] * share)

    pair = jnp.arange(0, size, 2)
    exists = pair < conversation.messages
    prompts = total[jnp.minimum(pair + 2, size)] - total[jnp.maximum(pair - RECENT, 0)]
    if policy == "add_only":  # mem0 v3 shows similar memories here, as there is no other call
        prompts = prompts + context_tokens[(schedule.moment < pair[:, None]).sum(1)]
    found = candidates.extracted.sum()
    calls: dict[str, tuple[ArrayLike, ArrayLike, ArrayLike]] = {
        "extract": (
            exists.sum(),
            jnp.sum(exists * (EXTRACT_PROMPT + prompts)),
            CALL_TOKENS * exists.sum() + ITEM_TOKENS * found,
        )
    }
    first = events.asked & ~schedule.again
    calls["update"] = (
        first.sum(),
        jnp.sum(first * (UPDATE_PROMPT + events.context_tokens)),
        CALL_TOKENS * first.sum(),
    )
    if consolidate_every is not None:
        end = jnp.arange(consolidate_every, size + 1, consolidate_every)
        runs = end <= conversation.messages
        transcript = total[end] - total[end - consolidate_every]
        last = (end - 1)[:, None]
        before = (schedule.moment < last) | ((schedule.moment == last) & ~schedule.again)
        fixed = (events.stored & schedule.again).sum()
        calls["consolidate"] = (
            runs.sum(),
            jnp.sum(runs * (CONSOLIDATE_PROMPT + transcript + live_tokens[before.sum(1)])),
            CALL_TOKENS * runs.sum() + ITEM_TOKENS * fixed,
        )
    return ledger(calls)
