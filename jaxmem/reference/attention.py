"""Softmax attention and the merge of its parts, one query and one slot at a time."""

import math
from collections.abc import Sequence

import numpy as np


def attend(
    query: np.ndarray,
    keys: np.ndarray,
    values: np.ndarray,
    scale: float,
    bias: np.ndarray | None = None,
    mask: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Softmax attention by the sums that define it.

    o = sum_i e^{x_i} v_i / Z, Z = sum_i e^{x_i}, x_i = scale q . k_i + b_i

    Args:
      query: [..., K].
      keys: [P, K].
      values: [P, V].
      scale: inverse temperature.
      bias: [P] added to the logits.
      mask: [P] boolean, True where a slot counts.

    Returns:
      (output [..., V], log Z [...]): 0 and -inf where no slot counts.
    """
    query, keys, values = (np.asarray(part, np.float64) for part in (query, keys, values))
    rows = query.reshape(-1, query.shape[-1])
    outputs = np.zeros((len(rows), values.shape[1]))
    log_sums = np.full(len(rows), -np.inf)
    for r, row in enumerate(rows):
        logits = {}
        for i in range(len(keys)):
            if mask is None or mask[i]:
                dot = sum(float(a) * float(b) for a, b in zip(row, keys[i], strict=True))
                logits[i] = scale * dot + (0.0 if bias is None else float(bias[i]))
        if not logits:
            continue
        top = max(logits.values())
        total = math.fsum(math.exp(x - top) for x in logits.values())
        for i, x in logits.items():
            outputs[r] += math.exp(x - top) / total * values[i]
        log_sums[r] = top + math.log(total)
    lead = query.shape[:-1]
    return outputs.reshape(*lead, values.shape[1]), log_sums.reshape(lead)


def merge(reads: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """The read over all slots from reads of parts.

    Z = sum_j Z_j, o = sum_j (Z_j / Z) o_j

    Args:
      reads: (output [..., V], log Z [...]) of each part.

    Returns:
      (output [..., V], log Z [...]).
    """
    output = np.zeros_like(np.asarray(reads[0][0], np.float64))
    log_sum = np.full(output.shape[:-1], -np.inf)
    for index in np.ndindex(*output.shape[:-1]):
        parts = [(float(z[index]), o[index]) for o, z in reads if z[index] > -np.inf]
        if not parts:
            continue
        top = max(z for z, _ in parts)
        total = math.fsum(math.exp(z - top) for z, _ in parts)
        for z, o in parts:
            output[index] += math.exp(z - top) / total * o
        log_sum[index] = top + math.log(total)
    return output, log_sum
