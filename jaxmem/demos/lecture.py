"""The lecture's figures, and ours beside them."""

import csv
import math
from collections.abc import Mapping
from decimal import Decimal
from functools import cache
from importlib import resources
from typing import NamedTuple


class LectureFigure(NamedTuple):
    """A figure that the lecture states.

    Attributes:
      id: short name.
      demo: the demo, its table or exercise ("01.2", "ex1").
      what: what it is.
      lecture: the number as printed.
      unit: its unit; "(at least)", "(at most)" or "(above)" make it a bound.
      kind: "exact" to the printed digits, "model" within 5 %, "stochastic" inside our interval.
    """

    id: str
    demo: str
    what: str
    lecture: str
    unit: str
    kind: str


class Figure(NamedTuple):
    """One of our figures beside the lecture's.

    Attributes:
      id, demo, what, unit, kind: as in `LectureFigure`.
      value: ours.
      low, high: ends of the 95 % interval, None for what is not random.
      lecture: the lecture's.
      within: whether ours agrees in the sense of `kind`.
      note: how it was got, or why it differs.
      beside: the same quantity under other assumptions, by their name.
    """

    id: str
    demo: str
    what: str
    unit: str
    kind: str
    value: float
    low: float | None
    high: float | None
    lecture: float
    within: bool
    note: str
    beside: Mapping[str, float]


@cache
def lecture_figures() -> Mapping[str, LectureFigure]:
    """Every figure that the lecture states, by id, in its order."""
    text = resources.files("jaxmem.demos").joinpath("lecture.tsv").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    rows = csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
    return {row["id"]: LectureFigure(**row) for row in rows}


def beside_lecture(
    id: str,
    value: float,
    low: float | None = None,
    high: float | None = None,
    note: str = "",
    beside: Mapping[str, float] | None = None,
) -> Figure:
    """Our value of one of the lecture's figures.

    Args:
      id: of the lecture's figure.
      value: ours, in its unit.
      low, high: ends of our 95 % interval, for a stochastic figure.
      note: how it was got, or why it differs.
      beside: the same quantity under other assumptions, by their name.

    Returns:
      Both, and whether they agree.

    Raises:
      ValueError: if there is no such figure, or a stochastic one comes without interval.
    """
    if id not in lecture_figures():
        raise ValueError(f"the lecture has no figure {id!r}")
    row = lecture_figures()[id]
    if row.kind == "stochastic" and (low is None or high is None):
        raise ValueError(f"{id} is stochastic: expected the ends of its interval")
    agrees = _agrees(row, float(value), low, high)
    return Figure(
        row.id,
        row.demo,
        row.what,
        row.unit,
        row.kind,
        float(value),
        low,
        high,
        float(row.lecture),
        agrees,
        note,
        dict(beside or {}),
    )


def _agrees(row: LectureFigure, value: float, low: float | None, high: float | None) -> bool:
    lecture = float(row.lecture)
    if not math.isfinite(value):
        return False
    if "at least" in row.unit or "above" in row.unit:
        return (value if high is None else high) >= lecture
    if "at most" in row.unit:
        return (value if low is None else low) <= lecture
    if row.kind == "stochastic":
        assert low is not None
        assert high is not None
        return low <= lecture <= high
    if row.kind == "model":
        return abs(value / lecture - 1.0) <= 0.05
    exponent = Decimal(row.lecture).as_tuple().exponent
    assert isinstance(exponent, int)
    return abs(value - lecture) <= 0.5 * 10.0**exponent * (1 + 1e-9)
