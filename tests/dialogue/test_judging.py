"""Systems judged: oracles, shared draws, comparisons, and what is refused."""

from dataclasses import replace

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
    evaluate,
    per_question,
    records,
)
from jaxmem.dialogue.systems import (
    PERFECT,
    PURPOSES,
    Rates,
    full_context,
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


def test_batches_do_not_matter(judged: dict[str, Judged]) -> None:
    again = evaluate({"usual": SYSTEMS["usual"]}, 50, WORLD, batch=7)["usual"]
    assert (again.right == judged["usual"].right[:50]).all()


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
        ("noise", float("nan"), "noise must be at least 0"),
        ("fact_capacity", 0, "fact_capacity must be at least 1"),
    ):
        with pytest.raises(ValueError, match=message):
            replace(LOCOMO, **{field: value})
    with pytest.raises(ValueError, match="expected an attribute or a role"):
        World(static=0, changing=0, roles=0)


def test_bad_systems_are_refused() -> None:
    for make, message in (
        (lambda: Rates(recall=1.2), r"recall must be in 0..1, got 1.2"),
        (lambda: Rates(change_as_known=0.9, delete_only=0.3), "must be at most 1"),
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


def test_bad_evaluations_are_refused(judged: dict[str, Judged]) -> None:
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
