"""Traces: what they check, how they are read and written, and what is refused."""

import gzip
import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from jaxmem.prefix_cache import (
    BlockTrace,
    lru_curve,
    make_trace,
    read_trace,
    synthetic_trace,
    write_trace,
)

GOOD = {"timestamp": 0, "input_length": 700, "output_length": 5, "hash_ids": [1, 2]}
SESSION = {
    "block_size": 64,
    "requests": [
        {"t": 0.0, "in": 200, "out": 3, "runs": [[1, 3]]},
        {"t": 1.0, "type": "subagent"},
        {"t": 2.5, "in": 260, "out": 3, "runs": [[1, 3], [9, 1]]},
    ],
}


def lines(path: Path, *rows: Any) -> Path:
    path.write_text("".join(r if isinstance(r, str) else json.dumps(r) + "\n" for r in rows))
    return path


@pytest.mark.parametrize("name", ["t.jsonl", "t.jsonl.gz"])
def test_written_traces_read_back(tmp_path: Path, name: str) -> None:
    trace = synthetic_trace(jax.random.key(0), users=5)
    write_trace(tmp_path / name, trace)
    again = read_trace(tmp_path / name, block_tokens=trace.block_tokens)
    np.testing.assert_array_equal(again.block_ids, trace.block_ids)
    np.testing.assert_array_equal(again.offsets, trace.offsets)
    np.testing.assert_array_equal(again.input_tokens, trace.input_tokens)
    np.testing.assert_array_equal(again.output_tokens, trace.output_tokens)
    np.testing.assert_allclose(again.arrival_s, trace.arrival_s, rtol=1e-12)


def test_sessions_get_global_ids_and_start_together(tmp_path: Path) -> None:
    trace = read_trace(lines(tmp_path / "s.jsonl", SESSION, SESSION))
    assert (trace.block_tokens, trace.requests) == (64, 4)
    np.testing.assert_array_equal(trace.arrival_s, [0, 0, 2.5, 2.5])
    ids = [trace.block_ids[a:b].tolist() for a, b in zip(trace.offsets, trace.offsets[1:])]
    assert ids == [[1, 2, 3], [11, 12, 13], [1, 2, 3, 9], [11, 12, 13, 19]]
    assert lru_curve(trace, "prefix").hits(np.inf) == 6


def test_floor_traces_are_written_with_fresh_tails(tmp_path: Path) -> None:
    trace = read_trace(lines(tmp_path / "s.jsonl", SESSION))
    write_trace(tmp_path / "m.jsonl", trace)
    again = read_trace(tmp_path / "m.jsonl", block_tokens=64)
    assert again.accesses == trace.accesses + 2
    assert lru_curve(again, "vllm").hits(np.inf) == lru_curve(trace, "vllm").hits(np.inf)


def test_times_out_of_order_are_sorted_with_a_notice(tmp_path: Path) -> None:
    late = {**GOOD, "timestamp": 9000, "hash_ids": [7, 8]}
    path = lines(tmp_path / "t.jsonl", late, GOOD)
    with pytest.warns(UserWarning, match="sorted"):
        trace = read_trace(path)
    np.testing.assert_array_equal(trace.block_ids, [1, 2, 7, 8])
    np.testing.assert_array_equal(trace.arrival_s, [0, 9])
    backwards = {**SESSION, "requests": SESSION["requests"][::-1]}
    with pytest.warns(UserWarning, match="not in order of 't': sorted"):
        read_trace(lines(tmp_path / "s.jsonl", backwards))


BAD = {
    "an empty file": ([""], "empty file"),
    "blank lines": (["\n\n"], "empty file"),
    "broken JSON": ([GOOD, '{"timestamp": 1,\n'], "line 2: broken JSON"),
    "not an object": ([GOOD, "[1, 2]\n"], "line 2: expected a JSON object"),
    "missing": ([{k: v for k, v in GOOD.items() if k != "hash_ids"}], "'hash_ids' is missing"),
    "negative": ([{**GOOD, "output_length": -1}], "'output_length': expected a non-negative"),
    "not an integer": ([{**GOOD, "input_length": 700.5}], "'input_length'.*got 700.5"),
    "a boolean": ([{**GOOD, "input_length": True}], "'input_length'.*got True"),
    "NaN": (
        ['{"timestamp": NaN, "input_length": 1, "output_length": 1, "hash_ids": [1]}\n'],
        "'timestamp': expected a time",
    ),
    "text": ([{**GOOD, "timestamp": "now"}], "'timestamp': expected a time"),
    "too few ids": ([GOOD, {**GOOD, "hash_ids": [1]}], "line 2.*expected 2 ids.*got 1"),
    "ids that are no integers": ([{**GOOD, "hash_ids": [1, 2.5]}], "'hash_ids': expected a list"),
    "a time beyond all floats": ([{**GOOD, "timestamp": 10**400}], "'timestamp': expected a time"),
    "an integer of 5,000 digits": (['{"timestamp": ' + "1" * 5001 + "}\n"], "line 1: broken JSON"),
    "a run beyond int32": (
        [
            {
                "block_size": 1,
                "requests": [{"t": 0, "in": 2**31 - 1, "out": 1, "runs": [[0, 2**31 - 1]]}],
            }
        ],
        "request 0: more than",
    ),
    "ids beyond int64": ([{**GOOD, "hash_ids": [1, 2**63]}], "'hash_ids': expected a list"),
    "nested too deeply": (["[" * 100_000 + "\n"], "line 1"),
    "runs that do not fit": (
        [{"block_size": 64, "requests": [{"t": 0, "in": 64, "out": 1, "runs": [[0, 2]]}]}],
        "line 1: request 0: field 'runs': expected 1 blocks",
    ),
    "runs of another form": (
        [{"block_size": 64, "requests": [{"t": 0, "in": 64, "out": 1, "runs": [[0]]}]}],
        r"'runs': expected a list of \[first id, length\]",
    ),
    "another block size": ([SESSION, {**SESSION, "block_size": 32}], "line 2.*'block_size'"),
    "no block size": ([{"requests": []}], "'block_size' is missing"),
    "no requests": ([{**SESSION, "requests": []}], "no session has a request"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_files_are_named_by_file_line_and_field(tmp_path: Path, case: str) -> None:
    rows, message = BAD[case]
    path = lines(tmp_path / "bad.jsonl", *rows)
    with pytest.raises(ValueError, match=f"bad.jsonl.*{message}") as caught:
        read_trace(path)
    assert "\n" not in str(caught.value)


def test_damaged_gzip(tmp_path: Path) -> None:
    whole = gzip.compress((json.dumps(GOOD) + "\n").encode() * 500)
    (tmp_path / "cut.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match="cut.gz.*gzip is damaged"):
        read_trace(tmp_path / "cut.gz")
    (tmp_path / "noise.gz").write_bytes(b"\x1f\x8b" + bytes(range(256)))
    with pytest.raises(ValueError, match="noise.gz.*gzip is damaged"):
        read_trace(tmp_path / "noise.gz")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00abc")
    with pytest.raises(ValueError, match="binary.*not UTF-8"):
        read_trace(tmp_path / "binary")


def test_traces_check_themselves() -> None:
    arrays = (np.array([1]), np.array([0, 1]), np.array([4]), np.array([1]), np.array([0.0]))
    BlockTrace(*arrays, block_tokens=4)
    with pytest.raises(ValueError, match="block_tokens"):
        BlockTrace(*arrays, block_tokens=0)
    with pytest.raises(ValueError, match="do not fit 4 input tokens"):
        BlockTrace(*arrays, block_tokens=1)
    with pytest.raises(ValueError, match="offsets"):
        BlockTrace(arrays[0], np.array([0, 2]), *arrays[2:], block_tokens=4)
    with pytest.raises(ValueError, match="output_tokens"):
        BlockTrace(*arrays[:3], np.array([1, 2]), arrays[4], block_tokens=4)
    with pytest.raises(ValueError, match="ascend"):
        make = (np.array([1, 1]), np.array([0, 1, 2]), np.array([4, 4]), np.array([1, 1]))
        BlockTrace(*make, np.array([1.0, 0.0]), block_tokens=4)
    huge = np.broadcast_to(np.int8(0), 2**31)
    with pytest.raises(ValueError, match="int32 positions"):
        BlockTrace(huge, *arrays[1:], block_tokens=4)


def test_requests_are_sorted_with_their_blocks() -> None:
    trace = make_trace(np.array([1, 2, 3]), [2, 1], [8, 4], [10, 20], [5.0, 1.0], block_tokens=4)
    np.testing.assert_array_equal(trace.block_ids, [3, 1, 2])
    np.testing.assert_array_equal(trace.offsets, [0, 1, 3])
    np.testing.assert_array_equal(trace.output_tokens, [20, 10])


def test_synthetic_trace_shares_what_it_says() -> None:
    trace = synthetic_trace(
        jax.random.key(0), users=6, turns=3, system_prompts=1, system_tokens=64, block_tokens=16
    )
    assert trace.requests == 18
    first = trace.offsets[:-1]
    for depth in range(4):  # 64 tokens of system prompt are four shared blocks
        assert len(np.unique(trace.block_ids[first + depth])) == 1
    assert len(np.unique(trace.block_ids[first + 4])) >= 6
    again = synthetic_trace(
        jax.random.key(0), users=6, turns=3, system_prompts=1, system_tokens=64, block_tokens=16
    )
    np.testing.assert_array_equal(again.block_ids, trace.block_ids)
    with pytest.raises(ValueError, match="users must be at least 1"):
        synthetic_trace(jax.random.key(0), users=0)
