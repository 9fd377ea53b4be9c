"""What a sweep found: a record a run, arrays, and the mean with its interval over seeds."""

import math
import os
from typing import NamedTuple

import numpy as np

from jaxmem.common.intervals import Interval, mean_interval
from jaxmem.common.names import nearest
from jaxmem.results import Record, write_records


class Sweep(NamedTuple):
    """The runs of a sweep, seeds outer and settings inner.

    records: a dict a run: seed, the setting's scalar fields (and `setting`, its number, if it has
      fields that are no scalars), the scalar metrics as Python numbers, NaN and infinity included.
    arrays: metrics that are no scalars, each [seeds, settings, ...].
    fields: names of the setting's columns in `records`.
    metrics: names of the metrics in `records`.
    """

    records: list[Record]
    arrays: dict[str, np.ndarray]
    fields: tuple[str, ...]
    metrics: tuple[str, ...]

    def summary(self, *by: str) -> list[Record]:
        """Mean, spread and Student's 95 % interval over seeds, a record a group and metric.

        A group that holds several runs of a seed (`by` leaves a field out) first takes their mean:
        runs of one seed share their draws, so only seeds count as independent. Runs that are not
        finite are left out of the mean and counted.

        Args:
          by: fields to group by; all fields of the settings if none is named.

        Returns:
          Records of the grouping fields and: metric (its name), mean, sd (between seeds; NaN for
          fewer than two), low, high (infinite for fewer than two), n_seeds (seeds with a finite
          run), n_not_finite (runs that diverged).

        Raises:
          ValueError: if there is no such field.
        """
        for name in by:
            if name not in self.fields:
                raise ValueError(f"unknown field {name!r}{nearest(name, self.fields)}")
        by = by or self.fields
        groups: dict[tuple[object, ...], list[Record]] = {}
        for row in self.records:
            groups.setdefault(tuple(row[name] for name in by), []).append(row)
        return [
            {**dict(zip(by, group)), "metric": metric, **_statistics(rows, metric)}
            for group, rows in groups.items()
            for metric in self.metrics
        ]

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the records to a `.json` or `.csv` file; what is not finite is null, or empty.

        Args:
          path: the file; its ending chooses the format.

        Raises:
          ValueError: if the ending is neither.
        """
        write_records(path, self.records)


def _statistics(rows: list[Record], metric: str) -> Record:
    """Mean, sd and interval of one metric over seeds."""
    finite: dict[int, list[float]] = {}
    bad = 0
    for row in rows:
        if math.isfinite(row[metric]):
            finite.setdefault(row["seed"], []).append(float(row[metric]))
        else:
            bad += 1
    means = [sum(values) / len(values) for values in finite.values()]  # one value a seed
    found = mean_interval(means) if means else Interval(math.nan, -math.inf, math.inf)
    return {
        "mean": found.mean,
        "sd": float(np.std(means, ddof=1)) if len(means) > 1 else math.nan,
        "low": found.low,
        "high": found.high,
        "n_seeds": len(means),
        "n_not_finite": bad,
    }
