"""The nearest vectors by brute force."""

import numpy as np


def nearest(matrix: np.ndarray, queries: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The rows with the largest inner products.

    Args:
      matrix: [N, D].
      queries: [Q, D].
      count: K.

    Returns:
      Scores [Q, K], largest first, and row numbers [Q, K]; of equal rows the first comes first.
    """
    scores = queries.astype(np.float64) @ matrix.astype(np.float64).T
    order = np.argsort(-scores, axis=1, kind="stable")[:, :count]
    return np.take_along_axis(scores, order, 1), order
