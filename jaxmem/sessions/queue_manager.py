"""MemGPT's queue manager: what joins the queue in a round, who warns, and what is evicted."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from jaxmem.sessions.presets import MOST_SAVES, Settings

_NEVER = 2**30  # more tokens than a session has


class Draws(NamedTuple):
    """What chance decides in a session of R rounds. The first rounds of a longer one are the same.

    user_tokens: int32 [R].
    reply_tokens: int32 [R].
    searches: bool [R], the model searches recall storage.
    has_fact: bool [R], the user message holds a fact.
    saves: bool [R], which is saved at once.
    places: int32 [R, MOST_SAVES + 1] entries replaced when the working context is full, by the
      edits that a warning causes and, last, by the one at once.
    """

    user_tokens: Array
    reply_tokens: Array
    searches: Array
    has_fact: Array
    saves: Array
    places: Array


class Rules(NamedTuple):
    """Settings in whole tokens, int32 scalars.

    window, system, memory, entry, edit, warning, search, summary, note: sizes.
    room: entries that the working context has room for.
    saves: most facts saved at a warning.
    warn_at, flush_at: prompts at which the warning comes and messages leave.
    flush_any_call: whether any call may cause it, or the first of a round only.
    forgets: whether a pending fact is lost with its message.
    evicted, evicted_of_queue, kept_queue, kept: how much leaves (`Settings`).
    """

    window: Array
    system: Array
    memory: Array
    entry: Array
    room: Array
    edit: Array
    warning: Array
    search: Array
    summary: Array
    note: Array
    saves: Array
    warn_at: Array
    flush_at: Array
    flush_any_call: Array
    forgets: Array
    evicted: Array
    evicted_of_queue: Array
    kept_queue: Array
    kept: Array

    def working(self, edits: Array) -> Array:
        """Tokens of the working context.

        Args:
          edits: so far, any shape.

        Returns:
          Tokens, of the same shape.
        """
        return self.memory + self.entry * jnp.minimum(edits, self.room)


def _whole(tokens: Array) -> Array:
    return jnp.round(jnp.minimum(tokens, _NEVER)).astype(jnp.int32)


def rules_of(settings: Settings) -> Rules:
    """Settings in whole tokens.

    Args:
      settings: scalars.

    Returns:
      The rules.
    """
    s = jax.tree.map(partial(jnp.asarray, dtype=jnp.float32), settings)
    growth = s.memory_limit_tokens - s.memory_tokens
    return Rules(
        window=_whole(s.window_tokens),
        system=_whole(s.system_tokens),
        memory=_whole(s.memory_tokens),
        entry=_whole(s.entry_tokens),
        room=jnp.floor(growth / s.entry_tokens).astype(jnp.int32),
        edit=_whole(s.edit_tokens),
        warning=_whole(s.warning_tokens),
        search=_whole(s.search_tokens),
        summary=_whole(s.summary_tokens),
        note=_whole(s.note_tokens),
        saves=_whole(s.saves_a_warning),
        warn_at=_whole(s.warn_share * s.window_tokens),
        flush_at=_whole(s.flush_share * s.window_tokens),
        flush_any_call=s.flush_any_call > 0.5,
        forgets=s.forgets > 0.5,
        evicted=_whole(s.evicted_share * s.window_tokens),
        evicted_of_queue=s.evicted_of_queue,
        kept_queue=_whole(s.kept_queue_tokens),
        kept=_whole(s.kept_share * s.window_tokens),
    )


class Queue(NamedTuple):
    """The queue after some rounds; a place in it is the number of tokens that joined before, ever.

    joined: tokens that have joined.
    left: of those, evicted.
    sent: of those that joined, seen by the last call.
    reply: tokens of the last reply.
    ends: [R] `joined` after each round.
    warned: whether the warning has come since the last eviction.
    handled: facts no longer pending, saved or lost.
    edits: of the working context.
    evictions: so far.
    """

    joined: Array
    left: Array
    sent: Array
    reply: Array
    ends: Array
    warned: Array
    handled: Array
    edits: Array
    evictions: Array


class Call(NamedTuple):
    """A slot for a call of the model, before anything is evicted.

    made: whether there is a call.
    joined: tokens that have joined the queue.
    fresh: those since the call before.
    newest: the last two messages together.
    edited: whether the call before edited the working context.
    place: the entry that it changed.
    edits: so far.
    """

    made: Array
    joined: Array
    fresh: Array
    newest: Array
    edited: Array
    place: Array
    edits: Array


class Round(NamedTuple):
    """What happens in a round.

    calls: its slots.
    warns: whether the pressure warning comes.
    at_warning: facts saved then.
    evicts: whether messages leave.
    slot: before which call they do.
    left_before, left: tokens that have left, before and after it.
    summary_before: tokens of the summary before it.
    lost: facts lost by it.
    """

    calls: list[Call]
    warns: Array
    at_warning: Array
    evicts: Array
    slot: Array
    left_before: Array
    left: Array
    summary_before: Array
    lost: Array


def empty_queue(rounds: int) -> Queue:
    """The queue before the first round.

    Args:
      rounds: R.

    Returns:
      It, scalars and [R].
    """
    zero = jnp.zeros((), jnp.int32)
    return Queue(
        *(zero,) * 4,
        ends=jnp.full(rounds, _NEVER, jnp.int32),
        warned=jnp.zeros((), bool),
        handled=zero,
        edits=zero,
        evictions=zero,
    )


def play(
    rules: Rules, draws: Draws, unsaved_by: Array, queue: Queue, number: Array, drawn: Draws
) -> tuple[Queue, Round]:
    """A round: what joins does not depend on what leaves, so that comes first.

    Args:
      rules: settings in tokens.
      draws: of all rounds, [R].
      unsaved_by: [R] facts not saved at once, up to and with each round.
      queue: before the round.
      number: of the round, scalar.
      drawn: its own draws, scalars and [MOST_SAVES + 1].

    Returns:
      The queue after it, and what happened.
    """
    summary = jnp.where(queue.evictions > 0, rules.summary, 0)
    base = rules.system + summary - queue.left  # of a prompt, before an eviction
    prompt = base + rules.working(queue.edits) + queue.joined + drawn.user_tokens
    warns = ~queue.warned & (prompt >= rules.warn_at)
    pending = jnp.where(number > 0, unsaved_by[number - 1], 0) - queue.handled
    at_warning = jnp.where(warns, jnp.minimum(pending, rules.saves), 0)
    handled = queue.handled + at_warning

    calls = _calls(rules, queue, drawn, warns, at_warning)
    last = calls[-1]
    joined = last.joined + drawn.reply_tokens
    ends = lax.dynamic_update_index_in_dim(queue.ends, joined, number, 0)

    slot, enough = _enough(rules, queue, calls, base)
    evicts = enough > queue.left
    tail = jnp.minimum(jnp.searchsorted(ends, enough).astype(jnp.int32), number)
    end = _message_end(rules, draws, ends, tail, enough)
    left = jnp.where(evicts, end, queue.left)
    lost = jnp.where(evicts & rules.forgets, jnp.maximum(unsaved_by[tail] - handled, 0), 0)

    happened = Round(calls, warns, at_warning, evicts, slot, queue.left, left, summary, lost)
    after = Queue(
        joined=joined,
        left=left,
        sent=last.joined,
        reply=drawn.reply_tokens,
        ends=ends,
        warned=(queue.warned | warns) & ~evicts,
        handled=handled + lost,
        edits=last.edits,
        evictions=queue.evictions + evicts,
    )
    return after, happened


def _calls(rules: Rules, queue: Queue, drawn: Draws, warns: Array, at_warning: Array) -> list[Call]:
    """The slots of a round; what joins the queue does not depend on what is evicted from it."""
    joined = queue.joined + drawn.user_tokens + jnp.where(warns, rules.warning, 0)
    newest = jnp.where(warns, rules.warning, drawn.user_tokens)
    second = jnp.where(warns, drawn.user_tokens, queue.reply)
    no, zero = jnp.zeros((), bool), jnp.zeros((), jnp.int32)
    edited, place, edits, fresh = no, zero, queue.edits, joined - queue.sent
    calls = []
    for save in range(MOST_SAVES):  # a record joins after each call
        made = save < at_warning
        calls.append(Call(made, joined, fresh, newest + second, edited, place, edits))
        joined = jnp.where(made, joined + rules.edit, joined)
        fresh = jnp.where(made, rules.edit, fresh)
        second = jnp.where(made, newest, second)
        newest = jnp.where(made, rules.edit, newest)
        written = jnp.where(edits < rules.room, edits, drawn.places[save])
        place = jnp.where(made, written, place)
        edited, edits = edited | made, edits + made
    calls.append(Call(~no, joined, fresh, newest + second, edited, place, edits))

    joined = joined + jnp.where(drawn.searches, rules.search, 0)
    second = jnp.where(drawn.searches, newest, second)
    newest = jnp.where(drawn.searches, rules.search, newest)
    calls.append(Call(drawn.searches, joined, rules.search, newest + second, no, zero, edits))

    joined = joined + jnp.where(drawn.saves, rules.edit, 0)
    place = jnp.where(edits < rules.room, edits, drawn.places[-1])
    edits, newest = edits + drawn.saves, rules.edit + newest
    calls.append(Call(drawn.saves, joined, rules.edit, newest, drawn.saves, place, edits))
    return calls


def _enough(rules: Rules, queue: Queue, calls: list[Call], base: Array) -> tuple[Array, Array]:
    """Before which call messages leave, and the place that the last of them must reach."""
    due, zero = jnp.zeros((), bool), jnp.zeros((), jnp.int32)
    slot, prompt, joined, newest = zero, zero, queue.left, zero
    looks = ~due
    for at, call in enumerate(calls):  # the first over the threshold with more than two messages
        size = base + rules.working(call.edits) + call.joined
        more = call.joined - call.newest > queue.left
        over = ~due & looks & call.made & more & (size >= rules.flush_at)
        looks = jnp.where(call.made, rules.flush_any_call, looks)
        slot = jnp.where(over, at, slot)
        prompt = jnp.where(over, size, prompt)
        joined = jnp.where(over, call.joined, joined)
        newest = jnp.where(over, call.newest, newest)
        due |= over
    held = joined - queue.left
    of_queue = jnp.round(rules.evicted_of_queue * held.astype(jnp.float32)).astype(jnp.int32)
    evicted = jnp.maximum(rules.evicted, of_queue)
    evicted = jnp.maximum(evicted, jnp.maximum(held - rules.kept_queue, prompt - rules.kept))
    return slot, jnp.minimum(queue.left + evicted, joined - newest)  # two messages stay


def _message_end(rules: Rules, draws: Draws, ends: Array, number: Array, enough: Array) -> Array:
    """Where the first message of a round ends that ends at `enough` or later."""
    user = jnp.where(number > 0, ends[number - 1], 0) + draws.user_tokens[number]
    reply = ends[number]
    record = reply - draws.reply_tokens[number]
    results = record - jnp.where(draws.saves[number], rules.edit, 0)
    records = results - jnp.where(draws.searches[number], rules.search, 0)  # of a warning's saves
    warning = user + jnp.where(records > user, rules.warning, 0)
    of_records = warning + -((warning - enough) // rules.edit) * rules.edit  # rounded up
    end = reply
    for at in (record, results):
        end = jnp.where(enough <= at, at, end)
    end = jnp.where(enough <= records, of_records, end)
    for at in (warning, user):
        end = jnp.where(enough <= at, at, end)
    return end
