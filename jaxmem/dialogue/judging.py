"""Systems judged on the same conversations and questions, with intervals by conversation."""

import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jaxmem.common import Interval, check_size, clustered_bootstrap, clustered_interval, progress
from jaxmem.dialogue.conversation import generate
from jaxmem.dialogue.questions import KINDS, NONE, ask, kind_index
from jaxmem.dialogue.systems.system import Ledger, System
from jaxmem.dialogue.world import LOCOMO, World, check_world

Kinds = str | Sequence[str] | None
_ARRAYS = 12  # of a conversation's size, at a time
OVERFLOW = "conversations lose statements: messages or fact_capacity are too few for the world"


class Judged(NamedTuple):
    """What one system answered in N conversations, and what it spent.

    name: of the system.
    kind: [N, Q] index into `KINDS`.
    answer: [N, Q] what is right: the number of a fact, or NONE.
    changed: [N, Q] whether what is asked about was stated more than once.
    mask: [N, Q] whether there is such a question.
    right: [N, Q] whether the answer is.
    nothing: [N, Q] whether it said that it does not know.
    write: the ledger of writing, a row a conversation.
    read: the ledger of reading, [N, Q, ...].
    overflow: [N] whether statements or messages did not fit into the world's capacity.
    """

    name: str
    kind: np.ndarray
    answer: np.ndarray
    changed: np.ndarray
    mask: np.ndarray
    right: np.ndarray
    nothing: np.ndarray
    write: Ledger
    read: Ledger
    overflow: np.ndarray


class Comparison(NamedTuple):
    """Two systems on the same questions.

    difference: accuracy of the first less that of the second, with its 95 % interval.
    words: what that says.
    """

    difference: Interval
    words: str


def evaluate(
    systems: Mapping[str, System],
    conversations: int = 400,
    world: World = LOCOMO,
    *,
    seed: int = 0,
    batch: int | None = None,
    label: str = "conversations",
) -> dict[str, Judged]:
    """Judge systems on the same conversations and questions, with the same draws where they agree.

    Systems that extract share what is extracted, so that differences are paired.

    Args:
      systems: by name; a system that is made anew, even an equal one, is compiled anew.
      conversations: N.
      world: what conversations are like.
      seed: conversation i has the key fold_in(key(seed), i).
      batch: conversations at a time, which bounds the memory; None for 50, or as many as take about
        two gigabytes.
      label: what the progress line says.

    Returns:
      Results by name, as numpy arrays.

    Raises:
      ValueError: if there is no system, or a number is out of range.
    """
    if not isinstance(systems, Mapping):
        raise ValueError(f"expected systems by name in a dict, got {type(systems).__name__}")
    if not systems:
        raise ValueError("expected at least one system, got none")
    for name, system in systems.items():
        if not isinstance(system, System):
            raise ValueError(f"{name}: expected a System, got {type(system).__name__}")
    check_world(world)
    check_size("conversations", conversations)
    check_size("seed", seed, 0, 2**32 - 1)
    if batch is None:
        batch = int(np.clip(2e9 / (_ARRAYS * world.size_bytes), 1, 50))
    batch = min(check_size("batch", batch), conversations)
    parts = []
    for start in progress(range(0, conversations, batch), label):
        # The last batch is filled up, so that there is one compilation.
        numbers = np.arange(start, start + batch)
        part = _batch(tuple(systems.items()), world, np.uint32(seed), numbers)
        parts.append(jax.device_get(part))
    joined = jax.tree.map(lambda *x: np.concatenate(x)[:conversations], *parts)
    questions, overflow, results = joined
    kind, truth, changed, mask = questions
    if overflow.any():
        warnings.warn(f"{overflow.sum()} of {conversations} {OVERFLOW}", stacklevel=2)
    found = {
        name: Judged(name, kind, truth, changed, mask, right, nothing, write, read, overflow)
        for name, (right, nothing, write, read) in zip(systems, results, strict=True)
    }
    for judged in found.values():
        blind = int((np.where(mask, judged.read.read_tokens, 0.0).sum(1) == 0.0).sum())
        if blind:
            warnings.warn(
                f"{judged.name} was shown nothing in {blind} of {conversations} conversations: its"
                " window may be smaller than a message",
                stacklevel=2,
            )
    return found


@partial(jax.jit, static_argnums=0)
def _batch(
    systems: tuple[tuple[str, System], ...], world: World, seed: Array, numbers: Array
) -> tuple[tuple[Array, ...], Array, list[tuple[Array, Array, Ledger, Ledger]]]:
    """Kinds and masks of questions, overflow, and each system's results [B, ...]."""

    def one(number: Array) -> tuple:
        key = jax.random.fold_in(jax.random.key(seed), number)
        world_key, question_key, write_key, read_key = jax.random.split(key, 4)
        conversation = generate(world_key, world)
        questions = ask(question_key, conversation, world)
        results = []
        for name, system in systems:
            memory, written = system.write(write_key, conversation)
            said, spent = system.read(read_key, memory, questions)
            said = _returned(name, written, said, spent, questions.key.shape)
            results.append((said == questions.answer, said == NONE, written, spent))
        asked = questions.kind, questions.answer, questions.changed, questions.mask
        return asked, conversation.overflow, results

    return jax.vmap(one)(numbers)


def _returned(
    name: str, written: Ledger, said: Array, spent: Ledger, shape: tuple[int, ...]
) -> Array:
    """The answers, after a look at what a system's functions have returned."""
    if np.shape(said) != shape or not jnp.issubdtype(jnp.result_type(said), jnp.integer):
        kind = f"{np.shape(said)} of {jnp.result_type(said)}"
        raise ValueError(f"{name}: read must return whole numbers of shape {shape}, got {kind}")
    for what, given, rows in (("write", written, ()), ("read", spent, shape)):
        if not isinstance(given, Ledger):
            raise ValueError(f"{name}: {what} must return a Ledger, got {type(given).__name__}")
        if given.calls.shape[:-1] != rows:
            raise ValueError(
                f"{name}: the ledger of {what} must have rows {rows}, got {given.calls.shape[:-1]}"
            )
    return said


def accuracy(judged: Judged, kinds: Kinds = None) -> Interval:
    """Share of right answers with its 95 % interval, clustered by conversation, within 0 to 1.

    Near 0 or 1 over few conversations the interval is too narrow, and of no width where all agree.

    Args:
      judged: from `evaluate`.
      kinds: of questions: a name, several (`LECTURE_KINDS`), or None for all.

    Returns:
      The interval.

    Raises:
      ValueError: if a kind is unknown, or no such question was asked.
    """
    mean, low, high = per_question(judged, _known(judged).right, kinds)
    return Interval(mean, max(low, 0.0), min(high, 1.0))


def per_question(judged: Judged, what: ArrayLike, kinds: Kinds = None) -> Interval:
    """Mean over questions of anything that is recorded, clustered by conversation.

    Args:
      judged: from `evaluate`.
      what: [N, Q] a number a question: `judged.nothing`, `judged.read.read_tokens`.
      kinds: of questions, as in `accuracy`.

    Returns:
      The mean with its 95 % interval.

    Raises:
      ValueError: if a kind is unknown, no such question was asked, or the shape is another.
    """
    wanted = chosen(kinds, judged)
    if np.shape(what) != wanted.shape:
        raise ValueError(f"expected a number a question {wanted.shape}, got {np.shape(what)}")
    return clustered_interval(np.where(wanted, what, 0).sum(1), wanted.sum(1))


def compare(first: Judged, second: Judged, kinds: Kinds = None, *, seed: int = 0) -> Comparison:
    """Whether one system is better than another on the same questions.

    The interval is a bootstrap over conversations of the paired difference.

    Args:
      first, second: from one call of `evaluate`.
      kinds: of questions, as in `accuracy`.
      seed: of the resampling.

    Returns:
      The difference, and what it says in words.

    Raises:
      ValueError: if the two were not asked the same questions, or a kind is unknown.
    """
    wanted = chosen(kinds, first, second)
    ahead = np.where(wanted, first.right.astype(int) - second.right, 0).sum(1)
    asked = wanted.sum(1)
    difference = clustered_bootstrap(ahead, asked, seed)
    mean, low, high = difference
    if low > 0:
        words = f"{first.name} is better than {second.name} by {mean:.3f} ({low:.3f} .. {high:.3f})"
    elif high < 0:
        words = (
            f"{second.name} is better than {first.name} by {-mean:.3f} ({-high:.3f} .. {-low:.3f})"
        )
    elif not (first.right != second.right)[wanted].any():
        words = f"{first.name} and {second.name} are right on the same questions"
    else:
        words = (
            f"{first.name} and {second.name} are not distinguishable at n = {len(asked)}"
            f" conversations: {mean:+.3f} ({low:+.3f} .. {high:+.3f})"
        )
    return Comparison(difference, words)


def records(results: Mapping[str, Judged]) -> list[dict[str, object]]:
    """Tidy rows, one a system and kind of question, for `jaxmem.results`.

    Args:
      results: from `evaluate`.

    Returns:
      Rows with accuracy and its interval, what reading took a question and writing a conversation.
    """
    rows = []
    for name, judged in results.items():
        for kind in KINDS:
            if not judged.mask[judged.kind == kind_index(kind)].any():
                continue
            mean, low, high = accuracy(judged, kind)
            rows.append(
                {
                    "system": name, "kind": kind, "conversations": len(judged.mask),
                    "accuracy": mean, "low": low, "high": high,
                    "nothing": per_question(judged, judged.nothing, kind).mean,
                    "read_tokens": per_question(judged, judged.read.read_tokens, kind).mean,
                    "read_calls": per_question(judged, judged.read.calls.sum(-1), kind).mean,
                    "write_calls": float(judged.write.calls.sum(-1).mean()),
                    "write_prefill_tokens": float(judged.write.prefill_tokens.sum(-1).mean()),
                    "overflow": int(judged.overflow.sum()),
                }
            )  # fmt: skip
    return rows


def _known(judged: Judged) -> Judged:
    if not isinstance(judged, Judged):
        raise ValueError(f"expected what `evaluate` found of a system, got {judged!r:.60}")
    return judged


def chosen(kinds: Kinds, *judged: Judged) -> np.ndarray:
    """Which questions count, of those that all the systems were asked.

    Args:
      kinds: as in `accuracy`.
      judged: from one call of `evaluate`.

    Returns:
      [N, Q] of bool.

    Raises:
      ValueError: if a kind is unknown, no such question was asked, or the systems were asked
        different questions.
    """
    first, *others = map(_known, judged)
    for other in others:
        pairs = ((getattr(x, name) for x in (first, other)) for name in ("mask", "kind", "answer"))
        if not all(np.array_equal(a, b) for a, b in pairs):
            raise ValueError(f"{first.name} and {other.name} were not asked the same questions")
    if kinds is not None and not np.iterable(kinds):
        raise ValueError(f"expected a kind of question, several or None, got {kinds!r}")
    names = KINDS if kinds is None else (kinds,) if isinstance(kinds, str) else tuple(kinds)
    wanted = first.mask & np.isin(first.kind, [kind_index(name) for name in names])
    if not wanted.any():
        raise ValueError(f"no question of kind {', '.join(names)} was asked")
    return wanted
