"""The composition experiment of demo 04: cartridges trained apart and read side by side."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from jaxmem.demos.cartridge_runs import DIM, FACTS, NOISE, Metrics, Recipe, Setting
from jaxmem.recall import Document, accuracy, facts, paraphrase
from jaxmem.recall.cartridges import Cartridge, attention_shares, compose, init_cartridge
from jaxmem.sweep import Sweep, sweep

STRANGERS = 4  # other documents whose slots a cartridge meets in its second training


class Library(NamedTuple):
    """Documents that share one vocabulary.

    documents: [J] documents of FACTS facts; number 2 i and 2 i + 1 split the vocabulary.
    questions: [J, FACTS, K] random questions about each, in other words.
    vocabulary: [2 FACTS, V] the answers of all.
    answers: [J, FACTS] the right answer to each question, its number in the vocabulary.
    """

    documents: Document
    questions: Array
    vocabulary: Array
    answers: Array


def library(key: Array, documents: int) -> Library:
    """Documents whose answers come from one vocabulary of 1,024 values.

    Args:
      key: PRNG key.
      documents: an even number.

    Returns:
      The documents, their questions and the vocabulary.
    """
    key_facts, key_order, key_asked, key_questions = jax.random.split(key, 4)
    vocabulary = facts(key_facts, 2 * FACTS, DIM).values

    def pair(key_keys: Array, key_order: Array) -> tuple[Array, Array]:
        keys = facts(key_keys, 2 * FACTS, DIM).keys
        return keys, jax.random.permutation(key_order, 2 * FACTS)

    keys, answers = jax.vmap(pair)(
        jax.random.split(key_facts, documents // 2), jax.random.split(key_order, documents // 2)
    )
    keys, answers = keys.reshape(documents, FACTS, DIM), answers.reshape(documents, FACTS)
    asked = jax.random.randint(key_asked, (documents, FACTS), 0, FACTS)
    of_asked = jax.vmap(lambda rows, numbers: rows[numbers])
    return Library(
        Document(keys, vocabulary[answers]),
        paraphrase(key_questions, of_asked(keys, asked), NOISE),
        vocabulary,
        of_asked(answers, asked),
    )


def _pick(tree: Any, number: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf[number], tree)


def _apart(recipe: Recipe, key: Array, shelf: Library, slots: int, steps: int) -> Cartridge:
    """A cartridge for each document, trained without a look at another [J]."""

    def one(document: Document) -> Cartridge:
        start = init_cartridge(key, document, slots)
        trained = recipe.train(
            key, start, document, steps, vocabulary=shelf.vocabulary, record_every=None
        )
        return trained.cartridge

    return jax.vmap(one)(shelf.documents)


def _mixed(
    recipe: Recipe, key: Array, shelf: Library, cartridges: Cartridge, steps: int, weight: float
) -> Cartridge:
    """The first two, trained on beside the others' slots; neither meets the other."""
    others = _pick(cartridges, slice(2, None))

    def one(start: Cartridge, document: Document) -> Cartridge:
        return recipe.train(
            key,
            start,
            document,
            steps,
            vocabulary=shelf.vocabulary,
            distractors=others,
            distractor_weight=weight,
            record_every=None,
        ).cartridge

    return jax.vmap(one)(_pick(cartridges, slice(0, 2)), _pick(shelf.documents, slice(0, 2)))


def _together(shelf: Library, a: Cartridge, b: Cartridge) -> Metrics:
    """Both read side by side, asked about both; the attention each loses to the other."""
    both = compose(a, b)

    def right(cartridge: Cartridge, number: int) -> Array:
        output = cartridge.read(shelf.questions[number]).output
        return accuracy(output, shelf.vocabulary, shelf.answers[number])

    shares = jnp.stack(
        [
            attention_shares([a, b], shelf.questions[0])[0],
            attention_shares([b, a], shelf.questions[1])[0],
        ]
    )
    return {
        "composed": (right(both, 0) + right(both, 1)) / 2,
        "only_a": (right(a, 0) + right(a, 1)) / 2,
        "leak": 1 - jnp.mean(shares),
        "own_share_curve": jnp.sort(shares.reshape(-1)),
    }


def _joint(recipe: Recipe, key: Array, shelf: Library, slots: int, steps: int) -> Metrics:
    """One cartridge of twice the slots, trained on both documents; and truncation to as many."""
    document = jax.tree.map(lambda leaf: leaf[:2].reshape(-1, leaf.shape[-1]), shelf.documents)
    questions, answers = shelf.questions[:2].reshape(-1, DIM), shelf.answers[:2].reshape(-1)
    start = init_cartridge(key, document, 2 * slots)
    trained = recipe.train(
        key, start, document, steps, vocabulary=shelf.vocabulary, record_every=None
    )
    return {
        name: accuracy(cartridge.read(questions).output, shelf.vocabulary, answers)
        for name, cartridge in (("joint", trained.cartridge), ("icl", start))
    }


class Course(NamedTuple):
    """How cartridges that will be composed are trained.

    recipe: for each of them, and for the joint one.
    steps: of the cartridges trained apart.
    joint_steps: of the one trained on both documents.
    mixed_steps: of a second training beside the slots of other documents, 0 for none.
    weight: of those slots.
    """

    recipe: Recipe
    steps: int
    joint_steps: int
    mixed_steps: int = 0
    weight: float = 1.0


def _composition_run(key: Array, setting: Setting, *, course: Course, slots: int) -> Metrics:
    recipe = course.recipe
    key_shelf, key_train = jax.random.split(key)
    shelf = library(key_shelf, 2 + STRANGERS if course.mixed_steps else 2)
    apart = _apart(recipe, key_train, shelf, slots, course.steps)
    found = {**_together(shelf, _pick(apart, 0), _pick(apart, 1))}
    found |= _joint(recipe, key_train, shelf, slots, course.joint_steps)
    if course.mixed_steps:
        mixed = _mixed(recipe, key_train, shelf, apart, course.mixed_steps, course.weight)
        also = _together(shelf, _pick(mixed, 0), _pick(mixed, 1))
        found |= {f"mixed_{name}": value for name, value in also.items()}
    return found


def composition(course: Course, seeds: int, slots: int) -> Sweep:
    """Cartridges of documents A and B read side by side, against one trained on both.

    Args:
      course: how to train.
      seeds: pairs of documents.
      slots: of each cartridge.

    Returns:
      Records with composed, only_a, leak, joint and icl, and mixed_composed and so on after a
      second training; A and B never meet each other's slots.
    """
    run = partial(_composition_run, course=course, slots=slots)
    # Few at a time: each seed trains several documents at once.
    return sweep(run, seeds, [{}], batch=2, label=f"composition, {course.recipe.name}")
