"""What a memory system is, and the ledger of what it spends."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxmem.dialogue.questions import Questions
from jaxmem.dialogue.world import Conversation

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
    found: [...] pieces retrieved: chunks, messages or memories.
    """

    calls: Array
    prefill_tokens: Array
    generated_tokens: Array
    read_tokens: Array
    found: Array


class System(NamedTuple):
    """A memory system as two pure functions of one conversation; vmap them for many.

    write: (key, conversation) -> (memory, ledger of one row).
    read: (key, memory, questions) -> (values [Q] or NONE, ledger of a row a question).
    """

    write: Callable[[Array, Conversation], tuple[Any, Ledger]]
    read: Callable[[Array, Any, Questions], tuple[Array, Ledger]]


def ledger(
    calls: Mapping[str, tuple[ArrayLike, ArrayLike, ArrayLike]] | None = None,
    read_tokens: ArrayLike = 0.0,
    found: ArrayLike = 0,
) -> Ledger:
    """A ledger from its entries.

    Args:
      calls: (calls, prefill tokens, generated tokens), each [...], by purpose.
      read_tokens: [...] material shown.
      found: [...] pieces retrieved.

    Returns:
      The ledger, entries broadcast against each other.

    Raises:
      ValueError: if a purpose is not in `PURPOSES`.
    """
    calls = calls or {}
    unknown = set(calls) - set(PURPOSES)
    if unknown:
        raise ValueError(f"expected purposes among {PURPOSES}, got {sorted(unknown)}")
    entries = [calls.get(name, (0.0, 0.0, 0.0)) for name in PURPOSES]
    shape = jnp.broadcast_shapes(
        jnp.shape(read_tokens),
        jnp.shape(found),
        *(jnp.shape(x) for entry in entries for x in entry),
    )

    def column(i: int) -> Array:
        columns = [jnp.broadcast_to(jnp.asarray(entry[i], jnp.float32), shape) for entry in entries]
        return jnp.stack(columns, axis=-1)

    return Ledger(
        column(0),
        column(1),
        column(2),
        jnp.broadcast_to(jnp.asarray(read_tokens, jnp.float32), shape),
        jnp.broadcast_to(jnp.asarray(found, jnp.float32), shape),
    )


def one_answer(read_tokens: Array, found: Array) -> Ledger:
    """The ledger of answers given in one call each.

    Args:
      read_tokens: [Q] material shown.
      found: [Q] pieces retrieved.

    Returns:
      The ledger, a row a question.
    """
    return ledger({"answer": (1.0, ANSWER_PROMPT + read_tokens, REPLY_TOKENS)}, read_tokens, found)
