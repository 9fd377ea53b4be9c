"""The experiments of demo 04, each a sweep over seeds and settings."""

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array

from jaxmem.recall import Document, accuracy, attend, facts, paraphrase
from jaxmem.recall.cartridges import (
    SCALE,
    STARTS,
    Cartridge,
    attention_matching,
    attention_shares,
    compose,
    evict,
    init_cartridge,
    slot_entropy,
    train_cartridge,
    whole,
)
from jaxmem.recall.memories import (
    cross_entropy_map,
    decay,
    delta_rule,
    gated_delta_rule,
    least_squares,
    longhorn,
    outer_product,
    recursive_least_squares,
    ridge,
    titans,
    ttt,
)
from jaxmem.sweep import Sweep, grid, sweep

FACTS, DIM, NOISE = 512, 64, 0.3
LONG_FACTS, LONG_SLOTS = 2_048, 256
SLOTS = (16, 32, 64, 128, 256)
RECORD = 250
MAP_STEPS = 300
STRANGERS = 4  # other documents whose slots a cartridge meets in its second training

# Rates are those that suit 512 facts said once; the delta rule's own default is beside its best.
MATRICES = {
    "outer_product()": outer_product(),
    "decay(0.999)": decay(0.999),
    "delta_rule(1)": delta_rule(1.0),
    "delta_rule(0.1)": delta_rule(0.1),
    "gated_delta_rule(0.999, 0.1)": gated_delta_rule(0.999, 0.1),
    "longhorn(0.1)": longhorn(0.1),
    "titans(0.05, 0.5)": titans(0.05, 0.5),
    "ttt(0.1)": ttt(0.1),
    "recursive_least_squares(0.1)": recursive_least_squares(0.1),
    "ridge(0.1)": ridge(0.1),
}

Metrics = dict[str, Array]
Setting = dict[str, Any]


class Recipe(NamedTuple):
    """How a cartridge is trained; the same numbers for every figure of the demo.

    name: what tables call it.
    learning_rate: of Adam, in the first step.
    cosine: whether it falls to 0 along a cosine, or stays.
    batch: questions a step.
    key_norm: longest key a slot may have.
    focus: q of the loss (1 - e^{-q KL}) / q at the end, rising from 0; None for plain KL.
    noise: of the paraphrases it trains on (tests have NOISE).
    """

    name: str
    learning_rate: float
    cosine: bool
    batch: int
    key_norm: float
    focus: float | None = None
    noise: float = NOISE

    def train(
        self, key: Array, cartridge: Cartridge, document: Document, steps: int, **options: Any
    ) -> Any:
        """`train_cartridge` under this recipe.

        Args:
          key: PRNG key.
          cartridge: where to start.
          document: N facts.
          steps: of the optimizer.
          options: passed on.

        Returns:
          A `Trained`.
        """
        rate = self.learning_rate
        return train_cartridge(
            key,
            cartridge,
            document,
            steps=steps,
            learning_rate=optax.cosine_decay_schedule(rate, steps) if self.cosine else rate,
            batch=self.batch,
            key_norm=self.key_norm,
            focus=None if self.focus is None else jnp.linspace(0, self.focus, steps),
            noise=self.noise,
            **{"record_every": RECORD, **options},
        )


LECTURE = Recipe("lecture", 0.002, False, 64, float("inf"))
OURS = Recipe("ours", 0.08, True, 128, 0.6, 0.3)
OURS_COMPOSED = Recipe("ours, to be composed", 0.02, True, 128, 1.0, noise=0.4)


class Seed(NamedTuple):
    """What all experiments of a seed share.

    document: its facts.
    asked: [N] numbers of facts, drawn at random as a user would ask.
    questions: [N, K] those facts in other words; never used in training.
    key_start, key_train: for what is random in the cartridge and its training.
    """

    document: Document
    asked: Array
    questions: Array
    key_start: Array
    key_train: Array


def of_seed(key: Array, n: int = FACTS, unit_values: bool = True) -> Seed:
    """The document of a seed, and what is asked about it.

    Args:
      key: PRNG key.
      n: facts.
      unit_values: whether values have length 1.

    Returns:
      The document with its questions and keys.
    """
    key_document, key_asked, key_questions, key_start, key_train = jax.random.split(key, 5)
    document = facts(key_document, n, DIM, unit_values=unit_values)
    asked = jax.random.randint(key_asked, (n,), 0, n)
    questions = paraphrase(key_questions, document.keys[asked], NOISE)
    return Seed(document, asked, questions, key_start, key_train)


def recall(read: Callable[[Array], Array], seed: Seed) -> Metrics:
    """Share of right answers, to every fact's own key and to random questions in other words.

    Args:
      read: from questions [Q, K] to outputs [Q, V].
      seed: whose document is asked about.

    Returns:
      verbatim and paraphrased, scalars.
    """
    keys, values = seed.document
    return {
        "verbatim": accuracy(read(keys), values, jnp.arange(len(keys))),
        "paraphrased": accuracy(read(seed.questions), values, seed.asked),
    }


def _output(cartridge: Cartridge) -> Callable[[Array], Array]:
    return lambda query: cartridge.read(query).output


def _start(seed: Seed, room: int, setting: Setting) -> Cartridge:
    """A cartridge of setting["slots"] of `room` slots, started as setting["start"] says."""
    starts = [init_cartridge(seed.key_start, seed.document, room, how) for how in STARTS]
    chosen = jax.tree.map(lambda *parts: jnp.stack(parts)[setting["start"]], *starts)
    return dataclasses.replace(chosen, mask=jnp.arange(room) < setting["slots"])


def _train_run(
    key: Array, setting: Setting, *, recipe: Recipe, room: int, steps: int, options: Setting
) -> Metrics:
    seed = of_seed(key)
    trained = recipe.train(
        seed.key_train, _start(seed, room, setting), seed.document, steps, **options
    )
    history = trained.history
    curves = {f"{name}_curve": value for name, value in history._asdict().items()}
    return {
        **recall(_output(trained.cartridge), seed),
        "status": trained.status,
        "key_norm": history.key_norm[-1],
        "entropy": history.entropy[-1],
        **curves,
    }


def trainings(
    recipe: Recipe,
    seeds: int,
    cartridges: Sequence[tuple[int, str]],
    steps: int,
    **options: Any,
) -> Sweep:
    """Cartridges of several sizes and starts, all on one document and the same questions a seed.

    Args:
      recipe: how to train.
      seeds: documents.
      cartridges: (slots, start) of each; they share one program, padded to the largest.
      steps: of the optimizer.
      options: of `train_cartridge` (objective, loss).

    Returns:
      Records with slots, start (its number in `STARTS`), verbatim, paraphrased, status, key_norm
      and entropy; the history as arrays.
    """
    room = max(slots for slots, _ in cartridges)
    run = partial(_train_run, recipe=recipe, room=room, steps=steps, options=options)
    settings = [{"slots": slots, "start": STARTS.index(start)} for slots, start in cartridges]
    return sweep(run, seeds, settings, label=f"{recipe.name}, {steps:,} steps")


def _baseline_run(key: Array, setting: Setting, *, slots: tuple[int, ...]) -> Metrics:
    seed = of_seed(key)
    asked = paraphrase(seed.key_train, jnp.tile(seed.document.keys, (4, 1)), NOISE)
    found = {"icl": recall(_output(whole(seed.document)), seed)}
    for p in slots:
        found[f"truncated {p}"] = recall(_output(init_cartridge(key, seed.document, p)), seed)
        found[f"evicted {p}"] = recall(_output(evict(seed.document, p, asked)), seed)
        matched = attention_matching(seed.document, p, asked)
        found[f"matched {p}"] = recall(_output(matched), seed)
    return {f"{name} {kind}": x for name, row in found.items() for kind, x in row.items()}


def baselines(seeds: int, slots: tuple[int, ...]) -> Sweep:
    """What needs no training: the whole document, truncation, eviction, Attention Matching.

    Args:
      seeds: documents.
      slots: sizes.

    Returns:
      Metrics named "icl verbatim", "truncated 64 paraphrased" and so on.
    """
    return sweep(partial(_baseline_run, slots=slots), seeds, [{}], label="baselines")


def _memory_run(key: Array, setting: Setting) -> Metrics:
    seed = of_seed(key)
    keys, values = seed.document
    found = {}
    for name, memory in MATRICES.items():
        state, _ = memory.write_chunk(memory.init(DIM, DIM), keys, values)
        found[name] = recall(partial(memory.read, state), seed)
    train = partial(cross_entropy_map, keys, values, steps=MAP_STEPS)
    maps = {
        "least squares": least_squares(keys, values),
        "cross-entropy": train(),
        "cross-entropy, paraphrases": train(noise=NOISE, key=seed.key_train),
    }
    for name, weights in maps.items():
        found[name] = recall(partial(jnp.matmul, b=weights), seed)
    gaussian = of_seed(key, unit_values=False)
    keys, values = gaussian.document
    for name, weights in (
        ("outer_product()", keys.T @ values),
        ("least squares", least_squares(keys, values)),
    ):
        found[f"{name}, Gaussian values"] = recall(partial(jnp.matmul, b=weights), gaussian)
    return {f"{name} {kind}": x for name, row in found.items() for kind, x in row.items()}


def memories(seeds: int) -> Sweep:
    """Every linear memory of a 64 x 64 matrix, after one pass over the document in order.

    Args:
      seeds: documents.

    Returns:
      Metrics named "outer_product() verbatim" and so on.
    """
    return sweep(_memory_run, seeds, [{}], label="memories")


def _long_run(key: Array, setting: Setting, *, steps: int, window: int | None) -> Metrics:
    seed = of_seed(key, LONG_FACTS)
    start = init_cartridge(seed.key_start, seed.document, LONG_SLOTS)
    trained = LECTURE.train(
        seed.key_train, start, seed.document, steps, window=window, record_every=steps // 12
    )
    keys, values = seed.document
    seen = attend(seed.questions, keys[:FACTS], values[:FACTS], SCALE).output
    return {
        **recall(_output(trained.cartridge), seed),
        "status": trained.status,
        "icl": accuracy(seen, values, seed.asked),
        "step_curve": trained.history.step,
        "paraphrased_curve": trained.history.paraphrased,
    }


def long_document(seeds: int, steps: int, window: int | None) -> Sweep:
    """A document of 2,048 facts in 256 slots, by a teacher that sees a window of it or all.

    Args:
      seeds: documents.
      steps: of the optimizer.
      window: facts the teacher sees at once, None for all.

    Returns:
      Records with paraphrased and icl (the first 512 facts in the context).
    """
    run = partial(_long_run, steps=steps, window=window)
    return sweep(run, seeds, [{}], label=f"{LONG_FACTS} facts")


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


def _logit_run(key: Array, setting: Setting, *, slots: int) -> Metrics:
    seed = of_seed(key)
    cartridge = _pick(
        jax.tree.map(
            lambda *parts: jnp.stack(parts),
            *[init_cartridge(seed.key_start, seed.document, slots, how) for how in STARTS],
        ),
        setting["start"],
    )
    questions = paraphrase(seed.key_train, seed.document.keys[:slots], NOISE)
    logits = SCALE * questions @ cartridge.keys.T  # [P, P]
    own = jnp.diagonal(logits)
    rest = jnp.where(jnp.eye(slots, dtype=bool), 0, logits)
    entropy = slot_entropy(cartridge, seed.questions)
    return {
        "own": jnp.mean(own),
        "other": jnp.sqrt(jnp.sum(rest**2) / (slots * (slots - 1))),
        "entropy": jnp.mean(entropy),
        "slots_in_use": jnp.mean(jnp.exp(entropy)),
    }


def logits(seeds: int, slots: int) -> Sweep:
    """Exercise 6: the logits of questions on slots before training, under each start.

    Args:
      seeds: documents.
      slots: of the cartridge.

    Returns:
      Records with start, own (mean logit of a question on the slot of its number), other (root
      mean square of the rest), entropy in nats, slots_in_use (its exponential).
    """
    starts = list(range(len(STARTS)))
    return sweep(partial(_logit_run, slots=slots), seeds, grid(start=starts), label="logits")
