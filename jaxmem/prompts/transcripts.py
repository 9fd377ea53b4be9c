"""Claude Code transcripts: what the usage counters of each request say about the cache."""

import os
from typing import Any, NamedTuple

import numpy as np

from jaxmem.prompts.rows import json_rows, log_files, seconds

TTL_5M_S = 300.0
TTL_1H_S = 3600.0


class Transcript(NamedTuple):
    """The requests of Claude Code transcripts in time order, N of them. No prompt is in them.

    Attributes:
      time_s: float64 [N], when the answer began, seconds since 1970.
      session: str [N].
      agent: str [N], the sub-agent's id where the row has one, else "".
      model: str [N].
      fresh: int64 [N], input tokens read anew and not written to the cache.
      written_5m: int64 [N], tokens written to the cache for 5 minutes.
      written_1h: int64 [N], tokens written for an hour.
      read: int64 [N], tokens read from the cache.
      output: int64 [N], tokens of the answer.
      sidechain: bool [N], whether a sub-agent sent it.
    """

    time_s: np.ndarray
    session: np.ndarray
    agent: np.ndarray
    model: np.ndarray
    fresh: np.ndarray
    written_5m: np.ndarray
    written_1h: np.ndarray
    read: np.ndarray
    output: np.ndarray
    sidechain: np.ndarray


class TtlMisses(NamedTuple):
    """Requests that read less than half of what the one before them held.

    Attributes:
      expired: how many came after the time to live of that entry.
      expired_tokens: tokens they wrote again.
      changed: how many came within it: the prefix was another one.
      changed_tokens: tokens they wrote again.
      requests: how many had a request before them to compare with.
    """

    expired: int
    expired_tokens: int
    changed: int
    changed_tokens: int
    requests: int


def is_transcript(row: Any) -> bool:
    """Whether a row of a JSONL file is one of a Claude Code transcript.

    Args:
      row: what was read from JSON.

    Returns:
      True for its messages, and for the summaries and snapshots between them.
    """
    if not isinstance(row, dict) or not isinstance(row.get("type"), str):
        return False
    if row["type"] in ("user", "assistant", "system", "progress", "attachment"):
        return "sessionId" in row and ("message" in row or "uuid" in row)
    if row["type"] == "summary":
        return "leafUuid" in row
    # ai-title, last-prompt, queue-operation, file-history-snapshot and what is yet to come
    return "messages" not in row and ("sessionId" in row or "messageId" in row)


def read_transcripts(path: str | os.PathLike[str]) -> Transcript:
    """Read the requests of Claude Code transcripts, as under `~/.claude/projects`.

    A request stands on several lines, one for each block of its answer, and again in the file of
    a session that resumes it: it is counted once, with the usage of its last line and the time and
    session of its first. Errors that the program noted itself (model "<synthetic>") are left out.

    Args:
      path: a `.jsonl` file, gzip too, or a folder of them, with those below it.

    Returns:
      The requests, in time order.

    Raises:
      ValueError: naming file and line, for what is no transcript or not readable, or if no
        request is in it.
    """
    found: dict[Any, list[Any]] = {}
    rows = 0
    for file, name in log_files(path, (".jsonl", ".jsonl.gz")):
        for where, _, row in json_rows(file, name, last_may_break=True):
            rows += 1
            if not is_transcript(row):
                raise ValueError(
                    f"{where}: expected a row of a Claude Code transcript (type, sessionId, "
                    f"message), got {_keys(row)}"
                )
            message = row.get("message")
            if row["type"] != "assistant" or not isinstance(message, dict):
                continue
            usage = message.get("usage")
            if not isinstance(usage, dict) or message.get("model") == "<synthetic>":
                continue
            id = (_text(message, "id"), _text(row, "requestId"))
            key = id if any(id) else where
            counts = _counts(usage, where)
            if key in found:
                found[key][4:] = counts
                continue
            start_s = seconds(row.get("timestamp"))
            if start_s is None:
                raise ValueError(
                    f"{where}: field 'timestamp': expected an ISO 8601 time, "
                    f"got {str(row.get('timestamp'))[:40]!r}"
                )
            who = (_text(row, "sessionId"), _text(row, "agentId"), _text(message, "model"))
            found[key] = [start_s, who, bool(row.get("isSidechain")), where, *counts]
    if not found:
        raise ValueError(f"{path}: no request with usage in {rows} rows of transcripts")
    columns = list(zip(*found.values()))
    time_s = np.array(columns[0], np.float64)
    order = np.argsort(time_s, kind="stable")
    session, agent, model = (np.array(c, np.str_)[order] for c in zip(*columns[1]))
    fresh, written_5m, written_1h, read, output = (
        np.array(c, np.int64)[order] for c in columns[4:]
    )
    return Transcript(
        time_s=time_s[order],
        session=session,
        agent=agent,
        model=model,
        fresh=fresh,
        written_5m=written_5m,
        written_1h=written_1h,
        read=read,
        output=output,
        sidechain=np.array(columns[2], bool)[order],
    )


def ttl_misses(transcript: Transcript) -> TtlMisses:
    """Requests that lost the cache, by whether its time to live had passed.

    A request is compared with the one before it of the same session, agent and model, which
    held read + written tokens. It is a miss if it read less than half of them. The time to live
    is 1 h once that thread has written for an hour, else 5 min, counted from the request
    before, since a read renews it.

    The counters cannot show: which part of the prompt changed; whether a shorter prompt after a
    compaction was meant to be new (it counts as changed); evictions before the time to live; nor
    anything of sub-agents of old versions, whose rows have no id and count as one thread.

    Args:
      transcript: N requests, arrays of shape [N].

    Returns:
      Counts, and tokens written again: those written, up to what had been held and was not read.
    """
    last: dict[tuple[str, str, bool, str], tuple[float, int, bool]] = {}
    counts = [0, 0, 0, 0]
    compared = 0
    written = transcript.written_5m + transcript.written_1h
    threads = zip(
        transcript.session.tolist(),
        transcript.agent.tolist(),
        transcript.sidechain.tolist(),
        transcript.model.tolist(),
    )
    for i, thread in enumerate(threads):
        now, read = float(transcript.time_s[i]), int(transcript.read[i])
        hour = bool(transcript.written_1h[i])
        if thread in last:
            before, held, long = last[thread]
            compared += held > 0
            if read < held / 2:
                changed = now - before <= (TTL_1H_S if long else TTL_5M_S)
                counts[2 * changed] += 1
                counts[2 * changed + 1] += min(int(written[i]), held - read)
            hour = hour or long
        last[thread] = (now, read + int(written[i]), hour)
    return TtlMisses(counts[0], counts[1], counts[2], counts[3], compared)


def _counts(usage: dict[str, Any], where: str) -> list[int]:
    """Tokens fresh, written for 5 min, written for 1 h, read and answered."""
    split = usage.get("cache_creation")
    split = split if isinstance(split, dict) else {}
    hour = _count(split, "ephemeral_1h_input_tokens", where)
    short = _count(split, "ephemeral_5m_input_tokens", where)
    total = _count(usage, "cache_creation_input_tokens", where)
    return [
        _count(usage, "input_tokens", where),
        max(short, total - hour),  # older rows have the total only: 5 min was all there was
        hour,
        _count(usage, "cache_read_input_tokens", where),
        _count(usage, "output_tokens", where),
    ]


def _count(usage: dict[str, Any], field: str, where: str) -> int:
    value = usage.get(field)
    if value is None:
        return 0
    if type(value) is not int or not 0 <= value < 2**40:
        raise ValueError(
            f"{where}: field {field!r}: expected a non-negative integer, got {str(value)[:40]!r}"
        )
    return value


def _text(row: dict[str, Any], field: str) -> str:
    value = row.get(field)
    return value if isinstance(value, str) else ""


def _keys(row: Any) -> str:
    if not isinstance(row, dict):
        return f"a JSON {type(row).__name__}"
    return "the fields " + ", ".join(list(map(str, row))[:12])
