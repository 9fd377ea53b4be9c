"""Error rates swept, and their slopes."""

from functools import partial

import pytest

from jaxmem.dialogue import World, error_sweep, sensitivity
from jaxmem.dialogue.error_sweep import ALL, _Factory
from jaxmem.dialogue.systems import PERFECT, Rates, full_context, mem0, memgpt

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
    keeps_all = partial(mem0, policy="add_only")
    names = ("recall", "precision", "change_as_known")
    rows = [
        r
        for r in sensitivity(keeps_all, conversations=60, world=WORLD, names=names)
        if r["kind"] == ALL
    ]
    slopes = [r["slope"] for r in rows]
    assert slopes == sorted(slopes)
    assert {r["rate"] for r in rows if r["high"] < 0} == {"recall", "precision"}
    changed = {r["rate"]: r["answers_changed"] for r in rows}
    assert changed["recall"] > 0 == changed["change_as_known"]  # a judgement that it never makes


def test_sweeps_start_at_the_factorys_own_numbers() -> None:
    deaf = Rates(recall=0.3)
    assert _Factory(partial(mem0, rates=deaf), None).base == deaf
    assert _Factory(mem0, deaf).base == deaf
    assert _Factory(mem0, deaf).known("Change_as_known") == "change_as_known"
    blind = partial(full_context, alpha=0.9)
    assert _Factory(blind, None).start("alpha") == 0.9
    assert _Factory(blind, None).numbers == ["window_tokens", "alpha"]


def test_bad_sweeps_are_refused() -> None:
    for make, message in (
        (lambda: error_sweep(mem0, [1.0]), "expected values by the name of a rate"),
        (lambda: error_sweep(None, {"recall": [1.0]}), "expected a factory of systems"),
        (lambda: error_sweep(mem0, {"recall": [1.0]}, 0.5), "expected base to be Rates"),
        (lambda: error_sweep(mem0, {"count": [1.0]}), "unknown rate 'count'"),
        (lambda: error_sweep(mem0, {"hop": [1.0]}), "unknown rate 'hop'"),
        (lambda: error_sweep(full_context, {"window_tokens": [0.5]}), "window_tokens must be at"),
        (lambda: error_sweep(mem0, {"change_as_known": [1.0]}), "made_up_id must be in 0..1"),
        (lambda: error_sweep(mem0, {"recall": [1.0]}, seed=-1), "seed must be at least 0"),
        (lambda: sensitivity(full_context), "expected names among"),
        (lambda: error_sweep(mem0, {}), "expected at least one rate"),
        (lambda: error_sweep(mem0, {"recal": [1.0]}), "unknown rate 'recal'.*recall"),
        (lambda: error_sweep(mem0, {"recall": [1.1]}), "recall must be in 0..1"),
        (lambda: error_sweep(mem0, {"recall": ["a"]}), "recall must be a number"),
        (lambda: error_sweep(full_context, {"recall": [0.5]}), "unknown rate 'recall'"),
        (lambda: sensitivity(mem0, names=("recall",), step=0.0), "step must be in"),
        (lambda: sensitivity(mem0, PERFECT, names=("recall",), step=1.1), "step must be in"),
        (
            lambda: sensitivity(mem0, Rates(recall=0.01), names=("recall",)),
            "recall must be in 0..1",
        ),
        (lambda: sensitivity(memgpt, names=("stop",)), "unknown rate 'stop'"),
    ):
        with pytest.raises(ValueError, match=message):
            make()
