"""Full context: the whole conversation in the prompt, as far as the window goes."""

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxmem.common import check_number
from jaxmem.dialogue.conversation import Conversation
from jaxmem.dialogue.questions import Questions
from jaxmem.dialogue.reader import answer, statements
from jaxmem.dialogue.systems.system import Ledger, System, ledger, one_answer

MISS = 0.23  # share of the statements that a reader with alpha 1 overlooks; see demo 02


def full_context(window_tokens: ArrayLike = 128_000, alpha: ArrayLike = 0.0) -> System:
    """The newest messages that fit into the window, oldest first out; nothing is done at writing.

    A reader with alpha > 0 is lost in the middle: at each question it overlooks a statement at
    relative position x of the prompt with probability alpha 0.23 (pi / 2) sin(pi x).

    Args:
      window_tokens: the window; may be traced.
      alpha: how much is overlooked, in [0, 1]; may be traced.

    Returns:
      The system.

    Raises:
      ValueError: if a number is out of range; the window has room for a message of 8 tokens.

    Source: Liu et al. 2024, Lost in the Middle, TACL.
    """
    check_number("window_tokens", window_tokens, 8.0, scalar=True)
    check_number("alpha", alpha, 0.0, 1.0, scalar=True)

    def write(key: Array, conversation: Conversation) -> tuple[Conversation, Ledger]:
        del key
        return conversation, ledger()

    def read(key: Array, memory: Conversation, questions: Questions) -> tuple[Array, Ledger]:
        after = jnp.cumsum(memory.tokens[::-1])[::-1]  # [M] tokens from each message to the end
        inside = (after <= window_tokens) & (memory.tokens > 0)
        start = memory.messages - inside.sum()
        items = statements(memory)
        position = (items.time - start + 0.5) / jnp.maximum(memory.messages - start, 1)
        miss = alpha * MISS * (jnp.pi / 2) * jnp.sin(jnp.pi * jnp.clip(position, 0.0, 1.0))
        draws = jax.random.uniform(key, (questions.key.size, items.time.size), jnp.float32)
        visible = (items.time >= start) & (draws >= miss)
        tokens = jnp.sum(memory.tokens * inside)
        rows = jnp.ones(questions.key.shape)
        return answer(items, visible, questions), one_answer(
            tokens * rows, tokens, inside.sum() * rows
        )

    return System(write, read)
