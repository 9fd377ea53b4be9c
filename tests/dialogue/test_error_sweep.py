"""Error rates swept, and their slopes."""

import pytest

from jaxmem.dialogue import World, error_sweep, sensitivity
from jaxmem.dialogue.error_sweep import ALL
from jaxmem.dialogue.systems import PERFECT, full_context, mem0, mem0g, memgpt

WORLD = World(messages=160, jitter=20, mentions=1.0, most_changes=3, most_holders=3)


def test_sweep_follows_the_closed_forms() -> None:
    rows = error_sweep(
        mem0, {"recall": [1.0, 0.8], "delete_only": [0.0, 0.5]}, PERFECT, 60, WORLD, batch=64
    )
    found = {(r["rate"], r["value"]): r for r in rows if r["kind"] == "current"}
    assert found["recall", 1.0]["accuracy"] == found["delete_only", 0.0]["accuracy"] == 1.0
    half = found["recall", 0.8]["high"] - found["recall", 0.8]["accuracy"]
    assert abs(found["recall", 0.8]["accuracy"] - 0.8) < 2 * half
    assert found["delete_only", 0.5]["accuracy"] < 0.9
    assert {r["kind"] for r in rows} > {ALL, "unanswerable"}


def test_other_numbers_of_a_factory_are_swept() -> None:
    rows = error_sweep(full_context, {"alpha": [0.0, 1.0]}, PERFECT, 20, WORLD)
    alpha = {r["value"]: r["accuracy"] for r in rows if r["kind"] == ALL}
    assert alpha[0.0] == 1.0 > alpha[1.0]


def test_slopes_are_sorted_and_signed() -> None:
    names = ("recall", "precision", "change_as_known")
    rows = [
        r for r in sensitivity(mem0g, conversations=60, world=WORLD, names=names)
        if r["kind"] == ALL
    ]  # fmt: skip
    slopes = [r["slope"] for r in rows]
    assert slopes == sorted(slopes)
    assert {r["rate"] for r in rows if r["high"] < 0} == set(names)


def test_bad_sweeps_are_refused() -> None:
    for make, message in (
        (lambda: error_sweep(mem0, {}), "expected at least one rate"),
        (lambda: error_sweep(mem0, {"recal": [1.0]}), "unknown rate 'recal'.*recall"),
        (lambda: error_sweep(mem0, {"recall": [1.1]}), "recall must be in 0..1"),
        (lambda: error_sweep(mem0, {"recall": ["a"]}), "recall must be a number"),
        (lambda: error_sweep(full_context, {"recall": [0.5]}), "unknown rate 'recall'"),
        (lambda: sensitivity(mem0, names=("recall",), step=0.0), "step must be in"),
        (lambda: sensitivity(mem0, PERFECT, names=("recall",), step=1.1), "step must be in"),
        (lambda: sensitivity(memgpt, names=("stop",)), "unknown rate 'stop'"),
    ):
        with pytest.raises(ValueError, match=message):
            make()
