"""How memory systems write, one message after another: stores, and MemGPT's queue."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

NEVER = 2**30
EXTRACT_PROMPT, UPDATE_PROMPT, SUMMARY_PROMPT, CONSOLIDATE_PROMPT = 1_000, 500, 300, 1_000
CALL_TOKENS, SUMMARY_TOKENS, ITEM_TOKENS = 30, 350, 20
RECENT = 10  # messages before a pair

Calls = dict[str, tuple[float, float, float]]


class Filed(NamedTuple):
    """A store after a conversation.

    live: numbers of the valid memories, one entry a copy.
    retired: numbers of the retired versions.
    calls: (calls, prefill tokens, generated tokens) by purpose.
    branches: how often each thing happened.
    """

    live: list[int]
    retired: set[int]
    calls: Calls
    branches: Counter[str]


class Agent(NamedTuple):
    """A MemGPT agent after a conversation.

    start: first message still in the queue.
    working: facts in the working context, the one written longest ago first.
    tokens: of queue, summary and working context.
    calls: (calls, prefill tokens, generated tokens) by purpose.
    branches: how often each thing happened.
    """

    start: int
    working: list[int]
    tokens: float
    calls: Calls
    branches: Counter[str]


def decide(u: float, is_change: bool, can_merge: bool, rates: Any) -> str:
    """What the model does with a fact: one of eight things, laid side by side on [0, 1).

    Args:
      u: uniform draw.
      is_change: whether it meets a memory of its own key.
      can_merge: whether there is another memory that it could be merged with.
      rates: how often each judgement is wrong.

    Returns:
      "known", "both", "delete", "lost" or "replace" for a change; "missed", "merge" or "new" else.
    """
    if is_change:
        choices = [
            ("known", rates.change_as_known),
            ("both", rates.change_as_new),
            ("delete", rates.delete_only),
            ("lost", rates.made_up_id),
        ]
        otherwise = "replace"
    else:
        choices = [("missed", rates.new_as_known), ("merge", rates.false_merge)]
        otherwise = "new"
    reached = 0.0
    for choice, share in choices:
        reached += share
        if u < reached:
            return "new" if choice == "merge" and not can_merge else choice
    return otherwise


ADDS = {"both", "replace", "merge", "new"}
DROPS = {"delete", "replace", "merge"}


def in_order(moments: np.ndarray) -> dict[int, list[int]]:
    """Which candidates come up at each message.

    Args:
      moments: [C] the message of each; NEVER where it does not come up.

    Returns:
      Numbers of candidates, ascending, by message.
    """
    found: dict[int, list[int]] = {}
    for number, moment in enumerate(moments):
        if moment < NEVER:
            found.setdefault(int(moment), []).append(number)
    return found


def file_all(
    conversation: Any,
    candidates: Any,
    draws: Any,
    rates: Any,
    policy: str,
    similar: int = 10,
    consolidate_every: int | None = None,
) -> Filed:
    """Extraction pair by pair, and each fact found filed: a list of memories.

    Args:
      conversation: tokens [M], messages and facts (key [F]).
      candidates: C of them: items (key, time [C]), message, extracted, tokens [C], embeddings
        [C, D]; the first F are facts, the rest made up.
      draws: found, judgement [2, C] and doubled [C].
      rates: how often each judgement is wrong.
      policy: "update", "add_only", "invalidate" or "bitemporal".
      similar: memories that filing is shown.
      consolidate_every: messages between two consolidations, or None.

    Returns:
      The store.
    """
    key, stamp = candidates.items.key, candidates.items.time
    vectors = np.asarray(candidates.embeddings, np.float64)
    lengths = [float(x) for x in candidates.tokens]
    facts = len(conversation.facts.key)
    messages = int(conversation.messages)
    text = [float(x) for x in conversation.tokens[:messages]]
    live: list[int] = []
    retired: set[int] = set()
    branches: Counter[str] = Counter()
    asked, shown_tokens, fixed, stored_tokens = 0, 0.0, 0, []
    prompts: list[float] = []

    def remove(number: int) -> None:
        live.remove(number)
        if policy in ("invalidate", "bitemporal"):
            retired.add(number)

    def comparable(n: int, c: int) -> bool:
        """Whether times count: an unknown one is older than any, but bitemporally nothing."""
        return policy != "bitemporal" or (stamp[n] >= 0 and stamp[c] >= 0)

    def similar_tokens() -> float:
        """Tokens of the similar memories, taken to be of mean length."""
        total = sum(lengths[n] for n in live)
        return total * min(1.0, similar / max(len(live), 1))

    def add(c: int, u: float, copies: int) -> bool:
        """Bring candidate c in; whether the model adds it."""
        nearest = sorted(live, key=lambda n: (-float(vectors[n] @ vectors[c]), n))
        same = [n for n in nearest[:similar] if key[n] == key[c]]
        branches["same key beyond the similar ones"] += key[c] in key[live] and not same
        choice = decide(u, bool(same), bool(live), rates) if policy != "add_only" else "both"
        branches[choice] += 1
        expires = False
        if choice in DROPS and policy == "bitemporal":
            # Every memory of the key is contradicted, those that filing was not shown too.
            met = [n for n in live if key[n] == key[c]] if same else nearest[:1]
            for old in sorted(set(met)):
                dated = comparable(old, c)
                branches["unknown time"] += not dated
                branches["same time"] += dated and stamp[old] == stamp[c] and choice in ADDS
                expires |= dated and stamp[old] > stamp[c] and choice in ADDS
                while dated and stamp[old] < stamp[c] and old in live:
                    remove(old)
        elif choice in DROPS:
            remove((same or nearest)[0])
        if expires:
            retired.add(c)
            branches["expired"] += 1
        elif choice in ADDS:
            live.extend([c] * copies)
            branches["doubled"] += copies > 1
        return choice in ADDS

    def look_again(c: int) -> int:
        """A second look at fact c; 1 if it is added now."""
        added = False
        if not draws.found[1, c]:
            return 0
        same = [n for n in live if key[n] == key[c] and comparable(n, c)]
        is_outdated = any(stamp[n] > stamp[c] for n in same)
        branches["outdated"] += is_outdated
        if c not in live and c not in retired and not is_outdated:
            added = add(c, float(draws.judgement[1, c]), copies=1)
            branches["added later"] += added
        if c in live and policy != "add_only":
            while live.count(c) > 1:
                live.remove(c)
                branches["copy cleared"] += 1
            rivals = [n for n in live if key[n] == key[c] and comparable(n, c)]
            for n in [n for n in rivals if stamp[n] < stamp[c]]:
                remove(n)
                branches["stale cleared"] += 1
        return int(added)

    arrivals = in_order(candidates.message)
    for message in range(messages):
        if message % 2 == 0:
            prompt = EXTRACT_PROMPT + sum(text[max(message - RECENT, 0) : message + 2])
            prompts.append(prompt + (similar_tokens() if policy == "add_only" else 0.0))
        for c in arrivals.get(message, []):
            if candidates.extracted[c]:
                if policy != "add_only":
                    shown_tokens += UPDATE_PROMPT + similar_tokens()
                    asked += 1
                add(c, float(draws.judgement[0, c]), copies=2 if draws.doubled[c] else 1)
        if consolidate_every and (message + 1) % consolidate_every == 0:
            stored_tokens.append(sum(lengths[n] for n in live))
            for earlier in range(message + 1 - consolidate_every, message + 1):
                for c in arrivals.get(earlier, []):
                    if c < facts:
                        fixed += look_again(c)

    extracted = sum(bool(x) for x in candidates.extracted)
    calls: Calls = {
        "extract": (
            len(prompts),
            sum(prompts),
            CALL_TOKENS * len(prompts) + ITEM_TOKENS * extracted,
        ),
        "update": (asked, shown_tokens, CALL_TOKENS * asked),
    }
    if consolidate_every:
        runs = len(stored_tokens)
        reread = sum(text[: runs * consolidate_every])
        calls["consolidate"] = (
            runs,
            runs * CONSOLIDATE_PROMPT + reread + sum(stored_tokens),
            CALL_TOKENS * runs + ITEM_TOKENS * fixed,
        )
    return Filed(live, retired, calls, branches)


def cut(tokens: Sequence[int], chunk_tokens: float) -> list[list[int]]:
    """Chunks of whole messages: one closes at the message that brings it to its size.

    Args:
      tokens: [N] of each message.
      chunk_tokens: size at which a chunk closes.

    Returns:
      The messages of each chunk.
    """
    chunks: list[list[int]] = []
    filled = float("inf")
    for message, size in enumerate(tokens):
        if filled >= chunk_tokens:
            chunks.append([])
            filled = 0.0
        chunks[-1].append(message)
        filled += float(size)
    return chunks


def run_agent(
    conversation: Any,
    draws: Any,
    rates: Any,
    queue_tokens: float,
    evicted_tokens: float,
    working_entries: float,
    consolidate_every: int | None = None,
) -> Agent:
    """MemGPT at writing: a queue that is flushed, and facts saved as their messages leave it.

    Args:
      conversation: tokens [M], messages and facts (key, time [F]).
      draws: found, judgement [2, F].
      rates: how often each judgement is wrong.
      queue_tokens: what the queue holds; the newest message stays in any case.
      evicted_tokens: how much leaves at a time, at least.
      working_entries: facts that the working context holds.
      consolidate_every: messages between two consolidations, or None.

    Returns:
      The agent.
    """
    key, time = conversation.facts.key, conversation.facts.time
    messages = int(conversation.messages)
    text = [int(x) for x in conversation.tokens[:messages]]
    states = in_order(time)
    queue: list[int] = []
    working: list[int] = []
    branches: Counter[str] = Counter()
    saves = fixes = flushes = flushed = context = 0
    first_flush = messages

    def save(f: int, look: int) -> str:
        """What becomes of fact f at a look; "" if the model does nothing."""
        same = [n for n in working if key[n] == key[f]]
        is_outdated = any(time[n] > time[f] for n in same)
        branches["outdated"] += is_outdated
        if not draws.found[look, f] or f in working or is_outdated:
            branches["skipped"] += 1
            return ""
        choice = decide(float(draws.judgement[look, f]), bool(same), False, rates)
        branches[choice] += 1
        if choice in DROPS:
            for n in same:
                working.remove(n)
        if choice in ADDS:
            working.append(f)
        if len(working) > working_entries:
            working.pop(0)
            branches["made room"] += 1
        return choice

    for message in range(messages):
        queue.append(message)
        while sum(text[m] for m in queue) > queue_tokens and len(queue) > 1:
            flushes += 1
            first_flush = min(first_flush, message)
            gone = 0
            while gone < evicted_tokens and len(queue) > 1:
                oldest = queue.pop(0)
                gone += text[oldest]
                for f in states.get(oldest, []):
                    shown = ITEM_TOKENS * len(working)
                    shown += SUMMARY_TOKENS if message > first_flush else 0
                    if save(f, 0):
                        saves += 1
                        context += shown
            flushed += gone
        if consolidate_every and (message + 1) % consolidate_every == 0:
            for earlier in range(message + 1 - consolidate_every, message + 1):
                for f in states.get(earlier, []):
                    fixes += save(f, 1) in ADDS
    branches["flushed"] = flushes

    entries = ITEM_TOKENS * len(working)
    tokens = sum(text[m] for m in queue) + entries + (SUMMARY_TOKENS if flushes else 0)
    calls: Calls = {
        "update": (saves, saves * (UPDATE_PROMPT + queue_tokens) + context, saves * CALL_TOKENS),
        "summarise": (
            flushes,
            flushes * SUMMARY_PROMPT + max(flushes - 1, 0) * SUMMARY_TOKENS + flushed,
            flushes * SUMMARY_TOKENS,
        ),
    }
    if consolidate_every:
        runs = messages // consolidate_every
        reread = sum(text[: runs * consolidate_every])
        calls["consolidate"] = (
            runs,
            runs * (CONSOLIDATE_PROMPT + entries) + reread,
            runs * CALL_TOKENS + fixes * ITEM_TOKENS,
        )
    return Agent(queue[0] if queue else 0, working, tokens, calls, branches)
