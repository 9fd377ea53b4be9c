"""The first-in-first-out queue of messages: when it warns, and what leaves when it is full."""

from collections.abc import Sequence
from typing import NamedTuple

from jaxmem.agents.messages import Message
from jaxmem.common import check_size
from jaxmem.sessions import Settings


class Unit(NamedTuple):
    """What enters and leaves the queue as one: a message, or a call with its results.

    first: id of its first message in recall storage.
    messages: one or more.
    tokens: of all of them.
    warning: whether it is the warning of memory pressure.
    """

    first: int
    messages: tuple[Message, ...]
    tokens: int
    warning: bool = False


class Thresholds(NamedTuple):
    """When the queue manager acts, in tokens, as `jaxmem.sessions` has it.

    window: of the model.
    warn_at: prompt at which the warning comes; None for never.
    flush_at: prompt at which messages leave.
    any_call: whether any call may cause that, or only the first after an event.
    evicted: tokens that leave at least.
    evicted_of_queue: share of the queue's tokens that leave at least.
    kept_queue: tokens that the queue may keep, None for any.
    kept: tokens that the prompt may keep, None for any.
    """

    window: int
    warn_at: int | None
    flush_at: int
    any_call: bool
    evicted: int
    evicted_of_queue: float
    kept_queue: int | None
    kept: int | None

    def warns(self, prompt: int) -> bool:
        """Whether the warning is due.

        Args:
          prompt: tokens of it.

        Returns:
          Whether it has reached the threshold.
        """
        return self.warn_at is not None and prompt >= self.warn_at

    def leaving(self, units: Sequence[Unit], prompt: int) -> int:
        """How many of the oldest units leave before a call.

        Whole units leave until enough tokens are gone; the last two stay.

        Args:
          units: the queue, oldest first.
          prompt: tokens of the prompt as it stands.

        Returns:
          Their number, 0 if nothing is due.
        """
        if prompt < self.flush_at or len(units) <= 2:
            return 0
        held = sum(unit.tokens for unit in units)
        wanted = [self.evicted, round(self.evicted_of_queue * held)]
        if self.kept_queue is not None:
            wanted.append(held - self.kept_queue)
        if self.kept is not None:
            wanted.append(prompt - self.kept)
        gone = 0
        for number, unit in enumerate(units[:-2], 1):
            gone += unit.tokens
            if gone >= max(wanted):
                return number
        return len(units) - 2


def thresholds(settings: Settings, window: int | None = None) -> Thresholds:
    """The thresholds of a preset.

    Args:
      settings: scalars, such as one of `jaxmem.sessions.PRESETS`.
      window: tokens of the model's window, in place of the settings'.

    Returns:
      They, in whole tokens.

    Raises:
      ValueError: if the settings are more than scalars, or the window is no size.
    """
    size = _number(settings.window_tokens) if window is None else check_size("window", window)

    def share(value: object) -> int | None:
        tokens = _number(value) * size
        return None if tokens == float("inf") else round(tokens)

    flush = share(settings.flush_share)
    kept_queue = _number(settings.kept_queue_tokens)
    assert flush is not None
    return Thresholds(
        window=round(size),
        warn_at=share(settings.warn_share),
        flush_at=flush,
        any_call=_number(settings.flush_any_call) > 0.5,
        evicted=share(settings.evicted_share) or 0,
        evicted_of_queue=_number(settings.evicted_of_queue),
        kept_queue=None if kept_queue == float("inf") else round(kept_queue),
        kept=share(settings.kept_share),
    )


def _number(value: object) -> float:
    try:
        return float(value)  # type: ignore[arg-type]
    except TypeError as error:
        raise ValueError(f"expected settings of scalars, got {value!r:.80}") from error
