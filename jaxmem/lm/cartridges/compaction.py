"""Smaller caches without gradient descent: what to keep, by what questions look at."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jaxmem.common import check_number, check_size, lookup
from jaxmem.lm.cartridges.prefix import take
from jaxmem.lm.cartridges.rows import Rows, as_read
from jaxmem.lm.cartridges.teacher import take_rows
from jaxmem.lm.config import Config
from jaxmem.lm.decoder import queries
from jaxmem.lm.fit import first_question
from jaxmem.lm.parameters import Params
from jaxmem.recall.attention import slot_logits
from jaxmem.recall.cartridges import Cartridge
from jaxmem.recall.cartridges.compaction import SELECTIONS, match
from jaxmem.recall.facts import Document


def _with_first(select: str, shares: Array, slots: int, ridge: ArrayLike) -> Array:
    """A selection that always holds token 0, the sink, without which a cache is lost."""
    if select == "omp":  # whose fit needs the shares as they are
        return SELECTIONS[select](shares, slots, ridge).at[0].set(0)
    shares = shares.at[:, 0].set(jnp.max(shares, axis=1) + 1.0)
    return SELECTIONS[select](shares, slots, ridge)


MOST_QUERIES = 2048
"""Tokens whose queries stand for all that will be asked."""

MOST_SHARES = 5 * 2**19
"""Of these, times the document's tokens: what bounds the time of the fits."""

_AT_ONCE = 3  # heads that are fitted together, so that one's serial parts meet another's

# Made once: a static argument is known again by its identity.
_CHOICES = {select: partial(_with_first, select) for select in SELECTIONS}


def reference_queries(
    params: Params,
    config: Config,
    rows: Rows,
    whole: Cartridge,
    count: int | None = None,
    batch: int = 8,
    seed: int = 0,
) -> Array:
    """With what predicted tokens ask each layer and head, the document in context.

    Answers only: what questions and turns look at tells less of what an answer needs.

    Args:
      params, config: the model.
      rows: [R, T] questions and answers.
      whole: the document's whole prefix, N slots.
      count: tokens, of rows drawn until there are as many, or all there are; by default so many
        that the fits of a cache take seconds, 2.6 million / N and at most 2,048.
      batch: rows at once.
      seed: of the draw.

    Returns:
      [L, G, Q, K], the query heads of a group one after another.
    """
    most = min(MOST_QUERIES, -(-MOST_SHARES // whole.slots))
    count = most if count is None else check_size("count", count)
    order = np.random.default_rng(seed).permutation(len(rows.ids))
    parts, there = [], 0
    for start in range(0, len(order), batch):
        part = take_rows(rows, order[start : start + batch], batch)
        predicted = np.flatnonzero(part.targets.reshape(-1) >= 0)
        found = _queries(params, config, part, whole, first_question(whole))
        parts.append(found.reshape(config.layers, -1, *found.shape[3:])[:, predicted])
        there += len(predicted)
        if there >= count:
            break
    asked = jnp.concatenate(parts, axis=1)[:, :count]  # [L, Q, G, R, K]
    asked = jnp.moveaxis(asked, 2, 1)  # [L, G, Q, R, K]
    return asked.reshape(*asked.shape[:2], -1, config.head_dim)


@partial(jax.jit, static_argnames="config")
def _queries(params: Params, config: Config, rows: Rows, whole: Cartridge, first: int) -> Array:
    return queries(params, config, *as_read(rows, first), whole)


def evict(whole: Cartridge, slots: int, asked: Array, select: str = "peak") -> Cartridge:
    """The tokens of each layer and head that reference questions look at; the others are dropped.

    Args:
      whole: the document's whole prefix, N slots.
      slots: P, at most N.
      asked: [L, G, Q, K] from `reference_queries`.
      select: "attention" (largest sum of attention) or "peak" (largest attention of any).

    Returns:
      P slots at their own positions, the first token among them, frozen.

    Raises:
      ValueError: if there is no slot, more slots than tokens, or no such selection.

    Source: Zhang et al. 2023 (H2O), arXiv:2306.14048; Li et al. 2024 (SnapKV), arXiv:2404.14469.
    """
    _check(whole, slots, asked)
    lookup(SELECTIONS, select, "selection of keys")
    return take(whole, _chosen(whole.keys, asked, whole.scale, slots, select))


def attention_matching(
    whole: Cartridge,
    slots: int,
    asked: Array,
    *,
    select: str = "peak",
    ridge: ArrayLike = 1e-6,
) -> Cartridge:
    """Keys of the document with biases and values that imitate its attention, head by head.

    See `jaxmem.recall.cartridges.attention_matching` for the two fits.

    Args:
      whole: the document's whole prefix, N slots.
      slots: P, at most N.
      asked: [L, G, Q, K] from `reference_queries`.
      select: which keys are kept: "attention", "peak" or "omp".
      ridge: of both fits.

    Returns:
      P slots with a bias, at their own positions, the first token among them, frozen.

    Raises:
      ValueError: as `evict`, or if the ridge is negative.

    Source: Attention Matching, arXiv:2602.16284.
    """
    _check(whole, slots, asked)
    lookup(SELECTIONS, select, "selection of keys")
    check_number("ridge", ridge)
    chosen, bias, values = _match(
        whole.keys, whole.values, asked, whole.scale, ridge, slots, select
    )
    return dataclasses.replace(take(whole, chosen), bias=bias, values=values)


@partial(jax.jit, static_argnames=("slots", "select"))
def _chosen(keys: Array, asked: Array, scale: ArrayLike, slots: int, select: str) -> Array:
    def head(parts: tuple[Array, Array]) -> Array:
        shares = jax.nn.softmax(slot_logits(parts[1], parts[0], scale), axis=-1)
        return _CHOICES[select](shares, slots, 1e-6)

    return jax.lax.map(head, _heads((keys, asked))).reshape(*keys.shape[:2], slots)


@partial(jax.jit, static_argnames=("slots", "select"))
def _match(
    keys: Array,
    values: Array,
    asked: Array,
    scale: ArrayLike,
    ridge: ArrayLike,
    slots: int,
    select: str,
) -> tuple[Array, Array, Array]:
    def head(parts: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        document = Document(*parts[:2])
        return match(document, parts[2], scale, ridge, slots, _CHOICES[select])

    heads = _heads((keys, values, asked))
    even = len(heads[0]) % _AT_ONCE == 0  # a rest would be compiled once more
    found = jax.lax.map(head, heads, batch_size=_AT_ONCE if even else None)
    chosen, bias, made = (part.reshape(*keys.shape[:2], *part.shape[1:]) for part in found)
    return chosen, bias, made


def _heads(arrays: tuple[Array, ...]) -> tuple[Array, ...]:
    """Arrays [L, G, ...] as [L G, ...]."""
    return tuple(array.reshape(-1, *array.shape[2:]) for array in arrays)


def _check(whole: Cartridge, slots: int, asked: Array) -> None:
    tokens = whole.slots
    if check_size("slots", slots) > tokens:
        raise ValueError(f"expected at most as many slots as tokens, {tokens}, got {slots}")
    wanted = (*whole.keys.shape[:2], whole.keys.shape[-1])
    if asked.ndim != 4 or (*asked.shape[:2], asked.shape[-1]) != wanted or not asked.shape[2]:
        raise ValueError(
            f"expected questions [{wanted[0]}, {wanted[1]}, Q, {wanted[2]}], got {asked.shape}"
        )
