"""Fixed-size memories one write at a time: recurrences and argmins, no chunks.

Every function takes T writes and T queries and returns the last state and what query t reads
after write t. A number of a memory may be a scalar or [T].
"""

import numpy as np
from numpy.typing import ArrayLike


def _rows(number: ArrayLike, length: int) -> np.ndarray:
    return np.broadcast_to(np.asarray(number, np.float64), (length,))


def _float64(*arrays: ArrayLike) -> tuple[np.ndarray, ...]:
    return tuple(np.asarray(array, np.float64) for array in arrays)


def gated_delta_rule(
    keys: ArrayLike,
    values: ArrayLike,
    queries: ArrayLike,
    decay: ArrayLike = 1.0,
    rate: ArrayLike = 1.0,
) -> tuple[np.ndarray, np.ndarray]:
    """W <- a W, then W <- W + b k^T (v - k W).

    Args:
      keys: [T, K].
      values: [T, V].
      queries: [T, K].
      decay: a, scalar or [T]; 1 gives the plain delta rule.
      rate: b, scalar or [T].

    Returns:
      (W [K, V], outputs [T, V]).
    """
    k, v, q = _float64(keys, values, queries)
    a, b = _rows(decay, len(k)), _rows(rate, len(k))
    weights = np.zeros((k.shape[1], v.shape[1]))
    outputs = np.zeros((len(k), v.shape[1]))
    for t in range(len(k)):
        weights = a[t] * weights
        weights = weights + b[t] * np.outer(k[t], v[t] - k[t] @ weights)
        outputs[t] = q[t] @ weights
    return weights, outputs


def decay(
    keys: ArrayLike, values: ArrayLike, queries: ArrayLike, decay: ArrayLike = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    """W <- a W + k^T v.

    Args:
      keys: [T, K].
      values: [T, V].
      queries: [T, K].
      decay: a, scalar or [T]; 1 gives the sum of outer products.

    Returns:
      (W [K, V], outputs [T, V]).
    """
    k, v, q = _float64(keys, values, queries)
    a = _rows(decay, len(k))
    weights = np.zeros((k.shape[1], v.shape[1]))
    outputs = np.zeros((len(k), v.shape[1]))
    for t in range(len(k)):
        weights = a[t] * weights + np.outer(k[t], v[t])
        outputs[t] = q[t] @ weights
    return weights, outputs


def longhorn(
    keys: ArrayLike, values: ArrayLike, queries: ArrayLike, strength: ArrayLike = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    """W <- argmin_W |W - W_before|^2 + s |v - k W|^2, by its normal equations.

    Args:
      keys: [T, K].
      values: [T, V].
      queries: [T, K].
      strength: s, scalar or [T].

    Returns:
      (W [K, V], outputs [T, V]).
    """
    k, v, q = _float64(keys, values, queries)
    s = _rows(strength, len(k))
    weights = np.zeros((k.shape[1], v.shape[1]))
    outputs = np.zeros((len(k), v.shape[1]))
    for t in range(len(k)):
        normal = np.eye(k.shape[1]) + s[t] * np.outer(k[t], k[t])
        weights = np.linalg.solve(normal, weights + s[t] * np.outer(k[t], v[t]))
        outputs[t] = q[t] @ weights
    return weights, outputs


def titans(
    keys: ArrayLike,
    values: ArrayLike,
    queries: ArrayLike,
    rate: ArrayLike,
    momentum: ArrayLike,
    decay: ArrayLike = 1.0,
    chunk: int = 64,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """S <- m S - r k^T (k W_s - v), W <- a W + S, W_s the weights at the mini-batch's start.

    Args:
      keys: [T, K].
      values: [T, V].
      queries: [T, K].
      rate: r, scalar or [T].
      momentum: m, scalar or [T].
      decay: a, scalar or [T].
      chunk: writes a mini-batch.

    Returns:
      (W [K, V], S [K, V], outputs [T, V]).
    """
    k, v, q = _float64(keys, values, queries)
    r, m, a = (_rows(number, len(k)) for number in (rate, momentum, decay))
    weights = np.zeros((k.shape[1], v.shape[1]))
    velocity = np.zeros_like(weights)
    outputs = np.zeros((len(k), v.shape[1]))
    start = weights
    for t in range(len(k)):
        if t % chunk == 0:
            start = weights
        velocity = m[t] * velocity - r[t] * np.outer(k[t], k[t] @ start - v[t])
        weights = a[t] * weights + velocity
        outputs[t] = q[t] @ weights
    return weights, velocity, outputs


def ttt(
    keys: ArrayLike,
    values: ArrayLike,
    queries: ArrayLike,
    rate: ArrayLike,
    bias: float = 0.0,
    scale: ArrayLike = 1.0,
    shift: ArrayLike = 0.0,
    chunk: int = 64,
    epsilon: float = 1e-6,
) -> tuple[np.ndarray, np.ndarray]:
    """W <- W - r [k, c]^T g, g = J^T (LN(z) - (v - k)) at z = [k, c] W_s, J the Jacobian of LN.

    Args:
      keys: [T, K].
      values: [T, K].
      queries: [T, K].
      rate: r, scalar or [T].
      bias: c, the constant beside each key.
      scale: of the layer norm, scalar or [K].
      shift: of the layer norm, scalar or [K].
      chunk: writes a mini-batch, at whose start W_s is taken.
      epsilon: added to the variance in the layer norm.

    Returns:
      (W [K + 1, K] with the bias last, outputs [T, K] = q + LN([q, c] W)).
    """
    k, v, q = _float64(keys, values, queries)
    r, (gamma, beta) = _rows(rate, len(k)), _float64(scale, shift)
    size = k.shape[1]

    def norm(z: np.ndarray) -> tuple[np.ndarray, float]:
        deviation = float(np.sqrt(np.var(z) + epsilon))
        return (z - np.mean(z)) / deviation, deviation

    weights = np.eye(size + 1, size)
    outputs = np.zeros((len(k), size))
    start = weights
    for t in range(len(k)):
        if t % chunk == 0:
            start = weights
        x = np.append(k[t], bias)
        normal, deviation = norm(x @ start)
        jacobian = (np.eye(size) - 1 / size - np.outer(normal, normal) / size) / deviation
        jacobian = np.diag(np.broadcast_to(gamma, size)) @ jacobian
        gradient = jacobian.T @ (gamma * normal + beta - (v[t] - k[t]))
        weights = weights - r[t] * np.outer(x, gradient)
        outputs[t] = q[t] + gamma * norm(np.append(q[t], bias) @ weights)[0] + beta
    return weights, outputs


def recursive_least_squares(
    keys: ArrayLike, values: ArrayLike, queries: ArrayLike, ridge: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """g = P k^T / (1 + k P k^T), W <- W + g (v - k W), P <- P - g k P, from P = I / ridge.

    Args:
      keys: [T, K].
      values: [T, V].
      queries: [T, K].
      ridge: over 0.

    Returns:
      (W [K, V], P [K, K], outputs [T, V]).
    """
    k, v, q = _float64(keys, values, queries)
    weights = np.zeros((k.shape[1], v.shape[1]))
    inverse = np.eye(k.shape[1]) / ridge
    outputs = np.zeros((len(k), v.shape[1]))
    for t in range(len(k)):
        side = inverse @ k[t]
        gain = side / (1 + k[t] @ side)
        weights = weights + np.outer(gain, v[t] - k[t] @ weights)
        inverse = inverse - np.outer(gain, side)
        outputs[t] = q[t] @ weights
    return weights, inverse, outputs


def ridge(
    keys: ArrayLike,
    values: ArrayLike,
    queries: ArrayLike,
    ridge: float,
    decay: ArrayLike = 1.0,
    rate: ArrayLike = 1.0,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """H <- a H + b k^T k, N <- a N + b k^T v, o = q (H + ridge I)^-1 N.

    Args:
      keys: [T, K].
      values: [T, V].
      queries: [T, K].
      ridge: over 0.
      decay: a, scalar or [T].
      rate: b, scalar or [T].

    Returns:
      (H [K, K], N [K, V], outputs [T, V]).
    """
    k, v, q = _float64(keys, values, queries)
    a, b = _rows(decay, len(k)), _rows(rate, len(k))
    key_key = np.zeros((k.shape[1], k.shape[1]))
    key_value = np.zeros((k.shape[1], v.shape[1]))
    outputs = np.zeros((len(k), v.shape[1]))
    for t in range(len(k)):
        key_key = a[t] * key_key + b[t] * np.outer(k[t], k[t])
        key_value = a[t] * key_value + b[t] * np.outer(k[t], v[t])
        weights = np.linalg.solve(key_key + ridge * np.eye(len(key_key)), key_value)
        outputs[t] = q[t] @ weights
    return key_key, key_value, outputs
