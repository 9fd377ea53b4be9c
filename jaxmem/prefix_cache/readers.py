"""Reading request traces from files: the Mooncake format and run-length coded agent sessions."""

import json
import os
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from jaxmem.common.files import open_text
from jaxmem.common.progress import progress
from jaxmem.prefix_cache.distances import MAX_ACCESSES
from jaxmem.prefix_cache.trace import BlockTrace, make_trace

MOONCAKE_BLOCK_TOKENS = 512
# Fields of request bodies and of what wraps them.
_PROMPTS = {"messages", "input", "prompt", "request", "body", "request_json", "message"}


class _Requests(NamedTuple):
    """What the lines of a file add up to, in file order."""

    block_ids: list[np.ndarray]
    input_tokens: list[int]
    output_tokens: list[int]
    arrival_s: list[float]


def read_trace(
    path: str | os.PathLike[str], block_tokens: int = MOONCAKE_BLOCK_TOKENS
) -> BlockTrace:
    """Read a trace of requests, plain or gzip; the format is told by the first line.

    Mooncake: a request a line, {"timestamp": ms, "input_length", "output_length", "hash_ids"},
    with ceil(input_length / block_tokens) ids. Agent sessions (the `claude_code` data): a
    session a line with its own `block_size` and `requests`, each with `t` (s), `in`, `out` and
    `runs` of [first id, length] covering floor(in / block_size) blocks; ids are local to the
    session and made global here, all sessions start together at time 0, and the marks of
    sub-agents (`type` "subagent", no prompt) are passed over.
    Arrival times out of order are sorted, with a warning.

    Args:
      path: the file.
      block_tokens: tokens a block of a Mooncake trace holds; sessions state their own.

    Returns:
      The trace.

    Raises:
      ValueError: naming file, line and field, for anything that does not fit; also for an empty
        file, truncated gzip and more block references than int32 positions.
    """
    if block_tokens < 1:
        raise ValueError(f"block_tokens must be positive, got {block_tokens}")
    requests = _Requests([], [], [], [])
    size, sessions, accesses, first_id = block_tokens, None, 0, 0
    disordered = False
    for number, row in _json_lines(path):
        where = f"{path}: line {number}"
        if not isinstance(row, dict):
            raise ValueError(f"{where}: expected a JSON object, got {type(row).__name__}")
        if sessions is None:
            if "hash_ids" not in row and _PROMPTS & row.keys():
                raise ValueError(
                    f"{path} is a log of prompts, not of blocks: jaxmem doctor {path} reads it"
                )
            sessions = "requests" in row
            size = _integer(row, "block_size", where, 1) if sessions else block_tokens
        before = len(requests.block_ids)
        if sessions:
            if _integer(row, "block_size", where, 1) != size:
                raise ValueError(f"{where}: field 'block_size': expected {size} as in line 1")
            first_id = _add_session(requests, row, size, first_id, where)
        else:
            _add_request(requests, row, size, where)
        times = requests.arrival_s[before if sessions else max(before - 1, 0) :]
        disordered = disordered or bool(np.any(np.diff(times) < 0))
        accesses += sum(map(len, requests.block_ids[before:]))
        if accesses > MAX_ACCESSES:
            raise ValueError(f"{where}: more than {MAX_ACCESSES:,} block references")
    if sessions is None:
        raise ValueError(f"{path}: expected a request a line, got an empty file")
    if not requests.input_tokens:
        raise ValueError(f"{path}: no session has a request")
    if disordered:
        field = "t" if sessions else "timestamp"
        warnings.warn(f"{path}: requests are not in order of {field!r}: sorted", stacklevel=2)
    return make_trace(
        np.concatenate(requests.block_ids),
        [len(ids) for ids in requests.block_ids],
        requests.input_tokens,
        requests.output_tokens,
        requests.arrival_s,
        size,
    )


def _json_lines(path: str | os.PathLike[str]) -> Iterator[tuple[int, Any]]:
    """(line number, parsed line) of each line that is not blank."""
    number = 0
    try:
        with open_text(path) as lines:
            for number, line in enumerate(progress(lines, f"reading {path}"), 1):
                if line.strip():
                    yield number, _parsed(line, f"{path}: line {number}")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: after line {number}: not UTF-8 text") from error
    except EOFError as error:
        raise ValueError(f"{path}: after line {number}: gzip is damaged: {error}") from error


def _parsed(line: str, where: str) -> Any:
    try:
        return json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"{where}: broken JSON: {error.msg}") from error
    except RecursionError as error:
        raise ValueError(f"{where}: broken JSON: nested too deeply") from error
    except ValueError as error:  # an integer of thousands of digits
        raise ValueError(f"{where}: broken JSON: {str(error).split(';')[0]}") from error


def _add_request(requests: _Requests, row: dict[str, Any], size: int, where: str) -> None:
    tokens = _integer(row, "input_length", where, 0)
    ids = _field(row, "hash_ids", where)
    if not isinstance(ids, list) or not all(type(i) is int and 0 <= i < 2**63 for i in ids):
        raise ValueError(f"{where}: field 'hash_ids': expected a list of non-negative integers")
    if len(ids) != -(-tokens // size):
        raise ValueError(
            f"{where}: field 'hash_ids': expected {-(-tokens // size)} ids for input_length "
            f"{tokens} and {size} tokens a block, got {len(ids)}"
        )
    requests.block_ids.append(np.array(ids, np.int64))
    requests.input_tokens.append(tokens)
    requests.output_tokens.append(_integer(row, "output_length", where, 0))
    requests.arrival_s.append(_number(row, "timestamp", where) / 1000)


def _add_session(
    requests: _Requests, row: dict[str, Any], size: int, first_id: int, where: str
) -> int:
    """Add a session's requests with ids from `first_id` on; returns the next free id."""
    items = _field(row, "requests", where)
    if not isinstance(items, list):
        raise ValueError(f"{where}: field 'requests': expected a list")
    next_id = first_id
    for index, item in enumerate(items):
        here = f"{where}: request {index}"
        if not isinstance(item, dict):
            raise ValueError(f"{here}: expected a JSON object, got {type(item).__name__}")
        if item.get("type") == "subagent":  # marks where one ran; its prompts are not in the file
            continue
        tokens = _integer(item, "in", here, 0)
        runs = _field(item, "runs", here)
        pair = isinstance(runs, list) and all(
            isinstance(run, list)
            and len(run) == 2
            and all(type(x) is int and 0 <= x < 2**31 for x in run)
            for run in runs
        )
        if not pair:
            raise ValueError(f"{here}: field 'runs': expected a list of [first id, length]")
        blocks = sum(length for _, length in runs)
        if blocks != tokens // size:
            raise ValueError(
                f"{here}: field 'runs': expected {tokens // size} blocks for {tokens} tokens, "
                f"got {blocks}"
            )
        if blocks > MAX_ACCESSES:
            raise ValueError(f"{here}: more than {MAX_ACCESSES:,} block references")
        ids = [np.arange(first, first + length, dtype=np.int64) for first, length in runs]
        joined = np.concatenate(ids) if ids else np.zeros(0, np.int64)
        past = max((first + length for first, length in runs), default=0)
        next_id = max(next_id, first_id + past)
        requests.block_ids.append(joined + first_id)
        requests.input_tokens.append(tokens)
        requests.output_tokens.append(_integer(item, "out", here, 0))
        requests.arrival_s.append(_number(item, "t", here))
    return next_id


def _field(row: dict[str, Any], name: str, where: str) -> Any:
    if name not in row:
        raise ValueError(f"{where}: field {name!r} is missing")
    return row[name]


def _integer(row: dict[str, Any], name: str, where: str, least: int) -> int:
    value = _field(row, name, where)
    if type(value) is not int or not least <= value < 2**40:
        kind = "a positive integer" if least else "a non-negative integer"
        raise ValueError(f"{where}: field {name!r}: expected {kind}, got {_shown(value)}")
    return value


def _number(row: dict[str, Any], name: str, where: str) -> float:
    value = _field(row, name, where)
    if type(value) not in (int, float) or not 0 <= value < 2**60:  # NaN is neither
        raise ValueError(f"{where}: field {name!r}: expected a time >= 0, got {_shown(value)}")
    return float(value)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
