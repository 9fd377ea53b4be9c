"""MemGPT in numpy; part of the rival, see `dialogue_numpy.py`."""

from typing import Any, NamedTuple

import numpy as np
from dialogue_numpy_retrieval import Outcome, Scored, ledger
from dialogue_numpy_stores import EVERY, Draws, Schedule, schedule
from dialogue_numpy_world import (
    ASKS,
    FINDS,
    HOP,
    LATER,
    NOISE,
    PERSON_WORD,
    PREDICATE,
    PREDICATE_WORD,
    PREDICATES,
    SAME,
    SLOTS,
    THEIRS,
    VERSION,
    F,
    H,
    M,
    Q,
    Talk,
    bits,
    f32,
    first,
    highest,
    packed,
    pick,
    signs,
    unit,
)

from jaxmem.dialogue.questions import NEWEST
from jaxmem.dialogue.systems import system
from jaxmem.dialogue.systems.memgpt import PAGE
from jaxmem.dialogue.world import NEVER

QUEUE, EVICTED, ENTRIES, PAGES = 6_000, 4_000, 30, 3


class Main(NamedTuple):
    """What a MemGPT agent holds: statements in sight [B, F], tokens [B], and its ledger."""

    sight: np.ndarray
    tokens: np.ndarray
    write: np.ndarray


def evict(t: Talk) -> tuple[np.ndarray, ...]:
    """(start of the queue [B], what evicted each statement [B, F], evictions, tokens gone)."""
    size = len(t.messages)
    rows, before = np.arange(size), t.end - t.tokens
    start, flushed, flushes = (np.zeros(size, np.int64) for _ in range(3))
    left = np.full((size, F), NEVER)
    while (grows := t.end[:, -1] > flushed + QUEUE).any():
        arrival = first(t.end, flushed + QUEUE, "right")
        begin = np.minimum(first(before, flushed + EVICTED), arrival)
        start = np.where(grows, begin, start)
        gone = (t.place < start[:, None]) & (left == NEVER)
        left = np.where(gone, arrival[:, None], left)
        flushed = np.where(grows, before[rows, np.minimum(start, M - 1)], flushed)
        flushes += grows
    return start, left, flushes, flushed


def save(
    t: Talk, draws: Draws, steps: Schedule, left: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(working context [B, F], calls, their context tokens, saved at second looks)."""
    size, rows, sleeps = len(t.messages), np.arange(len(t.messages)), bool(steps.again.any())
    slot, again = steps.slot, steps.again
    second = again.astype(np.intp)
    same = SAME[slot]  # [S, B, WIDTH]
    own, others = rows * (F + 1) + slot, (rows * (F + 1))[:, None] + same
    look = draws.found[second, rows, slot] & steps.happens
    may_add, may_drop = draws.adds[second, rows, slot], draws.drops[second, rows, slot]
    later = LATER[slot]
    written = np.full((size, F + 1), NEVER, np.int32)  # step; NEVER if absent, as is what pads
    flat = written.ravel()
    count, calls, fixes, context = (np.zeros(size, np.int64) for _ in range(4))
    moment = left[rows, slot]
    summed = (moment > left.min(1)) & (moment < NEVER)
    for number in range(len(slot)):
        mine, other, wanted = own[number], others[number], look[number]
        when = flat[other]  # [B, WIDTH]
        is_same = when < NEVER
        if sleeps:
            wanted = wanted & (flat[mine] == NEVER) & ~(is_same & later[number]).any(1)
        call = wanted & ~again[number] if sleeps else wanted
        calls += call
        context += call * (system.ITEM_TOKENS * count + system.SUMMARY_TOKENS * summed[number])
        dropped = is_same & (wanted & may_drop[number])[:, None]
        flat[other] = np.where(dropped, NEVER, when)
        adds = wanted & (may_add[number] | ~is_same.any(1))
        flat[mine[adds]] = number
        if sleeps:
            fixes += adds & again[number]
        count += adds
        count -= np.count_nonzero(dropped, axis=1)
        full = np.flatnonzero(count > ENTRIES)
        if full.size:
            written[full, written[full].argmin(1)] = NEVER
            count[full] -= 1
    return written[:, :F] < NEVER, calls, context, fixes


def memgpt_write(t: Talk, draws: Draws, queue: tuple[np.ndarray, ...], sleeps: bool) -> Main:
    """The main context after a conversation."""
    start, left, flushes, flushed = queue
    working, saves, context, fixes = save(t, draws, schedule(t, left, sleeps), left)
    entries = system.ITEM_TOKENS * working.sum(1)
    summary = np.where(flushes > 0, system.SUMMARY_TOKENS, 0)
    written = flushes * system.SUMMARY_TOKENS
    reread = np.maximum(flushes - 1, 0) * system.SUMMARY_TOKENS
    calls = {
        "update": (
            saves,
            saves * (system.UPDATE_PROMPT + QUEUE) + context,
            saves * system.CALL_TOKENS,
        ),
        "summarise": (flushes, flushes * system.SUMMARY_PROMPT + reread + flushed, written),
    }
    if sleeps:
        runs = t.messages // EVERY
        reread = t.end[np.arange(len(runs)), runs * EVERY - 1]
        prefill = runs * (system.CONSOLIDATE_PROMPT + entries) + reread
        generated = runs * system.CALL_TOKENS + fixes * system.ITEM_TOKENS
        calls["consolidate"] = (runs, prefill, generated)
    tokens = t.end[:, -1] - flushed + entries + summary
    sight = ((t.place >= start[:, None]) & t.exists) | working
    return Main(sight, tokens, ledger(len(start), (), **calls))


class Search(NamedTuple):
    """Pages of results: those of versions [B, q, WIDTH] and of holders' facts; their tokens."""

    page: np.ndarray  # [B, q, WIDTH] number of the page that states a version; PAGES if none
    their_page: np.ndarray  # [B, 8, H]
    tokens: np.ndarray  # [B, q, PAGES]


def search(t: Talk, best: np.ndarray, shown: np.ndarray, theirs: np.ndarray) -> Search:
    """Pages from the highest scores [B, q, 9] and those of statements."""
    best = np.sort(best, axis=-1)[..., ::-1]
    tokens = t.tokens[np.arange(len(best))[:, None, None], 1023 - (best & 1023)]
    least = best[..., PAGE - 1 :: PAGE, None]  # [B, q, PAGES, 1]
    hop = least[:, -len(HOP) :] if best.shape[1] == len(HOP) else least[:, HOP]
    return Search(
        (shown[..., None, :] < least).sum(-2),
        (theirs[..., None, :] < hop).sum(-2),
        tokens.reshape(*best.shape[:2], PAGES, PAGE).sum(-1),
    )


class Turns:
    """Searches under way in B conversations."""

    def __init__(self, t: Talk, main: Main) -> None:
        """Nothing but the main context in sight."""
        padded = np.append(main.sight, np.zeros((len(t.messages), 1), bool), axis=1)
        self.talk, self.shown, self.theirs = t, padded[:, SLOTS], padded[:, THEIRS]
        self.tokens, self.resent, self.turned = (np.zeros((len(t.messages), Q), f32) for _ in "123")

    def holder(self) -> np.ndarray:
        """[B, 8] version of the holder in sight, -1 if none."""
        return VERSION[NEWEST][bits((self.shown & self.talk.asked)[:, HOP])]

    def lacks(self) -> np.ndarray:
        """[B, Q] whether no value is found; for two hops, no holder."""
        return VERSION[ASKS, bits(self.shown & self.talk.asked)] < 0

    def turn(self, found: Search, page: int, turns: np.ndarray, rows: Any = slice(None)) -> None:
        """Turn a page in some rows."""
        self.shown[:, rows] |= turns[..., None] & (found.page == page)
        self.theirs |= (turns if turns.shape[1] == len(HOP) else turns[:, HOP])[..., None] & (
            found.their_page == page
        )
        self.resent[:, rows] += turns * self.tokens[:, rows]
        self.tokens[:, rows] += turns * found.tokens[:, :, page]
        self.turned[:, rows] += turns


def memgpt_read(rng: np.random.Generator, t: Talk, scored: Scored, mains: list[Main]) -> list:
    """Answers of each agent; their searches by name share the draws and one product."""
    size = len(t.messages)
    shown, theirs = scored.shown.copy(), scored.theirs_by_role
    shown[:, HOP] = scored.shown_by_role
    found = search(t, highest(scored.best, PAGE * PAGES)[:, FINDS], shown, theirs)
    agents = [Turns(t, main) for main in mains]
    wording = NOISE * signs(rng, size, len(HOP))
    queries = []
    role = np.arange(len(HOP)) // 2
    for agent in agents:
        for page in range(PAGES):
            agent.turn(found, page, agent.lacks())
        person = PERSON_WORD + role * H + np.maximum(agent.holder(), 0)
        meant = t.words[np.arange(size)[:, None], person]
        meant += PREDICATE * t.words[:, PREDICATE_WORD + PREDICATES]
        meant = unit(meant)
        meant += wording
        queries.append(unit(meant))
    numbers = packed(np.concatenate(queries, axis=1) @ t.embeddings.transpose(0, 2, 1))
    at = np.append(np.minimum(t.place, M - 1), np.zeros((size, 1), np.int64), axis=1)
    picked = []
    for i in range(len(agents)):
        rows = np.arange(len(HOP)) + i * len(HOP)
        picked.append((pick(numbers, rows, at[:, SLOTS[HOP]]), pick(numbers, rows, at[:, THEIRS])))
    best = highest(numbers, PAGE * PAGES)
    outcomes = []
    for i, (agent, main) in enumerate(zip(agents, mains, strict=True)):
        rows = np.arange(len(HOP)) + i * len(HOP)
        by_name = search(t, best[:, rows], *picked[i])
        for page in range(PAGES):
            holder = agent.holder()
            turns = (holder >= 0) & ~t.knows(holder, agent.theirs)
            agent.turn(by_name, page, turns & (agent.turned[:, HOP] < PAGES), HOP)
        prompt = (system.ANSWER_PROMPT + main.tokens)[:, None]
        searches = agent.turned * prompt + agent.resent
        calls = {
            "search": (agent.turned, searches, agent.turned * system.CALL_TOKENS),
            "answer": (1, prompt + agent.tokens, system.REPLY_TOKENS),
        }
        outcomes.append(
            Outcome(
                t.right(agent.shown, agent.theirs), main.tokens[:, None] + agent.tokens,
                PAGE * agent.turned, ledger(size, (Q,), **calls), main.write,
            )
        )  # fmt: skip
    return outcomes
