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
import numpy as np
import optax
from jax import Array
from jax.typing import ArrayLike

from jaxmem.recall.attention import attend
from jaxmem.recall.cartridges.cartridge import SCALE, Cartridge, check_document, slot_entropy
from jaxmem.recall.facts import Document, paraphrase
from jaxmem.recall.mqar import accuracy

ADAM = optax.scale_by_adam()
OBJECTIVES = ("self_study", "recitation")
LOSSES = ("distill", "hard")
_BLOCK_QUESTIONS = 512  # made at once: enough for the matrix units, few enough for the caches


class Status(enum.IntEnum):
    """How a run ended.

    OK: the loss is finite and below where it started.
    WORSE: the loss ended above where it started: the learning rate was too high.
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


class _Lesson(NamedTuple):
    """Traced numbers of a run."""

    vocabulary: Array  # [M, V]
    noise: ArrayLike
    output_scale: ArrayLike
    key_norm: ArrayLike
    distractors: Cartridge | None
    distractor_weight: ArrayLike


def _answer(output: Array, vocabulary: Array, output_scale: ArrayLike) -> tuple[Array, Array]:
    """Mean of the answers that a read [Q, V] makes likely, and the log of their partition sum.

    E[u] = sum_j softmax(gamma o . u_j) u_j, log Z = log sum_j exp(gamma o . u_j)
    """
    logits = output_scale * (output @ vocabulary.T)  # [Q, M]
    top = jnp.max(logits, axis=-1, keepdims=True)
    weights = jnp.exp(logits - top)
    total = jnp.sum(weights, axis=-1, keepdims=True)
    return weights @ vocabulary / total, (top + jnp.log(total))[..., 0]


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
      ValueError: if shapes do not fit, the document has NaN, a size is not positive or there is
        no such objective or loss.
    """
    record_every = steps if record_every is None else record_every
    _check(cartridge, document, steps, batch, window, record_every, objective, loss)
    vocabulary = document.values if vocabulary is None else vocabulary
    if vocabulary.ndim != 2 or vocabulary.shape[1] != document.values.shape[1]:
        raise ValueError(
            f"expected a vocabulary [M, {document.values.shape[1]}], got {vocabulary.shape}"
        )
    return _train(
        key,
        cartridge,
        document,
        _each_step("learning rate", learning_rate, steps),
        None if focus is None else _each_step("focus", focus, steps),
        _Lesson(vocabulary, noise, output_scale, key_norm, distractors, distractor_weight),
        objective=objective,
        loss=loss,
        batch=batch,
        window=window,
        record_every=record_every,
        optimizer=optimizer,
    )


@partial(
    jax.jit, static_argnames=("objective", "loss", "batch", "window", "record_every", "optimizer")
)
def _train(
    key: Array,
    cartridge: Cartridge,
    document: Document,
    rates: Array,  # [steps]
    focuses: Array | None,  # [steps]
    lesson: _Lesson,
    *,
    objective: str,
    loss: str,
    batch: int,
    window: int | None,
    record_every: int,
    optimizer: optax.GradientTransformation,
) -> Trained:
    key_train, key_test = jax.random.split(key)
    trainable = jnp.arange(cartridge.slots) >= cartridge.frozen
    if cartridge.mask is not None:
        trainable &= cartridge.mask

    def ask(key: Array, numbers: Array) -> Array:
        """Questions about facts by number [Q]."""
        keys = document.keys[numbers]
        return paraphrase(key, keys, lesson.noise) if objective == "self_study" else keys

    def teach(questions: Array, numbers: Array) -> tuple[Array, Array]:
        """The mean answer that the teacher expects, [Q, V], and its entropy [Q]."""
        if loss == "hard":
            return document.values[numbers], jnp.zeros(len(numbers))
        output = teacher_read(questions, numbers)
        mean, log_z = _answer(output, *answers)
        return mean, log_z - lesson.output_scale * jnp.sum(mean * output, axis=-1)

    def teacher_read(questions: Array, numbers: Array) -> Array:
        seen = None
        if window is not None:
            chunk = jnp.arange(document.keys.shape[0]) // window
            seen = chunk == (numbers // window)[:, None]
        return attend(questions, document.keys, document.values, cartridge.scale, mask=seen).output

    def read(slots: _Slots, questions: Array, number: Array) -> Array:
        own = dataclasses.replace(cartridge, **slots._asdict())
        if lesson.distractors is None:
            return own.read(questions).output
        other = jax.tree.map(lambda x: x[number], lesson.distractors)
        return _beside(own, other, lesson.distractor_weight).read(questions).output

    def step(
        carry: tuple[_Slots, optax.OptState],
        lecture: tuple[Array, Array, Array, Array, Array, Array | None],
    ) -> tuple[tuple[_Slots, optax.OptState], None]:
        slots, state = carry
        questions, targets, entropies, other, rate, focus = lecture
        output, pull_back = jax.vjp(lambda s: read(s, questions, other), slots)
        mean, log_z = _answer(output, *answers)
        error = mean - targets  # [B, V]
        if focus is not None:
            kl = log_z - lesson.output_scale * jnp.sum(targets * output, axis=-1) - entropies
            error = error * jnp.exp(-focus * kl)[:, None]
        (gradient,) = pull_back(lesson.output_scale / batch * error)
        gradient = jax.tree.map(partial(_where_slot, trainable), gradient)
        direction, state = optimizer.update(gradient, state, slots)
        slots = jax.tree.map(lambda x, d: x - rate * d, slots, direction)
        return (_bounded(slots, trainable, lesson.key_norm), state), None

    def block(
        carry: tuple[_Slots, optax.OptState], inputs: tuple[Array, Any, Any]
    ) -> tuple[tuple[_Slots, optax.OptState], None]:
        keys, rates, focuses = inputs
        numbers, questions, others = jax.vmap(draw)(keys)  # [T, B], [T, B, K], [T]
        if objective == "recitation":
            means, entropies = (part[numbers] for part in known)
        else:
            flat = questions.reshape(-1, questions.shape[-1]), numbers.reshape(-1)
            means, entropies = (part.reshape(*numbers.shape, -1) for part in teach(*flat))
        lectures = (questions, means, entropies.reshape(numbers.shape), others, rates, focuses)
        return jax.lax.scan(step, carry, lectures)

    def draw(key: Array) -> tuple[Array, Array, Array]:
        """A step's questions, and which distractor is read along: the same in any block."""
        key_numbers, key_words, key_other = jax.random.split(key, 3)
        numbers = jax.random.randint(key_numbers, (batch,), 0, document.keys.shape[0])
        there = 1 if lesson.distractors is None else lesson.distractors.keys.shape[0]
        return numbers, ask(key_words, numbers), jax.random.randint(key_other, (), 0, there)

    def stretch(
        carry: tuple[_Slots, optax.OptState], inputs: tuple[Array, Any, Any]
    ) -> tuple[tuple[_Slots, optax.OptState], History]:
        carry, _ = jax.lax.scan(block, carry, inputs)
        return carry, look(carry[0])

    def look(slots: _Slots) -> History:
        now = dataclasses.replace(cartridge, **slots._asdict())
        verbatim, paraphrased = now.read(document.keys).output, now.read(other_words).output
        student = verbatim if objective == "recitation" else paraphrased
        norms = jnp.linalg.norm(slots.keys, axis=-1)
        counted = jnp.ones(len(norms)) if cartridge.mask is None else cartridge.mask
        return History(
            jnp.zeros((), int),
            _kl(teacher_output, student, lesson.vocabulary, lesson.output_scale),
            accuracy(verbatim, lesson.vocabulary, right),
            accuracy(paraphrased, lesson.vocabulary, right),
            jnp.sum(norms * counted) / jnp.sum(counted),
            jnp.mean(slot_entropy(now, other_words)),
        )

    answers = (lesson.vocabulary, lesson.output_scale)
    everything = jnp.arange(document.keys.shape[0])
    right = _nearest(document.values, lesson.vocabulary)
    other_words = paraphrase(key_test, document.keys, lesson.noise)
    tested = document.keys if objective == "recitation" else other_words
    teacher_output = teacher_read(tested, everything)
    known = teach(document.keys, everything)  # all that recitation will ever ask
    length = _block_steps(record_every, batch)
    keys = jax.random.split(key_train, len(rates))

    def by_block(numbers: Array | None) -> Any:
        return None if numbers is None else numbers.reshape(-1, record_every // length, length)

    slots = _Slots(cartridge.keys, cartridge.values, cartridge.bias)
    (end, _), seen = jax.lax.scan(
        stretch,
        (slots, optimizer.init(slots)),
        (by_block(keys), by_block(rates), by_block(focuses)),
    )
    history = jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), look(slots), seen)
    history = history._replace(step=record_every * jnp.arange(len(history.loss)))
    finite = jnp.stack([jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves(end)]).all()
    worse = ~(history.loss[-1] < history.loss[0])
    status = jnp.where(finite, jnp.where(worse, Status.WORSE, Status.OK), Status.NOT_FINITE)
    return Trained(dataclasses.replace(cartridge, **end._asdict()), history, status)


def _nearest(values: Array, vocabulary: Array) -> Array:
    """Number of the answer that is nearest to each value [N]."""
    products = values @ vocabulary.T - jnp.sum(vocabulary**2, axis=-1) / 2
    return jnp.argmax(products, axis=-1)


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
    norm = jnp.linalg.norm(slots.keys, axis=-1, keepdims=True)
    over = trainable[:, None] & (norm > key_norm)
    return slots._replace(keys=jnp.where(over, slots.keys * (key_norm / norm), slots.keys))


def _beside(own: Cartridge, other: Cartridge, weight: ArrayLike) -> Cartridge:
    """Both read together, the other's slots counting `weight` times and learning nothing."""
    other = jax.lax.stop_gradient(other)
    there = jnp.zeros(other.slots) if other.bias is None else other.bias
    ones = [jnp.ones(c.slots, bool) if c.mask is None else c.mask for c in (own, other)]
    return Cartridge(
        jnp.concatenate([own.keys, other.keys]),
        jnp.concatenate([own.values, other.values]),
        own.scale,
        jnp.concatenate(
            [jnp.zeros(own.slots) if own.bias is None else own.bias, there + jnp.log(weight)]
        ),
        jnp.concatenate(ones),
    )


def _kl(teacher: Array, student: Array, vocabulary: Array, output_scale: ArrayLike) -> Array:
    """Mean KL between the distributions over answers that two reads give, [Q, V] each."""
    wanted = jax.nn.log_softmax(output_scale * (teacher @ vocabulary.T), axis=-1)
    given = jax.nn.log_softmax(output_scale * (student @ vocabulary.T), axis=-1)
    return jnp.mean(jnp.sum(jnp.exp(wanted) * (wanted - given), axis=-1))


def _block_steps(steps: int, batch: int) -> int:
    """Steps whose questions are made together: the largest divisor of `steps` within bounds."""
    most = max(1, _BLOCK_QUESTIONS // batch)
    return max(length for length in range(1, most + 1) if steps % length == 0)


def _check(
    cartridge: Cartridge,
    document: Document,
    steps: int,
    batch: int,
    window: int | None,
    record_every: int,
    objective: str,
    loss: str,
) -> None:
    check_document(document)
    keys, values = cartridge.keys.shape, cartridge.values.shape
    dims = document.keys.shape[1], document.values.shape[1]
    if len(keys) != 2 or (keys[1], values[1]) != dims or keys[0] != values[0]:
        raise ValueError(
            f"expected slots with keys [P, {dims[0]}] and values [P, {dims[1]}] to fit the "
            f"document, got {keys} and {values}"
        )
    sizes = {"steps": steps, "batch": batch, "record_every": record_every}
    if window is not None:
        sizes["window"] = window
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{name} must be at least 1, got {size}")
    if steps % record_every:
        raise ValueError(f"record_every must divide steps, got {record_every} and {steps}")
    for name, known, got in (("objective", OBJECTIVES, objective), ("loss", LOSSES, loss)):
        if got not in known:
            raise ValueError(f"unknown {name} {got!r} (known: {', '.join(known)})")
    _check_numbers(cartridge)


def _check_numbers(cartridge: Cartridge) -> None:
    for name in ("keys", "values", "bias"):
        array = getattr(cartridge, name)
        known = array is not None and not isinstance(array, jax.core.Tracer)
        if known and not np.isfinite(np.asarray(array)).all():
            raise ValueError(f"expected finite {name} in the cartridge, got NaN or infinity")
