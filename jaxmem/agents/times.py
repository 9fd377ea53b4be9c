"""Times as models read them: UTC, to the second."""

import datetime


def stamp(time_s: float) -> str:
    """A time as text.

    Args:
      time_s: seconds since 1970.

    Returns:
      Such as "2026-11-30 09:15:00".
    """
    return _utc(time_s).strftime("%Y-%m-%d %H:%M:%S")


def day_s(text: str) -> float:
    """When a day begins.

    Args:
      text: such as "2026-11-30".

    Returns:
      Seconds since 1970, of midnight UTC.

    Raises:
      ValueError: if it is no day.
    """
    try:
        day = datetime.date.fromisoformat(text.strip()[:10])
    except ValueError as error:
        raise ValueError(f"expected a day such as 2026-11-30, got {text!r:.80}") from error
    return datetime.datetime(day.year, day.month, day.day, tzinfo=datetime.UTC).timestamp()


def _utc(time_s: float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(time_s, datetime.UTC)
