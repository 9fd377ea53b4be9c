"""95 % intervals: of means, runs, shares, means over clusters, and paired differences."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

# Two-sided 97.5 % quantiles of Student's t by degrees of freedom; 1.96 beyond the table.
_T_975 = np.array(
    [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228]
    + [2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086]
    + [2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042]
)


class Interval(NamedTuple):
    """An estimate with the ends of its 95 % interval, all in the unit of the data.

    mean: the estimate.
    low: lower end of the interval; -infinity if the data do not bound it.
    high: upper end.
    """

    mean: float
    low: float
    high: float


def mean_interval(samples: ArrayLike) -> Interval:
    """Mean of independent samples (seeds, say) with Student's 95 % interval.

    Args:
      samples: [n] values, n >= 1.

    Returns:
      The interval; unbounded for a single sample, which says nothing about the spread.

    Raises:
      ValueError: if there is no sample or one is NaN.
    """
    x = _checked(samples)
    if len(x) == 1:
        return Interval(float(x[0]), -np.inf, np.inf)
    half = _t(len(x) - 1) * x.std(ddof=1) / np.sqrt(len(x))
    return Interval(float(x.mean()), float(x.mean() - half), float(x.mean() + half))


def run_interval(samples: ArrayLike) -> Interval:
    """Mean of independent runs with the interval that holds one more run in 95 % of cases.

    mean +- t sd sqrt(1 + 1 / n)

    Args:
      samples: [n] values, n >= 1.

    Returns:
      The interval; unbounded for a single run.

    Raises:
      ValueError: if there is no sample or one is NaN.
    """
    x = _checked(samples)
    return smaller_run(mean_interval(x), len(x), 1)


def smaller_run(estimate: Interval, samples: int, size: int) -> Interval:
    """The interval that holds the mean of one more run, of another size, in 95 % of cases.

    mean +- half width * sqrt(1 + samples / size)

    Args:
      estimate: mean of samples (or clusters) with its symmetric 95 % interval.
      samples: how many it is over.
      size: how many that run has.

    Returns:
      The interval.

    Raises:
      ValueError: if a number is not at least 1.
    """
    if min(samples, size) < 1:
        raise ValueError(f"expected sizes of at least 1, got {samples} and {size}")
    half = (estimate.high - estimate.mean) * np.sqrt(1 + samples / size)
    return Interval(estimate.mean, float(estimate.mean - half), float(estimate.mean + half))


def wilson_interval(right: int, count: int) -> Interval:
    """A share of independent yes-or-no answers with Wilson's 95 % interval.

    (p + z^2 / 2n +- z sqrt(p (1 - p) / n + z^2 / 4n^2)) / (1 + z^2 / n)

    Args:
      right: of the answers.
      count: answers, n >= 1.

    Returns:
      The share and the interval; it has a width at 0 and 1 too.

    Raises:
      ValueError: if there is no answer, or more are right than there are.

    Source: Wilson 1927, Journal of the American Statistical Association 22.
    """
    if not 0 <= right <= count or count < 1:
        raise ValueError(f"expected 0 to {count} right answers of at least 1, got {right}")
    z2, share = 1.959964**2, right / count
    middle = share + z2 / (2 * count)
    half = np.sqrt(z2 * (share * (1 - share) / count + z2 / (4 * count**2)))
    low, high = (middle - half) / (1 + z2 / count), (middle + half) / (1 + z2 / count)
    return Interval(share, float(min(max(low, 0.0), share)), float(max(min(high, 1.0), share)))


def clustered_interval(numerators: ArrayLike, denominators: ArrayLike) -> Interval:
    """A ratio of sums over clusters (right answers over questions, by conversation).

    r = sum a / sum b, with variance n / (n - 1) * sum (a - r b)^2 / (sum b)^2

    Args:
      numerators: [n] cluster totals.
      denominators: [n] cluster sizes, with a positive sum.

    Returns:
      The ratio with its 95 % interval; unbounded for a single cluster.

    Raises:
      ValueError: if the lengths differ, there is no cluster, or the sizes sum to 0.
    """
    a, b = _checked(numerators), _checked(denominators)
    if a.shape != b.shape:
        raise ValueError(f"expected as many sizes as totals, got {len(b)} and {len(a)}")
    if not b.sum() > 0:
        raise ValueError(f"cluster sizes must have a positive sum, got {b.sum()}")
    n, ratio = len(a), float(a.sum()) / float(b.sum())
    if n == 1:
        return Interval(float(ratio), -np.inf, np.inf)
    error = np.sqrt(n / (n - 1) * np.sum((a - ratio * b) ** 2)) / b.sum()
    half = _t(n - 1) * error
    return Interval(float(ratio), float(ratio - half), float(ratio + half))


def paired_bootstrap(
    first: ArrayLike, second: ArrayLike, seed: int = 0, resamples: int = 10_000
) -> Interval:
    """Mean of `first - second` over pairs, with a bootstrap interval as `clustered_bootstrap`'s.

    Args:
      first: [n] values of one method.
      second: [n] values of the other on the same items.
      seed: seed of the resampling.
      resamples: number of bootstrap resamples.

    Returns:
      The mean difference and its 95 % interval.

    Raises:
      ValueError: if the lengths differ, there is no pair, or a value is NaN.
    """
    a, b = _checked(first), _checked(second)
    if a.shape != b.shape:
        raise ValueError(f"expected pairs, got {len(a)} and {len(b)} values")
    return clustered_bootstrap(a - b, np.ones(len(a)), seed, resamples)


def clustered_bootstrap(
    numerators: ArrayLike, denominators: ArrayLike, seed: int = 0, resamples: int = 10_000
) -> Interval:
    """A ratio of sums over clusters with a percentile bootstrap interval over clusters.

    Percentiles are too narrow for few clusters: they are stretched from the ratio by
    t / 1.96 sqrt(n / (n - 1)), Student's t with n - 1 degrees of freedom.

    Args:
      numerators: [n] cluster totals (right answers of one method less those of another, say).
      denominators: [n] cluster sizes, with a positive sum.
      seed: seed of the resampling.
      resamples: number of bootstrap resamples.

    Returns:
      The ratio and its 95 % interval; unbounded for a single cluster.

    Raises:
      ValueError: as `clustered_interval`.
    """
    ratio = clustered_interval(numerators, denominators)
    a, b = _checked(numerators), _checked(denominators)
    if len(a) == 1:
        return ratio
    rng = np.random.default_rng(seed)
    ratios = []
    for start in range(0, resamples, 1_000):  # bounds the memory
        picks = rng.integers(0, len(a), (min(1_000, resamples - start), len(a)))
        ratios.append(a[picks].sum(1) / np.maximum(b[picks].sum(1), 1e-300))
    low, high = np.quantile(np.concatenate(ratios), [0.025, 0.975])
    stretch = _t(len(a) - 1) / 1.96 * np.sqrt(len(a) / (len(a) - 1))
    ends = ratio.mean + stretch * (np.array([low, high]) - ratio.mean)
    return Interval(ratio.mean, float(ends[0]), float(ends[1]))


def _checked(samples: ArrayLike) -> np.ndarray:
    x = np.asarray(samples, np.float64).reshape(-1)
    if x.size == 0:
        raise ValueError("expected at least one value, got none")
    if np.isnan(x).any():
        raise ValueError(f"expected numbers, got NaN at position {int(np.argmax(np.isnan(x)))}")
    return x


def _t(degrees: int) -> float:
    return float(_T_975[degrees - 1]) if degrees <= len(_T_975) else 1.96
