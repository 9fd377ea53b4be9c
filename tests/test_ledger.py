"""Ledgers priced: by hand, in the limits, and exercise 2 of the lecture."""

import json
import math
from dataclasses import asdict, replace
from typing import Any

import jax
import numpy as np
import pytest

from jaxmem import ledger, results
from jaxmem.dialogue import KINDS, Judged, evaluate, systems
from jaxmem.dialogue.systems import PURPOSES, Ledger
from jaxmem.dialogue.systems.system import (
    CONSOLIDATE_PROMPT,
    EXTRACT_PROMPT,
    SUMMARY_PROMPT,
    UPDATE_PROMPT,
)
from jaxmem.ledger import break_even_tokens, overtakes, price, with_answers
from jaxmem.reference import roofline as twin
from jaxmem.roofline import ACCELERATORS, MEASURED, MODELS, Constant, prefill, stack
from jaxmem.roofline.break_even import share_s

SMALL, LARGE, H100 = MODELS["llama-3-8b"], MODELS["llama-3-70b"], ACCELERATORS["h100-80gb"]
Calls = dict[str, tuple[float, float, float]]


def spent(shape: tuple[int, ...], calls: Calls, shown: float = 0.0, fixed: float = 0.0) -> Ledger:
    """A ledger of equal rows; calls, tokens of a prompt and of what is generated, by purpose."""
    columns = np.zeros((3, *shape, len(PURPOSES)))
    for name, (number, prompt, generated) in calls.items():
        at = PURPOSES.index(name)
        for i, value in enumerate((number, number * prompt, number * generated)):
            columns[i, ..., at] = value
    rest = [np.full(shape, value) for value in (shown, fixed, 0.0)]
    return Ledger(*columns, *rest)


def made(
    name: str = "made",
    write: Calls | None = None,
    read: Calls | None = None,
    shown: float = 0.0,
    fixed: float = 0.0,
    size: tuple[int, int] = (3, 4),
) -> Judged:
    yes = np.ones(size, bool)
    fields: dict[str, Any] = dict.fromkeys(Judged._fields, ~yes)  # what is no matter here
    fields |= {
        "name": name,
        "kind": np.broadcast_to(np.arange(size[1]) % len(KINDS), size),
        "mask": yes,
        "write": spent(size[:1], write or {}),
        "read": spent(size, read or {}, shown, fixed),
    }
    return Judged(**fields)


def reader(shown: float, fixed: float = 0.0, answer: float = 30.0, **more: Any) -> Judged:
    """A system that answers in one call."""
    return made(read={"answer": (1, 200 + shown, answer)}, shown=shown, fixed=fixed, **more)


# Exercise 2: 300 extractions of 1,500 tokens and 70 updates of 700, 200 tokens a question.
WRITE: Calls = {"extract": (300, 1_500, 35), "update": (70, 700, 30)}
FULL = reader(26_000, 26_000, name="full context")
MEM0 = reader(200, write=WRITE, name="mem0")
RAG = reader(2_500, name="rag")


def test_exercise_2_in_tokens() -> None:
    gross, net = break_even_tokens(MEM0, FULL)
    assert gross.mean == pytest.approx(499_000 / 26_000)  # 19
    assert round(gross.mean) == 19
    assert net.mean == pytest.approx(499_000 / 25_800)
    assert gross.low == gross.mean == gross.high  # conversations that are all alike


def test_exercise_2_in_seconds() -> None:
    """Kept prefixes do not save full context in the end: it still reads its KV to decode."""
    anew, kept = (
        overtakes(MEM0, FULL, SMALL, H100, cached=cached).mean for cached in (False, True)
    )
    assert 10 < anew < 19  # decoding counts too
    assert 4 * anew < kept < 200  # LoCoMo asks some 200
    longer = with_answers(MEM0, 200.0), with_answers(FULL, 200.0)
    assert overtakes(*longer, SMALL, H100, cached=True).mean < kept / 4


def test_a_call_is_its_prefill_and_its_share_of_decoding() -> None:
    found = price(FULL, SMALL, H100)
    call_s = prefill(SMALL, H100, 26_200).total_s + share_s(SMALL, H100, 26_200, 0, 30)
    assert found.read_s.mean == pytest.approx(float(call_s), rel=1e-5)
    assert found.write_s == (0.0, 0.0, 0.0)
    assert found.kept_bytes == 0.0


def test_what_is_kept_is_read_once_and_held() -> None:
    found = price(FULL, SMALL, H100, cached=True)
    call_s = prefill(SMALL, H100, 26_200, 26_000).total_s + share_s(SMALL, H100, 26_200, 0, 30)
    assert found.read_s.mean == pytest.approx(float(call_s), rel=1e-5)
    assert found.write_s.mean == pytest.approx(
        float(prefill(SMALL, H100, 26_000).total_s), rel=1e-5
    )
    assert found.kept_bytes == pytest.approx(26_000 * 2 * 32 * 8 * 128 * 2)  # K, V of 8 heads, bf16
    held = price(FULL, SMALL, H100, cached=True, held_s=60.0)
    share = found.kept_bytes / (0.9 * H100.capacity_bytes - SMALL.weight_bytes)
    assert held.read_s.mean - found.read_s.mean == pytest.approx(60.0 * share, rel=1e-4)
    assert held.write_s == found.write_s
    on_two = [
        price(FULL, SMALL, H100, cached=True, devices=2, held_s=x).read_s.mean for x in (0, 60)
    ]
    share = 2 * found.kept_bytes / (2 * 0.9 * H100.capacity_bytes - SMALL.weight_bytes)
    assert on_two[1] - on_two[0] == pytest.approx(60.0 * share, rel=1e-4)
    assert price(FULL, SMALL, H100, held_s=60.0) == price(FULL, SMALL, H100)  # nothing is kept


def test_instructions_are_kept_at_writing() -> None:
    found = price(MEM0, SMALL, H100, cached=True)
    calls_s = sum(
        n * (prefill(SMALL, H100, prompt, own).total_s + share_s(SMALL, H100, prompt, 0, new))
        for n, prompt, own, new in ((300, 1_500, EXTRACT_PROMPT, 35), (70, 700, UPDATE_PROMPT, 30))
    )
    assert found.write_s.mean == pytest.approx(float(calls_s), rel=1e-5)
    assert found.read_s == price(MEM0, SMALL, H100).read_s  # what is retrieved is never kept


def by_loops(judged: Judged, device: Any, efficiency: Any, cached: bool, devices: int) -> Any:
    """Mean seconds of writing and reading, call after call in float64."""
    model, whole = asdict(SMALL), {k: v for k, v in asdict(device).items() if isinstance(v, float)}
    for key in whole:
        whole[key] *= devices
    single = {key: value / devices for key, value in whole.items()}
    own = {
        "extract": EXTRACT_PROMPT, "update": UPDATE_PROMPT, "summarise": SUMMARY_PROMPT,
        "consolidate": CONSOLIDATE_PROMPT,
    }  # fmt: skip

    def call_s(prompt: int, kept: int, generated: int) -> float:
        reading = twin.prefill(model, whole, prompt, kept, 1.0, efficiency)["total_s"]
        full = twin.throughput(model, single, prompt, 0.0, generated, devices, efficiency)
        return devices * (reading + generated / full["tokens_s"])

    def row_s(spent: Ledger, at: tuple[int, ...], kept: float | None) -> float:
        total = 0.0
        for p, purpose in enumerate(PURPOSES):
            calls = int(spent.calls[(*at, p)])
            for _ in range(calls):
                prompt = round(float(spent.prefill_tokens[(*at, p)]) / calls)
                generated = round(float(spent.generated_tokens[(*at, p)]) / calls)
                keep = (own.get(purpose, 0) if kept is None else int(kept)) if cached else 0
                total += call_s(prompt, min(keep, prompt), generated)
        return total

    writes, reads = [], []
    for i in range(len(judged.mask)):
        kept = float(judged.read.fixed_tokens[i, 0]) if cached else 0.0
        once = 0.0
        if kept:
            once = devices * twin.prefill(model, whole, int(kept), 0, 1.0, efficiency)["total_s"]
        writes.append(row_s(judged.write, (i,), None) + once)
        asked = np.flatnonzero(judged.mask[i])
        reads += [row_s(judged.read, (i, int(q)), kept) for q in asked]
    return np.mean(writes), np.mean(reads)


@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("efficiency", ["constant", "measured"])
def test_prices_equal_those_of_plain_loops(efficiency: str, cached: bool, devices: int) -> None:
    rng = np.random.default_rng(5)
    judged = made(size=(2, 3))
    for spent, shape in ((judged.write, (2,)), (judged.read, (2, 3))):
        calls = rng.integers(0, 3, (*shape, len(PURPOSES)))
        spent.calls[:] = calls
        spent.prefill_tokens[:] = calls * rng.integers(300, 3_000, calls.shape)
        spent.generated_tokens[:] = calls * rng.integers(1, 40, calls.shape)
    fixed = np.array([[731.0], [0.0]]) * np.ones(3)
    mask = np.array([[True, True, False], [True, False, True]])
    judged = judged._replace(
        mask=mask, read=judged.read._replace(fixed_tokens=fixed, read_tokens=fixed)
    )
    constants: Any = Constant() if efficiency == "constant" else MEASURED["vllm-hopper"]
    fields = {
        key: value._asdict() if hasattr(value, "_asdict") else value
        for key, value in constants._asdict().items()
    }
    write_s, read_s = by_loops(judged, H100, fields, cached, devices)
    with jax.enable_x64(True):
        found = price(judged, SMALL, H100, cached=cached, devices=devices, efficiency=efficiency)
    assert found.write_s.mean == pytest.approx(write_s, rel=1e-9)
    assert found.read_s.mean == pytest.approx(read_s, rel=1e-9)


def test_no_write_cost_overtakes_at_once_and_dearer_reading_never() -> None:
    assert overtakes(RAG, FULL, SMALL, H100) == (0.0, 0.0, 0.0)
    assert overtakes(FULL, RAG, SMALL, H100).mean == math.inf
    assert overtakes(FULL, FULL, SMALL, H100).mean == math.inf
    assert break_even_tokens(RAG, FULL).gross.mean == 0.0
    longer = reader(27_000, write=WRITE)
    assert overtakes(longer, FULL, SMALL, H100).mean == math.inf
    assert break_even_tokens(longer, FULL).net.mean == math.inf


def test_costs_are_equal_where_one_overtakes() -> None:
    for cached in (False, True):
        n = overtakes(MEM0, FULL, SMALL, H100, cached=cached).mean
        ours, theirs = (price(x, SMALL, H100, cached=cached) for x in (MEM0, FULL))
        totals = [x.write_s.mean + n * x.read_s.mean for x in (ours, theirs)]
        assert totals[0] == pytest.approx(totals[1], rel=1e-6)


def test_one_that_only_starts_cheaper_is_overtaken() -> None:
    """What is retrieved is read anew, what is kept is not: full context wins in the end."""
    much = reader(20_000, name="much")
    assert overtakes(much, FULL, SMALL, H100, cached=True).mean == math.inf
    n = overtakes(FULL, much, SMALL, H100, cached=True).mean
    assert 0.0 < n < 10.0


def test_what_does_not_fit_has_no_price() -> None:
    with pytest.raises(ValueError, match=r"weights of llama-3-70b \(141 GB\), got 1 x h100-80gb"):
        price(FULL, LARGE, H100)
    assert 0.0 < price(MEM0, LARGE, H100, devices=3).write_s.mean < math.inf
    whole = reader(1_000_000, 1_000_000)  # 131 GB
    for cached in (False, True):
        assert overtakes(MEM0, whole, SMALL, H100, cached=cached).mean == 0.0
        assert overtakes(whole, MEM0, SMALL, H100, cached=cached).mean == math.inf


@pytest.mark.parametrize("cached", [False, True])
def test_longer_conversations_are_overtaken_sooner(cached: bool) -> None:
    found = [
        overtakes(MEM0, reader(tokens, tokens), SMALL, H100, cached=cached).mean
        for tokens in (13_000, 26_000, 52_000, 104_000)
    ]
    assert found == sorted(found, reverse=True)
    assert found[0] > 3 * found[-1]


def test_dearer_writing_overtakes_later() -> None:
    found = []
    for calls in (100, 300, 900):
        judged = reader(200, write={"extract": (calls, 1_500, 35)})
        found.append(overtakes(judged, FULL, SMALL, H100).mean)
        assert break_even_tokens(judged, FULL).gross.mean == pytest.approx(calls * 1_500 / 26_000)
    np.testing.assert_allclose(np.array(found) / found[0], [1.0, 3.0, 9.0], rtol=1e-5)


def test_what_full_context_holds_makes_it_dearer() -> None:
    found = [
        overtakes(MEM0, FULL, SMALL, H100, cached=True, held_s=held).mean for held in (0, 10, 600)
    ]
    assert found == sorted(found, reverse=True)
    assert found[-1] < 1.0


def varied(conversations: int = 200) -> tuple[Judged, Judged]:
    """Systems whose conversations differ, and so do their numbers of questions."""
    rng = np.random.default_rng(0)
    ours, full = (made(size=(conversations, 6)) for _ in range(2))
    mask = np.arange(6) < rng.integers(1, 7, (conversations, 1))
    length = rng.integers(15_000, 40_000, (conversations, 1)) * np.ones(6)
    answer = np.arange(len(PURPOSES)) == PURPOSES.index("answer")
    extract = np.arange(len(PURPOSES)) == PURPOSES.index("extract")
    write = rng.integers(100, 500, (conversations, 1)) * extract
    one = np.ones((conversations, 6, 1)) * answer
    ours = ours._replace(
        mask=mask,
        write=ours.write._replace(calls=write, prefill_tokens=1_500 * write),
        read=ours.read._replace(calls=one, prefill_tokens=400 * one),
    )
    read = full.read._replace(
        calls=one, prefill_tokens=one * (200 + length[..., None]), read_tokens=length,
        fixed_tokens=length,
    )  # fmt: skip
    return ours, full._replace(mask=mask, read=read)


def test_intervals_are_those_of_a_bootstrap() -> None:
    ours, full = varied()
    found = break_even_tokens(ours, full).net
    write = ours.write.prefill_tokens.sum(-1)
    saved = ((full.read.prefill_tokens - ours.read.prefill_tokens).sum(-1) * full.mask).sum(1)
    asked = full.mask.sum(1)
    picks = np.random.default_rng(1).integers(0, len(asked), (4_000, len(asked)))
    again = write[picks].mean(1) / (saved[picks].sum(1) / asked[picks].sum(1))
    assert found.mean == pytest.approx(write.mean() / (saved.sum() / asked.sum()))
    assert (found.high - found.low) / 2 == pytest.approx(1.96 * again.std(), rel=0.05)


def test_one_conversation_says_nothing_of_the_spread() -> None:
    one = reader(200, write=WRITE, size=(1, 4))
    found = overtakes(one, reader(26_000, size=(1, 4)), SMALL, H100)
    assert (found.low, found.high) == (0.0, math.inf)
    assert math.isfinite(found.mean)


def test_only_questions_that_were_asked_and_are_wanted_count() -> None:
    tokens = np.array([100.0, 900.0, 5_000.0, 2_000_000.0])  # of kinds 0 to 3; the last not asked
    judged = reader(0.0)
    read = judged.read._replace(prefill_tokens=judged.read.calls * tokens[:, None])
    unasked = np.broadcast_to(np.arange(4) == 3, judged.mask.shape)
    read = read._replace(read_tokens=50.0 * unasked, fixed_tokens=50.0 * unasked)
    judged = judged._replace(read=read, mask=~unasked)
    each = [price(judged, SMALL, H100, kinds=kind).read_s.mean for kind in KINDS[:3]]
    assert each == sorted(each)
    assert price(judged, SMALL, H100).read_s.mean == pytest.approx(np.mean(each))
    assert price(judged, SMALL, H100, cached=True).kept_bytes == 0.0
    with pytest.raises(ValueError, match="no question of kind as_of was asked"):
        price(judged, SMALL, H100, kinds="as_of")


def test_a_call_that_generates_nothing_costs_its_prefill() -> None:
    silent = reader(500, answer=0.0)
    found = price(silent, SMALL, H100).read_s.mean
    assert found == pytest.approx(float(prefill(SMALL, H100, 700).total_s), rel=1e-5)


def test_records_are_tidy() -> None:
    rows = ledger.records({"full context": FULL, "mem0": MEM0, "rag": RAG}, SMALL, H100)
    assert [row["system"] for row in rows] == ["full context", "mem0", "rag"]
    full, mem0, rag = rows
    assert mem0["overtakes_cached"] == overtakes(MEM0, FULL, SMALL, H100, cached=True).mean
    assert mem0["read_s"] == price(MEM0, SMALL, H100).read_s.mean
    assert mem0["break_even_tokens"] == pytest.approx(499 / 26)
    assert (rag["overtakes"], rag["overtaken"]) == (0.0, math.inf)
    assert full["kept_bytes_cached"] > full["kept_bytes"] == 0.0
    assert full["overtakes"] == math.inf
    assert len(json.loads(results.to_json(rows))["records"]) == 3
    for row in rows:
        assert list(row) == list(full)


def test_systems_are_priced() -> None:
    """The ledgers of real systems: prompts are longer than the instructions taken to open them."""
    judged = evaluate({"full context": systems.full_context(), "mem0": systems.mem0()}, 2)
    mem0 = judged["mem0"]
    for purpose, own in (("extract", EXTRACT_PROMPT), ("update", UPDATE_PROMPT)):
        p = PURPOSES.index(purpose)
        assert (mem0.write.prefill_tokens[:, p] > own * mem0.write.calls[:, p]).all()
    rows = ledger.records(judged, SMALL, H100)
    assert 5 < rows[1]["overtakes"] < rows[1]["break_even_tokens"] < rows[1]["overtakes_cached"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"prefill_tokens": np.full((3, 6), 5.0)}, "write: expected tokens of calls only"),
        ({"calls": np.ones((3, 6))}, "write: expected a token or more a prompt"),
        ({"calls": np.full((3, 6), -1.0)}, "write.calls must be finite and at least 0, got -1"),
        ({"calls": np.full((3, 6), np.nan)}, "write.calls must be finite and at least 0, got nan"),
        ({"calls": np.ones((3, 4, 6))}, r"write.calls must have shape \(3, 6\), got \(3, 4, 6\)"),
        ({"fixed_tokens": np.ones(3)}, "fixed_tokens must be at most read_tokens"),
    ],
    ids=["no-call", "no-prompt", "negative", "nan", "shape", "fixed"],
)
def test_impossible_ledgers_are_refused(change: dict[str, Any], message: str) -> None:
    judged = made("x")
    bad = judged._replace(write=judged.write._replace(**change))
    with pytest.raises(ValueError, match=message):
        price(bad, SMALL, H100)
    with pytest.raises(ValueError, match=message):
        break_even_tokens(bad, FULL)


def test_bad_arguments_are_refused() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"kinds": "nothing"}, "unknown kind of question 'nothing'"),
        ({"devices": 0}, "devices must be in 1..1e[+]09, got 0"),
        ({"held_s": -1}, "held_s must be in 0..1e[+]09, got -1"),
        ({"held_s": math.nan}, "held_s must be"),
        ({"efficiency": "best"}, "efficiency must be"),
        ({"model": "llama-3-8b"}, "expected a roofline.Model, got 'llama-3-8b'"),
        ({"accelerator": stack([H100, H100])}, "expected one accelerator, got a stack"),
        ({"model": replace(SMALL, kv_bytes=np.ones(2))}, "expected one model, got a stack"),
    ]
    for change, message in cases:
        given: dict[str, Any] = {"model": SMALL, "accelerator": H100, **change}
        with pytest.raises(ValueError, match=message):
            price(FULL, **given)
    with pytest.raises(ValueError, match="answer_tokens must be at least 1, got 0"):
        with_answers(FULL, 0)
    with pytest.raises(ValueError, match="were not asked the same questions"):
        overtakes(MEM0, reader(26_000, size=(3, 5)), SMALL, H100)
    with pytest.raises(ValueError, match="unknown system 'full context' .known: mem0"):
        ledger.records({"mem0": MEM0}, SMALL, H100)
