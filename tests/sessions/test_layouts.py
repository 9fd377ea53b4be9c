"""A layout of a session and a remedy of the doctor are the same function of its prompts."""

import dataclasses
from collections.abc import Callable, Iterable

import jax
import numpy as np
import pytest

from jaxmem.prompts import LogBuilder, PromptLog, reuse
from jaxmem.prompts import Segment as Part
from jaxmem.prompts.dense import dense_reuse, to_dense
from jaxmem.prompts.remedies import append_edits, freeze, move_last
from jaxmem.reference import memgpt_session, playbook
from jaxmem.sessions import adaptation, tasks
from jaxmem.sessions.layouts import LAYOUTS
from jaxmem.sessions.session import LECTURE, draws, simulate

ROUNDS = 150
REMEDIES: dict[str, Callable[[PromptLog], PromptLog]] = {
    "front": lambda log: log,
    "last": lambda log: move_last(log, "working context"),
    "log": lambda log: append_edits(log, "working context"),
    "frozen": lambda log: freeze(log, "working context"),
}


def log_of(prompts: Iterable[list]) -> PromptLog:
    """Simulated prompts as a log: contents are names."""
    builder = LogBuilder()
    for prompt in prompts:
        builder.call(
            Part(label, kind, repr(id).encode(), tokens=n) for label, kind, id, n in prompt
        )
    return builder.build()


@pytest.fixture(scope="module", params=["paper", "busy"])
def session(request: pytest.FixtureRequest) -> tuple:
    """Settings, the totals of a session, and its prompts as the paper lays them out."""
    busy = dataclasses.replace(
        LECTURE, saved_at_once=0.8, evicted_share=0.2, memory_limit_tokens=320
    )
    settings = LECTURE if request.param == "paper" else busy
    drawn = draws(jax.random.key(5), settings, ROUNDS)
    arrays = {name: np.asarray(value) for name, value in drawn._asdict().items()}
    prompts = memgpt_session.prompts("front", arrays, vars(settings))
    return settings, jax.tree.map(np.asarray, simulate(drawn, settings)), log_of(prompts)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_layout_is_a_remedy(session: tuple, layout: str) -> None:
    _, totals, log = session
    found = reuse(REMEDIES[layout](log))
    k = LAYOUTS.index(layout)
    assert totals.evictions > 2
    assert found.log.calls == totals.calls
    assert found.log.prompt_tokens.sum() == totals.prompt_tokens[k]
    assert found.recomputed.sum() == totals.prefill_tokens[k]


def test_causes_of_the_papers_layout(session: tuple) -> None:
    settings, totals, log = session
    found = reuse(log)
    # A new summary is no old text; the session charges it to the eviction, or to an edit before.
    summaries = int(totals.evictions * settings.summary_tokens)
    assert found.fresh.sum() - summaries == totals.new_tokens[0]
    memory = sum(n for (label, _), (_, n) in found.by_cause.items() if label == "working context")
    assert 0 <= totals.memory_tokens[0] - memory <= summaries
    rest = int(found.broken.sum()) - memory
    assert memory + rest + summaries == totals.memory_tokens[0] + totals.eviction_tokens[0]


def test_kernel_counts_the_same(session: tuple) -> None:
    _, totals, log = session
    fast = jax.jit(dense_reuse, static_argnames="lookback")(to_dense(log), lookback=1)
    assert int((log.prompt_tokens - np.asarray(fast.reused)).sum()) == totals.prefill_tokens[0]


@pytest.mark.parametrize("variant", ["append", "counters", "sections+counters", "refined"])
def test_a_playbook_as_a_log(variant: str) -> None:
    drawn = tasks.draws(jax.random.key(2), tasks=60)
    run = adaptation.adapted(drawn)
    arrays = jax.tree.map(np.asarray, drawn)
    found = reuse(log_of(playbook.prompts(arrays, tasks.LECTURE, variant)))
    v = adaptation.VARIANTS.index(variant)
    # The log looks at all earlier prompts, the simulation at the last: they never share more.
    np.testing.assert_array_equal(found.reused, run.reused_tokens[v])
