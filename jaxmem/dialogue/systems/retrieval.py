"""RAG: pieces of the conversation, found by the likeness of their embeddings to the question's."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike

from jaxmem.common import check_number, check_size
from jaxmem.dialogue.conversation import Conversation
from jaxmem.dialogue.questions import Questions
from jaxmem.dialogue.reader import answer, statements
from jaxmem.dialogue.systems.system import Ledger, System, ledger, one_answer

ABSENT = -2.0  # below every cosine


class Chunks(NamedTuple):
    """A conversation cut into chunks.

    conversation: what was cut.
    chunk: [M] number of the chunk that a message is in.
    tokens: [N] tokens of each chunk; 0 beyond the last.
    sums: [N, D] sum of the embeddings of each chunk's messages.
    """

    conversation: Conversation
    chunk: Array
    tokens: Array
    sums: Array


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
        # Scaled afterwards: the sums are many and long.
        length = jnp.sqrt(jnp.maximum(jnp.sum(memory.sums**2, axis=1), 1e-30))
        scores = questions.embeddings @ memory.sums.T / length  # [Q, N]
        best = nearest(jnp.where(memory.tokens > 0, scores, ABSENT), count)
        items = statements(memory.conversation)
        chunk = memory.chunk.at[items.time].get(mode="fill", fill_value=-1)  # [F]
        return answer(items, among(best, chunk), questions), _pieces_read(best, memory.tokens)

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
        best = nearest(likeness(questions.embeddings, memory), count)
        items = statements(memory)
        return answer(items, among(best, items.time), questions), _pieces_read(best, memory.tokens)

    return System(write, read)


def cut(conversation: Conversation, chunk_tokens: ArrayLike) -> Chunks:
    """Cut a conversation into chunks of whole messages.

    Args:
      conversation: what to cut.
      chunk_tokens: size at which a chunk closes.

    Returns:
      The chunks.
    """

    def step(carry: tuple[Array, Array], tokens: Array) -> tuple[tuple[Array, Array], Array]:
        chunk, filled = carry
        filled = filled + tokens
        closes = filled >= chunk_tokens
        return (chunk + closes, jnp.where(closes, 0, filled)), chunk

    nothing = jnp.zeros_like(conversation.tokens[0])
    _, chunk = lax.scan(step, (nothing, nothing), conversation.tokens)
    together = partial(jax.ops.segment_sum, num_segments=chunk.size, indices_are_sorted=True)
    tokens, sums = together(conversation.tokens, chunk), together(conversation.embeddings, chunk)
    return Chunks(conversation, chunk, tokens, sums)


def likeness(queries: Array, conversation: Conversation) -> Array:
    """How much each message is like each query; ABSENT beyond the last message.

    Args:
      queries: [Q, D].
      conversation: M messages.

    Returns:
      [Q, M] cosines.
    """
    return jnp.where(conversation.tokens > 0, queries @ conversation.embeddings.T, ABSENT)


def nearest(scores: Array, count: int) -> Array:
    """The pieces with the highest scores, the first of equal ones ahead.

    Args:
      scores: [Q, N]; ABSENT where there is no piece.
      count: how many; all if there are fewer.

    Returns:
      [Q, min(count, N)] numbers of pieces, best first; N in places for which there is none left.
    """
    highest, best = lax.top_k(scores, min(count, scores.shape[1]))
    return jnp.where(highest > ABSENT, best, scores.shape[1])


def among(best: Array, piece: Array) -> Array:
    """Which statements are in the pieces found.

    Args:
      best: [Q, count] from `nearest`.
      piece: [F] the piece that each statement is in; a number beyond all for none.

    Returns:
      [Q, F] of bool.
    """
    return (best[:, :, None] == piece).any(1)


def _pieces_read(best: Array, tokens: Array) -> Ledger:
    """The ledger of answers from pieces of N lengths."""
    read_tokens = tokens.at[best].get(mode="fill", fill_value=0).sum(1)
    return one_answer(read_tokens, 0.0, (best < tokens.size).sum(1))
