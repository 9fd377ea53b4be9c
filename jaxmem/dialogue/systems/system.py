"""What a memory system is, and the ledger of what it spends."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxmem.dialogue.conversation import Conversation
from jaxmem.dialogue.questions import Questions

PURPOSES = ("extract", "update", "summarise", "consolidate", "search", "answer")
"""What calls of the language model are for; the last axis of a ledger."""

# Fixed parts of prompts, and lengths of what is generated, in tokens. The first two are exercise
# 2's; the others are of the usual size, and the lecture states none.
EXTRACT_PROMPT, UPDATE_PROMPT = 1_000, 500
SUMMARY_PROMPT, CONSOLIDATE_PROMPT, ANSWER_PROMPT = 300, 1_000, 200
CALL_TOKENS, SUMMARY_TOKENS, REPLY_TOKENS = 30, 350, 30
ITEM_TOKENS = 20


class Ledger(NamedTuple):
    """Calls and tokens: one row for the writing of a conversation, one a question for reading.

    calls: [..., PURPOSES] calls of the language model.
    prefill_tokens: [..., PURPOSES] tokens of all prompts, none taken from a cache.
    generated_tokens: [..., PURPOSES].
    read_tokens: [...] material shown: each part once, instructions and question left out.
    fixed_tokens: [...] the part of it that all questions of a conversation share, a prefix that a
      server can keep.
    found: [...] pieces retrieved: chunks, messages or memories.
    """

    calls: Array
    prefill_tokens: Array
    generated_tokens: Array
    read_tokens: Array
    fixed_tokens: Array
    found: Array


class System(NamedTuple):
    """A memory system as two pure functions of one conversation; vmap them for many.

    A value is the number of the fact that states it, and NONE says "I do not know". A system of
    your own chooses what to show and leaves the rest to the ideal reader: `answer(statements(
    conversation), visible [Q, F], questions)`; `one_answer` is the ledger of one call a question.

    write: (key, conversation) -> (memory, ledger of one row). The memory is any pytree.
    read: (key, memory, questions) -> (values [Q], ledger of a row a question).
    """

    write: Callable[[Array, Conversation], tuple[Any, Ledger]]
    read: Callable[[Array, Any, Questions], tuple[Array, Ledger]]


def ledger(
    calls: Mapping[str, tuple[ArrayLike, ArrayLike, ArrayLike]] | None = None,
    read_tokens: ArrayLike = 0.0,
    fixed_tokens: ArrayLike = 0.0,
    found: ArrayLike = 0.0,
) -> Ledger:
    """A ledger from its entries.

    Args:
      calls: (calls, prefill tokens, generated tokens), each [...], by purpose.
      read_tokens: [...] material shown.
      fixed_tokens: [...] the part of it that all questions share.
      found: [...] pieces retrieved.

    Returns:
      The ledger, entries broadcast against each other.

    Raises:
      ValueError: if a purpose is not in `PURPOSES`, or an entry is not of that form.
    """
    calls = {} if calls is None else calls
    if not isinstance(calls, Mapping):
        raise ValueError(f"expected entries by purpose in a dict, got {calls!r}")
    unknown = set(calls) - set(PURPOSES)
    if unknown:
        raise ValueError(f"expected purposes among {PURPOSES}, got {sorted(unknown)}")
    for name, entry in calls.items():
        if not isinstance(entry, tuple) or len(entry) != 3:
            raise ValueError(f"{name}: expected (calls, prefill, generated tokens), got {entry!r}")
    entries = [calls.get(name, (0.0, 0.0, 0.0)) for name in PURPOSES]
    rest = (read_tokens, fixed_tokens, found)
    shape = jnp.broadcast_shapes(*(jnp.shape(x) for entry in (*entries, rest) for x in entry))

    def full(value: ArrayLike) -> Array:
        return jnp.broadcast_to(jnp.asarray(value, jnp.float32), shape)

    columns = [jnp.stack([full(entry[i]) for entry in entries], axis=-1) for i in range(3)]
    return Ledger(*columns, *map(full, rest))


def one_answer(read_tokens: ArrayLike, fixed_tokens: ArrayLike, found: ArrayLike) -> Ledger:
    """The ledger of answers given in one call each: 200 tokens of instructions and question, the
    material, and 30 tokens of reply.

    Args:
      read_tokens: [Q] material shown.
      fixed_tokens: [Q] or scalar, the part of it that all questions share.
      found: [Q] or scalar, pieces retrieved.

    Returns:
      The ledger, a row a question.
    """
    calls = {"answer": (1.0, ANSWER_PROMPT + read_tokens, REPLY_TOKENS)}
    return ledger(calls, read_tokens, fixed_tokens, found)
