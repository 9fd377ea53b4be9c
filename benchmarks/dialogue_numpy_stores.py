"""mem0 and its graph in numpy; part of the rival, see `dialogue_numpy.py`."""

from typing import Any, NamedTuple

import numpy as np
from dialogue_numpy_retrieval import Outcome, ledger, one_answer
from dialogue_numpy_world import (
    ABOUT,
    EARLIER,
    HOP,
    LATER,
    PAST,
    ROLE0,
    SAME,
    SLOTS,
    TABLE,
    THEIRS,
    TOLD0,
    TOPIC,
    F,
    M,
    Q,
    Talk,
    embed,
    f32,
    first,
    highest,
    packed,
)

from jaxmem.dialogue.systems import LECTURE_RATES, system
from jaxmem.dialogue.systems.mem0 import RECENT
from jaxmem.dialogue.world import NEVER

SIMILAR, HISTORY, EVERY = 10, 3, 20
# Chances of a change, cumulated: dropped as known, then kept beside the old; the rest replaces it.
KNOWN = LECTURE_RATES.change_as_known
BESIDE = KNOWN + LECTURE_RATES.change_as_new
LEAST = np.int32(-(2**31))
IS_TOPIC = (TOPIC[:, None] == np.arange(len(TABLE))).astype(f32)  # [slots of topics, K]


class Draws(NamedTuple):
    """Chances of filing, for first and second looks [2, B, F]."""

    found: np.ndarray
    adds: np.ndarray  # a change is added
    drops: np.ndarray  # what it changes is dropped


def draw(rng: np.random.Generator, size: int) -> Draws:
    """Draws for F statements."""
    u = rng.random((2, size, F), dtype=f32)
    found = rng.random((2, size, F), dtype=f32) < LECTURE_RATES.recall
    return Draws(found, u >= KNOWN, u >= BESIDE)


class Schedule(NamedTuple):
    """Steps [S, B]: which statement, whether it is a second look, whether it comes at all."""

    slot: np.ndarray
    again: np.ndarray
    happens: np.ndarray


def schedule(t: Talk, moment: np.ndarray, second_looks: bool) -> Schedule:
    """Statements in order of time, with second looks when their block of messages is complete."""
    if not second_looks:
        slot = np.argsort(t.place, axis=1)
        happens = np.take_along_axis(moment, slot, 1) < NEVER
        return Schedule(*_steps(slot, np.zeros_like(happens), happens))
    end = (t.place // EVERY + 1) * EVERY - 1
    end = np.where(end < t.messages[:, None], end, NEVER)
    both = np.concatenate([moment * 2, end * 2 + 1], axis=1)  # at one moment, second looks last
    order = np.argsort(both * 4096 + np.tile(np.minimum(t.place, 4095), 2), axis=1)
    happens = np.take_along_axis(both, order, 1) < 2 * NEVER
    return Schedule(*_steps(order % F, order >= F, happens))


def _steps(*rows: np.ndarray) -> list[np.ndarray]:
    """[S, B] steps up to the last that happens anywhere."""
    last = int(np.flatnonzero(np.append(True, rows[-1].any(0)))[-1])
    return [np.ascontiguousarray(row[:, :last].T) for row in rows]


class Store(NamedTuple):
    """mem0's memories after a conversation, and what filing them took."""

    live: np.ndarray  # [B, F]
    retired: np.ndarray  # [B, F] stored once and no longer valid
    update: tuple[Any, Any, Any]
    fixes: np.ndarray  # [B] stored at second looks
    live_tokens: np.ndarray  # [S + 1, B] before each step


def remember(
    t: Talk, like: np.ndarray, extracted: np.ndarray, tokens: np.ndarray, draws: Draws,
    steps: Schedule, bitemporal: bool,
) -> Store:  # fmt: skip
    """File statements one after another; what does not depend on the store is looked up ahead."""
    size, rows, sleeps = len(t.messages), np.arange(len(t.messages)), bool(steps.again.any())
    slot, again = steps.slot, steps.again
    second = again.astype(np.intp)
    same = SAME[slot]  # [S, B, WIDTH]
    own, others = rows * (F + 1) + slot, (rows * (F + 1))[:, None] + same
    likeness = like[rows[:, None], slot[..., None], np.minimum(same, F - 1)]
    # Ten others at most are nearer than the eleventh of all, the statement itself among these.
    eleventh = np.partition(like, F - SIMILAR - 1, axis=-1)[..., F - SIMILAR - 1]
    sure = likeness >= eleventh[rows, slot][..., None]
    look = np.where(again, draws.found[1][rows, slot], extracted[rows, slot]) & steps.happens
    may_add, may_drop = draws.adds[second, rows, slot], draws.drops[second, rows, slot]
    later, earlier = LATER[slot], EARLIER[slot]
    size_of = np.append(tokens, np.zeros((size, 1), f32), axis=1).ravel()
    live, stored = np.zeros((2, size * (F + 1)), bool)  # the last slot of each row pads
    live_tokens, count, asked, context, fixes = (np.zeros(size, f32) for _ in range(5))
    history = [live_tokens.copy()]
    for s in range(len(slot)):
        mine, other = own[s], others[s]
        is_same = live[other]  # [B, WIDTH]
        alike = np.where(is_same, likeness[s], f32(-2))
        nearest = alike.argmax(1)
        is_change = is_same[rows, nearest]
        unsure = np.flatnonzero(is_change & ~sure[s, rows, nearest])
        if unsure.size:
            nearer = like[unsure, slot[s, unsure]] > alike[unsure, nearest[unsure], None]
            closer = nearer & live.reshape(size, -1)[unsure, :F]
            is_change[unsure] = closer.sum(1) < SIMILAR
        wanted = look[s]
        if sleeps:
            new = ~live[mine] & ~(is_same & later[s]).any(1)
            wanted = wanted & (new | ~again[s])
        adds = wanted & (may_add[s] | ~is_change)
        drops = wanted & is_change & may_drop[s]
        old = other[rows, nearest]
        stays = adds
        if bitemporal:  # a statement that is older than what it meets expires itself
            late = old > mine
            stays = adds & ~(drops & late)
            drops = drops & ~late
        first_look = wanted & ~again[s] if sleeps else wanted
        asked += first_look
        context += first_look * live_tokens * np.minimum(1, SIMILAR / np.maximum(count, 1))
        stored[mine] |= adds
        live[old] &= ~drops
        live[mine] |= stays
        count += stays
        count -= drops
        live_tokens += stays * size_of[mine] - drops * size_of[old]
        if sleeps:
            fixes += adds & again[s]
            clears = look[s] & again[s] & live[mine]
            stale = clears[:, None] & is_same & earlier[s] & live[other]
            live[other] &= ~stale
            count -= stale.sum(1)
            live_tokens -= (stale * size_of[other]).sum(1)
            history.append(live_tokens.copy())
    update = (asked, asked * system.UPDATE_PROMPT + context, asked * system.CALL_TOKENS)
    live, stored = (flat.reshape(size, -1)[:, :F] for flat in (live, stored))
    return Store(live, stored & ~live, update, fixes, np.stack(history))


def read_store(
    t: Talk, scores: np.ndarray, tokens: np.ndarray, live: np.ndarray, write: np.ndarray,
    count: int = 10, retired: np.ndarray | None = None, hop: bool = False,
) -> Outcome:  # fmt: skip
    """Answers from the `count` valid memories most like each question."""
    masked = np.where(live[:, None], scores, LEAST)  # [B, Q, F]
    visible = masked >= np.maximum(highest(masked.copy(), count).min(-1), LEAST + 1)[..., None]
    shown = visible
    if hop:  # persons named by what is retrieved: both of what is told of each
        shown = visible.copy()
        shown[..., TOLD0:] |= (
            np.repeat(visible[..., ROLE0:TOLD0], 2, axis=-1) & live[:, None, TOLD0:]
        )
    what = np.stack([tokens, np.ones_like(tokens)], axis=-1)  # [B, F, 2]
    material = shown.astype(f32) @ what  # [B, Q, 2]
    versions = np.append(visible, visible[..., :1] & False, axis=-1)[
        :, np.arange(Q)[:, None], SLOTS
    ]
    theirs = shown[:, HOP[:, None], THEIRS]
    if retired is not None:  # the newest retired versions of keys that are retrieved
        padded = np.append(retired, retired[:, :1] & False, axis=1)[:, TABLE]  # [B, K, WIDTH]
        kept = padded & (np.cumsum(padded[..., ::-1], axis=-1)[..., ::-1] <= HISTORY)
        by_key = visible[:, PAST, :TOLD0].astype(f32) @ IS_TOPIC > 0  # [B, P, K]
        slots = np.zeros((len(live), F + 1, 2), f32)
        slots[:, :F] = what
        extra = (slots[:, TABLE] * kept[..., None]).sum(2)  # [B, K, 2]
        material[:, PAST] += by_key.astype(f32) @ extra
        versions[:, PAST] |= versions[:, PAST].any(-1)[..., None] & kept[:, ABOUT[PAST]]
    return one_answer(t.right(versions, theirs), material[..., 0], material[..., 1], write)


def mem0_cost(
    t: Talk, extracted: np.ndarray, tokens: np.ndarray, store: Store | None, sleeps: bool
) -> np.ndarray:
    """The ledger of writing of mem0 and its graph; without a store, of mem0 v3."""
    total = np.append(np.zeros((len(t.messages), 1)), t.end, axis=1)
    pair = np.arange(0, M, 2)
    exists = pair < t.messages[:, None]
    prompts = total[:, np.minimum(pair + 2, M)] - total[:, np.maximum(pair - RECENT, 0)]
    if store is None:  # extraction is shown similar memories, of mean length
        order = np.argsort(t.place, axis=1)
        ahead = first(np.take_along_axis(t.place, order, 1), np.broadcast_to(pair, exists.shape))
        here = np.take_along_axis(extracted, order, 1)
        lengths = np.take_along_axis(tokens, order, 1) * here
        count, live = (np.pad(np.cumsum(x, axis=1), ((0, 0), (1, 0))) for x in (here, lengths))
        count, live = (np.take_along_axis(x, ahead, 1) for x in (count, live))
        prompts = prompts + live * np.minimum(1, SIMILAR / np.maximum(count, 1))
    pairs, items = exists.sum(1), system.ITEM_TOKENS * extracted.sum(1)
    prefill = (exists * (system.EXTRACT_PROMPT + prompts)).sum(1)
    calls = {"extract": (pairs, prefill, system.CALL_TOKENS * pairs + items)}
    if store is not None:
        calls["update"] = store.update
    if store is not None and sleeps:
        end = np.arange(EVERY, M + 1, EVERY)
        runs = end <= t.messages[:, None]
        # Before a block is consolidated, statements of earlier ones have been looked at twice.
        places = np.sort(t.place, axis=1)
        step = sum(first(places, np.broadcast_to(at, runs.shape)) for at in (end, end - EVERY))
        step = np.minimum(step, len(store.live_tokens) - 1)
        kept = store.live_tokens[step, np.arange(len(step))[:, None]]
        prefill = system.CONSOLIDATE_PROMPT + total[:, end] - total[:, end - EVERY] + kept
        number = runs.sum(1)
        generated = system.CALL_TOKENS * number + system.ITEM_TOKENS * store.fixes
        calls["consolidate"] = (number, (prefill * runs).sum(1), generated)
    return ledger(len(pairs), (), **calls)


def stores(rng: np.random.Generator, t: Talk) -> dict[str, Outcome]:
    """mem0 and its graph."""
    size = len(t.messages)
    memories = embed(rng, t.meanings)  # [B, F, D]
    tokens = rng.standard_normal((size, F), dtype=f32) * f32(5) + system.ITEM_TOKENS
    tokens = np.maximum(np.rint(tokens), 6)
    extracted = (rng.random((size, F), dtype=f32) < LECTURE_RATES.recall) & t.exists
    draws = draw(rng, size)
    like = memories @ memories.transpose(0, 2, 1)
    scores = packed(t.queries[:, :Q] @ memories.transpose(0, 2, 1))

    def file(second_looks: bool = False, bitemporal: bool = False) -> tuple[Store, np.ndarray]:
        steps = schedule(t, t.place, second_looks)
        store = remember(t, like, extracted, tokens, draws, steps, bitemporal)
        return store, mem0_cost(t, extracted, tokens, store, second_looks)

    def read(live: np.ndarray, cost: np.ndarray, **how: Any) -> Outcome:
        return read_store(t, scores, tokens, live, cost, **how)

    store, cost = file()
    two_times, two_times_cost = file(bitemporal=True)
    slept, slept_cost = file(second_looks=True)
    return {
        "mem0": read(store.live, cost),
        "mem0 add-only": read(extracted, mem0_cost(t, extracted, tokens, None, False), count=20),
        "mem0g": read(store.live, cost, retired=store.retired, hop=True),
        "mem0g no hop": read(store.live, cost, retired=store.retired),
        "bitemporal": read(two_times.live, two_times_cost, retired=two_times.retired, hop=True),
        "mem0 sleep": read(slept.live, slept_cost),
    }
