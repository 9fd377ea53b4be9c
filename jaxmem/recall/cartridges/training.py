"""Training a cartridge: questions, a teacher that reads the document, gradient descent.

The student reads the cartridge, o = attend(q, Z), and gives the answer j with probability
softmax(gamma o . u_j). The teacher does the same with the document (or a window of it), or knows
the answer. Of cross-entropy and KL alike the gradient by the student's output is

  dL/do = gamma (E_student[u] - E_teacher[u]),

so all that training needs of the teacher is one vector a question, the mean of the answers it
expects: a block of steps has them from a few large matrix products before its first step.
"""

import dataclasses
import enum
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array
from jax.typing import ArrayLike

from jaxmem.recall.cartridges.border import (
    check_distractors,
    check_numbers,
    check_training,
    check_vocabulary,
)
from jaxmem.recall.cartridges.cartridge import SCALE, Cartridge, compose, slot_entropy
from jaxmem.recall.cartridges.teacher import (
    Lesson,
    Teacher,
    divergence,
    expected_answer,
    nearest_answer,
)
from jaxmem.recall.facts import Document, paraphrase
from jaxmem.recall.mqar import accuracy

ADAM = optax.scale_by_adam()
_BLOCK_QUESTIONS = 512  # made at once: enough for the matrix units, few enough for the caches


class Status(enum.IntEnum):
    """How a run ended.

    OK: the loss is finite and not above where it started.
    WORSE: the loss ended above where it started, as it does when the learning rate is too high.
    NOT_FINITE: a slot is infinite or NaN.
    """

    OK = 0
    WORSE = 1
    NOT_FINITE = 2


class History(NamedTuple):
    """A run seen at R + 1 moments, the start included.

    step: [R + 1] steps done.
    loss: [R + 1] KL from teacher to student, nats a question, on questions held out.
    verbatim: [R + 1] share of facts recalled when asked with their own keys.
    paraphrased: [R + 1] share recalled when asked in other words.
    key_norm: [R + 1] mean length of the slots' keys.
    entropy: [R + 1] mean entropy of the attention over slots, nats.
    """

    step: Array
    loss: Array
    verbatim: Array
    paraphrased: Array
    key_norm: Array
    entropy: Array


class Trained(NamedTuple):
    """What training gives.

    cartridge: the trained one.
    history: how it went.
    status: a `Status`, as an integer array of shape [].
    """

    cartridge: Cartridge
    history: History
    status: Array


class _Slots(NamedTuple):
    """The part of a cartridge that is trained."""

    keys: Array
    values: Array
    bias: Array | None


_Carry = tuple[_Slots, optax.OptState]


class _Student(NamedTuple):
    """What its training takes beside the teacher."""

    key_norm: ArrayLike
    distractors: Cartridge | None
    distractor_weight: ArrayLike


def train_cartridge(
    key: Array,
    cartridge: Cartridge,
    document: Document,
    *,
    steps: int,
    learning_rate: ArrayLike | Callable[[Array], Array] = 0.002,
    objective: str = "self_study",
    loss: str = "distill",
    batch: int = 64,
    window: int | None = None,
    noise: ArrayLike = 0.3,
    output_scale: ArrayLike = SCALE,
    key_norm: ArrayLike = jnp.inf,
    focus: ArrayLike | Callable[[Array], Array] | None = None,
    vocabulary: Array | None = None,
    distractors: Cartridge | None = None,
    distractor_weight: ArrayLike = 1.0,
    record_every: int | None = None,
    optimizer: optax.GradientTransformation = ADAM,
) -> Trained:
    """Train a cartridge to answer as a reader of the whole document would.

    Z <- argmin_Z  E_q KL( F(. | document, q) || F_Z(. | q) )

    One compiled program: it may be vmapped over keys, documents, cartridges and every number.
    Vmapped over cartridges alone, the questions and the teacher's answers are computed once.

    Args:
      key: PRNG key.
      cartridge: where to start; P slots without leading axes. Masked and frozen slots stay.
      document: N facts.
      steps: of the optimizer.
      learning_rate: a number, one a step [steps], or an optax schedule.
      objective: "self_study" asks in other words, "recitation" with the document's own keys.
      loss: "distill" (the teacher's whole distribution) or "hard" (the right answer alone).
      batch: questions a step.
      window: facts that the teacher sees at once: the chunk of the document, of this size, that
        holds the answer; None for the whole document.
      noise: of the paraphrases.
      output_scale: gamma, inverse temperature of the distribution over answers.
      key_norm: after each step keys longer than this are scaled back to it, which keeps the
        softmax over slots from saturating; infinity for no bound.
      focus: q of the loss (1 - e^{-q KL}) / q, given as the learning rate is: questions that are
        answered badly count less, so that a memory too small for all facts keeps some of them
        whole. None for plain KL (q = 0).
      vocabulary: [M, V] the possible answers; the document's values if not given.
      distractors: cartridges of other documents, leaves with a leading axis [J]; in each step one
        of them is read along with the cartridge and learns nothing.
      distractor_weight: how much a distractor's slots count (1 is as much as one's own).
      record_every: steps between entries of the history; it divides `steps`. None for the end.
      optimizer: direction of the step, without learning rate.

    Returns:
      The trained cartridge, its history and whether it diverged.

    Raises:
      ValueError: if shapes or scales do not fit, a number is NaN or negative, a value is not in the
        vocabulary, a size is no positive whole number, or there is no such objective or loss.
    """
    record_every = steps if record_every is None else record_every
    check_training(cartridge, document, steps, batch, window, record_every, objective, loss)
    check_numbers(
        learning_rate=learning_rate,
        noise=noise,
        output_scale=output_scale,
        key_norm=key_norm,
        focus=0.0 if focus is None else focus,
        distractor_weight=distractor_weight,
    )
    if distractors is not None:
        check_distractors(distractors, cartridge)
        distractors = dataclasses.replace(distractors, positions=None, first_question=None)
    vocabulary = document.values if vocabulary is None else jnp.asarray(vocabulary)
    check_vocabulary(vocabulary, document)
    return _train(
        key,
        cartridge,
        (document, vocabulary, output_scale, noise),
        _Student(key_norm, distractors, distractor_weight),
        _each_step("learning rate", learning_rate, steps),
        None if focus is None else _each_step("focus", focus, steps),
        teaching=(objective, loss, window),
        batch=batch,
        record_every=record_every,
        optimizer=optimizer,
    )


@partial(jax.jit, static_argnames=("teaching", "batch", "record_every", "optimizer"))
def _train(
    key: Array,
    cartridge: Cartridge,
    material: tuple[Document, Array, ArrayLike, ArrayLike],
    student: _Student,
    rates: Array,  # [steps]
    focuses: Array | None,  # [steps]
    *,
    teaching: tuple[str, str, int | None],
    batch: int,
    record_every: int,
    optimizer: optax.GradientTransformation,
) -> Trained:
    key_train, key_test = jax.random.split(key)
    document, vocabulary, output_scale, noise = material
    teacher = Teacher(document, vocabulary, cartridge.scale, output_scale, noise, *teaching)
    everything = jnp.arange(document.keys.shape[0])
    known = teacher.teach(document.keys, everything)  # all that recitation will ever ask
    trainable = jnp.arange(cartridge.slots) >= cartridge.frozen
    if cartridge.mask is not None:
        trainable &= cartridge.mask

    def prepare(key: Array) -> tuple[Array, Array, Array]:
        """A step's questions, and which distractor is read along: the same in any block."""
        key_numbers, key_words, key_other = jax.random.split(key, 3)
        there = 1 if student.distractors is None else student.distractors.keys.shape[0]
        numbers, questions = teacher.ask(key_numbers, key_words, batch)
        return numbers, questions, jax.random.randint(key_other, (), 0, there)

    def read(slots: _Slots, questions: Array, other: Array) -> Array:
        own = dataclasses.replace(cartridge, positions=None, **slots._asdict())
        if student.distractors is None:
            return own.read(questions).output
        beside = jax.tree.map(lambda x: x[other], student.distractors)
        return _beside(own, beside, student.distractor_weight).read(questions).output

    def step(carry: _Carry, inputs: tuple[Lesson, Array, Array, Any]) -> tuple[_Carry, None]:
        slots, state = carry
        lesson, other, rate, focus = inputs
        output, pull_back = jax.vjp(lambda s: read(s, lesson.questions, other), slots)
        mean, log_z = expected_answer(output, vocabulary, output_scale)
        error = mean - lesson.answers  # [B, V]
        if focus is not None:
            agreed = output_scale * jnp.sum(lesson.answers * output, axis=-1)
            kl = log_z - agreed - lesson.entropies
            error = error * jnp.exp(-focus * kl)[:, None]
        (gradient,) = pull_back(output_scale / batch * error)
        gradient = jax.tree.map(partial(_where_slot, trainable), gradient)
        direction, state = optimizer.update(gradient, state, slots)
        direction = jax.tree.map(partial(_where_slot, trainable), direction)  # weight decay too
        slots = jax.tree.map(lambda x, d: (x - rate * d).astype(x.dtype), slots, direction)
        return (_bounded(slots, trainable, student.key_norm), state), None

    def block(carry: _Carry, inputs: tuple[Array, Any, Any]) -> tuple[_Carry, None]:
        keys, rates, focuses = inputs
        numbers, questions, others = jax.vmap(prepare)(keys)  # [T, B], [T, B, K], [T]
        if teacher.objective == "recitation":
            lessons = jax.tree.map(lambda x: x[numbers], known)
        else:
            flat = teacher.teach(questions.reshape(-1, questions.shape[-1]), numbers.reshape(-1))
            lessons = jax.tree.map(lambda x: x.reshape(*numbers.shape, *x.shape[1:]), flat)
        return jax.lax.scan(step, carry, (lessons, others, rates, focuses))

    def stretch(carry: _Carry, inputs: tuple[Array, Any, Any]) -> tuple[_Carry, History]:
        carry, _ = jax.lax.scan(block, carry, inputs)
        return carry, look(carry[0])

    def look(slots: _Slots) -> History:
        now = dataclasses.replace(cartridge, **slots._asdict())
        return _look(now, teacher, paraphrase(key_test, document.keys, noise))

    length = _block_steps(record_every, batch)

    def by_block(numbers: Array | None) -> Any:
        return None if numbers is None else numbers.reshape(-1, record_every // length, length)

    slots = _Slots(cartridge.keys, cartridge.values, cartridge.bias)
    steps = (jax.random.split(key_train, len(rates)), rates, focuses)
    (end, _), seen = jax.lax.scan(
        stretch, (slots, optimizer.init(slots)), tuple(by_block(part) for part in steps)
    )
    history = jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), look(slots), seen)
    history = history._replace(step=record_every * jnp.arange(len(history.loss)))
    return Trained(dataclasses.replace(cartridge, **end._asdict()), history, _status(end, history))


def _look(cartridge: Cartridge, teacher: Teacher, other_words: Array) -> History:
    """An entry of the history, its step left at 0."""
    keys, values = teacher.document
    answers = nearest_answer(values, teacher.vocabulary)
    verbatim, paraphrased = cartridge.read(keys).output, cartridge.read(other_words).output
    recited = teacher.objective == "recitation"
    wanted = teacher.read(keys if recited else other_words, jnp.arange(len(keys)))
    student = verbatim if recited else paraphrased
    norms = jnp.linalg.norm(cartridge.keys, axis=-1)
    counted = jnp.ones(len(norms)) if cartridge.mask is None else cartridge.mask
    return History(
        jnp.zeros((), int),
        divergence(wanted, student, teacher.vocabulary, teacher.output_scale),
        accuracy(verbatim, teacher.vocabulary, answers),
        accuracy(paraphrased, teacher.vocabulary, answers),
        jnp.sum(norms * counted) / jnp.sum(counted),
        jnp.mean(slot_entropy(cartridge, other_words)),
    )


def _status(end: _Slots, history: History) -> Array:
    finite = jnp.stack([jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves(end)]).all()
    start, last = history.loss[0], history.loss[-1]
    worse = ~(last <= start + 1e-6 * (1 + jnp.abs(start)))
    return jnp.where(finite, jnp.where(worse, Status.WORSE, Status.OK), Status.NOT_FINITE)


def _each_step(what: str, number: ArrayLike | Callable[[Array], Array], steps: int) -> Array:
    """A number, a schedule or a number a step, as a number a step [steps]."""
    numbers = (
        jax.vmap(number)(jnp.arange(steps)) if callable(number) else jnp.asarray(number, float)
    )
    if numbers.shape not in ((), (steps,)):
        raise ValueError(f"expected one {what} or {steps} of them, got {numbers.shape}")
    return jnp.broadcast_to(numbers, (steps,))


def _where_slot(slot: Array, array: Array) -> Array:
    """`array` where `slot` [P] holds, exactly 0 elsewhere."""
    return jnp.where(slot.reshape(slot.shape + (1,) * (array.ndim - 1)), array, 0)


def _bounded(slots: _Slots, trainable: Array, key_norm: ArrayLike) -> _Slots:
    """Keys of slots in training scaled back to at most `key_norm`."""
    square = jnp.sum(slots.keys**2, axis=-1, keepdims=True)
    norm = jnp.sqrt(jnp.where(square > 0, square, 1))
    over = trainable[:, None] & (norm > key_norm)
    # The length itself where nothing is over: an infinite bound must not meet a gradient.
    shrink = jnp.where(over, key_norm, norm) / norm
    return slots._replace(keys=(slots.keys * shrink).astype(slots.keys.dtype))


def _beside(own: Cartridge, other: Cartridge, weight: ArrayLike) -> Cartridge:
    """Both read together, the other's slots counting `weight` times and learning nothing."""
    other = jax.lax.stop_gradient(other)
    bias = jnp.zeros(other.slots) if other.bias is None else other.bias
    other = dataclasses.replace(other, bias=bias + jnp.log(weight))
    return compose(own, other, drop_sinks=False)


def _block_steps(steps: int, batch: int) -> int:
    """Steps whose questions are made together: the largest divisor of `steps` within bounds."""
    most = max(1, _BLOCK_QUESTIONS // batch)
    return max(length for length in range(1, most + 1) if steps % length == 0)
