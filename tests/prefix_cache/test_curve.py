"""Hit curves against replays, and against published counts on a real trace."""

from pathlib import Path

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxmem.prefix_cache import (
    BlockTrace,
    Tier,
    block_distances,
    lru_curve,
    make_trace,
    read_trace,
    synthetic_trace,
    tier_hits,
)
from jaxmem.reference import prefix_cache as reference

MOONCAKE = "mooncake/conversation_trace.jsonl"
CAPACITIES = np.array([1000, 5000, 10_000, 30_000, 50_000, 100_000, np.inf])


def chained_trace(
    seed: int, requests: int, block_tokens: int = 4, multiples: bool = True
) -> BlockTrace:
    """Random prompts over a tiny alphabet of blocks, with ids that hash the prefix.

    `multiples` allows prompts that end exactly with a block.
    """
    rng = np.random.default_rng(seed)
    ids: dict[tuple[int, ...], int] = {}
    flat, blocks, tokens = [], [], []
    for _ in range(requests):
        length = int(rng.integers(0, 7 * block_tokens))
        length += not multiples and length % block_tokens == 0
        count = -(-length // block_tokens)
        prompt = tuple(rng.integers(0, 2, count).tolist())
        if length % block_tokens:
            prompt = (*prompt[:-1], 10 + length % block_tokens)
        flat += [ids.setdefault(prompt[: i + 1], len(ids)) for i in range(count)]
        blocks.append(count)
        tokens.append(length)
    arrival = np.sort(rng.uniform(0, 100, requests))
    return make_trace(np.array(flat, int), blocks, tokens, [1] * requests, arrival, block_tokens)


def split(trace: BlockTrace) -> list[list[int]]:
    return [trace.block_ids[a:b].tolist() for a, b in zip(trace.offsets[:-1], trace.offsets[1:])]


# Few or many requests: each power of two of distinct blocks is a program of its own.
@given(st.integers(0, 10**6), st.integers(2, 4) | st.integers(50, 60))
@settings(max_examples=40, deadline=None)
def test_curves_equal_replays(seed: int, requests: int) -> None:
    trace = chained_trace(seed, requests)
    if trace.accesses == 0:
        return
    split_requests = split(trace)
    plain, prefix = lru_curve(trace, "plain"), lru_curve(trace, "prefix")
    limited = lru_curve(trace, "prefix", ttl_s=20.0)
    for capacity in (1, 2, 3, 5, 8, 13, 50, 1000):
        assert plain.hits(capacity) == reference.lru_hits(trace.block_ids.tolist(), capacity)
        assert prefix.hits(capacity) == reference.prefix_hits(split_requests, capacity)
        assert limited.hits(capacity) == reference.prefix_hits(
            split_requests, capacity, trace.arrival_s.tolist(), 20.0
        )


@given(st.integers(0, 10**6), st.integers(2, 60))
@settings(max_examples=40, deadline=None)
def test_vllm_curve_equals_its_block_pool(seed: int, requests: int) -> None:
    trace = chained_trace(seed, requests, multiples=False)
    curve = lru_curve(trace, "vllm")
    for capacity in range(curve.largest_request_blocks, 40, 3):
        replayed = reference.vllm_hits(
            split(trace), trace.input_tokens.tolist(), trace.block_tokens, capacity
        )
        assert replayed == (int(curve.hits(capacity)), 0)


def test_vllm_keeps_two_copies_of_a_recomputed_last_block() -> None:
    # A whole prompt in the cache: its last block is computed again into a slot of its own, which
    # pushes block 3 out of a pool of 4 (one slot is the running request's tail).
    ids, tokens = np.array([3, 1, 2, 1, 2, 3]), [4, 8, 8, 5]
    trace = make_trace(
        np.append(ids, 9), [1, 2, 2, 2], tokens, [0] * 4, np.arange(4.0), block_tokens=4
    )
    replayed = reference.vllm_hits(split(trace), tokens, 4, 4)
    assert replayed == (1, 0)
    assert lru_curve(trace, "vllm").hits(4) == 2


def test_cached_tokens_add_up_to_the_curve() -> None:
    trace = synthetic_trace(jax.random.key(3), users=20)
    for semantics in ("plain", "prefix", "vllm"):
        distances = block_distances(trace, semantics)  # type: ignore[arg-type]
        for capacity in (0.5, 1, 2.7, 300, np.inf):
            cached = distances.cached_tokens(capacity)
            assert cached.shape == (trace.requests,)
            assert np.all(cached <= trace.input_tokens)
            total = distances.curve().token_ratio(capacity) * trace.input_tokens.sum()
            assert cached.sum() == pytest.approx(total)
    with pytest.raises(ValueError, match="positive"):
        distances.cached_tokens(0)


def test_ids_that_are_no_prefix_hashes_still_need_every_earlier_block() -> None:
    trace = make_trace(np.array([1, 2, 3, 9, 2, 3]), [3, 3], [12, 12], [0, 0], [0.0, 1.0], 4)
    assert lru_curve(trace, "plain").hits(10) == 2
    assert lru_curve(trace, "prefix").hits(10) == 0


def test_token_hits_count_a_partial_tail_by_its_tokens() -> None:
    trace = make_trace(np.array([1, 2, 1, 2]), [2, 2], [6, 6], [0, 0], [0.0, 1.0], 4)
    curve = lru_curve(trace, "prefix")
    assert curve.hits(np.inf) == 2
    assert curve.token_ratio(np.inf) == 6 / 12
    assert lru_curve(trace, "vllm").token_ratio(np.inf) == 4 / 12
    assert lru_curve(trace, "vllm").block_ratio(np.inf) == 1 / 4


def test_whole_prompt_cached_recomputes_its_last_block_in_vllm() -> None:
    trace = make_trace(np.array([1, 2, 1, 2]), [2, 2], [8, 8], [0, 0], [0.0, 1.0], 4)
    assert lru_curve(trace, "vllm").hits(np.inf) == 1
    assert lru_curve(trace, "prefix").hits(np.inf) == 2


@pytest.mark.parametrize(
    ("semantics", "hits", "token_ratios"),
    [
        ("plain", [12_831, 31_840, 60_921, 93_967, 102_290, 104_924, 105_710], None),
        ("prefix", [12_847, 32_260, 61_046, 93_978, 102_290, 104_924, 105_710], None),
        (
            "vllm",
            [12_988, 34_185, 62_001, 95_336, 102_723, 104_926, 105_592],
            [0.045926, 0.120880, 0.219239, 0.337114, 0.363235, 0.371025, 0.373380],
        ),
    ],
)
def test_published_counts_on_the_mooncake_trace(
    data_dir: Path, semantics: str, hits: list[int], token_ratios: list[float] | None
) -> None:
    trace = read_trace(data_dir / MOONCAKE)
    assert (trace.requests, trace.accesses) == (12_031, 288_500)
    curve = lru_curve(trace, semantics)  # type: ignore[arg-type]
    np.testing.assert_array_equal(curve.hits(CAPACITIES), hits)
    np.testing.assert_allclose(curve.block_ratio(CAPACITIES), np.array(hits) / 288_500, rtol=1e-15)
    if token_ratios:
        np.testing.assert_array_equal(np.round(curve.token_ratio(CAPACITIES), 6), token_ratios)


@pytest.mark.parametrize("usable_blocks", [1000, 10_000])
def test_vllm_block_pool_on_the_mooncake_trace(data_dir: Path, usable_blocks: int) -> None:
    trace = read_trace(data_dir / MOONCAKE)
    replayed = reference.vllm_hits(split(trace), trace.input_tokens.tolist(), 512, usable_blocks)
    assert replayed == (int(lru_curve(trace, "vllm").hits(usable_blocks)), 0)


@pytest.mark.usefixtures("optimised")
def test_agent_sessions_hit_rate(data_dir: Path) -> None:
    trace = read_trace(data_dir / "claude_code/traces_runs.jsonl.gz")
    assert (trace.requests, trace.block_tokens) == (9_752, 64)
    # An unbounded cache holds every block seen: the hits are those that are not first touches.
    unbounded = trace.accesses - len(np.unique(trace.block_ids))
    assert lru_curve(trace, "plain").hits(np.inf) == unbounded
    assert unbounded / trace.accesses > 0.95


def test_capacity_for_inverts_block_ratio() -> None:
    trace = synthetic_trace(jax.random.key(0), users=30)
    for semantics in ("plain", "prefix", "vllm"):
        curve = lru_curve(trace, semantics)  # type: ignore[arg-type]
        best = curve.block_ratio(np.inf)
        for ratio in np.array([0.1, 0.5, 0.9, 1.0]) * best:
            capacity = curve.capacity_for(ratio)
            assert curve.block_ratio(capacity) >= ratio
            if capacity > 1 + curve.reserved_blocks:
                assert curve.block_ratio(capacity - 1) < ratio
        assert curve.capacity_for(min(1.0, best + 0.01)) == np.inf
        assert curve.hits(curve.flat_capacity(1.0)) == curve.hits(np.inf)


def test_tiers_split_the_curve() -> None:
    trace = synthetic_trace(jax.random.key(1), users=30)
    curve = lru_curve(trace, "prefix")
    stack = [Tier("HBM", 500), Tier("DRAM", 2000, 50e9), Tier("disk", np.inf, 5e9)]
    rows = tier_hits(curve, stack, block_bytes=2**21)
    assert sum(row.hits for row in rows) == curve.hits(np.inf)
    assert rows[0].hits == curve.hits(500)
    assert rows[0].hits + rows[1].hits == curve.hits(2500)
    assert rows[0].load_s == 0
    assert rows[1].load_s == pytest.approx(rows[1].hits * 2**21 / 50e9)
    assert sum(r.tokens for r in rows) == round(curve.token_ratio(np.inf) * curve.total_tokens)
    with pytest.raises(ValueError, match="tier 'HBM'"):
        tier_hits(curve, [Tier("HBM", 0)], 1.0)
    with pytest.raises(ValueError, match="at least one"):
        tier_hits(curve, [], 1.0)


@pytest.mark.parametrize("capacity", [0, -1, np.nan, [10, 0]])
def test_capacity_must_be_positive(capacity: float) -> None:
    curve = lru_curve(synthetic_trace(jax.random.key(2), users=3))
    with pytest.raises(ValueError, match="positive"):
        curve.hits(capacity)


def test_bad_arguments() -> None:
    trace = synthetic_trace(jax.random.key(2), users=3)
    with pytest.raises(ValueError, match="did you mean 'vllm'"):
        lru_curve(trace, "vlm")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="ttl_s"):
        lru_curve(trace, "plain", ttl_s=0)
    with pytest.raises(ValueError, match="ratio must"):
        lru_curve(trace).capacity_for(1.5)
    with pytest.raises(ValueError, match="no block"):
        lru_curve(make_trace(np.zeros(0, int), [0], [0], [1], [0.0], 4))
