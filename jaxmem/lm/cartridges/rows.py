"""Rows of tokens to read and to learn from: several short texts side by side in each."""

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jaxmem.common import check_size


class Example(NamedTuple):
    """A text of which the last part is predicted.

    prompt: tokens that are given.
    answer: tokens that are predicted, each from those before it.
    """

    prompt: tuple[int, ...]
    answer: tuple[int, ...]


class Rows(NamedTuple):
    """Examples packed into R rows of T tokens, none seen by another.

    ids: [R, T] tokens, 0 where there is none.
    offsets: [R, T] places within the example, from 0.
    segments: [R, T] number of the example, -1 where there is none.
    targets: [R, T] the next token where it is predicted, elsewhere -1.
    """

    ids: np.ndarray
    offsets: np.ndarray
    segments: np.ndarray
    targets: np.ndarray


def pack(examples: Sequence[Example], length: int) -> Rows:
    """Pack examples in their order, each into the first of the last few rows with room.

    An example that is longer than a row loses the end of its answer.

    Args:
      examples: with prompts shorter than a row.
      length: tokens a row, T.

    Returns:
      The rows.

    Raises:
      ValueError: if there is no example, or one whose prompt leaves no room for an answer.
    """
    check_size("length", length, 2)
    if not examples:
        raise ValueError("expected at least one example to pack, got none")
    placed: list[list[tuple[int, Example]]] = []
    used: list[int] = []
    for number, example in enumerate(examples):
        size = min(len(example.prompt) + len(example.answer), length)
        if len(example.prompt) >= length or not example.prompt or not example.answer:
            raise ValueError(
                f"expected a prompt of 1 to {length - 1} tokens and an answer, got "
                f"{len(example.prompt)} and {len(example.answer)} in example {number}"
            )
        recent = range(max(0, len(placed) - 64), len(placed))
        row = next((r for r in recent if used[r] + size <= length), len(placed))
        if row == len(placed):
            placed.append([])
            used.append(0)
        placed[row].append((number, example))
        used[row] += size
    rows = Rows(*(np.full((len(placed), length), fill, np.int32) for fill in (0, 0, -1, -1)))
    for row, members in enumerate(placed):
        start = 0
        for number, example in members:
            tokens = np.array([*example.prompt, *example.answer], np.int32)[:length]
            here = slice(start, start + len(tokens))
            rows.ids[row, here] = tokens
            rows.offsets[row, here] = np.arange(len(tokens))
            rows.segments[row, here] = number
            first = start + len(example.prompt) - 1
            rows.targets[row, first : start + len(tokens) - 1] = tokens[len(example.prompt) :]
            start += len(tokens)
    return rows


def as_read(rows: Rows, first: ArrayLike) -> tuple[Array, Array, Array]:
    """Rows as the decoder takes them.

    Args:
      rows: [R, T].
      first: position of the first token of an example, scalar.

    Returns:
      Tokens, positions and segments, [R, T] each.
    """
    positions = jnp.asarray(first) + jnp.asarray(rows.offsets)
    return jnp.asarray(rows.ids), positions, jnp.asarray(rows.segments)


class Places(NamedTuple):
    """Where the predicted tokens of a few rows are.

    at: [M] places in the flattened rows, padded with 0.
    weights: [M] 1 where there is one, 0 in the padding.
    targets: [M] the tokens.
    """

    at: np.ndarray
    weights: np.ndarray
    targets: np.ndarray


def places(targets: np.ndarray, room: int) -> Places:
    """The predicted tokens of rows in order, padded.

    Args:
      targets: [R, T] as in `Rows`.
      room: M, at least as many as there are.

    Returns:
      Their places, [M] each.
    """
    found = np.flatnonzero(targets.reshape(-1) >= 0)
    at = np.zeros(room, np.int32)
    at[: len(found)] = found
    weights = (np.arange(room) < len(found)).astype(np.float32)
    return Places(at, weights, np.where(weights > 0, targets.reshape(-1)[at], 0).astype(np.int32))


def most_places(targets: np.ndarray, batch: int, multiple: int) -> int:
    """Room for the predicted tokens of any `batch` rows, a multiple of `multiple`.

    Args:
      targets: [R, T].
      batch: rows at once.
      multiple: of what it shall be a multiple.

    Returns:
      M.
    """
    counts = np.sort((targets >= 0).sum(axis=1))[::-1]
    most = max(1, int(counts[:batch].sum()))
    return -(-most // multiple) * multiple
