"""Prompt logs: the calls of agents in time order, each a list of segments."""

import dataclasses
import itertools
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from jaxmem.common import check_number, check_size, lookup
from jaxmem.prompts.encoder import ByteEstimate, Encoder

KINDS = ("system", "tools", "memory", "summary", "history", "retrieved", "task")


class Segment(NamedTuple):
    """A part of a prompt that changes or stays as one.

    Attributes:
      label: what it is in this agent's prompts ("system", "tool search", "message user").
      kind: one of `KINDS`.
      content: its text, UTF-8. A role belongs to it: a change of role is a change.
      tokens: its size where the content is no text but a name for it (a simulated message, an
        image): such contents are equal or share nothing. None: the encoder counts.
      mark: whether a cache breakpoint stands after it.
      part: whether it goes on with the content block of the segment before it.
    """

    label: str
    kind: str
    content: bytes
    tokens: int | None = None
    mark: bool = False
    part: bool = False


@dataclasses.dataclass(frozen=True, repr=False)
class PromptLog:
    """Calls in time order; made by `LogBuilder` or `read_log`. All arrays are numpy's.

    Attributes:
      session: int32 [C], index into `sessions`.
      time_s: float64 [C], ascending, seconds; the number of the call where the log has no times.
      timed: whether it has.
      output_tokens: int64 [C].
      cached_tokens: int64 [C], tokens that the provider says it served from its cache, -1 unknown.
      model: int32 [C], index into `models`.
      starts: int64 [C + 1]; call c holds segments starts[c] to starts[c + 1] of the arrays below.
      content: int32 [S], index into `contents`; equal ids are equal contents.
      label: int32 [S], index into `labels`.
      kind: int8 [S], index into `KINDS`.
      mark: bool [S], whether a cache breakpoint stands after the segment.
      part: bool [S], whether it goes on with the content block before it.
      contents: K texts.
      units: K encoded texts, what a prefix is compared by; empty for a content that is only a name.
      tokens: int64 [K].
      labels, sessions, models: names.
      source: C places ("file:line"), for messages.
      encoder: how texts became tokens.
    """

    session: np.ndarray
    time_s: np.ndarray
    timed: bool
    output_tokens: np.ndarray
    cached_tokens: np.ndarray
    model: np.ndarray
    starts: np.ndarray
    content: np.ndarray
    label: np.ndarray
    kind: np.ndarray
    mark: np.ndarray
    part: np.ndarray
    contents: Sequence[bytes]
    units: Sequence[bytes]
    tokens: np.ndarray
    labels: Sequence[str]
    sessions: Sequence[str]
    models: Sequence[str]
    source: Sequence[str]
    encoder: Encoder

    def __repr__(self) -> str:
        """A line without any text of the log."""
        tokens = int(self.prompt_tokens.sum())
        return (
            f"PromptLog({self.calls:,} calls, {len(self.sessions):,} sessions, {tokens:,} tokens)"
        )

    @property
    def calls(self) -> int:
        """Number of calls C."""
        return len(self.session)

    @property
    def thread(self) -> np.ndarray:
        """Whose prefixes a call can extend, int64 [C]: its session's with the same model."""
        return self.session.astype(np.int64) * max(len(self.models), 1) + self.model

    @cached_property
    def segment_tokens(self) -> np.ndarray:
        """Tokens of each segment, int64 [S]."""
        return self.tokens[self.content]

    @cached_property
    def prompt_tokens(self) -> np.ndarray:
        """Tokens of each prompt, int64 [C]."""
        ends = np.concatenate([[0], np.cumsum(self.segment_tokens)])
        return ends[self.starts[1:]] - ends[self.starts[:-1]]

    @cached_property
    def prefix(self) -> np.ndarray:
        """Which prefix ends with each segment, int64 [S]: equal ids are equal prefixes."""
        node_of: dict[tuple[int, int], int] = {}
        nodes = np.empty(len(self.content), np.int64)
        contents = self.content.tolist()
        bounds = self.starts.tolist()
        for start, end in itertools.pairwise(bounds):
            node = -1
            for s in range(start, end):
                node = node_of.setdefault((node, contents[s]), len(node_of))
                nodes[s] = node
        return nodes

    @cached_property
    def order(self) -> Sequence[bytes]:
        """K byte strings that sort contents with a common prefix beside each other."""
        return [
            units or b"\0%d %b" % (tokens, text)
            for units, tokens, text in zip(self.units, self.tokens.tolist(), self.contents)
        ]

    def shared_tokens(self, a: int, b: int) -> int:
        """Tokens of the longest common prefix of two contents.

        Args:
          a, b: their ids.

        Returns:
          Whole tokens; all of them for equal ids, 0 where a content is only a name.
        """
        if a == b:
            return int(self.tokens[a])
        return int(common_prefix(self.units[a], self.units[b]) // self.encoder.unit_bytes)

    def segments(self, call: int) -> list[Segment]:
        """The segments of one call.

        Args:
          call: its number.

        Returns:
          They, in order; `tokens` is None where the encoder counts.
        """
        found = []
        for s in range(self.starts[call], self.starts[call + 1]):
            c = self.content[s]
            named = not self.units[c] and bool(self.contents[c])
            found.append(
                Segment(
                    self.labels[self.label[s]],
                    KINDS[self.kind[s]],
                    self.contents[c],
                    int(self.tokens[c]) if named else None,
                    bool(self.mark[s]),
                    bool(self.part[s]),
                )
            )
        return found


class LogBuilder:
    """Builds a `PromptLog` call by call; equal contents are kept once."""

    def __init__(self, encoder: Encoder | None = None) -> None:
        """Start an empty log.

        Args:
          encoder: text to tokens; an estimate from bytes by default.
        """
        self.encoder: Encoder = ByteEstimate() if encoder is None else encoder
        self._contents: dict[tuple[bytes, int | None], int] = {}
        self._units: list[bytes] = []
        self._tokens: list[int] = []
        self._labels: dict[str, int] = {}
        self._sessions: dict[str, int] = {}
        self._models: dict[str, int] = {}
        self._calls: list[tuple[int, float | None, int, int, int, str]] = []
        self._starts = [0]
        self._segments: list[tuple[int, int, int, bool, bool]] = []

    def call(
        self,
        segments: Iterable[Segment],
        *,
        session: str = "",
        time_s: float | None = None,
        output_tokens: int = 0,
        model: str = "",
        cached_tokens: int = -1,
        source: str = "",
    ) -> None:
        """Add a call.

        Args:
          segments: its prompt, front to back.
          session: whose it is.
          time_s: when it was sent, seconds; None if unknown.
          output_tokens: length of the answer.
          model: which model.
          cached_tokens: tokens that the provider says it served from its cache, -1 unknown.
          source: where it was read, for messages.

        Raises:
          ValueError: for a kind that is none of `KINDS`, negative tokens, a time that is no finite
            number, a name that is no text or a content that is no bytes; nothing is added then.
        """
        if time_s is not None:
            check_number(f"{source or 'call'}: time_s", time_s, -np.inf, scalar=True)
            if not np.isfinite(time_s):
                raise ValueError(f"{source or 'call'}: time_s must be finite, got {time_s}")
        for name, value in (("session", session), ("model", model), ("source", source)):
            if type(value) is not str:
                raise ValueError(f"{name} must be text, got {value!r}")
        output = check_size(f"{source or 'call'}: output_tokens", output_tokens, 0)
        cached = check_size(f"{source or 'call'}: cached_tokens", cached_tokens, -1)
        added = []
        for label, kind, content, tokens, mark, part in segments:
            id = self.intern(content, tokens)
            if type(label) is not str:
                raise ValueError(f"a label must be text, got {label!r}")
            place = self._labels.setdefault(label, len(self._labels))
            added.append((id, place, lookup(_KIND, kind, "kind"), bool(mark), bool(part)))
        self._segments += added  # all of them, or none if one was wrong
        self._starts.append(len(self._segments))
        who = self._sessions.setdefault(session, len(self._sessions))
        what = self._models.setdefault(model, len(self._models))
        self._calls.append((who, time_s, output, cached, what, source))

    def intern(self, content: bytes, tokens: int | None = None) -> int:
        """Keep a content.

        Args:
          content: as in `Segment`.
          tokens: as in `Segment`.

        Returns:
          Its id, the same for an equal one.

        Raises:
          ValueError: if it is no bytes, or tokens are no size.
        """
        if type(content) is not bytes:
            raise ValueError(f"a content must be bytes, got {type(content).__name__}")
        known = self._contents.get((content, tokens))
        if known is not None:
            return known
        if tokens is None:
            units = self.encoder.encode(content)
            count = int(np.ceil(len(units) / self.encoder.unit_bytes))
        else:
            units, count = b"", check_size("tokens", tokens, 0)
        self._units.append(units)
        self._tokens.append(count)
        self._contents[content, tokens] = len(self._contents)
        return len(self._contents) - 1

    def build(self) -> PromptLog:
        """The log: sorted by time, stably, when every call has one; else in the order given.

        Returns:
          The log.
        """
        calls = len(self._calls)
        columns = list(zip(*self._calls)) if calls else [()] * 6
        timed = calls > 0 and all(t is not None for t in columns[1])
        time_s = np.array(columns[1] if timed else range(calls), np.float64)
        order = np.argsort(time_s, kind="stable")
        starts = np.array(self._starts, np.int64)
        sizes = np.diff(starts)[order]
        moved = np.concatenate([[0], np.cumsum(sizes)])
        source = np.repeat(starts[:-1][order] - moved[:-1], sizes) + np.arange(moved[-1])
        segments = np.array(self._segments, np.int32).reshape(-1, 5)[source]
        return PromptLog(
            session=np.array(columns[0], np.int32)[order],
            time_s=time_s[order],
            timed=timed,
            output_tokens=np.array(columns[2], np.int64)[order],
            cached_tokens=np.array(columns[3], np.int64)[order],
            model=np.array(columns[4], np.int32)[order],
            starts=moved.astype(np.int64),
            content=segments[:, 0],
            label=segments[:, 1],
            kind=segments[:, 2].astype(np.int8),
            mark=segments[:, 3].astype(bool),
            part=segments[:, 4].astype(bool),
            contents=[content for content, _ in self._contents],
            units=self._units,
            tokens=np.array(self._tokens, np.int64),
            labels=list(self._labels),
            sessions=list(self._sessions),
            models=list(self._models),
            source=[columns[5][c] for c in order],
            encoder=self.encoder,
        )


_KIND = {kind: i for i, kind in enumerate(KINDS)}


def common_prefix(a: bytes, b: bytes) -> int:
    """Length of the longest common prefix of two byte strings.

    Args:
      a, b: the strings.

    Returns:
      Bytes.
    """
    end = min(len(a), len(b))
    done, step = 0, 64
    while done < end:  # in growing steps: most pairs differ early
        stop = min(done + step, end)
        x, y = a[done:stop], b[done:stop]
        if x != y:
            differ = int.from_bytes(x) ^ int.from_bytes(y)  # its leading zero bytes are equal ones
            return stop - (differ.bit_length() + 7) // 8
        done, step = stop, step * 4
    return end


def common_ends(a: bytes, b: bytes) -> tuple[int, int]:
    """Lengths of the longest common beginning and, behind it, the longest common end.

    Args:
      a, b: the strings.

    Returns:
      Bytes; together no more than the shorter has.
    """
    begins = common_prefix(a, b)
    return begins, common_prefix(a[begins:][::-1], b[begins:][::-1])
