"""Ledgers priced: calls and tokens of memory systems as GPU seconds, and where their costs cross.

A call costs the prefill of its prompt and its share of decoding on devices that are full of such
users. Embeddings and searches cost nothing here, and what is answered right is not weighed.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jaxmem.common import Interval, check_flag, check_number, clustered_interval, lookup
from jaxmem.dialogue.judging import Judged, Kinds, chosen
from jaxmem.dialogue.systems import PURPOSES, Ledger, system
from jaxmem.results import Record
from jaxmem.roofline import Accelerator, Constant, Measured, Model
from jaxmem.roofline.break_even import share_s
from jaxmem.roofline.cost import Efficiency, kv_cache_bytes, prefill, throughput
from jaxmem.roofline.efficiency import resolve

__all__ = ["BreakEvenTokens", "Price", "break_even_tokens", "overtakes", "price", "records",
           "with_answers"]  # fmt: skip

_FIXED = {"extract": system.EXTRACT_PROMPT, "update": system.UPDATE_PROMPT,
          "summarise": system.SUMMARY_PROMPT, "consolidate": system.CONSOLIDATE_PROMPT}  # fmt: skip
_MOST = 1e9  # devices, or seconds a question: far beyond any use, and finite
_P = len(PURPOSES)
# [P] instructions that open each prompt at writing; what opens it at reading is not recorded.
_INSTRUCTIONS = np.array([float(_FIXED.get(purpose, 0.0)) for purpose in PURPOSES])


class Price(NamedTuple):
    """What one system costs on an accelerator.

    write_s: GPU seconds to write a conversation and, where prefixes are kept, to read once what
      all its questions share; with the 95 % interval by conversation.
    read_s: GPU seconds a question, with the 95 % interval clustered by conversation.
    kept_bytes: KV kept for a conversation between questions, the mean; 0 where nothing is.
    """

    write_s: Interval
    read_s: Interval
    kept_bytes: float


class BreakEvenTokens(NamedTuple):
    """Questions after which writing has prefilled no more tokens than the other system's reading.

    gross: as exercise 2 counts, all that the other shows a question being saved.
    net: less what the system itself prefills at a question.
    """

    gross: Interval
    net: Interval


def price(
    judged: Judged,
    model: Model,
    accelerator: Accelerator,
    *,
    cached: bool = False,
    kinds: Kinds = None,
    held_s: float = 0.0,
    devices: float = 1,
    efficiency: Efficiency = None,
) -> Price:
    """GPU seconds that a system takes to write a conversation and to answer a question.

    seconds = sum over calls of prefill(prompt | kept) + generated / (tokens/s of full devices)

    Prompts count by their mean length, for each purpose in each conversation or question. With
    `cached`, a server keeps prefixes: at reading what all questions of a conversation share
    (`Ledger.fixed_tokens`: all of full context, MemGPT's main context, nothing that is retrieved),
    which is then prefilled once and charged to writing; at writing the instructions that open each
    prompt, and no more: a save edits MemGPT's working context, which stands before its queue. What
    is kept is still read at every step of decoding, and takes memory then. Between questions it
    costs nothing (as in host memory, its transfer hidden) unless `held_s` says otherwise.

    Args:
      judged: from `evaluate`: N conversations, Q questions each.
      model: the language model that makes all calls.
      accelerator: one device.
      cached: whether prefixes are kept.
      kinds: of questions: a name, several, or None for all.
      held_s: seconds before each question for which what is kept holds memory of the device; it is
        charged by its share of the memory that the weights leave.
      devices: devices that serve together.
      efficiency: see `jaxmem.roofline.efficiency.resolve`.

    Returns:
      The price; infinite where a prompt does not fit into the memory.

    Raises:
      ValueError: if a kind is unknown or was not asked, a number is out of range, the ledger has
        tokens without calls or calls without a prompt, the weights do not fit on the devices, or
        the accelerator is a stack.
    """
    wanted = chosen(kinds, judged)
    return _price(_seconds(judged, model, accelerator, cached, held_s, devices, efficiency), wanted)


def overtakes(
    judged: Judged,
    other: Judged,
    model: Model,
    accelerator: Accelerator,
    *,
    cached: bool = False,
    kinds: Kinds = None,
    held_s: float = 0.0,
    devices: float = 1,
    efficiency: Efficiency = None,
) -> Interval:
    """Questions a conversation from which on a system costs less in all than another.

    n = (write - other's write) / (other's read - read), in GPU seconds

    With the two exchanged, the questions from which on the other is cheaper: one that writes for
    less but reads for more leads until then.

    Args:
      judged: the system.
      other: full context, say, judged on the same questions.
      model, accelerator, cached, kinds, held_s, devices, efficiency: as in `price`.

    Returns:
      The number with its 95 % interval by conversation (linearised); 0 if the system is cheaper
      from the first question on, infinite if it never stays cheaper, both without an interval.

    Raises:
      ValueError: as `price`, or if the two were not asked the same questions.
    """
    wanted = chosen(kinds, judged, other)
    ours, theirs = (
        _seconds(x, model, accelerator, cached, held_s, devices, efficiency)
        for x in (judged, other)
    )
    return _overtakes(ours, theirs, wanted)


def break_even_tokens(judged: Judged, other: Judged, kinds: Kinds = None) -> BreakEvenTokens:
    """Exercise 2's count: tokens prefilled at writing over tokens saved at a question.

    gross = write / other's material, net = (write - other's write) / (other's read - read)

    Args:
      judged: the system.
      other: full context, judged on the same questions.
      kinds: of questions, as in `price`.

    Returns:
      Both, with 95 % intervals by conversation; infinite if nothing is saved.

    Raises:
      ValueError: if a kind is unknown or was not asked, a number is out of range, or the two were
        not asked the same questions.
    """
    wanted = chosen(kinds, judged, other)
    _check(judged)
    _check(other)
    write, other_write = (_total(x.write) for x in (judged, other))
    read, other_read = (_total(x.read) for x in (judged, other))
    return BreakEvenTokens(
        _questions(write, np.asarray(other.read.read_tokens, np.float64), wanted),
        _questions(write - other_write, other_read - read, wanted),
    )


def with_answers(judged: Judged, answer_tokens: float) -> Judged:
    """The same conversations and questions with answers of another length.

    The world's answers have 30 tokens; decoding is most of the cost where prefixes are kept.

    Args:
      judged: from `evaluate`.
      answer_tokens: tokens generated by each call that answers.

    Returns:
      What was judged, with another ledger of reading.

    Raises:
      ValueError: if the length is below 1.
    """
    check_number("answer_tokens", answer_tokens, 1.0, scalar=True)
    _check(judged)
    answers = np.arange(_P) == PURPOSES.index("answer")
    tokens = jnp.where(answers, judged.read.calls * answer_tokens, judged.read.generated_tokens)
    return judged._replace(read=judged.read._replace(generated_tokens=tokens))


def records(
    results: Mapping[str, Judged],
    model: Model,
    accelerator: Accelerator,
    *,
    full: str = "full context",
    kinds: Kinds = None,
    held_s: float = 0.0,
    devices: float = 1,
    efficiency: Efficiency = None,
) -> list[Record]:
    """Tidy rows, one a system, without and with kept prefixes, for `jaxmem.results`.

    Args:
      results: from `evaluate`.
      model, accelerator, kinds, held_s, devices, efficiency: as in `price`.
      full: the name in `results` of the system that the others are compared with.

    Returns:
      Rows: tokens prefilled at writing and a question, seconds of both, with intervals; questions
      from which on the system is cheaper than `full` (`overtakes`) and `full` than it
      (`overtaken`); what ends in `_cached` is with kept prefixes.

    Raises:
      ValueError: as `overtakes`, or if `full` is not among the results.
    """
    base = lookup(results, full, "system")
    rows: list[Record] = []
    for name, judged in results.items():
        wanted = chosen(kinds, judged, base)
        tokens = break_even_tokens(judged, base, kinds)
        row: Record = {
            "system": name,
            "model": model.name,
            "accelerator": accelerator.name,
            "conversations": len(wanted),
            "write_prefill_tokens": float(_total(judged.write).mean()),
            "read_prefill_tokens": _ratio(_total(judged.read), wanted).mean,
            "break_even_tokens": tokens.gross.mean,
            "break_even_tokens_net": tokens.net.mean,
        }
        for cached, end in ((False, ""), (True, "_cached")):
            ours, theirs = (
                _seconds(x, model, accelerator, cached, held_s, devices, efficiency)
                for x in (judged, base)
            )
            write_s, read_s, row["kept_bytes" + end] = _price(ours, wanted)
            row |= _columns("write_s" + end, write_s) | _columns("read_s" + end, read_s)
            row |= _columns("overtakes" + end, _overtakes(ours, theirs, wanted))
            row["overtaken" + end] = _overtakes(theirs, ours, wanted).mean
        rows.append(row)
    return rows


class _Seconds(NamedTuple):
    """GPU seconds of each conversation [N] and question [N, Q], and what is kept [N]."""

    write_s: np.ndarray
    read_s: np.ndarray
    kept_bytes: np.ndarray


def _seconds(
    judged: Judged,
    model: Model,
    accelerator: Accelerator,
    cached: bool,
    held_s: float,
    devices: float,
    efficiency: Efficiency,
) -> _Seconds:
    for what, kind in ((model, Model), (accelerator, Accelerator)):
        if not isinstance(what, kind):
            raise ValueError(f"expected a roofline.{kind.__name__}, got {what!r}")
        if any(np.ndim(leaf) for leaf in jax.tree.leaves(what)):
            raise ValueError(f"expected one {kind.__name__.lower()}, got a stack of them")
    check_flag("cached", cached)
    check_number("devices", devices, 1.0, _MOST, scalar=True)
    check_number("held_s", held_s, 0.0, _MOST, scalar=True)
    if not float(throughput(model, accelerator, 1.0, devices=devices).free_bytes) > 0.0:
        raise ValueError(
            f"expected devices enough for the weights of {model.name}"
            f" ({model.weight_bytes / 1e9:.0f} GB), got {devices:g} x {accelerator.name}"
        )
    _check(judged)
    eff = resolve(efficiency, model, accelerator)
    # [N]; questions that were not asked may have anything in their rows.
    fixed, keep = np.where(judged.mask, judged.read.fixed_tokens, 0.0).max(1), float(cached)
    found = _spent_s(
        model, accelerator, eff, judged.write, judged.read,
        jnp.asarray(keep * _INSTRUCTIONS), keep * fixed, float(held_s), float(devices),
    )  # fmt: skip
    return _Seconds(*(np.asarray(x, np.float64) for x in found))


@jax.jit
def _spent_s(
    model: Model,
    accelerator: Accelerator,
    eff: Constant | Measured,
    write: Ledger,
    read: Ledger,
    instructions: Array,
    kept: Array,
    held_s: ArrayLike,
    devices: ArrayLike,
) -> tuple[Array, Array, Array]:
    """(writing [N], reading [N, Q], bytes kept [N]), given tokens kept [P] and [N]."""

    def calls_s(ledger: Ledger, kept_tokens: Array) -> Array:  # [..., P] -> [...]
        each = jnp.where(ledger.calls > 0.0, ledger.calls, 1.0)
        prompt = jnp.maximum(ledger.prefill_tokens / each, 1.0)
        generated = ledger.generated_tokens / each
        answer = jnp.maximum(generated, 1.0)
        share = share_s(model, accelerator, prompt, 0.0, answer, devices, eff)
        decode_s = jnp.where(jnp.isinf(share), jnp.inf, share * (generated / answer))
        call_s = read_s(prompt, jnp.minimum(kept_tokens, prompt)) + decode_s
        return jnp.where(ledger.calls > 0.0, ledger.calls * call_s, 0.0).sum(-1)

    def read_s(prompt: Array, kept_tokens: ArrayLike = 0.0) -> Array:
        whole = accelerator.times(devices)
        return prefill(model, whole, prompt, kept_tokens, efficiency=eff).total_s * devices

    once_s = jnp.where(kept > 0.0, read_s(jnp.maximum(kept, 1.0)), 0.0)  # [N]
    write_s = calls_s(write, instructions) + once_s  # [N]

    kept_bytes = kv_cache_bytes(model, kept)  # [N]
    free_bytes = throughput(model, accelerator, kept, devices=devices).free_bytes
    rent_s = held_s * devices * kept_bytes / jnp.maximum(free_bytes, 1.0)  # [N]
    question_s = calls_s(read, kept[:, None, None]) + rent_s[:, None]  # [N, Q]
    return write_s, question_s, kept_bytes


def _price(cost: _Seconds, wanted: np.ndarray) -> Price:
    write_s = _ratio(cost.write_s[:, None], np.ones((len(wanted), 1)))
    return Price(write_s, _ratio(cost.read_s, wanted), float(cost.kept_bytes.mean()))


def _overtakes(ours: _Seconds, theirs: _Seconds, wanted: np.ndarray) -> Interval:
    for cost, value in ((ours, math.inf), (theirs, 0.0)):  # what does not fit is never cheaper
        if not (np.isfinite(cost.write_s).all() and np.isfinite(cost.read_s[wanted]).all()):
            return _exactly(value)
    return _questions(ours.write_s - theirs.write_s, theirs.read_s - ours.read_s, wanted)


def _questions(extra: np.ndarray, saved: np.ndarray, wanted: np.ndarray) -> Interval:
    """Mean of `extra` [N] over the mean of `saved` [N, Q] where `wanted`, with its interval."""
    asked, total = wanted.sum(1), np.where(wanted, saved, 0.0).sum(1)
    slope, questions = float(total.sum()) / int(asked.sum()), float(asked.mean())
    if slope < 0.0 or (slope == 0.0 and extra.mean() >= 0.0):
        return _exactly(math.inf)
    if extra.mean() <= 0.0:
        return _exactly(0.0)
    # The mean saving is itself a ratio; to first order conversation i contributes this to it.
    slopes = slope + (total - slope * asked) / questions
    mean, low, high = clustered_interval(extra, slopes)
    if clustered_interval(total, asked).low <= 0.0:  # the saving may be none
        high = math.inf
    return Interval(mean, max(low, 0.0), high)


def _ratio(values: np.ndarray, wanted: np.ndarray) -> Interval:
    """Mean of [N, Q] where `wanted`, clustered by row; infinite if a value is."""
    values = np.where(wanted, values, 0.0)
    if np.isinf(values).any():
        return _exactly(math.inf)
    return clustered_interval(values.sum(1), wanted.sum(1))


def _exactly(value: float) -> Interval:
    return Interval(value, value, value)


def _columns(name: str, value: Interval) -> Record:
    return {name: value.mean, name + "_low": value.low, name + "_high": value.high}


def _total(spent: Ledger) -> np.ndarray:
    return np.asarray(spent.prefill_tokens, np.float64).sum(-1)


def _check(judged: Judged) -> None:
    """Refuse a ledger that no system can have."""
    if not isinstance(judged, Judged):
        raise ValueError(f"expected what `evaluate` found of a system, got {judged!r:.60}")
    shape = judged.mask.shape
    for when, spent, rows in (("write", judged.write, shape[:1]), ("read", judged.read, shape)):
        name = f"{judged.name}: {when}"
        for field in Ledger._fields:
            value = np.asarray(getattr(spent, field), np.float64)
            wide = rows if field in ("read_tokens", "fixed_tokens", "found") else (*rows, _P)
            if value.shape != wide:
                raise ValueError(f"{name}.{field} must have shape {wide}, got {value.shape}")
            bad = value[~(np.isfinite(value) & (value >= 0.0))]
            if bad.size:
                raise ValueError(f"{name}.{field} must be finite and at least 0, got {bad[0]:g}")
        idle = spent.calls == 0
        if (idle & (np.asarray(spent.prefill_tokens) + spent.generated_tokens > 0)).any():
            raise ValueError(f"{name}: expected tokens of calls only, got some without a call")
        if (~idle & (spent.prefill_tokens < spent.calls)).any():
            raise ValueError(f"{name}: expected a token or more a prompt, got calls with less")
        if (spent.fixed_tokens > spent.read_tokens).any():
            raise ValueError(f"{name}: fixed_tokens must be at most read_tokens, got more")
