"""What logs cost under providers' rules: against a plain replay, and cases by hand."""

import dataclasses
import datetime
import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxmem.prompts import LogBuilder, PromptLog, Segment, reuse
from jaxmem.prompts.price import price, prices
from jaxmem.prompts.rules import RULES, Rules
from jaxmem.reference import prompt_price as reference

CLAUDE = RULES["anthropic-5m"]


def segment(name: str, tokens: int, mark: bool = False, kind: str = "history") -> Segment:
    return Segment(kind, kind, name.encode(), tokens, mark)


def log_of(*calls: list[Segment], gap_s: float | None = 1.0, output: int = 0) -> PromptLog:
    builder = LogBuilder()
    for n, segments in enumerate(calls):
        time_s = None if gap_s is None else n * gap_s
        builder.call(segments, time_s=time_s, output_tokens=output)
    return builder.build()


def charged(found: object) -> list[tuple[int, int, int]]:
    return list(zip(*(getattr(found, n).tolist() for n in ("fresh", "written", "read"))))


# Against the plain replay.

KIND_OF = dict(zip("tsabcd", ["tools", "system", *["history"] * 4]))


@st.composite
def drawn_calls(draw: st.DrawFn) -> list:
    """Calls that begin as one prompt does and go on by themselves, marked at random."""
    base = [(name, draw(st.integers(0, 3))) for name in "tsabc"]
    part = st.tuples(st.sampled_from("tsabcd"), st.integers(0, 3))
    rows = []
    for _ in range(draw(st.integers(0, 7))):
        parts = base[: draw(st.integers(0, 5))] + draw(st.lists(part, max_size=2))
        marks = draw(st.lists(st.booleans(), min_size=len(parts), max_size=len(parts)))
        segments = [segment(n, t, m, KIND_OF[n]) for (n, t), m in zip(parts, marks)]
        who = draw(st.sampled_from(["xm", "xm", "ym", "xn"]))
        rows.append((segments, *who, draw(st.integers(0, 2))))
    return rows


calls = drawn_calls()


def build(drawn: list, timed: bool) -> tuple[PromptLog, list, list, list, list]:
    """The log, and of each call its (content, tokens), (session, model), time and segments."""
    builder, now = LogBuilder(), 0.0
    rows: list[list] = [[], [], [], []]
    for parts, session, model, gap in drawn:
        now += gap
        builder.call(parts, session=session, model=model, time_s=now if timed else None)
        row = ([(s.content, s.tokens) for s in parts], (session, model), now, parts)
        for column, value in zip(rows, row):
            column.append(value)
    return builder.build(), *rows  # type: ignore[return-value]


@settings(max_examples=150, deadline=None)
@given(
    calls,
    st.booleans(),
    st.sampled_from([1.0, 2.0, math.inf]),
    st.integers(1, 3),
    st.integers(0, 6),
    st.integers(0, 1),
    st.sampled_from([1.0, 1.25]),
    st.sampled_from(["all", "session"]),
)
def test_automatic_equals_the_replay(
    drawn: list,
    timed: bool,
    ttl_s: float,
    block: int,
    minimum: int,
    tail: int,
    write: float,
    scope: str,
) -> None:
    log, prompts, who, times, _ = build(drawn, timed)
    rules = Rules(
        "made up",
        "",
        "2026-01-01",
        "",
        "automatic",
        ttl_s=ttl_s,
        granularity=block,
        minimum_tokens=minimum,
        tail_tokens=tail,
        write_multiplier=write,
        scope=scope,
        input_usd_per_million=3.0,
    )
    found = price(log, rules)
    caches = [model if scope == "all" else (session, model) for session, model in who]
    twin = reference.automatic_tokens(
        prompts,
        caches,
        times,
        ttl_s=ttl_s if timed else math.inf,
        block=block,
        minimum=minimum,
        tail=tail,
        writes_cost=write != 1,
    )
    assert charged(found) == twin
    assert found.usd == pytest.approx(reference.usd(twin, 3.0, write, 0.1), rel=1e-12)


@settings(max_examples=200, deadline=None)
@given(
    calls,
    st.booleans(),
    st.sampled_from([1.0, 2.0, math.inf]),
    st.booleans(),
    st.integers(0, 6),
    st.sampled_from([None, 1, 2, 3]),
    st.integers(1, 4),
    st.booleans(),
    st.sampled_from(["as_sent", "automatic"]),
    st.sampled_from(["all", "session"]),
)
def test_breakpoints_equal_the_replay(
    drawn: list,
    timed: bool,
    ttl_s: float,
    refreshed: bool,
    minimum: int,
    lookback: int | None,
    most: int,
    implicit: bool,
    marks: str,
    scope: str,
) -> None:
    log, prompts, who, times, parts = build(drawn, timed)
    rules = Rules(
        "made up",
        "",
        "2026-01-01",
        "",
        "breakpoints",
        ttl_s=ttl_s,
        refreshed=refreshed,
        minimum_tokens=minimum,
        lookback=lookback,
        most_breakpoints=most,
        implicit=implicit,
        write_multiplier=1.25,
        scope=scope,
        input_usd_per_million=3.0,
    )
    stops = []
    for segments in parts:
        if marks == "as_sent":
            here = [n for n, s in enumerate(segments) if s.mark]
        else:
            here = reference.automatic_marks([s.kind for s in segments], 4)
        end = len(segments) - 1
        if implicit and segments:
            here = [n for n in here if n != end]
            here = (here[-(most - 1) :] if most > 1 else []) + [end]
        stops.append(here[-most:])
    found = price(log, rules, marks=marks)
    caches = [model if scope == "all" else (session, model) for session, model in who]
    twin = reference.breakpoint_tokens(
        prompts,
        caches,
        times,
        stops,
        ttl_s=ttl_s if timed else math.inf,
        refreshed=refreshed,
        minimum=minimum,
        lookback=lookback,
    )
    assert charged(found) == twin
    assert found.usd == pytest.approx(reference.usd(twin, 3.0, 1.25, 0.1), rel=1e-12)


# By hand.


@pytest.mark.parametrize(
    ("name", "requests", "pays"),
    [
        ("anthropic-5m", 1, False),
        ("anthropic-5m", 2, True),
        ("anthropic-1h", 2, False),
        ("anthropic-1h", 3, True),
    ],
)
def test_break_even(name: str, requests: int, pays: bool) -> None:
    found = price(log_of(*[[segment("s", 10_000, mark=True)]] * requests), name)
    assert (found.usd < found.usd_no_cache) == pays
    write = RULES[name].write_multiplier
    assert found.usd == pytest.approx((write + 0.1 * (requests - 1)) * 10_000 * 2e-6)
    assert found.usd_no_cache == pytest.approx(requests * 10_000 * 2e-6)


@pytest.mark.parametrize(("blocks", "read"), [(18, 5001), (19, 5001), (20, 5000), (25, 5000)])
def test_a_wide_turn_falls_out_of_the_look_back(blocks: int, read: int) -> None:
    start = [segment("system", 5000, mark=True, kind="system")]
    turn = [segment(f"result {n}", 100) for n in range(blocks)]
    first = [*start, segment("question", 1, mark=True)]
    second = [*start, segment("question", 1), *turn[:-1], turn[-1]._replace(mark=True)]
    found = price(log_of(first, second), CLAUDE)
    assert charged(found) == [(0, 5001, 0), (0, 5001 + 100 * blocks - read, read)]
    unlimited = dataclasses.replace(CLAUDE, lookback=None)
    assert price(log_of(first, second), unlimited).read[1] == 5001


def test_the_minimum_is_of_the_prefix() -> None:
    short, enough = [segment("s", 1023, mark=True)], [segment("s", 1024, mark=True)]
    assert charged(price(log_of(short, short), CLAUDE)) == [(1023, 0, 0)] * 2
    assert charged(price(log_of(enough, enough), CLAUDE)) == [(0, 1024, 0), (0, 0, 1024)]
    assert charged(price(log_of(short, short), "openai")) == [(1023, 0, 0)] * 2
    assert charged(price(log_of(enough, enough), "openai")) == [(1024, 0, 0), (0, 0, 1024)]


def test_openai_counts_128_after_the_first_1024() -> None:
    for tokens, read in ((1151, 1024), (1152, 1152), (1300, 1280)):
        prompt = [segment("s", tokens), segment("t", 500)]
        other = [segment("s", tokens), segment("u", 500)]
        assert price(log_of(prompt, other), "openai").read.tolist() == [0, read]


def test_a_hit_renews_an_entry() -> None:
    exact = log_of(*[[segment("s", 2000, mark=True)]] * 3, gap_s=300)
    assert price(exact, CLAUDE).read.tolist() == [0, 2000, 2000]
    prompt = [segment("s", 2000, mark=True)]
    log = log_of(*[prompt] * 4, gap_s=200)
    assert charged(price(log, CLAUDE)) == [(0, 2000, 0), *[(0, 0, 2000)] * 3]
    once = dataclasses.replace(CLAUDE, refreshed=False)
    assert price(log, once).read.tolist() == [0, 2000, 0, 2000]
    late = log_of(prompt, prompt, gap_s=301)
    assert charged(price(late, CLAUDE)) == [(0, 2000, 0)] * 2
    assert charged(price(late, "anthropic-1h")) == [(0, 2000, 0), (0, 0, 2000)]
    assert price(log_of(prompt, prompt, gap_s=601), "openai").read.sum() == 0
    assert price(log_of(prompt, prompt, gap_s=601), "openai-24h").read.sum() == 1920


def test_a_hit_within_the_look_back_renews_what_it_read() -> None:
    s = segment("s", 2000)
    first = [s._replace(mark=True)]
    others = [[s, segment(name, 100, mark=True)] for name in "ab"]
    log = log_of(first, *others, gap_s=200)  # the third comes 400 s after the first
    assert charged(price(log, CLAUDE)) == [(0, 2000, 0), (0, 100, 2000), (0, 100, 2000)]


def test_without_breakpoints_only_openai_places_one() -> None:
    log = log_of(*[[segment("s", 2000)]] * 2, gap_s=None)
    found = price(log, CLAUDE)
    assert charged(found) == [(2000, 0, 0)] * 2
    assert found.usd == found.usd_no_cache
    assert found.share_read == 0
    assert any("no call has a breakpoint" in note for note in found.notes)
    assert any("no times" in note for note in found.notes)
    assert charged(price(log, "openai-breakpoints")) == [(0, 2000, 0), (0, 0, 2000)]


def test_automatic_marks_follow_a_conversation() -> None:
    tools, system = segment("t", 2000, kind="tools"), segment("s", 3000, kind="system")
    talk = [segment(str(n), 100) for n in range(40)]
    log = log_of(*[[tools, system, *talk[:n]] for n in (2, 4, 40)])
    found = price(log, CLAUDE, marks="automatic")
    # The third turn is too wide: what is left is the breakpoint after the system prompt.
    assert charged(found) == [(0, 5200, 0), (0, 200, 5200), (0, 4000, 5000)]
    many = price(log_of([part._replace(mark=True) for part in talk]), CLAUDE)
    assert many.written[0] == 4000
    assert any("more than 4 breakpoints: 1" in note for note in many.notes)


def test_caches_are_kept_by_model() -> None:
    builder = LogBuilder()
    for model in ("big", "small", "big"):
        builder.call([segment("s", 4096, mark=True)], model=model)
    log = builder.build()
    for name in ("anthropic-5m", "openai", "sglang"):
        assert (price(log, name).read > 0).tolist() == [False, False, True]


def test_engines_compute_the_last_token() -> None:
    log = log_of(*[[segment("s", 32)]] * 2)
    assert price(log, "vllm").read.tolist() == [0, 16]  # a whole block for one token
    assert price(log, "sglang").read.tolist() == [0, 31]
    assert price(log, "vllm").usd is None
    assert price(log, "vllm", usd_per_million=1e6).usd == 48


def test_money() -> None:
    old, new = [segment("a", 2000), segment("b", 3000)], [segment("c", 1000), segment("b", 3000)]
    log = log_of(old, new, output=10)
    rules = dataclasses.replace(RULES["openai"], write_multiplier=1.25)
    found = price(log, rules, usd_per_million=1e6, output_usd_per_million=2e6)
    assert charged(found) == [(8, 4992, 0), (32, 3968, 0)]
    assert found.usd_output == 40
    assert found.usd == 40 + 40 + 1.25 * (4992 + 3968)
    assert found.usd_no_cache == 9000 + 40
    assert found.usd_perfect == 1.25 * (5000 + 1000) + 0.1 * 3000 + 40
    plain = price(log, "openai", usd_per_million=1e6)
    assert plain.usd_output == 0
    assert any("answers are not priced" in note for note in plain.notes)
    assert plain.usd_perfect == 6000 + 0.1 * 3000
    assert price(log, "openai").usd_output == pytest.approx(20 * 15e-6)


@settings(max_examples=60, deadline=None)
@given(calls, st.sampled_from(sorted(RULES)))
def test_the_three_prices_are_ordered(drawn: list, name: str) -> None:
    log = build(drawn, True)[0]
    rules = dataclasses.replace(RULES[name], minimum_tokens=0)
    found = price(log, rules, usd_per_million=1.0)
    if rules.write_multiplier == 1:
        assert found.usd_perfect <= found.usd * (1 + 1e-12) <= found.usd_no_cache * (1 + 1e-11)
    np.testing.assert_array_equal(found.fresh + found.written + found.read, log.prompt_tokens)
    assert min(found.fresh.min(initial=0), found.written.min(initial=0)) >= 0


def test_table() -> None:
    records = prices(log_of(*[[segment("s", 5000, mark=True)]] * 3, output=1))
    assert [r["rule"] for r in records] == list(RULES)
    for record, rules in zip(records, RULES.values()):
        alone = price(log_of(*[[segment("s", 5000, mark=True)]] * 3, output=1), rules)
        assert record["read"] == alone.read.sum() > 0
        assert record["usd"] == alone.usd
        assert 0.6 < record["share_read"] == alone.share_read < 0.7
    assert prices(LogBuilder().build())[0]["usd"] == 0


@pytest.mark.parametrize("rules", RULES.values(), ids=lambda rules: rules.name)
def test_rules_say_where_they_are_from(rules: Rules) -> None:
    assert datetime.date(2024, 1, 1) < datetime.date.fromisoformat(rules.as_of)
    assert rules.source
    assert rules.provider
    assert (rules.input_usd_per_million is None) == (rules.model == "")
    assert rules.read_multiplier < 1 <= rules.write_multiplier


def test_real_log(data_dir: Path) -> None:
    builder = LogBuilder()
    for path in sorted((data_dir / "agent_logs" / "miniswe").glob("*.jsonl"))[:1]:
        for line in path.read_text().splitlines()[:40]:
            row = json.loads(line)
            parts = [Segment("text", "history", p.encode()) for p in row["input"].split("\n\n")]
            builder.call(parts, session=row["session_id"], time_s=row["timestamp"] / 1e6)
    log = builder.build()
    assert price(log, "sglang").read.sum() > 0
    found = price(log, "vllm")
    assert (found.read == reuse(log, 16, scope="all", tail_tokens=1).reused).all()


def test_bad_arguments() -> None:
    log = log_of([segment("s", 1)])
    with pytest.raises(ValueError, match="did you mean 'anthropic-5m'"):
        price(log, "antropic-5m")
    with pytest.raises(ValueError, match="usd_per_million must be at least 0"):
        price(log, CLAUDE, usd_per_million=-1)
    with pytest.raises(ValueError, match="must be finite"):
        price(log, CLAUDE, output_usd_per_million=math.inf)
    with pytest.raises(ValueError, match="choice of marks"):
        price(log, CLAUDE, marks="automatik")
    with pytest.raises(ValueError, match="provider's cache rules"):
        prices(log, ["gpt"])
    for change, message in (
        ({"input_usd_per_million": -1.0}, "input_usd_per_million must be at least 0"),
        ({"how": "magic"}, "way of caching"),
        ({"scope": "world"}, "scope"),
        ({"granularity": 0}, "granularity"),
        ({"most_breakpoints": 0}, "most_breakpoints"),
        ({"lookback": 0}, "lookback"),
        ({"as_of": "yesterday"}, "as_of"),
        ({"how": "automatic", "refreshed": False}, "refreshed"),
    ):
        with pytest.raises(ValueError, match=message):
            dataclasses.replace(CLAUDE, **change)
    assert price(log, "OpenAI").rules.name == "openai"


def test_the_look_back_counts_content_blocks_not_their_parts() -> None:
    shares = []
    for split in (True, False):
        builder, prompt = LogBuilder(), []
        for n in range(3):
            parts = [
                Segment("h", "history", b"%d %d" % (n, k), tokens=100, part=split and k > 0)
                for k in range(25)
            ]
            prompt += parts
            marked = [*prompt[:-1], prompt[-1]._replace(mark=True)]
            builder.call(marked, time_s=float(n))
        shares.append(price(builder.build(), "anthropic-5m").share_read)
    assert shares == [0.5, 0.0]
