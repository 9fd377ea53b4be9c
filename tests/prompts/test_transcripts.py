"""Claude Code transcripts: requests counted once, and which of them lost the cache."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jaxmem.prompts.transcripts import is_transcript, read_transcripts, ttl_misses


def answer(
    id: str,
    time: str,
    read: int = 0,
    written: int = 0,
    hour: int = 0,
    output: int = 1,
    **fields: Any,
) -> dict[str, Any]:
    usage = {
        "input_tokens": 3,
        "cache_creation_input_tokens": written + hour,
        "cache_read_input_tokens": read,
        "output_tokens": output,
        "cache_creation": {
            "ephemeral_5m_input_tokens": written,
            "ephemeral_1h_input_tokens": hour,
        },
    }
    return {
        "type": "assistant",
        "timestamp": f"2026-01-02T{time}Z",
        "sessionId": "s",
        "requestId": f"req_{id}",
        "uuid": f"u{id}",
        "isSidechain": False,
        "message": {"id": f"msg_{id}", "model": "claude-x", "usage": usage},
        **fields,
    }


OTHERS = [
    {"type": "summary", "summary": "x", "leafUuid": "l"},
    {"type": "file-history-snapshot", "messageId": "m", "snapshot": {}},
    {"type": "user", "sessionId": "s", "uuid": "u0", "message": {"role": "user", "content": "Hi"}},
    {"type": "system", "sessionId": "s", "uuid": "u9", "subtype": "compact_boundary"},
]


def write(path: Path, *rows: Any) -> Path:
    path.write_text("".join(r if isinstance(r, str) else json.dumps(r) + "\n" for r in rows))
    return path


def test_a_request_counts_once_with_its_last_usage(tmp_path: Path) -> None:
    first = answer("a", "10:00:00", written=100, output=1)
    last = answer("a", "10:00:05", written=100, output=50)
    older = answer("b", "10:01:00", read=100, written=20)
    del older["message"]["usage"]["cache_creation"]  # as versions before the 1 h writes
    write(tmp_path / "one.jsonl", *OTHERS, first, last, older)
    resumed = write(tmp_path / "two.jsonl", {**last, "sessionId": "t"})
    made_up = answer("c", "10:02:00")
    made_up["message"]["model"] = "<synthetic>"
    with resumed.open("a") as file:
        file.write(json.dumps(made_up) + "\n")
    found = read_transcripts(tmp_path)
    assert found.output.tolist() == [50, 1]
    assert found.session.tolist() == ["s", "s"]
    assert found.written_5m.tolist() == [100, 20]
    assert found.written_1h.tolist() == [0, 0]
    assert found.read.tolist() == [0, 100]
    assert found.fresh.tolist() == [3, 3]
    assert np.diff(found.time_s).tolist() == [60]
    assert found.sidechain.tolist() == [False, False]


def test_misses_by_time_to_live(tmp_path: Path) -> None:
    rows = [
        answer("a", "10:00:00", written=1000),
        answer("b", "10:04:59", read=1000, written=50),
        answer("c", "10:10:00", read=200, written=900),  # 301 s later: expired, 850 again
        answer("d", "10:11:00", read=100, written=1200),  # 60 s later: changed, 1,000 again
        answer("e", "10:12:00", read=1300),
        answer("x", "10:12:01", written=70, isSidechain=True, agentId="g"),  # a thread of its own
    ]
    found = ttl_misses(read_transcripts(write(tmp_path / "a.jsonl", *rows)))
    assert found == (1, 850, 1, 1000, 4)


def test_an_hour_where_an_hour_was_paid(tmp_path: Path) -> None:
    rows = [
        answer("a", "10:00:00", hour=1000),
        answer("b", "10:50:00", read=0, hour=1000),
        answer("c", "11:50:01", read=0, hour=1000),
    ]
    found = ttl_misses(read_transcripts(write(tmp_path / "a.jsonl", *rows)))
    assert (found.expired, found.changed) == (1, 1)


def test_a_line_being_written_is_left_out(tmp_path: Path) -> None:
    row = answer("a", "10:00:00")
    path = write(tmp_path / "a.jsonl", row, json.dumps(row)[:50])
    with pytest.warns(UserWarning, match="line 2: cut short, left out"):
        assert len(read_transcripts(path).time_s) == 1


def test_what_is_a_transcript() -> None:
    assert all(map(is_transcript, [*OTHERS, answer("a", "10:00:00")]))
    for row in (5, {}, {"messages": []}, {"type": "message", "role": "user"}, {"sessionId": "s"}):
        assert not is_transcript(row)


BAD = {
    "no request": (OTHERS, "no request with usage in 4 rows"),
    "something else": ([{"messages": []}], "line 1: expected a row.*got the fields messages"),
    "broken JSON": ([OTHERS[0], "{\n", OTHERS[0]], "line 2: broken JSON"),
    "no time": ([answer("a", "noon")], "line 1: field 'timestamp'.*noon"),
    "a negative count": ([answer("a", "10:00:00", read=-1)], "'cache_read_input_tokens'.*'-1'"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_transcripts_are_refused(tmp_path: Path, name: str) -> None:
    rows, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        read_transcripts(write(tmp_path / "a.jsonl", *rows))
