"""RAG: pieces of the conversation, found by the likeness of their embeddings to the question's."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike

from jaxmem.common import check_number, check_size
from jaxmem.dialogue.questions import Questions
from jaxmem.dialogue.reader import answer, statements
from jaxmem.dialogue.systems.system import Ledger, System, ledger, one_answer
from jaxmem.dialogue.words import unit
from jaxmem.dialogue.world import Conversation


class Chunks(NamedTuple):
    """A conversation cut into chunks.

    conversation: what was cut.
    chunk: [M] number of the chunk that a message is in.
    tokens: [N] tokens of each chunk; 0 beyond the last.
    embeddings: [N, D].
    """

    conversation: Conversation
    chunk: Array
    tokens: Array
    embeddings: Array


def rag(chunk_tokens: ArrayLike = 128, count: int = 16) -> System:
    """Retrieval over chunks: a chunk closes at the first message that brings it to its size.

    A chunk's embedding is the sum of its messages', scaled to length 1; a question is answered
    from the `count` chunks most like it. No model is called at writing.

    Args:
      chunk_tokens: size at which a chunk closes, a scalar; may be traced.
      count: chunks a question.

    Returns:
      The system.

    Raises:
      ValueError: if a number is out of range.
    """
    check_number("chunk_tokens", chunk_tokens, 1.0, scalar=True)
    check_size("count", count)

    def write(key: Array, conversation: Conversation) -> tuple[Chunks, Ledger]:
        del key
        return cut(conversation, chunk_tokens), ledger()

    def read(key: Array, memory: Chunks, questions: Questions) -> tuple[Array, Ledger]:
        del key
        taken = _most_like(questions, memory.embeddings, memory.tokens, count)  # [Q, N]
        items = statements(memory.conversation)
        where = memory.chunk[jnp.minimum(items.time, memory.chunk.size - 1)]  # [F]
        visible = taken[:, where] & (items.key >= 0)
        read_tokens = taken @ memory.tokens.astype(jnp.float32)
        return answer(items, visible, questions), one_answer(read_tokens, 0.0, taken.sum(1))

    return System(write, read)


def rag_messages(count: int = 48) -> System:
    """Retrieval over single messages: a question is answered from the `count` most like it.

    Args:
      count: messages a question.

    Returns:
      The system.

    Raises:
      ValueError: if count is no whole number of at least 1.
    """
    check_size("count", count)

    def write(key: Array, conversation: Conversation) -> tuple[Conversation, Ledger]:
        del key
        return conversation, ledger()

    def read(key: Array, memory: Conversation, questions: Questions) -> tuple[Array, Ledger]:
        del key
        taken = _most_like(questions, memory.embeddings, memory.tokens, count)  # [Q, M]
        items = statements(memory)
        visible = taken[:, jnp.minimum(items.time, memory.tokens.size - 1)] & (items.key >= 0)
        read_tokens = taken @ memory.tokens.astype(jnp.float32)
        return answer(items, visible, questions), one_answer(read_tokens, 0.0, taken.sum(1))

    return System(write, read)


def cut(conversation: Conversation, chunk_tokens: ArrayLike) -> Chunks:
    """Cut a conversation into chunks of whole messages.

    Args:
      conversation: what to cut.
      chunk_tokens: size at which a chunk closes.

    Returns:
      The chunks, with room for one a message.
    """

    def step(carry: tuple[Array, Array], tokens: Array) -> tuple[tuple[Array, Array], Array]:
        chunk, filled = carry
        filled = filled + tokens
        closes = filled >= chunk_tokens
        return (chunk + closes, jnp.where(closes, 0, filled)), chunk

    _, chunk = lax.scan(step, (jnp.int32(0), jnp.int32(0)), conversation.tokens)
    size = chunk.size
    sums = jax.ops.segment_sum(conversation.embeddings, chunk, size, indices_are_sorted=True)
    tokens = jax.ops.segment_sum(conversation.tokens, chunk, size, indices_are_sorted=True)
    return Chunks(conversation, chunk, tokens, unit(sums))


def top(scores: Array, count: int) -> Array:
    """Which entries of each row are among its `count` highest, the first of equal ones.

    Args:
      scores: [Q, N].
      count: how many; all if there are fewer.

    Returns:
      [Q, N] of bool.
    """
    rows = jnp.arange(scores.shape[0])[:, None]
    best = lax.top_k(scores, min(count, scores.shape[1]))[1]
    return jnp.zeros(scores.shape, bool).at[rows, best].set(True)


def _most_like(questions: Questions, embeddings: Array, tokens: Array, count: int) -> Array:
    """Which pieces, of those that are not empty, are most like each question."""
    scores = jnp.where(tokens > 0, questions.embeddings @ embeddings.T, -2.0)
    return top(scores, count) & (tokens > 0)
