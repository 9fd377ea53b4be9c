"""Settings of a MemGPT session: sizes, habits of the model, thresholds of the queue manager."""

import math
from dataclasses import dataclass, fields
from typing import Any

import jax
import numpy as np
from jax.typing import ArrayLike

from jaxmem.common import check_number, is_given

MOST_SAVES = 4
"""Most facts that a warning can make the model save."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Settings:
    """What a session is like; the defaults reproduce the lecture. All may be traced.

    One setting is changed by `dataclasses.replace(PRESETS["paper"], evicted_share=0.3)`.

    Sizes are in whole tokens. A share that is infinite is off. Thresholds and the evicted amount
    are rounded to whole tokens:

      warning:  prompt >= warn_share window, once between two evictions
      flush:    prompt >= flush_share window
      evicted = max(evicted_share window, evicted_of_queue queue,
                    queue - kept_queue_tokens, prompt - kept_share window)

    A flush comes at most once a round, so that it must make room for what else may join in the
    round: the results of a search, and an edit record and an entry for each fact saved. By
    default the queue manager looks at the prompt when a user message arrives; later calls of the
    round may then be larger than the window (6 of 762 are). With `flush_any_call` it looks before
    each call. The lecture does not say which; the default was chosen by its figures: all lie in
    the 95 % spread of sessions, but two do not with `flush_any_call` (the mean prompt when 10 % is
    evicted at a time and the tokens due to evictions at 50 % come out too low).

    window_tokens: the context window.
    system_tokens: instructions and function schemas.
    memory_tokens: the working context before the first edit.
    memory_limit_tokens: what it can grow to; an entry written then replaces another.
    entry_tokens: an entry of the working context.
    message_tokens, message_sd: a user message and a reply, normal, at least 8.
    fact_share: rounds whose user message holds a fact.
    saved_at_once: share of the facts that the model saves as it reads them.
    saves_a_warning: most facts saved when a pressure warning comes, in 0..MOST_SAVES.
    search_share: rounds in which the model searches recall storage.
    search_tokens: the results of a search.
    edit_tokens: the record that a call which edits the working context leaves in the queue.
    warning_tokens: the pressure warning.
    summary_tokens: the recursive summary; there is none before the first eviction.
    note_tokens: in the layout `log`, the note by which an edit waits in the queue.
    warn_share: see above.
    flush_share: see above.
    forgets: 1 if a pending fact is lost when its message is evicted; 0 if the summary keeps it,
      so that it can still be saved.
    flush_any_call: 0, or 1 if any call of a round may cause a flush, and not the first only.
    evicted_share: see above.
    evicted_of_queue: see above.
    kept_queue_tokens: see above.
    kept_share: see above.

    Raises:
      ValueError: if a number is out of range; if the window does not hold the system prompt, a
        full working context, the summary and two of the largest messages; if an eviction does
        not make room for what may join in the rest of a round.
    """

    window_tokens: ArrayLike = 8_000.0
    system_tokens: ArrayLike = 1_000.0
    memory_tokens: ArrayLike = 200.0
    memory_limit_tokens: ArrayLike = 800.0
    entry_tokens: ArrayLike = 20.0
    message_tokens: ArrayLike = 43.0
    message_sd: ArrayLike = 12.0
    fact_share: ArrayLike = 0.25
    saved_at_once: ArrayLike = 0.20
    saves_a_warning: ArrayLike = 3.0
    search_share: ArrayLike = 0.13
    search_tokens: ArrayLike = 300.0
    edit_tokens: ArrayLike = 40.0
    warning_tokens: ArrayLike = 30.0
    summary_tokens: ArrayLike = 350.0
    note_tokens: ArrayLike = 20.0
    warn_share: ArrayLike = 0.7
    flush_share: ArrayLike = 1.0
    flush_any_call: ArrayLike = 0.0
    forgets: ArrayLike = 0.0
    evicted_share: ArrayLike = 0.5
    evicted_of_queue: ArrayLike = 0.0
    kept_queue_tokens: ArrayLike = math.inf
    kept_share: ArrayLike = math.inf

    def __post_init__(self) -> None:
        given = {f.name: getattr(self, f.name) for f in fields(self)}
        given = {name: value for name, value in given.items() if is_given(value)}
        for name, value in given.items():
            check_number(name, value, *_BOUNDS.get(name, (0.0, _LARGEST)))
            if name in _WHOLE and np.any(np.asarray(value) % 1):
                what = " of tokens" if name.endswith("_tokens") else ""
                raise ValueError(f"{name} must be a whole number{what}, got {value}")
        if len(given) == len(fields(self)):
            self._check_room()

    def _check_room(self) -> None:
        s: Any = _Numpy(self)
        if np.any(s.memory_limit_tokens < s.memory_tokens + s.entry_tokens):
            raise ValueError(
                "memory_limit_tokens must hold memory_tokens and an entry, got"
                f" {self.memory_limit_tokens}"
            )
        if np.any(s.memory_limit_tokens - s.memory_tokens >= 2**16 * s.entry_tokens):
            raise ValueError(f"expected less than {2**16} entries, got {self.memory_limit_tokens}")
        sizes = (s.message_tokens, s.search_tokens, s.edit_tokens, s.warning_tokens)
        largest = np.max(np.broadcast_arrays(*sizes), axis=0)
        head = s.system_tokens + s.memory_limit_tokens + s.summary_tokens
        if np.any(s.window_tokens < head + 2 * largest):
            raise ValueError(
                f"window_tokens must be at least {np.max(head + 2 * largest):g} for the system"
                " prompt, a full working context, the summary and two messages, got"
                f" {self.window_tokens}"
            )
        flush = np.minimum(s.flush_share * s.window_tokens, _LARGEST)
        queue = flush - head  # the least that it holds at a flush, once there is a summary
        evicted = np.max(
            np.broadcast_arrays(
                s.evicted_share * s.window_tokens,
                s.evicted_of_queue * queue,
                queue - s.kept_queue_tokens,
                flush - s.kept_share * s.window_tokens,
            ),
            axis=0,
        )
        saves = s.saves_a_warning * (s.warn_share < math.inf) + (s.saved_at_once > 0)
        joins = s.search_tokens + saves * (s.edit_tokens + s.entry_tokens)
        if np.any(np.round(evicted) < joins):
            raise ValueError(
                f"an eviction must free at least {np.max(joins):g} tokens, which may join in the"
                f" rest of a round, got {np.min(evicted):g}"
            )


class _Numpy:
    """The numbers of settings in float64."""

    def __init__(self, settings: Settings) -> None:
        for field in fields(settings):
            setattr(self, field.name, np.asarray(getattr(settings, field.name), np.float64))


_LARGEST = 2.0**24  # float32 holds every whole number up to here
_SHARE, _OFF = (0.0, 1.0), (0.0, math.inf)
_BOUNDS = {
    "window_tokens": (1.0, _LARGEST),
    "entry_tokens": (1.0, _LARGEST),
    "search_tokens": (1.0, _LARGEST),
    "edit_tokens": (1.0, _LARGEST),
    "warning_tokens": (1.0, _LARGEST),
    "saves_a_warning": (0.0, float(MOST_SAVES)),
    "fact_share": _SHARE,
    "saved_at_once": _SHARE,
    "search_share": _SHARE,
    "evicted_share": _SHARE,
    "evicted_of_queue": _SHARE,
    "warn_share": _OFF,
    "flush_share": _SHARE,
    "flush_any_call": _SHARE,
    "forgets": _SHARE,
    "kept_queue_tokens": _OFF,
    "kept_share": _OFF,
}
_WHOLE = {f.name for f in fields(Settings) if f.name.endswith("_tokens")} - {
    "message_tokens",
    "kept_queue_tokens",
} | {"saves_a_warning", "forgets", "flush_any_call"}

LECTURE = Settings()
"""What reproduces the lecture's figures: the paper's thresholds in a window of 8,000 tokens."""

PRESETS = {
    # Packer et al. 2023, arXiv:2310.08560, section 2.2: warning at 70 %, flush at 100 %, 50 % of
    # the window evicted.
    "paper": LECTURE,
    # cpacker/MemGPT at 0b88d622 (October 2023): warning at 7,000 tokens, flush when the API
    # refuses the prompt, the newest 0.2 x 7,000 tokens of messages kept.
    "memgpt-2023": Settings(
        warn_share=7 / 8,
        flush_share=1.0,
        flush_any_call=1.0,
        evicted_share=0.0,
        kept_queue_tokens=1_400.0,
    ),
    # MemGPT 0.2.0 to 0.3.25: MESSAGE_SUMMARY_WARNING_FRAC and ..._TRUNC_TOKEN_FRAC 0.75. It kept
    # the last 3 messages; here 2 are.
    "memgpt-0.3": Settings(
        warn_share=0.75,
        flush_share=1.0,
        flush_any_call=1.0,
        evicted_share=0.0,
        evicted_of_queue=0.75,
    ),
    # letta-ai/letta at 56ba9c255 (August 2026), mode sliding_window: no warning (it is off by
    # default), at 0.9 of the window 30 % of the messages go (of their tokens, here), and more
    # until the prompt is 0.7 of the window.
    "letta-2026": Settings(
        warn_share=math.inf,
        flush_share=0.9,
        flush_any_call=1.0,
        evicted_share=0.0,
        evicted_of_queue=0.3,
        kept_share=0.7,
    ),
}
"""Settings by the version of the queue manager; all else is the lecture's."""
