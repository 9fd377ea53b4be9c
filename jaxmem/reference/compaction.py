"""Smaller caches in plain numpy: eviction, Attention Matching, non-negative least squares."""

import numpy as np


def shares(queries: np.ndarray, keys: np.ndarray, scale: float) -> np.ndarray:
    """Attention of each question on each fact, one row at a time.

    A_qj = e^{x_qj} / sum_i e^{x_qi}, x_qj = scale q . k_j

    Args:
      queries: [Q, K].
      keys: [N, K].
      scale: inverse temperature.

    Returns:
      [Q, N], rows that sum to 1.
    """
    rows = []
    for query in np.asarray(queries, np.float64):
        logits = scale * (np.asarray(keys, np.float64) @ query)
        weights = np.exp(logits - logits.max())
        rows.append(weights / weights.sum())
    return np.array(rows)


def evict(attention: np.ndarray, slots: int) -> np.ndarray:
    """The facts with the largest sum of attention.

    Args:
      attention: [Q, N].
      slots: P, at most N.

    Returns:
      Indices [P], ascending.
    """
    order = sorted(range(attention.shape[1]), key=lambda j: -attention[:, j].sum())
    return np.array(sorted(order[:slots]))


def nonnegative_least_squares(
    matrix: np.ndarray, target: np.ndarray, ridge: float, prior: float = 0.0
) -> np.ndarray:
    """Non-negative least squares by an active set, one variable at a time (Lawson and Hanson).

    w = argmin_{w >= 0} |A w - b|^2 + r |w - p|^2, r = ridge |A|^2

    Args:
      matrix: A [Q, P].
      target: b [Q].
      ridge: at least 0.
      prior: p.

    Returns:
      w [P].

    Source: Lawson and Hanson 1974, Solving Least Squares Problems, chapter 23.
    """
    matrix = np.asarray(matrix, np.float64)
    size = matrix.shape[1]
    root = np.sqrt(ridge * np.sum(matrix**2))
    rows = np.concatenate([matrix, root * np.eye(size)])
    sides = np.concatenate([np.asarray(target, np.float64), np.full(size, root * prior)])
    slack = 1e-14 * np.abs(rows.T @ sides).max()
    weights, positive = np.zeros(size), np.zeros(size, bool)
    while True:
        gradient = rows.T @ (sides - rows @ weights)
        free = np.where(~positive & (gradient > slack), gradient, 0)
        if not free.any():
            return weights
        positive[np.argmax(free)] = True
        while True:
            found = np.zeros(size)
            found[positive] = np.linalg.lstsq(rows[:, positive], sides, rcond=None)[0]
            below = positive & (found <= 0)
            if not below.any():
                break
            step = np.min(weights[below] / (weights[below] - found[below]))
            weights = weights + step * (found - weights)
            positive &= weights > 1e-15
            weights = np.where(positive, weights, 0)
        weights = found


def pursuit(attention: np.ndarray, slots: int, ridge: float) -> np.ndarray:
    """Facts whose weighted attention comes nearest to 1, the best one at a time.

    Args:
      attention: [Q, N].
      slots: P, at most N.
      ridge: relative to the sum of squares of the whole of `attention`.

    Returns:
      Indices [P], ascending.
    """
    ones = np.ones(len(attention))
    strength = ridge * np.sum(attention**2)
    chosen: list[int] = []
    weights = np.zeros(0)
    for _ in range(slots):
        rest = ones - attention[:, chosen] @ weights
        best, gain = -1, -np.inf
        for j in range(attention.shape[1]):
            if j not in chosen:
                column = attention[:, j]
                new = column @ rest / np.sqrt(column @ column + strength)
                if new > gain:
                    best, gain = j, new
        chosen.append(best)
        kept = attention[:, chosen]
        weights = nonnegative_least_squares(kept, ones, strength / np.sum(kept**2))
    return np.array(sorted(chosen))


def attention_matching(
    keys: np.ndarray,
    values: np.ndarray,
    queries: np.ndarray,
    scale: float,
    slots: int,
    select: str = "attention",
    ridge: float = 1e-6,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Facts kept, their biases and their values, so that attention stays what it was.

    Args:
      keys: [N, K].
      values: [N, V].
      queries: [Q, K].
      scale: inverse temperature.
      slots: P, at most N.
      select: "attention" or "omp".
      ridge: relative to the sums of squares.

    Returns:
      Indices [P], bias [P], values [P, V].
    """
    attention = shares(queries, keys, scale)
    omp = select == "omp"
    chosen = pursuit(attention, slots, ridge) if omp else evict(attention, slots)
    kept = attention[:, chosen]
    weights = nonnegative_least_squares(kept, np.ones(len(kept)), ridge, 1.0)
    weights = np.maximum(weights, 1e-12)
    compact = kept * weights
    compact = compact / compact.sum(axis=1, keepdims=True)
    old = np.asarray(values, np.float64)[chosen]
    root = np.sqrt(ridge * np.sum(compact**2))
    rows = np.concatenate([compact, root * np.eye(slots)])
    sides = np.concatenate([attention @ values, root * old])
    return chosen, np.log(weights), np.linalg.lstsq(rows, sides, rcond=None)[0]
