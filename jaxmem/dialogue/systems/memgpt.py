"""MemGPT: a queue of recent messages, a working context of fixed size, and search in the rest."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike

from jaxmem.common import check_number, check_size
from jaxmem.dialogue.conversation import Conversation
from jaxmem.dialogue.questions import NONE, TWO_HOP, Questions
from jaxmem.dialogue.reader import answer, holders, statements
from jaxmem.dialogue.systems.extraction import (
    LECTURE_RATES,
    Draws,
    Rates,
    check_rates,
    decide,
    draw,
)
from jaxmem.dialogue.systems.retrieval import among, likeness, nearest
from jaxmem.dialogue.systems.store import Schedule, with_second_looks
from jaxmem.dialogue.systems.system import (
    ANSWER_PROMPT,
    CALL_TOKENS,
    CONSOLIDATE_PROMPT,
    ITEM_TOKENS,
    REPLY_TOKENS,
    SUMMARY_PROMPT,
    SUMMARY_TOKENS,
    UPDATE_PROMPT,
    Ledger,
    System,
    ledger,
)
from jaxmem.dialogue.words import embed, unit
from jaxmem.dialogue.world import NEVER

PAGE = 3  # messages a page of search results


class MainContext(NamedTuple):
    """What a MemGPT agent has after a conversation.

    conversation: all messages: recall storage.
    start: first message still in the queue.
    working: [F] which facts are in the working context.
    tokens: tokens of queue, summary and working context.
    """

    conversation: Conversation
    start: Array
    working: Array
    tokens: Array


def memgpt(
    rates: Rates = LECTURE_RATES,
    *,
    queue_tokens: ArrayLike = 6_000,
    evicted_tokens: ArrayLike = 4_000,
    working_entries: ArrayLike = 30,
    pages: int = 3,
    stop_early: ArrayLike = 0.0,
    consolidate_every: int | None = None,
) -> System:
    """A MemGPT agent on an 8k window: it saves facts when their messages leave the queue.

    When a message brings the queue above `queue_tokens`, the oldest are evicted until at least
    `evicted_tokens` are gone; each fact among them is saved by a call (with the recall and the
    errors of a change as in mem0; the oldest entry makes room), and the summary is rewritten. To
    answer, the agent looks at its main context and, while that does not hold an answer, turns the
    pages of searches in recall storage, which holds every message (results are read again even if
    they are still in the queue): by the question, or for two hops by the role and then by the name
    it found. It takes the first answer it can form and does not verify it.

    Args:
      rates: how often the model errs at saving.
      queue_tokens: what the queue holds; a scalar, as all that follow.
      evicted_tokens: how much leaves it at a time.
      working_entries: facts that the working context holds.
      pages: most pages of 3 messages a question.
      stop_early: probability to give up after a page that did not help.
      consolidate_every: messages between two consolidations in the background ("sleep time"),
        which save what the messages since the last one state; None for none.

    Returns:
      The system.

    Raises:
      ValueError: if a number is out of range.

    Source: Packer et al. 2023, arXiv:2310.08560.
    """
    check_rates(rates)
    check_number("queue_tokens", queue_tokens, 8.0, scalar=True)
    check_number("evicted_tokens", evicted_tokens, 1.0, scalar=True)
    check_number("working_entries", working_entries, 0.0, scalar=True)
    check_size("pages", pages, 0)
    check_number("stop_early", stop_early, 0.0, 1.0, scalar=True)
    if consolidate_every is not None:
        check_size("consolidate_every", consolidate_every)

    def write(key: Array, conversation: Conversation) -> tuple[MainContext, Ledger]:
        queue = run_queue(conversation.tokens, queue_tokens, evicted_tokens)
        draws = draw(key, conversation.facts.key.size, 0, rates)
        working, saves = save(conversation, draws, rates, queue, working_entries, consolidate_every)
        is_queued = jnp.arange(conversation.tokens.size) >= queue.start
        summary_tokens = jnp.where(queue.flushes > 0, SUMMARY_TOKENS, 0)
        entry_tokens = ITEM_TOKENS * working.sum()
        tokens = jnp.sum(conversation.tokens * is_queued) + entry_tokens + summary_tokens
        calls: dict[str, tuple[ArrayLike, ArrayLike, ArrayLike]] = {
            # A save is a turn of the agent, which is sent its main context, the queue full.
            "update": (
                saves.calls,
                saves.calls * (UPDATE_PROMPT + queue_tokens) + saves.context_tokens,
                saves.calls * CALL_TOKENS,
            ),
            "summarise": (
                queue.flushes,
                queue.flushes * SUMMARY_PROMPT
                + jnp.maximum(queue.flushes - 1, 0) * SUMMARY_TOKENS  # the summary before it
                + queue.flushed_tokens,
                queue.flushes * SUMMARY_TOKENS,
            ),
        }
        if consolidate_every is not None:
            runs = conversation.messages // consolidate_every
            is_read = jnp.arange(conversation.tokens.size) < runs * consolidate_every
            calls["consolidate"] = (
                runs,
                runs * (CONSOLIDATE_PROMPT + entry_tokens) + jnp.sum(conversation.tokens * is_read),
                runs * CALL_TOKENS + saves.fixes * ITEM_TOKENS,
            )
        return MainContext(conversation, queue.start, working, tokens), ledger(calls)

    def read(key: Array, memory: MainContext, questions: Questions) -> tuple[Array, Ledger]:
        stop_key, role_key, name_key = jax.random.split(key, 3)
        conversation, rows = memory.conversation, questions.key.size
        items, lexicon = statements(conversation), conversation.lexicon
        goes_on = jax.random.uniform(stop_key, (2, pages, rows), jnp.float32) >= stop_early
        main = ((items.time >= memory.start) | memory.working) & (items.key >= 0)
        search = Search(
            shown=jnp.broadcast_to(main, (rows, main.size)),
            tokens=jnp.zeros(rows),
            resent_tokens=jnp.zeros(rows),
            turned=jnp.zeros(rows, jnp.int32),
            going=jnp.ones(rows, bool),
        )

        hops = questions.hops
        asked = jax.tree.map(lambda x: x[hops], questions._replace(hops=jnp.arange(rows)))

        def has_none(search: Search, questions: Questions) -> Array:
            return answer(items, search.shown, questions) == NONE

        def turn(search: Search, page: tuple[Found, Array]) -> tuple[Search, None]:
            holder = holders(items, search.shown, questions)
            is_hop = questions.asks == TWO_HOP
            lacks = jnp.where(is_hop, holder < 0, has_none(search, questions))
            return _turn(search, *page, lacks), None

        def search_by_name(search: Search) -> Search:
            holder = holders(items, search.shown, asked)
            name = lexicon.persons[jnp.maximum(holder, 0)]
            meant = unit(name + lexicon.predicate_weight * lexicon.predicates[asked.predicate])
            scores = likeness(embed(name_key, meant, lexicon), conversation)

            def turn_by_name(search: Search, page: tuple[Found, Array]) -> tuple[Search, None]:
                lacks = (holder >= 0) & has_none(search, asked) & (search.turned < pages)
                return _turn(search, *page, lacks), None

            results = find(scores, conversation, pages), goes_on[1][:, hops]
            return lax.scan(turn_by_name, search, results)[0]

        topic = jnp.clip(asked.key, 0, lexicon.topics.shape[0] - 1)
        by_role = embed(role_key, lexicon.topics, lexicon)[topic]
        scores = likeness(questions.embeddings, conversation)
        scores = scores.at[hops].set(likeness(by_role, conversation))
        search, _ = lax.scan(turn, search, (find(scores, conversation, pages), goes_on[0]))
        if hops.size:
            part = jax.tree.map(lambda x: x[hops], search)
            part = search_by_name(part._replace(going=jnp.ones(hops.size, bool)))
            search = jax.tree.map(lambda x, y: x.at[hops].set(y), search, part)

        prompt = ANSWER_PROMPT + memory.tokens
        calls: dict[str, tuple[ArrayLike, ArrayLike, ArrayLike]] = {
            "search": (
                search.turned,
                search.turned * prompt + search.resent_tokens,
                search.turned * CALL_TOKENS,
            ),
            "answer": (1.0, prompt + search.tokens, REPLY_TOKENS),
        }
        cost = ledger(calls, memory.tokens + search.tokens, memory.tokens, PAGE * search.turned)
        return answer(items, search.shown, questions), cost

    return System(write, read)


class Queue(NamedTuple):
    """What the queue manager has done by the end of a conversation.

    start: first message still in the queue.
    left: [M] the message whose arrival evicted each; NEVER for those still in the queue.
    flushes: evictions.
    flushed_tokens: tokens evicted.
    """

    start: Array
    left: Array
    flushes: Array
    flushed_tokens: Array


def run_queue(tokens: Array, queue_tokens: ArrayLike, evicted_tokens: ArrayLike) -> Queue:
    """Evict the oldest messages, at least `evicted_tokens`, whenever the queue grows too long.

    Args:
      tokens: [M] of each message, in order; 0 beyond the last.
      queue_tokens: what the queue holds; the newest message stays in any case.
      evicted_tokens: how much leaves at a time.

    Returns:
      The queue.
    """
    end = jnp.cumsum(tokens)  # [M] tokens up to and with each message
    place = jnp.arange(tokens.size)

    def over(queue: Queue) -> Array:
        return (end > queue.flushed_tokens + queue_tokens) & (tokens > 0)

    def flush(queue: Queue) -> Queue:
        arrival = jnp.argmax(over(queue) & (place > queue.start)).astype(place.dtype)
        kept = (end - tokens >= queue.flushed_tokens + evicted_tokens) | (place >= arrival)
        start = jnp.argmax(kept).astype(place.dtype)
        left = jnp.where((place >= queue.start) & (place < start), arrival, queue.left)
        gone = end[start] - tokens[start]
        return Queue(start, left, queue.flushes + 1, gone)

    def grows(queue: Queue) -> Array:
        return (over(queue) & (place > queue.start)).any()

    zero = jnp.zeros((), place.dtype)
    start = Queue(zero, jnp.full(tokens.size, NEVER, place.dtype), zero, jnp.zeros((), end.dtype))
    return lax.while_loop(grows, flush, start)


def save(
    conversation: Conversation,
    draws: Draws,
    rates: Rates,
    queue: Queue,
    working_entries: ArrayLike,
    consolidate_every: int | None,
) -> tuple[Array, "Saves"]:
    """Bring facts into the working context as their messages leave the queue.

    Args:
      conversation: what was said.
      draws: the chances of the judgements.
      rates: how often each is wrong.
      queue: when each message left.
      working_entries: facts that the working context holds; the one written longest ago goes.
      consolidate_every: messages between two consolidations, or None.

    Returns:
      (which facts it holds at the end [F], what it took).
    """
    facts = conversation.facts
    size = facts.key.size
    left = jnp.where(
        facts.key >= 0, queue.left[jnp.minimum(facts.time, queue.left.size - 1)], NEVER
    )
    schedule = Schedule(jnp.arange(size), jnp.zeros(size, bool), left)
    if consolidate_every is not None:
        schedule = with_second_looks(
            left, facts.time, conversation.messages, consolidate_every, size
        )

    first_flush = queue.left.min()

    def step(written: Array, at: tuple[Array, Schedule]) -> tuple[Array, Saves]:
        number, (f, again, moment) = at
        second = again.astype(jnp.int32)
        present = written >= 0
        is_same = present & (facts.key == facts.key[f])
        outdated = present[f] | (is_same & (facts.time > facts.time[f])).any()
        wanted = draws.found[second, f] & (moment < NEVER) & ~outdated
        adds, drops = decide(draws.judgement[second, f], is_same.any(), jnp.bool_(False), rates)
        shown = ITEM_TOKENS * present.sum() + jnp.where(moment > first_flush, SUMMARY_TOKENS, 0)
        calls = wanted & ~again
        written = jnp.where(wanted & drops & is_same, -1, written)
        written = jnp.where(wanted & adds & (jnp.arange(size) == f), number, written)
        present = written >= 0
        oldest = jnp.min(jnp.where(present, written, NEVER))
        is_full = present.sum() > working_entries
        written = jnp.where(is_full & (written == oldest), -1, written)
        return written, Saves(calls, calls * shown, wanted & adds & again)

    numbers = jnp.arange(schedule.candidate.size)
    start = jnp.full(size, -1, numbers.dtype)
    written, events = lax.scan(step, start, (numbers, schedule))
    return written >= 0, jax.tree.map(jnp.sum, events)


class Saves(NamedTuple):
    """What saving took.

    calls: by the agent.
    context_tokens: of the working context and the summary in the prompts of these calls.
    fixes: facts saved by consolidations.
    """

    calls: Array
    context_tokens: Array
    fixes: Array


class Search(NamedTuple):
    """A search under way, a row a question.

    shown: [Q, F] facts that the agent has before it.
    tokens: [Q] of the results so far.
    resent_tokens: [Q] of results in the prompts of the search calls so far.
    turned: [Q] pages.
    going: [Q] whether the agent has not given up.
    """

    shown: Array
    tokens: Array
    resent_tokens: Array
    turned: Array
    going: Array


class Found(NamedTuple):
    """Pages of search results.

    facts: [pages, Q, F] facts stated on each page.
    tokens: [pages, Q].
    """

    facts: Array
    tokens: Array


def find(scores: Array, conversation: Conversation, pages: int) -> Found:
    """The messages most like a query, by pages of 3.

    Args:
      scores: [Q, M] from `likeness`.
      conversation: where to search.
      pages: how many.

    Returns:
      The pages.
    """
    rows, size = scores.shape
    best = nearest(scores, PAGE * pages)
    best = jnp.pad(best, ((0, 0), (0, PAGE * pages - best.shape[1])), constant_values=size)
    best = best.reshape(rows, pages, PAGE).transpose(1, 0, 2)
    stated = jax.vmap(among, (0, None))(best, conversation.facts.time)  # [pages, Q, F]
    tokens = conversation.tokens.at[best].get(mode="fill", fill_value=0).sum(-1)
    return Found(stated, tokens)


def _turn(search: Search, page: Found, goes_on: Array, lacks: Array) -> Search:
    """Turn a page where an answer lacks."""
    turns = search.going & lacks
    return Search(
        shown=search.shown | (turns[:, None] & page.facts),
        tokens=search.tokens + turns * page.tokens,
        resent_tokens=search.resent_tokens + turns * search.tokens,
        turned=search.turned + turns,
        going=search.going & (~turns | goes_on),
    )
