"""A made-up trace: users who hold conversations on top of shared system prompts."""

import jax
import numpy as np
from jax import Array

from jaxmem.prefix_cache.trace import BlockTrace, make_trace


def synthetic_trace(
    key: Array,
    users: int = 200,
    turns: int = 8,
    system_prompts: int = 4,
    system_tokens: int = 2000,
    message_tokens: int = 150,
    answer_tokens: int = 250,
    think_s: float = 60.0,
    block_tokens: int = 16,
) -> BlockTrace:
    """A trace of multi-turn conversations; each prompt is the whole conversation so far.

    A user picks one of the system prompts (the i-th with weight 1 / (i + 1)), then sends
    `turns` messages with exponential pauses. Prompt t is system | message 1 | answer 1 | ... |
    message t. Lengths of messages and answers are uniform on 1/2 to 3/2 of their mean.
    Blocks within the system prompt are shared by its users, later ones belong to the user, and
    a partial tail to the one request.

    Args:
      key: a scalar typed key (`jax.random.key`).
      users: conversations.
      turns: messages in each.
      system_prompts: how many system prompts there are.
      system_tokens: length of each, in tokens.
      message_tokens: mean length of a user's message, in tokens.
      answer_tokens: mean length of an answer, in tokens.
      think_s: mean pause before a message, in seconds.
      block_tokens: tokens a block.

    Returns:
      A trace of users * turns requests.

    Raises:
      ValueError: if a count or length is below 1.
    """
    sizes = {
        "users": users,
        "turns": turns,
        "system_prompts": system_prompts,
        "system_tokens": system_tokens,
        "message_tokens": message_tokens,
        "answer_tokens": answer_tokens,
        "block_tokens": block_tokens,
    }
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{name} must be at least 1, got {size}")
    key_system, key_message, key_answer, key_pause = jax.random.split(key, 4)
    weights = 1.0 / np.arange(1, system_prompts + 1)
    system = np.asarray(
        jax.random.choice(key_system, system_prompts, (users,), p=weights / weights.sum())
    )
    message = _lengths(key_message, message_tokens, users, turns)
    answer = _lengths(key_answer, answer_tokens, users, turns)
    pause = np.asarray(jax.random.exponential(key_pause, (users, turns))) * think_s

    said = np.cumsum(message, axis=1) + np.cumsum(answer, axis=1) - answer
    tokens = (system_tokens + said).reshape(-1)  # [users * turns]
    full = tokens // block_tokens
    blocks = -(-tokens // block_tokens)
    request = np.repeat(np.arange(users * turns), blocks)
    index = np.arange(len(request)) - np.repeat(np.cumsum(blocks) - blocks, blocks)

    shared = system_tokens // block_tokens  # blocks that lie wholly in the system prompt
    longest = int(blocks.max())
    of_system = system[request // turns] * shared + index
    of_user = system_prompts * shared + (request // turns) * longest + index
    of_tail = system_prompts * shared + users * longest + request
    ids = np.where(index >= full[request], of_tail, np.where(index < shared, of_system, of_user))
    arrival = np.cumsum(pause, axis=1).reshape(-1)
    return make_trace(ids, blocks, tokens, answer.reshape(-1), arrival, block_tokens)


def _lengths(key: Array, mean: int, users: int, turns: int) -> np.ndarray:
    low, high = max(1, mean // 2), max(1, mean + mean // 2)
    return np.asarray(jax.random.randint(key, (users, turns), low, high + 1), np.int64)
