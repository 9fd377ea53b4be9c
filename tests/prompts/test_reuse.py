"""Reuse of prompts: against a brute force, against the dense kernel, and causes by hand."""

import json
import re
from pathlib import Path

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxmem.prefix_cache import lru_curve
from jaxmem.prompts import HOW, LogBuilder, PromptLog, Segment, block_trace, reuse
from jaxmem.prompts.dense import dense_reuse, to_dense
from jaxmem.reference import prompts as reference

kernel = jax.jit(dense_reuse, static_argnames="lookback")


def log_of(*prompts: str, session: str = "a", gap_s: float = 1.0) -> PromptLog:
    """Prompts as words: "S:abcd M:ef" has a segment S of text "abcd", then M."""
    builder = LogBuilder()
    for n, prompt in enumerate(prompts):
        parts = [word.split(":") for word in prompt.split()]
        segments = [Segment(label, "history", text.encode()) for label, text in parts]
        builder.call(segments, session=session, time_s=n * gap_s)
    return builder.build()


def tokens(log: PromptLog) -> list[np.ndarray]:
    """The token stream of each call, from the dense form in blocks of one."""
    content, sizes = (np.asarray(x) for x in to_dense(log, 1)[:2])
    return [row[:n] for row, n in zip(content, (sizes > 0).sum(1))]


words = st.text("ab", min_size=1, max_size=12)
prompts = st.lists(st.tuples(st.sampled_from("SMH"), words), max_size=5)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("xy"), prompts), max_size=8), st.sampled_from([2, np.inf])
)
def test_shared_is_the_longest_common_prefix(calls: list, ttl_s: float) -> None:
    builder = LogBuilder()
    for n, (session, parts) in enumerate(calls):
        segments = [Segment(label, "history", text.encode()) for label, text in parts]
        builder.call(segments, session=session, time_s=float(n))
    log = builder.build()
    if not calls:
        assert reuse(log).share == 0
        return
    for scope in ("session", "all"):
        found = reuse(log, scope=scope, ttl_s=ttl_s)
        who = log.session if scope == "session" else log.session * 0
        exact = reference.shared_tokens(tokens(log), who, log.time_s, ttl_s)
        # Segments are the grain: a prefix may go on where other segments hold the same text.
        assert np.all(found.reused <= exact)
        same = [tuple(log.label[a:b]) for a, b in zip(log.starts, log.starts[1:])]
        if len(set(map(len, same))) <= 1 and all(len(t) == 4 for _, p in calls for _, t in p):
            np.testing.assert_array_equal(found.reused, exact)
        whole = found.reused + found.rounding + found.expired + found.broken + found.fresh
        np.testing.assert_array_equal(whole, log.prompt_tokens)
        assert min(found.rounding.min(), found.expired.min(), found.broken.min()) >= 0
        assert found.fresh.min() >= 0


@pytest.mark.parametrize(
    ("before", "after", "how", "cause", "broken"),
    [
        ("S:aaaabbbb H:cccc", "S:aaaabbbb H:cccc H:dddd", "extended", None, 0),
        ("S:aaaabbbb M:cccc H:dddd", "S:aaaabbbb M:eeee H:dddd", "edited", "M", 1),
        ("S:aaaabbbb M:cccc H:dddd", "S:aaaabbbb M:cccceeee H:dddd", "grown", "M", 1),
        ("S:aaaa H:cccc", "S:aaaa M:eeee H:cccc", "inserted", "M", 1),
        ("S:aaaa M:eeee H:cccc", "S:aaaa H:cccc", "removed", "M", 1),
        ("S:aaaa T:bbbb U:cccc", "S:aaaa U:cccc T:bbbb", "reordered", "U", 2),
        ("S:aaaa T:bbbb U:cccc", "S:aaaa V:eeee U:cccc", "replaced", "V", 1),
        ("S:1000aaaabbbbcccc", "S:1001aaaabbbbcccc", "edited", "S", 3),
    ],
)
def test_breaks_by_hand(before: str, after: str, how: str, cause: str | None, broken: int) -> None:
    found = reuse(log_of(before, after))
    assert HOW[found.how[1]] == how
    assert found.broken[1] == broken
    assert (found.log.labels[found.cause[1]] if found.cause[1] >= 0 else None) == cause
    assert found.how[0] == 0
    assert found.by_cause == ({(cause, how): (1, broken)} if broken else {})


def test_the_reference_is_the_call_that_shares_most() -> None:
    log = log_of("S:aaaa H:bbbb", "S:zzzz H:yyyy", "S:aaaa H:bbbb H:cccc", "S:zzzz H:yyyy H:xxxx")
    assert reuse(log).reference.tolist() == [-1, 0, 0, 1]  # two agents, interleaved


def test_a_time_to_live_is_refreshed_by_use() -> None:
    log = log_of(*["S:aaaa"] * 4, gap_s=10)
    assert reuse(log, ttl_s=10).reused.tolist() == [0, 1, 1, 1]
    expired = reuse(log, ttl_s=9)
    assert expired.reused.sum() == 0
    assert expired.expired.tolist() == [0, 1, 1, 1]


def test_blocks_minimum_and_tail() -> None:
    log = log_of("S:" + "a" * 40, "S:" + "a" * 40)
    assert reuse(log, 4).reused[1] == 8
    assert reuse(log, 4).rounding[1] == 2
    assert reuse(log, 5, tail_tokens=1).reused[1] == 5
    assert reuse(log, 1, minimum_tokens=11).reused[1] == 0


def test_named_contents_are_equal_or_share_nothing() -> None:
    builder = LogBuilder()
    for name in (b"x1", b"x2", b"x1"):
        builder.call([Segment("image", "history", name, tokens=7), Segment("t", "task", b"abcd")])
    found = reuse(builder.build())
    assert found.reused.tolist() == [0, 0, 8]
    assert found.reference.tolist() == [-1, 0, 0]


names = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 2)), max_size=6)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1), names), min_size=8, max_size=8))
def test_kernel_equals_twin_and_log(calls: list) -> None:
    builder = LogBuilder()
    builder.call([Segment(f"l{n % 3}", "memory", b"pad", tokens=n) for n in range(8)], session="p")
    for session, parts in calls:
        segments = [Segment(f"l{b}", "memory", b"%d" % a, tokens=a + 1) for a, b in parts]
        builder.call(segments, session=str(session))
    log = builder.build()
    arrays = to_dense(log)
    fast = jax.tree.map(np.asarray, kernel(arrays))
    slow = reference.dense_reuse(*(np.asarray(x) for x in arrays[:4]))
    found = reuse(log)
    for name in ("reference", "broken", "fresh", "position", "cause"):
        np.testing.assert_array_equal(getattr(fast, name), slow[name], err_msg=name)
        np.testing.assert_array_equal(getattr(found, name), slow[name], err_msg=name)
    np.testing.assert_array_equal(fast.reused, slow["shared"])
    np.testing.assert_array_equal(found.reused, slow["shared"])
    assert [HOW[h] for h in fast.how] == [HOW[h] for h in found.how] == list(slow["how"])


def test_lookback_of_one_is_enough_for_an_agent_alone() -> None:
    prompt = [Segment("s", "system", b"s", tokens=9)]
    builder = LogBuilder()
    for n in range(9):
        prompt.append(Segment("h", "history", b"%d" % n, tokens=n + 1))
        if n == 6:
            del prompt[1:4]
        builder.call(prompt)
    arrays = to_dense(builder.build())
    for a, b in zip(kernel(arrays), kernel(arrays, lookback=1)):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("agent", ["taubench", "magagent", "miniswe"])
def test_real_logs_equal_the_token_by_token_count(data_dir: Path, agent: str) -> None:
    builder = LogBuilder()
    for path in sorted((data_dir / "agent_logs" / agent).glob("*.jsonl"))[:2]:
        for line in path.read_text().splitlines()[:9]:
            row = json.loads(line)
            parts = re.split(r"(?<=\n\n)", row["input"])
            segments = [Segment("text", "history", part.encode()) for part in parts if part]
            builder.call(segments, session=row["session_id"], time_s=row["timestamp"] / 1e6)
    log = builder.build()
    exact = reference.shared_tokens(tokens(log), log.session, log.time_s)
    np.testing.assert_array_equal(reuse(log).reused, exact)
    found = reuse(log, 16)
    np.testing.assert_array_equal(found.reused, dense_reuse(to_dense(log, 16), 16).reused)
    assert found.reused.sum() > 0
    curve = lru_curve(block_trace(log, 16, "session"), "prefix")
    assert curve.hits(np.inf) * 16 == found.reused.sum()


def test_bad_arguments() -> None:
    log = LogBuilder()
    log.call([Segment("s", "system", b"abcd")])
    untimed = log.build()
    with pytest.raises(ValueError, match="has no times"):
        reuse(untimed, ttl_s=300)
    with pytest.raises(ValueError, match="scope"):
        reuse(untimed, scope="sesion")
    with pytest.raises(ValueError, match="block_tokens"):
        reuse(untimed, 0)
    with pytest.raises(ValueError, match="kind"):
        log.call([Segment("s", "system", b"more"), Segment("s", "sytem", b"abcd")])
    with pytest.raises(ValueError, match="a content must be bytes, got str"):
        log.call([Segment("s", "system", "abcd")])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="session must be text"):
        log.call([Segment("s", "system", b"abcd")], session=3)  # type: ignore[arg-type]
    assert log.build().prompt_tokens.tolist() == [1]  # what was refused left nothing


def test_a_model_has_a_cache_of_its_own() -> None:
    builder = LogBuilder()
    for model in ("a", "b", "a"):
        builder.call([Segment("s", "system", b"abcdefgh")], model=model)
    log = builder.build()
    for scope in ("session", "all"):
        assert reuse(log, scope=scope).reused.tolist() == [0, 0, 2]
    np.testing.assert_array_equal(kernel(to_dense(log)).reused, [0, 0, 2])


def test_what_had_expired_or_was_too_short_is_not_lost_to_a_break() -> None:
    log = log_of("S:1000aaaabbbbcccc H:dddd", "S:1001aaaabbbbcccc H:dddd", gap_s=10)
    assert reuse(log).broken[1] == 4
    late = reuse(log, ttl_s=9)
    assert (late.broken[1], late.expired[1]) == (0, 4)
    short = reuse(log, minimum_tokens=50)
    assert (short.broken[1], short.rounding[1]) == (0, 4)


def test_a_call_is_compared_with_its_own_session() -> None:
    builder = LogBuilder()
    for session, clock, turns in (("a", 1, 1), ("b", 2, 1), ("a", 2, 2)):
        segments = [Segment("clock", "system", b"%d" % clock, tokens=5)]
        segments += [Segment("h", "history", b"%s%d" % (session.encode(), n), tokens=10)
                     for n in range(turns)]  # fmt: skip
        builder.call(segments, session=session)
    found = reuse(builder.build(), scope="all")
    assert found.shared.tolist() == [0, 0, 5]  # of the other session, whose clock is the same
    assert found.reference.tolist() == [-1, 0, 0]
    assert (found.broken[2], found.fresh[2]) == (10, 10)
