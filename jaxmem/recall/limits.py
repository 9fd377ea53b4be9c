"""How much a memory of fixed size can hold: closed forms, scaling laws and a bound of information.

Facts are n pairs of random unit keys and unit values of length d. A question has a given cosine
to its key and is answered by the value, out of a vocabulary, with the largest inner product.
"""

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.special import log_ndtr, xlogy
from jax.typing import ArrayLike

# Bits of knowledge that trained transformers were found to hold per parameter: an empirical
# ceiling after 1000 exposures of each fact, no law (Allen-Zhu and Li 2024, arXiv:2404.05405).
EMPIRICAL_BITS = 2.0

_NORMAL_NODES = 64  # even, so that no node lies at 0, where the sign of x jumps
_CHI2_NODES = 33


def sum_accuracy(
    n: ArrayLike, dim: ArrayLike, vocabulary: ArrayLike | None = None, cosine: ArrayLike = 1.0
) -> Array:
    """Expected recall of the Hebbian sum W = sum_i k_i^T v_i (linear attention).

    o = rho v_i + sum_j w_j v_j, w_j ~ N(0, 1/d)
    x = o . v_i ~ N(rho, (n-1)/d^2), R^2 = |o|^2 - x^2 ~ ((n-1)/d) chi2_{d-1}/d
    P = E[F_{d/g^4}(g x / |o|)^{n-1} F_d(x / |o|)^{V-n}], g^2 = 1 + 1/|o|^2

    with F_d the cdf of a coordinate of a random unit vector. A stored rival is part of o, which
    widens its score by g; its tail stays shorter than that of F_d(x / (g |o|)), and d / g^4
    matches it to the fourth order. Within 0.01 of simulation at d = 64 (n from 96 to 1024),
    0.03 at d = 16 and 32. Broadcasts; differentiable.

    Args:
      n: facts stored.
      dim: length of keys and of values, d, at least 2.
      vocabulary: values to choose from, V, at least n; `n` if not given.
      cosine: rho, between question and key; 1 is the key itself.

    Returns:
      Probability of the right answer, of the broadcast shape of the arguments.

    Raises:
      ValueError: if a number is out of its range (traced ones are not checked).
    """
    n, dim, vocabulary, cosine = _arrays(n, dim, vocabulary, cosine)
    return _recall(n, dim, vocabulary, cosine, (n - 1) / dim)


def least_squares_accuracy(
    n: ArrayLike, dim: ArrayLike, vocabulary: ArrayLike | None = None, cosine: ArrayLike = 1.0
) -> Array:
    """Expected recall of the least squares memory W = argmin |K W - V|^2 of least norm.

    As `sum_accuracy`, with own weight m and the sum S^2 of the other weights' squares:
    n > d:  m = rho h, S^2 = rho^2 h (1 - h) + (1 - rho^2) d / (n - d - 1), h = d / n
    n <= d: m = rho,   S^2 = (1 - rho^2) n / (d - n - 1)

    Up to d facts are stored exactly, so keys themselves recall all: 1. A paraphrase meets the
    interpolation peak: near n = d the noise is amplified without bound (S^2 has no mean within 1
    of d, where this returns chance, 1 / V). There the formula is a lower bound: at n = d = 64 it
    gives .02 and simulation .42 for a cosine of .958. A little ridge removes the peak.

    Args:
      n: facts stored.
      dim: length of keys and of values, d, at least 2.
      vocabulary: values to choose from, V, at least n; `n` if not given.
      cosine: rho, between question and key; 1 is the key itself.

    Returns:
      Probability of the right answer, of the broadcast shape of the arguments.

    Raises:
      ValueError: if a number is out of its range (traced ones are not checked).
    """
    n, dim, vocabulary, cosine = _arrays(n, dim, vocabulary, cosine)
    share = jnp.minimum(dim / n, 1)
    distance = jnp.abs(n - dim) - 1
    peak = distance <= 0
    noise = (1 - cosine**2) * jnp.minimum(n, dim) / jnp.where(peak, 1, distance)
    others = cosine**2 * share * (1 - share) + noise
    drowned = peak & (cosine**2 < 1)
    return jnp.where(drowned, 1 / vocabulary, _recall(n, dim, vocabulary, cosine * share, others))


def information_accuracy(
    floats: ArrayLike,
    n: ArrayLike,
    vocabulary: ArrayLike | None = None,
    bits_per_float: ArrayLike = EMPIRICAL_BITS,
) -> Array:
    """The largest recall that any memory of so many bits allows.

    n R(a) <= floats * bits_per_float, R(a) = log2 V - h(a) - (1 - a) log2(V - 1)

    with h the binary entropy: the rate-distortion function of a uniform choice out of V. Solved
    by bisection, with the derivative of the implicit function.

    Args:
      floats: numbers in the memory.
      n: facts, each an independent choice out of the vocabulary.
      vocabulary: values to choose from, V, at least 2; `n` if not given.
      bits_per_float: what one number holds: 16 or 32 is what the hardware stores,
        `EMPIRICAL_BITS` what training has been seen to reach.

    Returns:
      Accuracy in 1/V..1, of the broadcast shape of the arguments.

    Raises:
      ValueError: if a number is out of its range (traced ones are not checked).

    Source: Shannon 1959 (rate distortion); Allen-Zhu and Li 2024, arXiv:2404.05405 (2 bits).
    """
    floats, n, vocabulary, per_float = _bits(floats, n, vocabulary, bits_per_float)
    rate = floats * per_float / n  # bits a fact

    def halve(_: int, bounds: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bounds
        middle = (low + high) / 2
        fits = _rate(middle, vocabulary) <= rate
        return jnp.where(fits, middle, low), jnp.where(fits, high, middle)

    lowest = jnp.broadcast_to(1 / vocabulary, rate.shape)
    bounds = jax.lax.fori_loop(0, 60, halve, (lowest, jnp.ones_like(rate)))
    found = jax.lax.stop_gradient(bounds[0])
    inside = (found > lowest) & (found < 1) & (rate < jnp.log2(vocabulary))
    safe = jnp.where(inside, found, 0.5)
    slope = jnp.log2(safe / (1 - safe)) + jnp.log2(jnp.maximum(vocabulary - 1, 1))
    inside &= slope > 0
    step = (rate - _rate(safe, vocabulary)) / jnp.where(inside, slope, 1)
    found = jnp.clip(jnp.where(inside, safe + step, found), lowest, 1)
    return jnp.where(rate >= jnp.log2(vocabulary), 1.0, found)


def information_facts(
    floats: ArrayLike,
    vocabulary: ArrayLike,
    bits_per_float: ArrayLike = EMPIRICAL_BITS,
    accuracy: ArrayLike = 1.0,
) -> Array:
    """The most facts that any memory of so many bits can recall at a given accuracy.

    n = floats * bits_per_float / R(a)

    Args:
      floats: numbers in the memory.
      vocabulary: values to choose from, V, at least 2.
      bits_per_float: what one number holds.
      accuracy: a, above 1/V.

    Returns:
      Number of facts (not rounded), of the broadcast shape of the arguments; inf for an accuracy
      of chance or less.

    Raises:
      ValueError: if a number is out of its range (traced ones are not checked).
    """
    floats, _, vocabulary, per_float = _bits(floats, 1.0, vocabulary, bits_per_float)
    _check("accuracy", accuracy, 0, 1)
    rate = jnp.where(accuracy > 1 / vocabulary, _rate(jnp.asarray(accuracy), vocabulary), 0)
    return jnp.where(rate > 0, floats * per_float / jnp.where(rate > 0, rate, 1), jnp.inf)


def truncation_accuracy(slots: ArrayLike, n: ArrayLike) -> Array:
    """Recall of a cache cut to its first slots: what is kept is known, the rest is not.

    min(p / n, 1)

    Args:
      slots: tokens kept, p.
      n: facts, one a token.

    Returns:
      Accuracy, of the broadcast shape of the arguments.

    Raises:
      ValueError: if a number is out of its range (traced ones are not checked).
    """
    _check("slots", slots, 0)
    _check("n", n, 1)
    return jnp.minimum(jnp.asarray(slots, float) / n, 1)


def softmax_capacity(scale: ArrayLike, dim: ArrayLike, cosine: ArrayLike = 1.0) -> Array:
    """Log of the number of facts at which softmax attention over all of them starts to fail.

    ln N = rho b - b^2 / (2 d), b = min(beta, rho d)

    The own slot weighs e^{rho beta}, N random others together N e^{beta^2 / (2 d)}. Beyond beta =
    rho d the largest of the others decides and a higher scale gains nothing: rho^2 d / 2.

    Args:
      scale: inverse temperature, beta.
      dim: length of the unit keys, d.
      cosine: rho, between question and key.

    Returns:
      ln N, of the broadcast shape of the arguments.

    Raises:
      ValueError: if a number is out of its range (traced ones are not checked).

    Source: Ramsauer et al. 2021, arXiv:2008.02217; Lucibello and Mezard 2024, arXiv:2304.14964.
    """
    _check("scale", scale, 0)
    _check("dim", dim, 1)
    _check("cosine", cosine, 0, 1)
    scale, dim, cosine = (jnp.asarray(a, float) for a in (scale, dim, cosine))
    beta = jnp.minimum(scale, cosine * dim)
    return cosine * beta - beta**2 / (2 * dim)


def linear_capacity(dim: ArrayLike) -> Array:
    """Facts that the best d x d linear memory recalls, to leading order.

    N ln N = d^2 / 2

    A scaling law and no bound: at d = 64 training by cross-entropy goes past it (512 of 512).

    Args:
      dim: length of keys and of values, d.

    Returns:
      N, of the shape of `dim`.

    Raises:
      ValueError: if `dim` is below 1 (traced ones are not checked).

    Source: arXiv:2605.10795 (statistical physics); arXiv:2605.05189 (n log n proved).
    """
    _check("dim", dim, 1)
    half = jnp.asarray(dim, float) ** 2 / 2
    log_n = jnp.log1p(half)
    for _ in range(8):  # Newton on y + ln y = ln(d^2 / 2)
        log_n = log_n * (1 + jnp.log(half) - jnp.log(log_n)) / (1 + log_n)
    return half / log_n


def delta_recalled(
    dim: ArrayLike, rate: ArrayLike, vocabulary: ArrayLike, cosine: ArrayLike = 1.0
) -> Array:
    """How many of the newest facts the delta rule still recalls after a long pass.

    a* = (d / beta) ln(rho sqrt(beta (2 - beta) d) / z_V), 0 if negative

    At age a the own weight is beta e^{-beta a / d}, and the length of a read sqrt(beta /
    (2 - beta)): the fact is lost when the largest of V - 1 rivals, z_V standard deviations out,
    exceeds it. Holds in the steady state, after several d / beta writes; with fewer facts the
    memory does better.

    Args:
      dim: length of keys and of values, d.
      rate: step size, beta, in (0, 2).
      vocabulary: values to choose from, V, at least 2.
      cosine: rho, between question and key.

    Returns:
      Number of facts, of the broadcast shape of the arguments.

    Raises:
      ValueError: if a number is out of its range (traced ones are not checked).
    """
    _check("dim", dim, 1)
    _check("rate", rate, 0, 2, open_ends=True)
    _check("vocabulary", vocabulary, 2)
    _check("cosine", cosine, 0, 1)
    dim, rate = jnp.asarray(dim, float), jnp.asarray(rate, float)
    rival = jnp.maximum(_largest_normal(jnp.asarray(vocabulary, float) - 1), 1e-6)
    margin = cosine * jnp.sqrt(rate * (2 - rate) * dim) / rival
    return dim / rate * jnp.log(jnp.maximum(margin, 1))


@jax.jit
def _recall(n: Array, dim: Array, vocabulary: Array, own: Array, others: Array) -> Array:
    """Probability that the own value scores highest, given its weight and the others' squares.

    x ~ N(m, S^2/d), R^2 ~ S^2 chi2_{d-1}/d, rival i: |o| u + w_i, u a coordinate, w_i^2 ~ S^2/(n-1)
    """
    n, dim, vocabulary, own, others = (
        a[..., None, None] for a in (n, dim, vocabulary, own, others)
    )
    z, p_z = _normal(dim.dtype)  # [A, 1]
    chi2, p_chi2 = _chi2(dim - 1)  # [..., 1, B]
    spread = jnp.where(others > 0, jnp.sqrt(jnp.where(others > 0, others, 1) / dim), 0)
    x = own + spread * z  # [..., A, 1]
    length2 = jnp.maximum(x**2 + others * chi2 / dim, jnp.finfo(x.dtype).tiny)  # [..., A, B]
    wider2 = 1 + others * dim / (jnp.maximum(n - 1, 1) * length2)  # g^2
    stored = _log_cdf(x**2 * wider2 / length2, jnp.sign(x), jnp.maximum(dim / wider2**2, 3))
    unstored = _log_cdf(x**2 / length2, jnp.sign(x), dim)
    below = (n - 1) * stored + (vocabulary - n) * unstored
    return jnp.sum(p_z * p_chi2 * jnp.exp(below), axis=(-2, -1))


def _normal(dtype: jnp.dtype) -> tuple[Array, Array]:
    """Nodes and weights [A, 1] of a standard normal: the trapezoid rule converges geometrically."""
    z = jnp.linspace(-8, 8, _NORMAL_NODES, dtype=dtype)[:, None]
    return z, jax.nn.softmax(-(z**2) / 2, axis=0)


def _chi2(freedom: Array) -> tuple[Array, Array]:
    """Nodes and weights [..., 1, B] of chi2, by the trapezoid rule on y = ln(chi2 / freedom)."""
    y = jnp.linspace(-10, 10, _CHI2_NODES, dtype=freedom.dtype) * jnp.sqrt(2 / freedom)
    return freedom * jnp.exp(y), jax.nn.softmax(freedom / 2 * (y - jnp.exp(y)), axis=-1)


def _log_cdf(square: Array, sign: Array, dim: Array) -> Array:
    """ln F_d(u) from u^2 and the sign of u.

    u sqrt((d-1) / (1-u^2)) has Student's distribution with d - 1 degrees of freedom, and Hill's
    expansion (1970, CACM 13, algorithm 395) turns that into a normal deviate: smooth in u and d,
    and in logs, so that high powers of F keep their tail in single precision.
    """
    rest = jnp.clip(1 - square, jnp.finfo(dim.dtype).tiny, 1)
    a = dim - 1.5
    b = 48 * a**2
    z2 = -a * jnp.log(rest)
    z = jnp.sqrt(jnp.maximum(z2, jnp.finfo(dim.dtype).tiny))
    tail = (((4 * z2 + 33) * z2 + 240) * z2 + 855) / (10 * b * (b + 0.8 * z2**2 + 100))
    return log_ndtr(sign * z * (1 + (z2 + 3) / b - tail))


def _rate(accuracy: Array, vocabulary: Array) -> Array:
    """R(a) in bits."""
    wrong = 1 - accuracy
    entropy = -(xlogy(accuracy, accuracy) + xlogy(wrong, wrong))
    nats = jnp.log(vocabulary) - entropy - wrong * jnp.log(jnp.maximum(vocabulary - 1, 1))
    return nats / jnp.log(2.0)


@jax.jit
def _largest_normal(count: Array) -> Array:
    """Mean of the largest of so many standard normals: b - integral of Phi^count up to b."""
    z = jnp.linspace(-10, 10, 2001, dtype=count.dtype)
    return 10 - jnp.trapezoid(jnp.exp(count[..., None] * log_ndtr(z)), z)


def _arrays(
    n: ArrayLike, dim: ArrayLike, vocabulary: ArrayLike | None, cosine: ArrayLike
) -> list[Array]:
    vocabulary = n if vocabulary is None else vocabulary
    _check("n", n, 1)
    _check("dim", dim, 2)
    _check("cosine", cosine, 0, 1)
    if not any(isinstance(a, jax.core.Tracer) for a in (n, vocabulary)):
        _check("vocabulary - n", jnp.asarray(vocabulary) - jnp.asarray(n), 0)
    return list(
        jnp.broadcast_arrays(*(jnp.asarray(a, float) for a in (n, dim, vocabulary, cosine)))
    )


def _bits(
    floats: ArrayLike, n: ArrayLike, vocabulary: ArrayLike | None, bits_per_float: ArrayLike
) -> list[Array]:
    vocabulary = n if vocabulary is None else vocabulary
    _check("floats", floats, 0)
    _check("n", n, 1)
    _check("vocabulary", vocabulary, 2)
    _check("bits_per_float", bits_per_float, 0)
    parts = (floats, n, vocabulary, bits_per_float)
    return list(jnp.broadcast_arrays(*(jnp.asarray(a, float) for a in parts)))


def _check(
    name: str, number: ArrayLike, low: float, high: float = float("inf"), open_ends: bool = False
) -> None:
    if isinstance(number, jax.core.Tracer):
        return
    array = jnp.asarray(number)
    fits = (low < array) & (array < high) if open_ends else (low <= array) & (array <= high)
    if not bool(jnp.all(fits)):
        ends = "between" if open_ends else "in"
        raise ValueError(f"{name} must be {ends} {low:g}..{high:g}, got {number}")
