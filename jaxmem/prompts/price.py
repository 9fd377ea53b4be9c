"""What a log costs under a provider's cache rules, call by call, and what is the least it could."""

import dataclasses
import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from jaxmem.common import check_number, choice, lookup
from jaxmem.prompts.log import KINDS, PromptLog
from jaxmem.prompts.reuse import reuse, served
from jaxmem.prompts.rules import RULES, Rules

MARKS = ("as_sent", "automatic")
_TOOLS, _SYSTEM = KINDS.index("tools"), KINDS.index("system")


class LogPrice(NamedTuple):
    """The tokens of each call by how they are charged, and the sums in money.

    usd = input (fresh + write written + read_multiplier read) + output

    Attributes:
      rules: whose.
      fresh: int64 [C], prompt tokens at the price of input.
      written: int64 [C], prompt tokens at the price of a write, where that is another.
      read: int64 [C], prompt tokens at the price of a read; the three add up to the prompt.
      usd: of all calls, USD; None where there is no price a token.
      usd_no_cache: the same calls with every prompt token at the price of input.
      usd_perfect: with a cache without minimum, blocks or expiry that also keeps what stands
        behind a change: each call pays the write price (that of input where writes are free) for
        tokens that the earlier call most like it did not hold, and the read price for the rest.
        All fresh tokens are written, so a log that caches nothing and repeats little can be
        cheaper where writes cost more.
      usd_output: the answers' part, the same in all three.
      notes: what in this log the rules could not be applied to as they stand.
    """

    rules: Rules
    fresh: np.ndarray
    written: np.ndarray
    read: np.ndarray
    usd: float | None
    usd_no_cache: float | None
    usd_perfect: float | None
    usd_output: float | None
    notes: tuple[str, ...]

    @property
    def share_read(self) -> float:
        """Tokens read over all prompt tokens; 0 for an empty log."""
        prompt = int(self.fresh.sum() + self.written.sum() + self.read.sum())
        return float(self.read.sum() / max(prompt, 1))


def price(
    log: PromptLog,
    rules: str | Rules,
    *,
    usd_per_million: float | None = None,
    output_usd_per_million: float | None = None,
    marks: str = "as_sent",
) -> LogPrice:
    """A log under one provider's rules.

    Caches are kept by model. Automatic ones read what `reuse` serves. Of those with breakpoints
    an entry is a prefix of whole segments; a call reads the longest live one that ends within
    the look-back of one of its breakpoints, writes from there to its last breakpoint, and starts
    the time to live of the entries at its breakpoints and of the one that it read. An entry can
    be read by all later calls of the log, also those sent before the first was answered.

    Args:
      log: the calls.
      rules: a name of `RULES`, or rules of one's own.
      usd_per_million: price of input tokens in place of the rules', USD a million; answers then
        are free unless the next is given too.
      output_usd_per_million: price of output tokens in place of the rules'.
      marks: where breakpoints stand. "as_sent": where the log has them. "automatic": after the
        last tools segment, the last system segment and each of the last two others.

    Returns:
      Tokens by call, and money.

    Raises:
      ValueError: for an unknown name, or a price that is negative or no number.

    Source: the documents that `RULES` names.
    """
    return _price(log, rules, usd_per_million, output_usd_per_million, marks, {})


def prices(
    log: PromptLog,
    rules: Iterable[str | Rules] = tuple(RULES),
    *,
    usd_per_million: float | None = None,
    output_usd_per_million: float | None = None,
    marks: str = "as_sent",
) -> list[dict[str, Any]]:
    """A log under several providers' rules, as rows of a table.

    Args:
      log: the calls.
      rules: names of `RULES` or rules of one's own; all of `RULES` by default.
      usd_per_million: as `price`.
      output_usd_per_million: as `price`.
      marks: as `price`.

    Returns:
      A record for each: rule, provider, model, as_of, tokens fresh, written and read,
      share_read, usd, usd_no_cache, usd_perfect, usd_output, and notes joined to a line.

    Raises:
      ValueError: as `price`.
    """
    records = []
    caches: dict[str, tuple[PromptLog, np.ndarray]] = {}
    for one in [_rules(one) for one in rules]:
        found = _price(log, one, usd_per_million, output_usd_per_million, marks, caches)
        records.append(
            {
                "rule": one.name,
                "provider": one.provider,
                "model": one.model,
                "as_of": one.as_of,
                "fresh": int(found.fresh.sum()),
                "written": int(found.written.sum()),
                "read": int(found.read.sum()),
                "share_read": found.share_read,
                "usd": found.usd,
                "usd_no_cache": found.usd_no_cache,
                "usd_perfect": found.usd_perfect,
                "usd_output": found.usd_output,
                "notes": "; ".join(found.notes),
            }
        )
    return records


def _price(
    log: PromptLog,
    rules: str | Rules,
    usd_per_million: float | None,
    output_usd_per_million: float | None,
    marks: str,
    caches: dict[str, tuple[PromptLog, np.ndarray]],
) -> LogPrice:
    """As `price`; `caches` keeps by scope what does not depend on the rest of the rules."""
    rules = _rules(rules)
    marks = choice(MARKS, marks, "choice of marks")
    for name, usd in (
        ("usd_per_million", usd_per_million),
        ("output_usd_per_million", output_usd_per_million),
    ):
        if usd is not None:
            check_number(name, usd, scalar=True)
            if not math.isfinite(usd):
                raise ValueError(f"{name} must be finite, got {usd}")
    if rules.scope not in caches:
        each = _by_model(log, rules.scope)
        caches[rules.scope] = each, reuse(log, scope=rules.scope).fresh
    each, new = caches[rules.scope]
    notes = _notes(log, rules, marks)
    prompt = log.prompt_tokens
    if rules.how == "automatic":
        written, read = _automatic(each, rules)
    else:
        written, read = _breakpoints(each, rules, marks)
    fresh = prompt - written - read
    if usd_per_million is None:
        usd_per_million = rules.input_usd_per_million
        if output_usd_per_million is None:
            output_usd_per_million = rules.output_usd_per_million
    if usd_per_million is None:
        return LogPrice(rules, fresh, written, read, None, None, None, None, notes)
    if output_usd_per_million is None and log.output_tokens.any():
        notes += ("answers are not priced: no price of output tokens",)
    output = float(log.output_tokens.sum()) * (output_usd_per_million or 0.0) / 1e6

    def total(fresh: np.ndarray, written: np.ndarray, read: np.ndarray) -> float:
        tokens = (
            float(fresh.sum())
            + rules.write_multiplier * float(written.sum())
            + rules.read_multiplier * float(read.sum())
        )
        return tokens * usd_per_million / 1e6 + output

    none = np.zeros_like(prompt)
    return LogPrice(
        rules=rules,
        fresh=fresh,
        written=written,
        read=read,
        usd=total(fresh, written, read),
        usd_no_cache=total(prompt, none, none),
        usd_perfect=total(none, new, prompt - new),
        usd_output=output,
        notes=notes,
    )


def _rules(rules: str | Rules) -> Rules:
    return rules if isinstance(rules, Rules) else lookup(RULES, rules, "provider's cache rules")


def _by_model(log: PromptLog, scope: str) -> PromptLog:
    """The log with a session for each cache: a model, or a model in a session."""
    who = log.model if scope == "all" else log.session * max(len(log.models), 1) + log.model
    return dataclasses.replace(log, session=who)


def _automatic(log: PromptLog, rules: Rules) -> tuple[np.ndarray, np.ndarray]:
    """Tokens written and read by each call, [C] each."""
    block = rules.granularity
    read = served(
        log,
        block,
        ttl_s=rules.ttl_s if log.timed else math.inf,
        minimum_tokens=rules.minimum_tokens,
        tail_tokens=rules.tail_tokens,
    )
    if rules.write_multiplier == 1:
        return np.zeros_like(read), read
    whole = log.prompt_tokens // block * block
    return np.where(whole >= rules.minimum_tokens, whole - read, 0), read


def _breakpoints(log: PromptLog, rules: Rules, marks: str) -> tuple[np.ndarray, np.ndarray]:
    """Tokens written and read by each call, [C] each."""
    ttl_s = rules.ttl_s if log.timed else math.inf
    prefixes, bounds, times = log.prefix.tolist(), log.starts.tolist(), log.time_s.tolist()
    caches, never = log.session.tolist(), math.nan  # no age is within the time to live
    ends = np.concatenate([[0], np.cumsum(log.segment_tokens)]).tolist()
    blocks = np.cumsum(~log.part)  # the content block of each segment
    since: dict[tuple[int, int], float] = {}  # (cache, prefix) -> start of its time to live
    written, read = np.zeros(log.calls, np.int64), np.zeros(log.calls, np.int64)
    for call, (now, cache) in enumerate(zip(times, caches)):
        start = bounds[call]
        long_enough = [
            s
            for s in _stops(log, call, rules, marks)
            if ends[s + 1] - ends[start] >= rules.minimum_tokens
        ]
        if not long_enough:
            continue
        held, last = -1, long_enough[-1]
        for s in _looked_at(long_enough, start, blocks, rules.lookback):
            if ends[s + 1] - ends[start] < rules.minimum_tokens:
                break
            if now - since.get((cache, prefixes[s]), never) <= ttl_s:
                held = s
                break
        if held >= 0:
            read[call] = ends[held + 1] - ends[start]
            if rules.refreshed:
                since[cache, prefixes[held]] = now
        written[call] = ends[last + 1] - ends[start] - read[call]
        for s in long_enough:
            entry = (cache, prefixes[s])
            if rules.refreshed or not now - since.get(entry, never) <= ttl_s:
                since[entry] = now
    return written, read


def _stops(log: PromptLog, call: int, rules: Rules, marks: str) -> list[int]:
    """Segments of a call that a breakpoint follows, ascending, as many as count."""
    start, end = int(log.starts[call]), int(log.starts[call + 1])
    if marks == "as_sent":
        stops = (start + np.flatnonzero(log.mark[start:end])).tolist()
    else:
        kind = log.kind[start:end]
        parts = (kind == _TOOLS, kind == _SYSTEM, (kind != _TOOLS) & (kind != _SYSTEM))
        last = [start + np.flatnonzero(part)[-n:] for part, n in zip(parts, (1, 1, 2))]
        stops = np.unique(np.concatenate(last)).tolist()
    if rules.implicit and end > start:
        explicit = [s for s in stops if s != end - 1]
        return explicit[max(len(explicit) - rules.most_breakpoints + 1, 0) :] + [end - 1]
    return stops[-rules.most_breakpoints :]


def _looked_at(
    stops: list[int], start: int, blocks: np.ndarray, lookback: int | None
) -> Iterable[int]:
    """Segments at which an entry is looked for, the last first."""
    reach = stops[-1] + 1  # everything from here on has been looked at
    for stop in reversed(stops):
        least = start
        if lookback is not None:
            first = int(np.searchsorted(blocks, blocks[stop] - lookback + 1))
            least = max(start, first)
        yield from range(min(stop, reach - 1), least - 1, -1)
        reach = least


def _notes(log: PromptLog, rules: Rules, marks: str) -> tuple[str, ...]:
    """What of the rules does not apply to this log."""
    notes = []
    if log.calls and not log.timed and math.isfinite(rules.ttl_s):
        notes.append("the log has no times: nothing expires")
    if not log.encoder.exact:
        notes.append(f"tokens are {log.encoder.name}")
    if rules.how == "breakpoints" and marks == "as_sent":
        if log.calls and not rules.implicit and not log.mark.any():
            notes.append("no call has a breakpoint: nothing is cached")
        sent = np.concatenate([[0], np.cumsum(log.mark)])
        most = rules.most_breakpoints - rules.implicit
        many = int((sent[log.starts[1:]] - sent[log.starts[:-1]] > most).sum())
        if many:
            notes.append(f"calls with more than {most} breakpoints: {many}; the last ones count")
    return tuple(notes)
