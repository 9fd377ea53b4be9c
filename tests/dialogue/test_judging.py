"""Systems judged: oracles, shared draws, comparisons, and what is refused."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmem.dialogue import (
    KINDS,
    LECTURE_KINDS,
    LOCOMO,
    Judged,
    World,
    accuracy,
    compare,
    error_sweep,
    evaluate,
    per_question,
    records,
)
from jaxmem.dialogue.systems import (
    PERFECT,
    PURPOSES,
    Rates,
    System,
    full_context,
    ledger,
    mem0,
    mem0g,
    memgpt,
    rag,
    rag_messages,
)

WORLD = World(messages=160, jitter=20, mentions=1.0, most_changes=3, most_holders=3)
RECALL, KNOWN = 0.7, 0.4
SYSTEMS = {
    "full": full_context(),
    "blind": full_context(alpha=1.0),
    "short": full_context(window_tokens=1_500),
    "all chunks": rag(128, 10_000),
    "all messages": rag_messages(10_000),
    "perfect": mem0(PERFECT),
    "perfect graph": mem0g(PERFECT),
    "forgetful": mem0(replace(PERFECT, recall=RECALL)),
    "deaf": mem0(replace(PERFECT, change_as_known=KNOWN)),
    "inventive": mem0(Rates(precision=0.7)),
    "usual": mem0(),
    "usual graph": mem0g(),
    "nearly exact": mem0g(Rates(precision=0.9999999)),
    "loud": mem0g(policy="Bitemporal"),  # type: ignore[arg-type]
    "nothing": mem0g(Rates(recall=0.0)),
    "large queue": memgpt(queue_tokens=10**6),
    "small queue": memgpt(queue_tokens=2_000, evicted_tokens=1_000),
    "still": memgpt(queue_tokens=2_000, evicted_tokens=1_000, pages=0),
}


@pytest.fixture(scope="module")
def judged() -> dict[str, Judged]:
    return evaluate(SYSTEMS, 120, WORLD, batch=40)


def share(judged: Judged, kind: str) -> float:
    return accuracy(judged, kind).mean


@pytest.mark.parametrize("name", ["full", "all chunks", "all messages", "large queue"])
def test_who_sees_everything_is_always_right(judged: dict[str, Judged], name: str) -> None:
    for kind in KINDS:
        assert share(judged[name], kind) == 1.0, kind


def test_perfect_parts_and_a_hop_are_always_right(judged: dict[str, Judged]) -> None:
    assert accuracy(judged["perfect graph"], LECTURE_KINDS).mean == 1.0
    assert share(judged["perfect"], "current") == 1.0


def test_deleting_loses_history(judged: dict[str, Judged]) -> None:
    assert share(judged["perfect"], "previous") == 0.0
    assert share(judged["usual graph"], "previous") > 0.5


def test_recall_alone(judged: dict[str, Judged]) -> None:
    mean, low, high = accuracy(judged["forgetful"], "current")
    assert abs(mean - RECALL) < 2 * (high - low) / 2


def test_changes_taken_for_known_alone(judged: dict[str, Judged]) -> None:
    deaf = judged["deaf"]
    changed = per_question(deaf, deaf.changed, "current").mean
    mean, low, high = accuracy(deaf, "current")
    assert abs(mean - (1 - KNOWN * changed)) < 2 * (high - low) / 2
    static = deaf.mask & (deaf.kind == 0) & ~deaf.changed
    assert deaf.right[static].all()


def test_mem0_and_its_graph_share_what_is_extracted(judged: dict[str, Judged]) -> None:
    current = judged["usual"].kind == KINDS.index("current")
    one, other = (judged[name].right[current] for name in ("usual", "usual graph"))
    assert (one == other).all()


def test_made_up_memories_are_believed(judged: dict[str, Judged]) -> None:
    assert share(judged["usual"], "unanswerable") == 1.0
    assert share(judged["inventive"], "unanswerable") < 0.9


def test_nothing_extracted_nothing_said(judged: dict[str, Judged]) -> None:
    nothing = judged["nothing"]
    assert nothing.nothing[nothing.mask].all()
    assert share(nothing, "unanswerable") == 1.0
    assert np.asarray(nothing.read.read_tokens).sum() == 0


def test_a_window_truncates_the_oldest(judged: dict[str, Judged]) -> None:
    short = judged["short"]
    assert np.asarray(short.read.read_tokens).max() <= 1_500
    assert 0.1 < accuracy(short, LECTURE_KINDS).mean < 0.9
    assert accuracy(judged["blind"], LECTURE_KINDS).mean < 0.95


def test_an_agent_searches_only_what_it_lacks(judged: dict[str, Judged]) -> None:
    large, small, still = (judged[name] for name in ("large queue", "small queue", "still"))

    def calls(system: Judged, purpose: str) -> float:
        column = np.asarray(system.read.calls)[..., PURPOSES.index(purpose)]
        return per_question(system, column, LECTURE_KINDS).mean

    assert calls(large, "search") == calls(still, "search") == 0
    assert 0 < calls(small, "search") < 3
    assert calls(small, "answer") == 1
    assert np.asarray(large.write.calls).sum() == 0
    better = compare(small, still, LECTURE_KINDS)
    assert better.difference.low > 0
    assert better.words.startswith("small queue is better than still by 0.")


def test_comparison_in_words(judged: dict[str, Judged]) -> None:
    same = compare(judged["full"], judged["all chunks"])
    assert same.difference == (0.0, 0.0, 0.0)
    assert same.words == "full and all chunks are right on the same questions"
    alike = compare(judged["usual"], judged["usual graph"], "two_hop")
    if alike.difference.low <= 0 <= alike.difference.high:
        assert "not distinguishable at n = 120 conversations: " in alike.words
    worse = compare(judged["nothing"], judged["full"], "current")
    assert worse.words == "full is better than nothing by 1.000 (1.000 .. 1.000)"


def test_records_are_tidy(judged: dict[str, Judged]) -> None:
    rows = records({"full": judged["full"], "mem0": judged["usual"]})
    assert [row["kind"] for row in rows] == [*KINDS, *KINDS]
    assert rows[0]["accuracy"] == 1.0
    assert rows[-1]["write_calls"] > 0


def test_overflow_is_reported() -> None:
    with pytest.warns(UserWarning, match="3 of 3 conversations lose statements"):
        found = evaluate({"full": full_context()}, 3, replace(WORLD, fact_capacity=10))["full"]
    assert found.overflow.all()
    assert accuracy(found, LECTURE_KINDS).mean == 1.0  # of what is left
    crowded = World(messages=30, jitter=0, mentions=8.0)
    with pytest.warns(UserWarning, match="lose statements"):
        evaluate({"full": full_context()}, 3, crowded)


def test_bad_worlds_are_refused() -> None:
    for field, value, message in (
        ("messages", 0, "messages must be at least 1, got 0"),
        ("messages", 2.5, "messages must be a whole number"),
        ("jitter", 600, "jitter must be at most 599"),
        ("length", 0, "length must be at least 1"),
        ("mentions", -1.0, "mentions must be in 0"),
        ("noise", float("nan"), "noise must be in 0..100000, got nan"),
        ("noise", np.float32(-1), "noise must be in 0"),
        ("message_tokens", "long", "message_tokens must be a number"),
        ("message_tokens", float("inf"), "message_tokens must be in 0"),
        ("messages", 10**9, "expected a conversation of at most 4 GB"),
        ("fact_capacity", 0, "fact_capacity must be at least 1"),
    ):
        with pytest.raises(ValueError, match=message):
            replace(LOCOMO, **{field: value})
    with pytest.raises(ValueError, match="expected an attribute or a role"):
        World(static=0, changing=0, roles=0)


def test_bad_systems_are_refused() -> None:
    for make, message in (
        (lambda: Rates(recall=1.2), r"recall must be in 0..1, got 1.2"),
        (
            lambda: Rates(change_as_known=0.9, delete_only=0.3),
            r"made_up_id must be in 0..1, got 1.21",
        ),
        (lambda: Rates(recall=np.float32("nan")), "recall must be in 0..1, got nan"),
        (lambda: mem0(Rates(recall=np.array([0.1, 0.2]))), "recall must be a scalar"),
        (lambda: mem0(Rates(recall=None)), "recall must be a number, got None"),
        (lambda: mem0(0.5), "expected Rates, got 0.5"),
        (lambda: memgpt({}), "expected Rates, got {}"),
        (lambda: mem0g(hop="x"), "hop must be True or False, got 'x'"),
        (lambda: ledger({"answer": (1, 2)}), "answer: expected .calls, prefill, generated"),
        (lambda: ledger({"reply": (1, 2, 3)}), "expected purposes among"),
        (lambda: ledger(5), "expected entries by purpose in a dict, got 5"),
        (lambda: Rates(precision="high"), "precision must be a number"),
        (lambda: full_context(window_tokens=7), "window_tokens must be at least 8"),
        (lambda: full_context(alpha=-0.1), "alpha must be in 0..1"),
        (lambda: rag(0), "chunk_tokens must be at least 1"),
        (lambda: rag(128, 0), "count must be at least 1"),
        (lambda: mem0(policy="forget"), "unknown policy 'forget'"),
        (lambda: memgpt(stop_early=2.0), "stop_early must be in 0..1"),
        (lambda: memgpt(consolidate_every=0), "consolidate_every must be at least 1"),
    ):
        with pytest.raises(ValueError, match=message):
            make()


def test_policies_are_found_in_any_case(judged: dict[str, Judged]) -> None:
    assert share(judged["loud"], "previous") > 0.5  # as "update" it would have lost them


@pytest.mark.parametrize(
    "changes",
    [
        {"roles": 0, "noise": 0.0, "dim": 33},
        {"static": 0, "changing": 0, "unstated": 0, "mentions": 0.0, "most_holders": 1},
    ],
    ids=str,
)
def test_odd_worlds(changes: dict[str, float]) -> None:
    small = World(messages=60, static=2, changing=2, roles=1, unstated=1, mentions=0.5, dim=32)
    world = replace(small, **changes)
    systems = {
        "graph": mem0g(PERFECT), "agent": memgpt(PERFECT, queue_tokens=500, evicted_tokens=300)
    }  # fmt: skip
    found = evaluate(systems, 5, world)
    assert accuracy(found["graph"], "current").mean == 1.0
    assert not world.unstated or accuracy(found["agent"], "unanswerable").mean == 1.0


def test_kinds_that_are_not_asked_are_left_out() -> None:
    world = World(messages=40, static=1, changing=1, roles=0, unstated=1, mentions=0.5, dim=32)
    rows = error_sweep(full_context, {"alpha": [1.0]}, None, 5, world)
    assert {row["kind"] for row in rows} == {"lecture", *KINDS} - {"two_hop"}


def test_draws_do_not_depend_on_made_up_memories(judged: dict[str, Judged]) -> None:
    assert (judged["usual graph"].right == judged["nearly exact"].right).all()


def test_a_window_that_shows_nothing_is_reported() -> None:
    with pytest.warns(UserWarning, match="x was shown nothing in . of 9 conversations"):
        evaluate({"x": full_context(window_tokens=20)}, 9, WORLD)


def test_float64_and_batches_change_no_conversation() -> None:
    systems = {"full": full_context(alpha=1.0)}
    found = evaluate(systems, 20, WORLD)["full"]
    with jax.enable_x64(True):
        again = evaluate(systems, 20, WORLD, batch=7)["full"]
    assert (found.answer == again.answer).all()
    assert (found.right == again.right).mean() > 0.999


def test_what_systems_return_is_checked() -> None:
    def system(said: object, spent: object) -> System:
        full = full_context()
        return System(full.write, lambda key, memory, questions: (said, spent))

    right = jnp.zeros(60, int)
    rows = ledger({"answer": (jnp.ones(60), 1.0, 1.0)})
    for made, message in (
        (system(right[0], rows), r"x: read must return whole numbers of shape \(60,\), got \(\)"),
        (system(right * 1.0, rows), "got .60,. of float32"),
        (system(right, None), "x: read must return a Ledger, got NoneType"),
        (system(right, ledger()), r"x: the ledger of read must have rows \(60,\), got \(\)"),
    ):
        with pytest.raises(ValueError, match=message):
            evaluate({"x": made}, 2)


def test_only_pairs_are_compared(judged: dict[str, Judged]) -> None:
    found = judged["usual"]
    other = found._replace(answer=found.answer[::-1])  # of other conversations
    with pytest.raises(ValueError, match="not asked the same questions"):
        compare(judged["usual"], other)
    with pytest.raises(ValueError, match="expected what `evaluate` found"):
        compare(judged["usual"], None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="expected a number a question"):
        per_question(judged["usual"], np.ones(120))


def test_bad_evaluations_are_refused(judged: dict[str, Judged]) -> None:
    with pytest.raises(ValueError, match="expected systems by name in a dict, got list"):
        evaluate([full_context()], 10)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="expected a World, got 5"):
        evaluate({"full": full_context()}, 10, 5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="expected at least one system"):
        evaluate({}, 10)
    with pytest.raises(ValueError, match="x: expected a System, got int"):
        evaluate({"x": 3}, 10)  # type: ignore[dict-item]
    with pytest.raises(ValueError, match="conversations must be at least 1"):
        evaluate({"full": full_context()}, 0)
    with pytest.raises(ValueError, match="unknown kind of question 'curent'.*current"):
        accuracy(judged["full"], "curent")
    other = judged["usual"]._replace(mask=judged["usual"].mask[:10])
    with pytest.raises(ValueError, match="not asked the same questions"):
        compare(judged["full"], other)
