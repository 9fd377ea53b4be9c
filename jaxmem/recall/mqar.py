"""Multi-query associative recall: streams of writes and questions, each difficulty its own axis."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxmem.common import check_number, check_size
from jaxmem.recall.facts import facts, paraphrase

WRITE, QUERY, FILLER = 0, 1, 2


class Stream(NamedTuple):
    """A stream of T = writes + queries + filler events about N facts.

    A memory is written where `kind` is WRITE and read where it is QUERY. It must not see
    `values` at a query: that is the target.

    kind: int32 [T], WRITE, QUERY or FILLER.
    fact: int32 [T] row of `table`; fillers have rows N, N + 1, ... of their own, each used once.
    answer: int32 [T] row of `vocabulary`: the value written; at a query the last one written
      under that key before; -1 at a filler.
    keys: [T, K] unit vectors `table[fact]`; at queries a paraphrase of it.
    values: [T, V] `vocabulary[answer]`; 0 at a filler.
    gap: int32 [T] events since the last write of the fact at a query, 0 elsewhere.
    table: [N + filler, K] unit keys of the facts, then of the fillers.
    vocabulary: [M, V] the values that can be answers.
    latest: int32 [N] row of `vocabulary` under each key after the stream; -1 if never written.
    """

    kind: Array
    fact: Array
    answer: Array
    keys: Array
    values: Array
    gap: Array
    table: Array
    vocabulary: Array
    latest: Array


def mqar(
    key: Array,
    n: int,
    dim: int,
    *,
    value_dim: int | None = None,
    vocabulary: int | None = None,
    writes: int | None = None,
    queries: int | None = None,
    filler: int = 0,
    skew: ArrayLike = 0.0,
    overwrites: ArrayLike = 0.0,
    gap_power: ArrayLike = 1.0,
    noise: ArrayLike = 0.0,
    interleave: bool = False,
    unit_values: bool = True,
) -> Stream:
    """A stream of writes and questions, where the last value written under a key is right.

    repeats:    each fact is written once, and writes - n times more fact i with p ~ (i + 1)^-skew
    overwrites: a repeated write changes the value with probability `overwrites`
    gaps:       a query asks one of the facts written so far, with p ~ gap^(gap_power - 1)
    paraphrase: q = (k + noise u) / |k + noise u|

    This is the task of Zoology with four changes. All comes from `key`. A filler never equals a
    key of a fact, nor another filler. The gap is counted from the last write of the fact and not
    from the end of all writes, and facts are asked with replacement, so the law of the gaps
    holds however few places are left. Repeats, overwrites and paraphrases are new axes.

    Sizes are static; `skew`, `overwrites`, `gap_power` and `noise` may be traced. The keys and
    the values are prefixes of those of `facts(key_facts, ...)`, one of the splits of `key`.

    Args:
      key: PRNG key.
      n: facts, N.
      dim: length of a key, K, at least 2.
      value_dim: length of a value, V; `dim` if not given.
      vocabulary: values that can be answers, M; `n` if not given. Fact i starts with value i mod
        M. With one value an overwrite changes nothing.
      writes: number of writes; `n` if not given. With fewer than `n` the last facts are never
        written.
      queries: number of queries; `n` if not given.
      filler: number of events that are neither.
      skew: Zipf exponent of the repeated writes, at least 0; 0 repeats all facts alike.
      overwrites: in 0..1.
      gap_power: a in p ~ gap^(a - 1): 1 is uniform over the facts written so far, 0.01 Zoology's
        preference for the recent.
      noise: length of the disturbance of a query's key; 0.3 gives a cosine of 0.958.
      interleave: whether writes, queries and fillers are shuffled (the first is a write);
        otherwise all writes come first, and then queries and fillers shuffled.
      unit_values: whether values have length 1 (otherwise they are standard normal).

    Returns:
      The stream; fields [T] or [T, K], [T, V] with T = writes + queries + filler.

    Raises:
      ValueError: if a size is too small, or a number is out of its range (traced ones are not
        checked).

    Source: Arora et al. 2023, arXiv:2312.04927 (MQAR and its power law).
    """
    value_dim = dim if value_dim is None else value_dim
    vocabulary = n if vocabulary is None else vocabulary
    writes = n if writes is None else writes
    queries = n if queries is None else queries
    least = {"n": 1, "dim": 2, "value_dim": 1, "vocabulary": 1, "writes": 1, "queries": 0}
    sizes = (n, dim, value_dim, vocabulary, writes, queries)
    for (name, low), size in zip([*least.items(), ("filler", 0)], (*sizes, filler), strict=True):
        check_size(name, size, low)
    check_number("skew", skew, scalar=True)
    check_number("overwrites", overwrites, 0.0, 1.0, scalar=True)
    check_number("noise", noise, 0.0, 1e6, scalar=True)
    check_number("gap_power", gap_power, -1e6, 1e6, scalar=True)
    return _mqar(key, sizes, filler, interleave, unit_values, skew, overwrites, gap_power, noise)


def accuracy(outputs: Array, vocabulary: Array, answers: Array, mask: Array | None = None) -> Array:
    """Share of the outputs whose nearest value by inner product is the answer.

    mean_t [argmax_j o_t . v_j = answer_t]

    For a stream: `accuracy(outputs, stream.vocabulary, stream.answer, stream.kind == QUERY)`.

    Args:
      outputs: [T, V] what was read; one that is not finite is wrong.
      vocabulary: [M, V].
      answers: int [T] rows of `vocabulary`.
      mask: bool [T], True where an output counts; all do if not given.

    Returns:
      A scalar in 0..1; NaN if nothing counts.

    Raises:
      ValueError: if the shapes do not fit.
    """
    if outputs.ndim != 2 or vocabulary.ndim != 2 or outputs.shape[1] != vocabulary.shape[1]:
        raise ValueError(
            f"expected outputs [T, V] and vocabulary [M, V], got {outputs.shape} and"
            f" {vocabulary.shape}"
        )
    for name, part in (("answers", answers), ("mask", mask)):
        if part is not None and part.shape != outputs.shape[:1]:
            raise ValueError(f"expected {name} [{outputs.shape[0]}], got {part.shape}")
    scores = jnp.matmul(outputs, vocabulary.T, precision="highest")  # [T, M]
    right = (jnp.argmax(scores, axis=1) == answers) & jnp.all(jnp.isfinite(outputs), axis=1)
    return jnp.mean(right, where=mask)


@partial(jax.jit, static_argnums=(1, 2, 3, 4))
def _mqar(
    key: Array,
    sizes: tuple[int, int, int, int, int, int],
    filler: int,
    interleave: bool,
    unit_values: bool,
    skew: ArrayLike,
    overwrites: ArrayLike,
    gap_power: ArrayLike,
    noise: ArrayLike,
) -> Stream:
    n, dim, value_dim, size, writes, queries = sizes
    key_facts, key_kind, key_repeat, key_order, key_events, key_noise = jax.random.split(key, 6)
    drawn = facts(
        key_facts, max(n + filler, size), dim, value_dim=value_dim, unit_values=unit_values
    )
    # The barrier keeps XLA from computing a key twice, with other roundings.
    table, vocabulary = jax.lax.optimization_barrier(
        (drawn.keys[: n + filler], drawn.values[:size])
    )

    kind = _kinds(key_kind, writes, queries, filler, interleave)  # [T]
    popularity = -jnp.asarray(skew) * jnp.log1p(jnp.arange(n, dtype=float))  # [N]
    repeats = jax.random.categorical(key_repeat, popularity, shape=(max(writes - n, 0),))
    once = jnp.arange(min(n, writes), dtype=jnp.int32)
    written = jnp.concatenate([once, repeats.astype(jnp.int32)])
    written = jax.random.permutation(key_order, written)[_rank(kind == WRITE)]  # [T]

    key_ask, key_change, key_shift = jax.random.split(key_events, 3)
    events = (
        jnp.arange(kind.size, dtype=jnp.int32),
        kind,
        written,
        jax.random.bernoulli(key_change, overwrites, kind.shape),
        jax.random.randint(key_shift, kind.shape, 1, max(size, 2), jnp.int32),
        jax.random.split(key_ask, kind.size),
    )
    step = partial(_event, jnp.asarray(gap_power, float), size)
    truth = _Truth(jnp.full(n, -1, jnp.int32), jnp.arange(n, dtype=jnp.int32) % size)
    truth, (fact, answer, gap) = jax.lax.scan(step, truth, events)

    fact = jnp.where(kind == FILLER, n + _rank(kind == FILLER), fact)
    answer = jnp.where(kind == FILLER, -1, answer)
    keys = table[fact]  # [T, K]
    asked = (kind == QUERY) & (jnp.asarray(noise) != 0)  # without noise the very key
    keys = jnp.where(asked[:, None], paraphrase(key_noise, keys, noise), keys)
    values = jnp.where((answer >= 0)[:, None], vocabulary[answer], 0)  # [T, V]
    latest = jnp.where(truth.written_at >= 0, truth.value, -1)
    return Stream(kind, fact, answer, keys, values, gap, table, vocabulary, latest)


class _Truth(NamedTuple):
    """written_at: [N] time of the last write, -1 if none. value: [N] current value."""

    written_at: Array
    value: Array


def _event(
    gap_power: Array, size: int, truth: _Truth, event: tuple[Array, ...]
) -> tuple[_Truth, tuple[Array, Array, Array]]:
    """One write (of a given fact) or query (of a fact drawn by the age of its last write)."""
    now, kind, written, change, shift, key = event
    age = jnp.maximum(now - truth.written_at, 1).astype(gap_power.dtype)  # [N]
    known = truth.written_at >= 0
    asked = jax.random.categorical(key, jnp.where(known, (gap_power - 1) * jnp.log(age), -jnp.inf))
    is_write = kind == WRITE
    fact = jnp.where(is_write, written, asked.astype(jnp.int32))
    old = truth.value[fact]
    value = jnp.where(is_write & known[fact] & change, (old + shift) % size, old)
    gap = jnp.where(kind == QUERY, now - truth.written_at[fact], 0)
    row = jnp.where(is_write, fact, truth.value.shape[0])  # out of range: dropped
    truth = _Truth(
        truth.written_at.at[row].set(now, mode="drop"), truth.value.at[row].set(value, mode="drop")
    )
    return truth, (fact, value, gap)


def _kinds(key: Array, writes: int, queries: int, filler: int, interleave: bool) -> Array:
    """Kinds [T] in order: only what follows the first write, or all writes, is shuffled."""
    counts = jnp.array([writes, queries, filler])
    kinds = jnp.repeat(
        jnp.arange(3, dtype=jnp.int32), counts, total_repeat_length=writes + queries + filler
    )
    fixed = 1 if interleave else writes
    return jnp.concatenate([kinds[:fixed], jax.random.permutation(key, kinds[fixed:])])


def _rank(mask: Array) -> Array:
    """How many True came before each place, at least 0: [T]."""
    return jnp.maximum(jnp.cumsum(mask, dtype=jnp.int32) - 1, 0)
