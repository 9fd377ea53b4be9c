"""Limits of fixed-size memories by plain sums over grids, one number at a time."""

import math

import numpy as np


def log_coordinate_cdf(u: float, dim: float, points: int = 4001) -> float:
    """ln F_d(u), F_d the cdf of a coordinate of a random unit vector, from its density.

    F_d(u) = integral_{-1}^u (1 - t^2)^{(d-3)/2} dt / integral_{-1}^1, with t = sin(angle)

    Args:
      u: in -1..1 (clipped).
      dim: d, at least 2.
      points: of the trapezoid rule.

    Returns:
      ln F_d(u).
    """

    def area(low: float, high: float) -> float:
        angle = np.linspace(low, high, points)
        return float(np.trapezoid(np.cos(angle) ** (dim - 2), angle))

    angle = math.asin(min(max(u, -1.0), 1.0))
    whole = area(-math.pi / 2, math.pi / 2)
    if angle > 0:
        return math.log1p(-area(angle, math.pi / 2) / whole)
    below = area(-math.pi / 2, angle) / whole
    return math.log(below) if below > 0 else -math.inf


def recall_of_weights(
    n: int, dim: int, vocabulary: int, own: float, others: float, nodes: int = 24
) -> float:
    """Recall when a read weighs the right value `own` and the rest with random weights.

    x ~ N(own, others/d), R^2 ~ others chi2_{d-1}/d, o^2 = x^2 + R^2, g^2 = 1 + d others/((n-1) o^2)
    P = E[F_{d/g^4}(g x / |o|)^{n-1} F_d(x / |o|)^{V-n}]

    Args:
      n: facts stored.
      dim: length of a value, d.
      vocabulary: values to choose from, V.
      own: weight of the right value.
      others: sum of the squares of the other weights.
      nodes: of Gauss-Hermite over x; chi2 is taken on as many midpoints of equal steps.

    Returns:
      The probability that the right value scores highest.
    """
    z, p_z = np.polynomial.hermite_e.hermegauss(nodes)
    freedom = dim - 1
    high = freedom + 12 * math.sqrt(2 * freedom) + 20
    chi2 = (np.arange(4 * nodes) + 0.5) * high / (4 * nodes)
    p_chi2 = np.exp((freedom / 2 - 1) * np.log(chi2 / freedom) - (chi2 - freedom) / 2)
    total = 0.0
    for node, weight in zip(z, p_z / p_z.sum(), strict=True):
        x = own + node * math.sqrt(others / dim)
        for square, share in zip(chi2, p_chi2 / p_chi2.sum(), strict=True):
            if share < 1e-9:
                continue
            length2 = x**2 + others * square / dim
            wider2 = 1 + others * dim / (max(n - 1, 1) * length2)
            u = x / math.sqrt(length2)
            stored = log_coordinate_cdf(u * math.sqrt(wider2), max(dim / wider2**2, 3), 401)
            rest = log_coordinate_cdf(u, dim, 401) if vocabulary > n else 0.0
            total += weight * share * math.exp((n - 1) * stored + (vocabulary - n) * rest)
    return float(total)


def information_accuracy(bits_per_fact: float, vocabulary: int) -> float:
    """The accuracy at which the rate-distortion function of a uniform choice reaches the bits.

    R(a) = log2 V + a log2 a + (1 - a) log2((1 - a) / (V - 1))

    Args:
      bits_per_fact: bits of the memory over facts.
      vocabulary: values to choose from, V.

    Returns:
      Accuracy in 1/V..1.
    """

    def rate(a: float) -> float:
        known = a * math.log2(a) if a > 0 else 0.0
        wrong = (1 - a) * math.log2((1 - a) / (vocabulary - 1)) if a < 1 else 0.0
        return math.log2(vocabulary) + known + wrong

    if rate(1.0) <= bits_per_fact:
        return 1.0
    low, high = 1 / vocabulary, 1.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if rate(middle) <= bits_per_fact else (low, middle)
    return low


def linear_capacity(dim: int) -> float:
    """N with N ln N = d^2 / 2, by bisection.

    Args:
      dim: d.

    Returns:
      N.
    """
    low, high = 1.0, dim**2 + 2.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if middle * math.log(middle) < dim**2 / 2 else (low, middle)
    return low
