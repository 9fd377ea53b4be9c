"""The experiments of demo 04 on one document, each a sweep over seeds and settings."""

import dataclasses
import math
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
    Trained,
    attention_matching,
    evict,
    init_cartridge,
    slot_entropy,
    train_cartridge,
    truncate,
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
COSINE = 1 / math.sqrt(1 + NOISE**2)  # between a question and its key
LONG_FACTS, LONG_SLOTS = 2_048, 256
SLOTS = (16, 32, 64, 128, 256)
RECORD = 250
MAP_STEPS = 300

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
    ) -> Trained:
        """`train_cartridge` under this recipe.

        Args:
          key: PRNG key.
          cartridge: where to start.
          document: N facts.
          steps: of the optimizer.
          options: passed on.

        Returns:
          What `train_cartridge` gives.
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
    curves = {f"{name}_curve": value for name, value in trained.history._asdict().items()}
    return {
        **recall(_output(trained.cartridge), seed),
        "status": trained.status,
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
      Records with slots, start (its number in `STARTS`), verbatim, paraphrased and status; the
      history as arrays, each named like "loss_curve".
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
        found[f"truncated {p}"] = recall(_output(truncate(seed.document, p)), seed)
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


def _logit_run(key: Array, setting: Setting, *, slots: int) -> Metrics:
    seed = of_seed(key)
    cartridge = _start(seed, slots, {**setting, "slots": slots})
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
