"""The teacher: asks questions about a document and says what a reader of it would answer."""

from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jaxmem.recall.attention import attend
from jaxmem.recall.facts import Document, paraphrase

T = TypeVar("T", Array, np.ndarray)

OBJECTIVES = ("self_study", "recitation")
LOSSES = ("distill", "hard")


class Lesson(NamedTuple):
    """What a student needs of the teacher about some questions.

    questions: [..., K].
    answers: [..., V] mean of the answers that the teacher expects.
    entropies: [...] entropy of its distribution over answers, nats.
    """

    questions: Array
    answers: Array
    entropies: Array


class Teacher(NamedTuple):
    """A reader of a document, or of the window of it that holds the answer.

    document: N facts.
    vocabulary: [M, V] all possible answers.
    scale: inverse temperature of its attention.
    output_scale: gamma, of the distribution over answers.
    noise: of the paraphrases it asks.
    objective: "self_study" (asks in other words) or "recitation" (with the document's keys).
    loss: "distill" (teaches its whole distribution) or "hard" (the right answer alone).
    window: facts that it sees at once, or None for all.
    """

    document: Document
    vocabulary: Array
    scale: ArrayLike
    output_scale: ArrayLike
    noise: ArrayLike
    objective: str
    loss: str
    window: int | None

    def ask(self, key_numbers: Array, key_words: Array, batch: int) -> tuple[Array, Array]:
        """Questions about facts drawn at random.

        Args:
          key_numbers: PRNG key of which facts.
          key_words: PRNG key of how they are asked.
          batch: how many.

        Returns:
          Numbers of the facts [batch] and the questions [batch, K].
        """
        numbers = jax.random.randint(key_numbers, (batch,), 0, self.document.keys.shape[0])
        keys = self.document.keys[numbers]
        if self.objective == "recitation":
            return numbers, keys
        return numbers, paraphrase(key_words, keys, self.noise)

    def read(self, questions: Array, numbers: Array) -> Array:
        """Output [Q, V] of its attention for questions [Q, K] about facts by number [Q]."""
        keys, values = self.document
        seen = None
        if self.window is not None:
            seen = jnp.arange(len(keys)) // self.window == (numbers // self.window)[:, None]
        return attend(questions, keys, values, self.scale, mask=seen).output

    def teach(self, questions: Array, numbers: Array) -> Lesson:
        """The lesson of questions [Q, K] about facts by number [Q].

        E[u] = sum_j p_j u_j, H = log Z - gamma E[u] . o
        """
        if self.loss == "hard":
            return Lesson(questions, self.document.values[numbers], jnp.zeros(len(numbers)))
        output = self.read(questions, numbers)
        mean, log_z = expected_answer(output, self.vocabulary, self.output_scale)
        entropy = log_z - self.output_scale * jnp.sum(mean * output, axis=-1)
        return Lesson(questions, mean, entropy)


def expected_answer(
    output: Array, vocabulary: Array, output_scale: ArrayLike
) -> tuple[Array, Array]:
    """Mean of the answers that a read makes likely, and the log of their partition sum.

    E[u] = sum_j softmax(gamma o . u_j) u_j, log Z = log sum_j exp(gamma o . u_j)

    Args:
      output: [Q, V] what was read.
      vocabulary: [M, V] all possible answers.
      output_scale: gamma.

    Returns:
      [Q, V] and [Q].
    """
    logits = output_scale * (output @ vocabulary.T)  # [Q, M]
    top = jnp.max(logits, axis=-1, keepdims=True)
    weights = jnp.exp(logits - top)
    total = jnp.sum(weights, axis=-1, keepdims=True)
    return weights @ vocabulary / total, (top + jnp.log(total))[..., 0]


def divergence(teacher: Array, student: Array, vocabulary: Array, output_scale: ArrayLike) -> Array:
    """Mean KL between the distributions over answers that two reads give.

    Args:
      teacher, student: [Q, V] what they read.
      vocabulary: [M, V] all possible answers.
      output_scale: gamma.

    Returns:
      Nats a question, scalar.
    """
    wanted = jax.nn.log_softmax(output_scale * (teacher @ vocabulary.T), axis=-1)
    given = jax.nn.log_softmax(output_scale * (student @ vocabulary.T), axis=-1)
    return jnp.mean(jnp.sum(jnp.exp(wanted) * (wanted - given), axis=-1))


def nearest_answer(values: T, vocabulary: T) -> T:
    """Number of the answer that is nearest to each value.

    Args:
      values: [N, V].
      vocabulary: [M, V].

    Returns:
      [N] integers.
    """
    # By methods, so that numpy arrays stay numpy's, also inside a jit.
    return (values @ vocabulary.T - (vocabulary**2).sum(axis=-1) / 2).argmax(axis=-1)
