"""Layouts of MemGPT's prompt: what a prefix cache must compute at a call in each of them."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from jaxmem.sessions.queue_manager import Call, Rules

LAYOUTS = ("front", "last", "log", "frozen")
"""Where the working context stands, and when an edit of it reaches the prompt.

front: before the summary and the queue, changed in place (MemGPT).
last: after the queue, changed in place.
log: in front, as it was at the last eviction; edits wait as notes in the queue.
frozen: in front, as it was at the last eviction; edits wait unseen, but for the record of the call.
"""


class Tokens(NamedTuple):
    """Tokens of one call, or of many, each a tuple by `LAYOUTS`.

    prompt: in the prompt.
    new: of those, what came into being since the call before.
    memory: recomputed because of the working context.
    eviction: recomputed because of an eviction.
    """

    prompt: tuple[Array, ...]
    new: tuple[Array, ...]
    memory: tuple[Array, ...]
    eviction: tuple[Array, ...]


def charge(
    rules: Rules,
    call: Call,
    evicted: Array,
    summary: Array,
    held: Array,
    merged: Array,
    changed: Array,
) -> Tokens:
    """What a call computes in each layout: new, and behind the first break by its cause.

    Args:
      rules: settings in tokens.
      call: the call.
      evicted: whether messages left just before it, scalar.
      summary: tokens of the summary in its prompt, scalar.
      held: tokens of the queue in its prompt, scalar.
      merged: edits before the last eviction, not counting one just now, scalar.
      changed: first entry changed since then, scalar.

    Returns:
      Tokens, scalars.
    """
    fresh = jnp.minimum(call.fresh, held)  # all others that came were evicted unseen
    old = summary + held - fresh  # what an eviction or an edit before them breaks
    working = rules.working(call.edits)
    entry = jnp.where(call.edited, rules.entry, 0)
    new = fresh + entry
    prompt = rules.system + working + summary + held

    # In front: what follows the edited entry, and all the rest.
    behind = working - rules.memory - rules.entry * call.place - entry + old
    front_memory = jnp.where(call.edited, behind, 0)
    front_eviction = jnp.where(evicted & ~call.edited, old, 0)

    # Last: always the working context, and after an eviction the rest, which stands before it.
    always = working - entry
    last_memory = jnp.where(evicted, 0, always)
    last_eviction = jnp.where(evicted, always + old, 0)

    # As it was: only an eviction breaks, at the first entry changed since the one before.
    shown = rules.working(jnp.where(evicted, call.edits, merged))
    waiting = jnp.where(evicted, 0, call.edits - merged)
    merges = jnp.where(evicted, entry, 0)  # an entry that no call has seen, even as a note
    notes = jnp.where(call.edited & ~evicted, rules.note, 0)
    behind = working - rules.memory - rules.entry * changed - merges + old
    by_memory = call.edits > merged
    lazy_memory = jnp.where(evicted & by_memory, behind, 0)
    lazy_eviction = jnp.where(evicted & ~by_memory, behind, 0)

    frozen = rules.system + shown + summary + held
    return Tokens(
        prompt=(prompt, prompt, frozen + rules.note * waiting, frozen),
        new=(new, new, fresh + merges + notes, fresh + merges),
        memory=(front_memory, last_memory, lazy_memory, lazy_memory),
        eviction=(front_eviction, last_eviction, lazy_eviction, lazy_eviction),
    )
