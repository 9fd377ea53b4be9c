"""A session of MemGPT against its twin, its closed forms and the lecture."""

import dataclasses
import math
import re
from functools import partial
from typing import Any

import jax
import numpy as np
import pytest

from jaxmem.common import run_interval
from jaxmem.reference import memgpt_session as reference
from jaxmem.sessions.session import (
    LAYOUTS,
    LECTURE,
    PRESETS,
    Draws,
    Session,
    Settings,
    Trace,
    _sessions,
    _simulate,
    draws,
    memgpt,
    memgpt_sessions,
)

FRONT, LAST, LOG, FROZEN = range(4)
SMALL = Settings(
    window_tokens=400,
    system_tokens=50,
    memory_tokens=20,
    memory_limit_tokens=60,
    message_tokens=20,
    message_sd=8,
    fact_share=0.7,
    saves_a_warning=2,
    search_tokens=40,
    edit_tokens=10,
    warning_tokens=9,
    summary_tokens=30,
    forgets=1,
)
TINY = [
    SMALL,
    dataclasses.replace(
        SMALL, saved_at_once=1.0, warn_share=1.0, search_share=1.0, flush_any_call=1, forgets=0
    ),
    dataclasses.replace(SMALL, flush_share=0.5, evicted_share=1.0, saves_a_warning=0),
    dataclasses.replace(
        SMALL, memory_limit_tokens=40, note_tokens=0, evicted_of_queue=1.0, flush_any_call=1
    ),
    dataclasses.replace(
        SMALL, message_sd=0, fact_share=1.0, saves_a_warning=4, warn_share=0.3, forgets=0
    ),
    # At its flush a prompt may hold two messages only: the next call has to make room.
    dataclasses.replace(
        SMALL, message_tokens=43, search_share=1.0, fact_share=1.0, saved_at_once=1.0,
        search_tokens=60, edit_tokens=40, warn_share=0.5, flush_share=0.5, evicted_share=1.0,
        summary_tokens=1, flush_any_call=1,
    ),
]  # fmt: skip
CASES = {
    "evict .1": Settings(evicted_share=0.1),
    "paper": LECTURE,
    "evict .75": Settings(evicted_share=0.75),
    "p_now .5": Settings(saved_at_once=0.5),
    "p_now 1": Settings(saved_at_once=1.0),
    "any call": Settings(flush_any_call=1, forgets=1),
    **{name: settings for name, settings in PRESETS.items() if name != "paper"},
}


def stacked(settings: list[Settings]) -> Settings:
    return jax.tree.map(lambda *x: np.array(x, np.float32), *settings)


def row(tree: Any, *at: int) -> dict[str, np.ndarray]:
    return {name: np.asarray(value)[at] for name, value in tree._asdict().items()}


def check_against_the_twin(drawn: dict, got: dict, settings: Settings) -> dict[str, Any]:
    wanted = reference.session(drawn, vars(settings))
    assert set(got) == set(wanted)
    for name, value in wanted.items():
        np.testing.assert_array_equal(got[name], value, f"{name} of {settings}")
    return wanted


KEYS = jax.random.split(jax.random.key(0), 100)


@pytest.fixture(scope="module")
def runs() -> dict[str, Session]:
    """100 sessions of each case, of the same conversations."""
    crossed = jax.tree.map(np.asarray, memgpt_sessions(KEYS, stacked(list(CASES.values()))))
    return {name: Session(**row(crossed, i)) for i, name in enumerate(CASES)}


@pytest.mark.parametrize("name", CASES)
def test_sessions_equal_the_twin(runs: dict[str, Session], name: str) -> None:
    numbers = jax.tree.map(np.float32, CASES[name])
    drawn = many_draws(KEYS[:2], numbers)
    for i in range(2):
        wanted = check_against_the_twin(row(drawn, i), row(runs[name], i), CASES[name])
        assert wanted["evictions"] > 5


@jax.jit
def many_draws(keys: jax.Array, settings: Settings) -> Draws:
    return jax.vmap(partial(draws, rounds=600), (0, None))(keys, settings)


@partial(jax.jit, static_argnums=2)
def played(keys: jax.Array, settings: Settings, rounds: int) -> tuple[Draws, Session, Trace]:
    """Draws, sessions and calls of settings [S], a key each."""

    def play(key: jax.Array, settings: Settings) -> tuple[Draws, Session, Trace]:
        drawn = draws(key, settings, rounds)
        return drawn, *_simulate(drawn, settings, tracing=True)

    return jax.vmap(play)(keys, settings)


@pytest.fixture(scope="module")
def short() -> tuple[list[Settings], Draws, Session, Trace]:
    """Sessions of 37 rounds, 5 of each of the tiny windows."""
    settings = TINY * 5
    keys = jax.random.split(jax.random.key(37), len(settings))
    return settings, *jax.tree.map(np.asarray, played(keys, stacked(settings), 37))


SUMS = ("prompt_tokens", "new_tokens", "memory_tokens", "eviction_tokens")


def test_tiny_windows_equal_the_twin(short: tuple) -> None:
    settings, drawn, found, _ = short
    wanted = [
        check_against_the_twin(row(drawn, i), row(found, i), one) for i, one in enumerate(settings)
    ]
    assert sum(w["evictions"] for w in wanted) > 200
    assert sum(w["lost"] for w in wanted) > 100


@pytest.mark.parametrize("rounds", [1, 2, 7, 37])
def test_calls_equal_those_of_the_twin(short: tuple, rounds: int) -> None:
    settings, drawn, _, steps = short
    for i, one in enumerate(settings):
        calls = list(reference.calls(row(drawn, i, slice(rounds)), vars(one)))
        made = steps.made[i, :rounds]
        assert np.nonzero(made)[0].tolist() == [call.round for call in calls]
        for name in SUMS:
            got = getattr(steps, name)[i, :rounds][made]
            np.testing.assert_array_equal(got, [getattr(call, name) for call in calls], name)


def test_the_trace_sums_to_the_session(short: tuple) -> None:
    _, _, found, steps = short
    for name in SUMS:
        calls = np.where(steps.made[..., None], getattr(steps, name), 0)
        np.testing.assert_array_equal(calls.sum((1, 2)), getattr(found, name), name)
    np.testing.assert_array_equal(steps.evicted.sum((1, 2)), found.evictions)
    np.testing.assert_array_equal(steps.made.sum((1, 2)), found.calls)


def test_one_round_and_one_program_for_all_settings() -> None:
    before = _sessions._cache_size()
    for settings in (LECTURE, dataclasses.replace(TINY[1], window_tokens=500)):
        found = memgpt_sessions(KEYS[:3], settings, 1)
        for i in range(3):
            drawn = draws(KEYS[i], settings, 1)
            check_against_the_twin(row(drawn), row(found, i), settings)
    assert _sessions._cache_size() == before + 1


def test_prompts_of_the_twin_are_what_is_counted(short: tuple) -> None:
    settings, drawn, found, _ = short
    parameters = vars(settings[4])
    for i, layout in enumerate(LAYOUTS):
        prompts = list(reference.prompts(layout, row(drawn, 4), parameters))
        assert len(prompts) == found.calls[4]
        sizes = [sum(segment.tokens for segment in prompt) for prompt in prompts]
        assert sum(sizes) == found.prompt_tokens[4, i]
        kinds = [segment.kind for segment in prompts[-1]]
        assert kinds[0] == "system"
        assert kinds.index("summary") == (1 if layout == "last" else kinds.index("history") - 1)
    with pytest.raises(ValueError, match="expected a layout among front, last, log, frozen"):
        next(reference.prompts("middle", row(drawn, 4), parameters))


@pytest.mark.parametrize(
    ("case", "figure", "lecture"),
    [
        ("paper", "calls", 767),
        ("paper", "saved", 0.89),
        ("paper", "prefill_tokens", 497e3),
        ("evict .1", "prefill_tokens", 1.46e6),
        ("evict .75", "prefill_tokens", 365e3),
        ("paper", "evictions", 19),
        ("evict .1", "evictions", 89),
        ("evict .75", "evictions", 13),
        ("paper", "memory_tokens", 375e3),
        ("evict .1", "memory_tokens", 911e3),
        ("paper", "eviction_tokens", 45e3),
        ("evict .1", "eviction_tokens", 481e3),
        ("evict .1", "context_tokens", 7_400),
        ("evict .75", "context_tokens", 5_100),
    ],
)
def test_the_lecture_is_one_of_such_sessions(
    runs: dict[str, Session], case: str, figure: str, lecture: float
) -> None:
    values = getattr(runs[case], figure)
    spread = run_interval(values[:, FRONT] if values.ndim == 2 else values)
    assert spread.low <= lecture <= spread.high, spread


def test_the_lectures_claims_of_layouts(runs: dict[str, Session]) -> None:
    run = runs["paper"]
    prefill = run.prefill_tokens.mean(0)
    assert prefill[LOG] < prefill[FRONT] < prefill[LAST]
    share = run.memory_tokens[:, FRONT] / run.prefill_tokens[:, FRONT]
    assert share.mean() == pytest.approx(0.75, abs=0.01)
    # The working context is computed again at each call.
    again = run.working_tokens / run.calls
    low, high = run_interval(again)[1:]
    assert low <= 700 <= high


def test_layouts_differ_only_by_what_waits(runs: dict[str, Session]) -> None:
    for run in runs.values():
        assert np.all(run.prompt_tokens[:, FRONT] == run.prompt_tokens[:, LAST])
        assert np.all(run.new_tokens[:, FRONT] == run.new_tokens[:, LAST])
        assert np.all(run.prompt_tokens[:, FROZEN] < run.prompt_tokens[:, FRONT])
        assert np.all(run.memory_tokens[:, LOG] == run.memory_tokens[:, FROZEN])
        assert np.all(run.eviction_tokens[:, LOG] == run.eviction_tokens[:, FROZEN])
        assert np.all(run.calls == 600 + run.searches + run.edits)
        assert np.all(run.saved_at_once + run.saved_at_warnings + run.lost <= run.facts)


def test_prompts_fit_the_window_if_any_call_may_flush(runs: dict[str, Session]) -> None:
    for name, run in runs.items():
        # A few calls of a round that began just below the threshold, otherwise.
        most = 0 if CASES[name].flush_any_call else 0.06
        assert np.all(run.overflows <= most * run.calls), name


def test_a_longer_session_begins_with_the_shorter_one() -> None:
    key = jax.random.key(3)
    few, many = draws(key, LECTURE, 7), draws(key, LECTURE, 20)
    for name, value in row(many, slice(None)).items():
        np.testing.assert_array_equal(value[:7], getattr(few, name), name)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"window_tokens": -1}, "window_tokens must be in 1..1.67772e+07, got -1"),
        ({"window_tokens": 2_000}, "window_tokens must be at least 2750 for the system prompt"),
        ({"entry_tokens": 0}, "entry_tokens must be in 1..1.67772e+07, got 0"),
        ({"summary_tokens": 350.5}, "summary_tokens must be a whole number of tokens, got 350.5"),
        ({"fact_share": 1.5}, "fact_share must be in 0..1, got 1.5"),
        ({"saves_a_warning": 5}, "saves_a_warning must be in 0..4, got 5"),
        ({"memory_limit_tokens": 210}, "memory_limit_tokens must hold memory_tokens and an entry"),
        ({"evicted_share": 0.05}, "an eviction must free at least 540 tokens"),
        ({"evicted_share": math.nan}, "evicted_share must be in 0..1, got nan"),
        ({"kept_share": "half"}, "kept_share must be a number, got 'half'"),
    ],
    ids=lambda x: next(iter(x)) if isinstance(x, dict) else "",
)
def test_bad_settings_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        Settings(**changes)


def test_bad_sizes_are_refused() -> None:
    key = jax.random.key(0)
    with pytest.raises(ValueError, match="rounds must be at least 1, got 0"):
        memgpt(key, LECTURE, 0)
    with pytest.raises(ValueError, match="rounds must be at most"):
        memgpt_sessions(key[None], LECTURE, 10**6)
    with pytest.raises(ValueError, match=r"expected typed keys \[N\], got key<fry>\[\]"):
        memgpt_sessions(key)
