"""Training of a cartridge in plain numpy: float64, gradients by hand, Adam step by step."""

from typing import NamedTuple

import numpy as np

_FIRST, _SECOND, _TINY = 0.9, 0.999, 1e-8


class Slots(NamedTuple):
    """What is trained.

    keys: [P, K].
    values: [P, V].
    """

    keys: np.ndarray
    values: np.ndarray


def softmax(logits: np.ndarray) -> np.ndarray:
    """exp(x_i) / sum_j exp(x_j) along the last axis.

    Args:
      logits: [..., N].

    Returns:
      [..., N].
    """
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def distribution(
    slots: Slots, questions: np.ndarray, vocabulary: np.ndarray, scale: float, output_scale: float
) -> np.ndarray:
    """Distribution over answers of a reader of some slots.

    softmax(gamma softmax(beta q K^T) V U^T)

    Args:
      slots: P of them.
      questions: [Q, K].
      vocabulary: [M, V].
      scale: beta.
      output_scale: gamma.

    Returns:
      [Q, M].
    """
    weights = softmax(scale * questions @ slots.keys.T)
    return softmax(output_scale * weights @ slots.values @ vocabulary.T)


def loss(
    slots: Slots,
    questions: np.ndarray,
    targets: np.ndarray,
    vocabulary: np.ndarray,
    scale: float,
    output_scale: float,
    focus: float = 0.0,
) -> float:
    """Mean of (1 - e^{-q KL}) / q over questions; of KL itself for q = 0.

    Args:
      slots: the student's.
      questions: [Q, K].
      targets: [Q, M] the teacher's distribution.
      vocabulary: [M, V].
      scale: beta.
      output_scale: gamma.
      focus: q.

    Returns:
      Nats a question.
    """
    given = distribution(slots, questions, vocabulary, scale, output_scale)
    parts = np.where(targets > 0, targets * np.log(np.where(targets > 0, targets, 1) / given), 0)
    divergence = parts.sum(axis=-1)
    bounded = -np.expm1(-focus * divergence) / focus if focus else divergence
    return float(bounded.mean())


def gradient(
    slots: Slots,
    questions: np.ndarray,
    targets: np.ndarray,
    vocabulary: np.ndarray,
    scale: float,
    output_scale: float,
    focus: float = 0.0,
) -> Slots:
    """Gradient of `loss` by the slots, written out.

    Args:
      slots: the student's.
      questions: [Q, K].
      targets: [Q, M] the teacher's distribution.
      vocabulary: [M, V].
      scale: beta.
      output_scale: gamma.
      focus: q.

    Returns:
      The gradient, in the shape of the slots.
    """
    weights = softmax(scale * questions @ slots.keys.T)  # [Q, P]
    given = softmax(output_scale * weights @ slots.values @ vocabulary.T)  # [Q, M]
    parts = np.where(targets > 0, targets * np.log(np.where(targets > 0, targets, 1) / given), 0)
    importance = np.exp(-focus * parts.sum(axis=-1, keepdims=True)) / len(questions)
    by_output = importance * output_scale * (given - targets) @ vocabulary  # [Q, V]
    by_weight = by_output @ slots.values.T
    by_logit = weights * (by_weight - (weights * by_weight).sum(axis=-1, keepdims=True))
    return Slots(scale * by_logit.T @ questions, weights.T @ by_output)


def train(
    slots: Slots,
    questions: np.ndarray,
    targets: np.ndarray,
    vocabulary: np.ndarray,
    learning_rates: np.ndarray,
    scale: float = 20.0,
    output_scale: float = 20.0,
    key_norm: float = np.inf,
    focus: np.ndarray | None = None,
    frozen: int = 0,
) -> Slots:
    """Adam over given questions, a batch a step.

    Args:
      slots: where to start.
      questions: [T, B, K].
      targets: [T, B, M] the teacher's distributions.
      vocabulary: [M, V].
      learning_rates: [T].
      scale: beta.
      output_scale: gamma.
      key_norm: keys longer than this are scaled back to it after each step.
      focus: [T] q of the loss, or None for 0.
      frozen: leading slots that stay.

    Returns:
      The slots after T steps.
    """
    now = Slots(*(np.array(part, np.float64) for part in slots))
    first = Slots(*(np.zeros_like(part) for part in now))
    second = Slots(*(np.zeros_like(part) for part in now))
    for t, (asked, wanted, rate) in enumerate(zip(questions, targets, learning_rates)):
        q = 0.0 if focus is None else float(focus[t])
        found = gradient(now, asked, wanted, vocabulary, scale, output_scale, q)
        for x, g, m, v in zip(now, found, first, second):
            g[:frozen] = 0
            m[:] = _FIRST * m + (1 - _FIRST) * g
            v[:] = _SECOND * v + (1 - _SECOND) * g**2
            step = m / (1 - _FIRST ** (t + 1))
            x -= rate * step / (np.sqrt(v / (1 - _SECOND ** (t + 1))) + _TINY)
        for key in now.keys[frozen:]:
            length = np.linalg.norm(key)
            if length > key_norm:
                key *= key_norm / length
    return now
