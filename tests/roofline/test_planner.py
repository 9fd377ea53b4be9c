"""The planner: linear costs, exact crossings, and the lecture's advice."""

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

from jaxmem.roofline import ACCELERATORS, MODELS, Assumptions, plan
from jaxmem.roofline.planner import Option, Plan, crossings

SMALL, H100 = MODELS["llama-3-8b"], ACCELERATORS["h100-80gb"]


def at(queries: float, updates: float = 0.0, material: float = 120_000, **options: Any) -> Plan:
    return plan(SMALL, H100, material, queries, updates, **options)


def by_name(result: Plan) -> dict[str, Option]:
    return {option.name: option for option in result.options}


def test_a_text_that_all_share_stays_in_context() -> None:
    """Lecture 6.4: shared by many, put it into the context and share the prefix."""
    for queries in (10.0, 1_000.0, 10_000.0):
        assert at(queries, shared=True).cheapest_whole == "full context, cached"


def test_a_stable_text_of_ones_own_that_is_asked_often_becomes_a_cartridge() -> None:
    assert at(20_000).cheapest_whole == "cartridge"
    assert at(20).cheapest_whole == "full context, cached"


def test_weekly_retraining_needs_about_nine_thousand_queries() -> None:
    """Exercise 4c: about 8,900 queries a week for a document updated every week."""
    ask = Assumptions(question_tokens=0, lifetime_weeks=1e9)
    result = at(1_000, 1, 128_000, assumptions=ask, efficiency="constant")
    last = result.crossings_whole[-1]
    assert (last.below, last.above) == ("full context, cached", "cartridge")
    assert last.queries_week == pytest.approx(8_900, rel=0.05)


def test_a_changing_conversation_is_extracted() -> None:
    """Lecture 6.2: asked 200 times, a conversation repays the calls that extract it."""
    result = by_name(at(200, 20, 26_000))
    extracted = result["extracted memory"]
    for other in ("full context", "full context, cached", "retrieval", "cartridge"):
        assert extracted.gpu_s_week < result[other].gpu_s_week
    asked_once = by_name(at(1, 20, 26_000))
    assert asked_once["retrieval"].gpu_s_week < asked_once["extracted memory"].gpu_s_week


def test_beyond_the_window_full_context_is_out_and_says_so() -> None:
    result = at(100, material=484_000)
    for name in ("full context", "full context, cached"):
        option = by_name(result)[name]
        assert not option.feasible
        assert option.note == "needs 484,300 tokens, the window holds 131,072"
    assert result.cheapest_whole == "cartridge"
    assert "full context" not in {corner.below for corner in result.crossings}


def test_what_does_not_fit_into_memory_is_out_and_says_so() -> None:
    result = plan(MODELS["llama-3-70b"], H100, 1_000, 10)
    assert result.cheapest is None
    assert all("not even one user" in option.note for option in result.options)
    assert result.crossings == ()


def test_costs_are_lines_in_the_queries() -> None:
    zero, some, more = at(0, 2), at(100, 2), at(1_000, 2)
    for a, b, c in zip(zero.options, some.options, more.options):
        assert a.gpu_s_week == pytest.approx(a.fixed_s_week)
        assert b.gpu_s_week - a.gpu_s_week == pytest.approx(100 * a.query_s)
        assert c.gpu_s_week - a.gpu_s_week == pytest.approx(1_000 * a.query_s)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("owners", [1, 7])
def test_the_cheapest_changes_at_the_crossings_and_nowhere_else(shared: bool, owners: int) -> None:
    here = at(0, 1, shared=shared, owners=owners)
    edges = [corner.queries_week for corner in here.crossings]
    assert edges == sorted(edges)
    for corner in here.crossings:
        below = at(corner.queries_week * 0.999, 1, shared=shared, owners=owners)
        above = at(corner.queries_week * 1.001, 1, shared=shared, owners=owners)
        assert (below.cheapest, above.cheapest) == (corner.below, corner.above)
    for low, high in zip([0.0, *edges], [*edges, edges[-1] * 10]):
        inside = {
            at(q, 1, shared=shared, owners=owners).cheapest for q in np.linspace(low, high, 5)[1:-1]
        }
        assert len(inside) == 1


def test_owners_multiply_and_rent_adds() -> None:
    one, seven = at(100, 1), at(100, 1, owners=7)
    for a, b in zip(one.options, seven.options):
        assert b.gpu_s_week == pytest.approx(7 * a.gpu_s_week)
        assert b.resident_bytes == pytest.approx(7 * a.resident_bytes)
    rent = Assumptions(rent_s_gb_week=8_400.0)
    kept = by_name(at(100, 1, assumptions=rent))["full context, cached"]
    free = by_name(one)["full context, cached"]
    assert kept.gpu_s_week - free.gpu_s_week == pytest.approx(8_400 * 15.72864, rel=1e-6)


def test_crossings_of_made_up_lines() -> None:
    def line(name: str, fixed: float, slope: float) -> Option:
        return Option(name, True, True, 0.0, 0.0, slope, fixed, math.nan, 0.0, "")

    lines = [line("a", 0, 3), line("b", 10, 1), line("c", 12, 2), line("d", 40, 0)]
    assert [tuple(c) for c in crossings(lines)] == [(5.0, "a", "b"), (30.0, "b", "d")]
    assert crossings([]) == ()
    assert crossings(lines[:1]) == ()


def test_every_assumption_counts() -> None:
    base = at(100, 3)
    costs = [o.gpu_s_week for o in base.options]
    for field in dataclasses.fields(Assumptions):
        value = getattr(Assumptions(), field.name)
        changed = dataclasses.replace(Assumptions(), **{field.name: value * 0.9 or 1.0})
        assert [o.gpu_s_week for o in at(100, 3, assumptions=changed).options] != costs, field.name


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"material_tokens": 0}, "material_tokens must be"),
        ({"queries_week": -1}, "queries_week must be"),
        ({"updates_week": float("nan")}, "updates_week must be"),
        ({"owners": 0}, "owners must be"),
        ({"window_tokens": 0}, "window_tokens must be"),
        ({"assumptions": Assumptions(training_s=-1.0)}, "training_s must be"),
    ],
)
def test_bad_numbers_are_refused(arguments: dict[str, Any], message: str) -> None:
    defaults: dict[str, Any] = {"material_tokens": 10, "queries_week": 1}
    with pytest.raises(ValueError, match=message):
        plan(SMALL, H100, **{**defaults, **arguments})
