"""A session of MemGPT: the prompts that its queue manager makes, and what a cache can reuse."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxmem.common import check_size, is_given
from jaxmem.sessions.layouts import LAYOUTS, Tokens, charge
from jaxmem.sessions.presets import LECTURE, MOST_SAVES, PRESETS, Settings
from jaxmem.sessions.queue_manager import Draws, Queue, Rules, empty_queue, play, rules_of

__all__ = [
    "LAYOUTS",
    "LECTURE",
    "MOST_SAVES",
    "PRESETS",
    "Draws",
    "Session",
    "Settings",
    "Trace",
    "draws",
    "memgpt",
    "memgpt_sessions",
    "simulate",
    "trace",
]

SHORTEST_MESSAGE = 8  # tokens


class Session(NamedTuple):
    """Totals of a session (int32), those of the layouts by `LAYOUTS`.

    calls: of the agent's model; the summariser's are `evictions` more.
    searches: of recall storage.
    warnings: of memory pressure.
    evictions: flushes of the queue.
    facts: in the user's messages.
    saved_at_once: facts saved in the round in which they came.
    saved_at_warnings: facts saved after a warning.
    lost: facts whose message was evicted before they were saved, if the agent forgets.
    overflows: calls whose prompt was larger than the window.
    prompt_tokens: [4] in the prompts of all calls.
    new_tokens: [4] of those, what came into being since the call before.
    memory_tokens: [4] recomputed because the working context changed or stood in between.
    eviction_tokens: [4] recomputed because messages were evicted and summarised.
    summariser_tokens: read by the summariser: evicted messages and the summary before.
    working_tokens: of the working context with all its edits, in the prompts of all calls.
    output_tokens: written by the agent: replies and edit records.
    """

    calls: Array
    searches: Array
    warnings: Array
    evictions: Array
    facts: Array
    saved_at_once: Array
    saved_at_warnings: Array
    lost: Array
    overflows: Array
    prompt_tokens: Array
    new_tokens: Array
    memory_tokens: Array
    eviction_tokens: Array
    summariser_tokens: Array
    working_tokens: Array
    output_tokens: Array

    @property
    def edits(self) -> Array:
        """Edits of the working context, a call each."""
        return self.saved_at_once + self.saved_at_warnings

    @property
    def prefill_tokens(self) -> Array:
        """[..., 4] tokens that are computed in spite of the cache."""
        return self.new_tokens + self.memory_tokens + self.eviction_tokens

    @property
    def saved(self) -> Array:
        """[..., 4] share of the prompt tokens that the cache saves."""
        return 1 - self.prefill_tokens / self.prompt_tokens

    @property
    def context_tokens(self) -> Array:
        """[..., 4] mean prompt of a call."""
        return self.prompt_tokens / self.calls[..., None]


class Trace(NamedTuple):
    """A session call by call, in C = MOST_SAVES + 3 slots a round, of which some are empty.

    The slots are the saves that a warning causes, the first call of the round, the one that reads
    the results of a search, the one after a fact was saved at once.

    made: bool [R, C] whether there was such a call.
    evicted: bool [R, C] whether messages were evicted before it.
    prompt_tokens, new_tokens, memory_tokens, eviction_tokens: int32 [R, C, 4] as in `Session`,
      to be read where `made`.
    """

    made: Array
    evicted: Array
    prompt_tokens: Array
    new_tokens: Array
    memory_tokens: Array
    eviction_tokens: Array


def memgpt(key: Array, settings: Settings = LECTURE, rounds: int = 600) -> Session:
    """A session of an agent with MemGPT's virtual context, and what its prompts cost.

    prompt = system | working context | recursive summary | queue

    A round: a user message joins the queue; the pressure warning, if due, joins too and makes the
    model save the oldest pending facts, a call each; the model is called, and once more after a
    search and after saving a fact at once; its reply joins. Before the first call of a round (any,
    with `flush_any_call`), if the prompt has reached the flush threshold, the oldest messages
    leave, whole, until enough tokens are gone; two stay, and the summary is written anew. A
    pending fact outlives its message, in the summary, unless the agent `forgets`. Thresholds count
    the working context with all its edits, so that every layout sees the same events.

    A prefix cache keeps everything, token by token: a call computes what follows the longest
    common prefix with the call before. Of that, `new` came into being since then; the rest is
    charged to the first break in the order of the prompt: to the working context (what stands
    there is an entry, or in the layout `last` its place) or to the eviction (the summary).
    Replies are new when they are first sent.

    Args:
      key: PRNG key.
      settings: sizes, habits and thresholds, scalars.
      rounds: R, static.

    Returns:
      The totals, scalars and [4] by `LAYOUTS`.

    Raises:
      ValueError: if `rounds` is no size, or the totals would not fit 32 bits.

    Source: Packer et al. 2023, arXiv:2310.08560, section 2.
    """
    return simulate(draws(key, settings, rounds), settings)


def memgpt_sessions(keys: Array, settings: Settings = LECTURE, rounds: int = 600) -> Session:
    """Many sessions; settings with a leading axis are crossed with the keys.

    One compiled program serves all settings of one shape.

    Args:
      keys: [N] PRNG keys.
      settings: scalars, or fields [S] and scalars.
      rounds: R.

    Returns:
      The totals, [N] and [N, 4], or [S, N] and [S, N, 4].

    Raises:
      ValueError: as `memgpt`; if keys or settings have more axes.
    """
    if jnp.ndim(keys) != 1 or not jnp.issubdtype(keys.dtype, jax.dtypes.prng_key):
        raise ValueError(f"expected typed keys [N], got {keys.dtype}{list(keys.shape)}")
    _check_rounds(rounds, settings)
    leaves, structure = jax.tree.flatten(settings)
    shape = np.broadcast_shapes(*(np.shape(leaf) for leaf in leaves))
    if len(shape) > 1:
        raise ValueError(f"expected settings of scalars or one axis, got shape {shape}")
    numbers = [jnp.broadcast_to(jnp.asarray(leaf, jnp.float32), shape) for leaf in leaves]
    return _sessions(keys, jax.tree.unflatten(structure, numbers), rounds)


def trace(key: Array, settings: Settings = LECTURE, rounds: int = 600) -> Trace:
    """The session that `memgpt` sums up, call by call.

    Args:
      key: PRNG key.
      settings: scalars.
      rounds: R, static.

    Returns:
      The calls, [R, C] and [R, C, 4].

    Raises:
      ValueError: as `memgpt`.
    """
    _check_rounds(rounds, settings)
    return _simulate(draws(key, settings, rounds), settings, tracing=True)[1]


def draws(key: Array, settings: Settings = LECTURE, rounds: int = 600) -> Draws:
    """What chance decides in a session, before it is run.

    Args:
      key: PRNG key.
      settings: scalars.
      rounds: R, static.

    Returns:
      The draws, [R].

    Raises:
      ValueError: as `memgpt`.
    """
    rounds = _check_rounds(rounds, settings)
    key_user, key_reply, key_search, key_fact, key_place = jax.random.split(key, 5)

    def tokens(key: Array) -> Array:
        normal = jax.random.normal(key, (rounds,), jnp.float32)
        length = jnp.round(settings.message_tokens + settings.message_sd * normal)
        return jnp.maximum(length, SHORTEST_MESSAGE).astype(jnp.int32)

    def uniform(key: Array) -> Array:
        return jax.random.uniform(key, (rounds,), jnp.float32)

    fact = uniform(key_fact)
    return Draws(
        user_tokens=tokens(key_user),
        reply_tokens=tokens(key_reply),
        searches=uniform(key_search) < settings.search_share,
        has_fact=fact < settings.fact_share,
        saves=fact < settings.fact_share * jnp.asarray(settings.saved_at_once),
        places=_digits(jax.random.bits(key_place, (rounds,), jnp.uint32), rules_of(settings).room),
    )


def _digits(bits: Array, base: Array) -> Array:
    """The first digits of bits / 2^32 in a base below 2^16: one random word gives them all."""
    base, digits = base.astype(jnp.uint32), []
    for _ in range(MOST_SAVES + 1):
        high = (bits >> 16) * base + ((bits & 0xFFFF) * base >> 16)  # of the product, >> 16
        digits.append((high >> 16).astype(jnp.int32))
        bits = bits * base
    return jnp.stack(digits, axis=-1)


def simulate(draws: Draws, settings: Settings = LECTURE) -> Session:
    """A session from given draws: the same conversation under other thresholds, say.

    Args:
      draws: of R rounds, fields [R].
      settings: scalars; shares and message sizes are not read.

    Returns:
      As `memgpt`.

    Raises:
      ValueError: as `memgpt`.
    """
    _check_rounds(draws.searches.shape[-1], settings)
    return _simulate(draws, settings, tracing=False)[0]


@partial(jax.jit, static_argnums=2)
def _sessions(keys: Array, settings: Settings, rounds: int) -> Session:
    run = jax.vmap(partial(memgpt, rounds=rounds), (0, None))
    return (jax.vmap(run, (None, 0)) if jnp.ndim(settings.window_tokens) else run)(keys, settings)


class _Events(NamedTuple):
    """Counts so far that the carried state does not hold."""

    warnings: Array
    saved_at_warnings: Array
    lost: Array
    overflows: Array
    summariser: Array
    working: Array


class _State(NamedTuple):
    """A session after some rounds.

    queue: of the queue manager.
    merged: edits before the last eviction.
    changed: first entry changed since then; the first to come if none.
    events, tokens: sums.
    """

    queue: Queue
    merged: Array
    changed: Array
    events: _Events
    tokens: Tokens


def _simulate(draws: Draws, settings: Settings, tracing: bool) -> tuple[Session, Any]:
    rules = rules_of(settings)
    rounds = draws.searches.shape[0]
    zero = jnp.zeros((), jnp.int32)
    none = (zero,) * len(LAYOUTS)
    head = rules.system + rules.memory  # new at the first call, which `last` must not charge twice
    start = Tokens(none, (head,) * len(LAYOUTS), (zero, -rules.memory, zero, zero), none)
    state = _State(empty_queue(rounds), zero, zero, _Events(*(zero,) * 6), start)
    unsaved_by = jnp.cumsum(draws.has_fact & ~draws.saves, dtype=jnp.int32)  # [R]
    step = partial(_round, rules, draws, unsaved_by, tracing)
    state, calls = lax.scan(step, state, (jnp.arange(rounds, dtype=jnp.int32), draws))

    searches, at_once, facts = (
        jnp.sum(x, dtype=jnp.int32) for x in (draws.searches, draws.saves, draws.has_fact)
    )
    events, tokens, edits = state.events, state.tokens, state.queue.edits
    session = Session(
        calls=rounds + searches + edits,
        searches=searches,
        warnings=events.warnings,
        evictions=state.queue.evictions,
        facts=facts,
        saved_at_once=at_once,
        saved_at_warnings=events.saved_at_warnings,
        lost=events.lost,
        overflows=events.overflows,
        prompt_tokens=jnp.stack(tokens.prompt),
        new_tokens=jnp.stack(tokens.new),
        memory_tokens=jnp.stack(tokens.memory),
        eviction_tokens=jnp.stack(tokens.eviction),
        summariser_tokens=events.summariser,
        working_tokens=events.working,
        output_tokens=jnp.sum(draws.reply_tokens, dtype=jnp.int32) + rules.edit * edits,
    )
    return session, _first_call_in_full(calls, head, rules.memory) if tracing else None


def _round(
    rules: Rules,
    draws: Draws,
    unsaved_by: Array,
    tracing: bool,
    state: _State,
    turn: tuple[Array, Draws],
) -> tuple[_State, Any]:
    """Play a round, and charge each of its calls in every layout."""
    queue, now = play(rules, draws, unsaved_by, state.queue, *turn)
    tokens, merged, changed = state.tokens, state.merged, state.changed
    overflows, working, traced = state.events.overflows, state.events.working, []
    for slot, call in enumerate(now.calls):
        evicted = now.evicts & (now.slot == slot)
        after = now.evicts & (now.slot <= slot)
        summary = jnp.where(after, rules.summary, now.summary_before)
        held = call.joined - jnp.where(after, now.left, now.left_before)
        changed = jnp.where(call.made & call.edited, jnp.minimum(changed, call.place), changed)
        spent = charge(rules, call, evicted, summary, held, merged, changed)
        merged = jnp.where(evicted, call.edits, merged)
        changed = jnp.where(evicted, jnp.minimum(merged, rules.room), changed)
        overflows += call.made & (spent.prompt[0] > rules.window)
        working += jnp.where(call.made, rules.working(call.edits), 0)
        tokens = jax.tree.map(partial(_add_where, call.made), tokens, spent)
        traced.append(Trace(call.made, evicted, *map(jnp.stack, spent)))

    removed = jnp.where(now.evicts, now.left - now.left_before + now.summary_before, 0)
    events = _Events(
        warnings=state.events.warnings + now.warns,
        saved_at_warnings=state.events.saved_at_warnings + now.at_warning,
        lost=state.events.lost + now.lost,
        overflows=overflows,
        summariser=state.events.summariser + removed,
        working=working,
    )
    state = _State(queue, merged, changed, events, tokens)
    return state, jax.tree.map(lambda *x: jnp.stack(x), *traced) if tracing else None


def _add_where(made: Array, total: Array, tokens: Array) -> Array:
    return total + jnp.where(made, tokens, 0)


def _first_call_in_full(calls: Trace, head: Array, memory: Array) -> Trace:
    """The trace with the system prompt and the working context new at the first call."""
    first = jnp.argmax(calls.made[0])
    again = jnp.array([0, 1, 0, 0]) * memory
    return calls._replace(
        new_tokens=calls.new_tokens.at[0, first].add(head),
        memory_tokens=calls.memory_tokens.at[0, first].add(-again),
    )


def _check_rounds(rounds: int, settings: Settings) -> int:
    """The number of rounds, if the sums of three calls a round fit 32 bits."""
    rounds = check_size("rounds", rounds)
    s = settings
    messages = (s.message_tokens, s.message_sd, s.search_tokens, s.warning_tokens, s.edit_tokens)
    if all(map(is_given, (s.window_tokens, *messages))):
        mean, sd, search, warning, edit = (float(np.max(x)) for x in messages)
        joins = 2 * (mean + 6 * sd) + search + warning + (MOST_SAVES + 1) * edit
        most = int(2**31 / 3 / (float(np.max(s.window_tokens)) + joins))
        if rounds > most:
            raise ValueError(f"rounds must be at most {most} with sizes like these, got {rounds}")
    return rounds
