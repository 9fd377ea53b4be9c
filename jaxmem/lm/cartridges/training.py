"""Training a cartridge of a language model: context distillation, or next tokens of the text.

  Z <- argmin_Z  E_rows mean_i KL( F(. | document, x_<i) || F_Z(. | x_<i) )

The model is frozen; only the slots change, all but the first few, which are the sink.
"""

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jax.typing import ArrayLike

from jaxmem.lm.cartridges.adapters import Adapters
from jaxmem.lm.cartridges.course import Course, batch_of
from jaxmem.lm.cartridges.recipe import Recipe
from jaxmem.lm.cartridges.rows import Places, Rows, as_read, most_places
from jaxmem.lm.cartridges.state import Moment, Slots, State, Trained, is_finite, outcome, student
from jaxmem.lm.config import Config
from jaxmem.lm.decoder import hidden_states
from jaxmem.lm.divergence import BLOCK, Lesson, mean_kl
from jaxmem.lm.fit import check_fit, first_question
from jaxmem.lm.parameters import Params, head_of
from jaxmem.recall.cartridges import Cartridge


def train(
    params: Params,
    config: Config,
    cartridge: Cartridge | None,
    course: Course,
    recipe: Recipe,
    *,
    adapters: Adapters | None = None,
    seed: int = 0,
    held_out: Course | None = None,
    state: State | None = None,
    report: Callable[[State], None] | None = None,
    until: float | None = None,
) -> Trained:
    """Train the slots of a cartridge, or adapters without one.

    Args:
      params, config: the model, which stays as it is.
      cartridge: to start from, keys [L, G, P, K]; its first `frozen` slots stay too. None:
        adapters alone.
      course: what to learn from; rows are drawn in a new order each time all were seen.
      recipe: steps, rates and what is trained.
      adapters: from `lora`, trained too.
      seed: of the order of the rows.
      held_out: rows that choose the best moment, not trained on.
      state: of a run that was interrupted, with the same other arguments, to go on.
      report: called with the state at each look, to save it or show progress.
      until: time of `time.monotonic` after which the next look is the last, all steps done or not.

    Returns:
      The cartridge, with the run's history.

    Raises:
      ValueError: if the cartridge does not fit the model, or the lesson the rows, or there is
        nothing to train.
    """
    _check(config, cartridge, course)
    first = first_question(cartridge)
    start = init_state(cartridge, recipe, adapters)
    units = _units(start.slots)
    if state is None:
        state = _look(start, 0, float("nan"), 0.0, 0.0, params, config, cartridge, held_out, recipe)
        if report:
            report(state)
    room = most_places(course.rows.targets, recipe.batch, BLOCK)
    done = state.history[-1].step
    looks = sorted({-(-recipe.steps * (i + 1) // recipe.evaluate) for i in range(recipe.evaluate)})
    for last in (look for look in looks if look > done):
        if until is not None and time.monotonic() > until:
            break
        began, losses, tokens = time.monotonic(), [], 0
        slots, optimizer = state.slots, state.optimizer
        for step, numbers in _batches(len(course.rows.ids), recipe.batch, seed, done, last):
            rows, lesson, there = batch_of(course, numbers, recipe.batch, room)
            slots, optimizer, loss = _step(
                params,
                config,
                recipe.kind,
                slots,
                optimizer,
                units,
                cartridge,
                rows,
                lesson,
                there,
                first,
                recipe.rate(step),
            )
            losses.append(loss)
            tokens += int((rows.segments >= 0).sum())
        mean = float(jnp.mean(jnp.stack(losses)))
        spent = time.monotonic() - began
        state = State(slots, optimizer, state.best, state.history)
        state = _look(
            state, last, mean, spent, tokens / spent, params, config, cartridge, held_out, recipe
        )
        done = last
        if report:
            report(state)
    return outcome(params, cartridge, state)


def init_state(
    cartridge: Cartridge | None, recipe: Recipe, adapters: Adapters | None = None
) -> State:
    """The state of a run before its first step, and the shapes of all later ones.

    Args:
      cartridge: that it starts from, keys and values [L, G, P, K], or None.
      recipe: of the training.
      adapters: trained too.

    Returns:
      The state, without history.

    Raises:
      ValueError: if there is nothing to train.
    """
    if cartridge is None and adapters is None:
        raise ValueError("expected a cartridge or adapters to train, got neither")
    keys = values = bias = None
    if cartridge is not None:
        keys, values = (part.astype(jnp.float32) for part in (cartridge.keys, cartridge.values))
        bias = cartridge.bias
        if bias is None and recipe.bias:
            bias = jnp.zeros(keys.shape[:-1])
    slots = Slots(keys, values, bias, adapters)
    return State(slots, _adam(recipe).init(slots), slots, ())


def evaluate(
    params: Params, config: Config, cartridge: Cartridge | None, course: Course, batch: int = 8
) -> float:
    """Mean KL from teacher to student over the predicted tokens of some rows.

    Args:
      params, config: the model.
      cartridge: the student's, or None.
      course: rows and lesson.
      batch: rows at once.

    Returns:
      Nats a token.
    """
    room = most_places(course.rows.targets, batch, BLOCK)
    total, weight, first = 0.0, 0.0, first_question(cartridge)
    for start in range(0, len(course.rows.ids), batch):
        numbers = np.arange(start, min(start + batch, len(course.rows.ids)))
        rows, lesson, there = batch_of(course, numbers, batch, room)
        if not there.weights.any():
            continue
        count = float(there.weights.sum())
        total += count * float(batch_kl(params, config, cartridge, rows, lesson, there, first))
        weight += count
    return total / weight


@partial(jax.jit, static_argnames=("config", "remat"))
def batch_kl(
    params: Params,
    config: Config,
    cartridge: Cartridge | None,
    rows: Rows,
    lesson: Lesson,
    there: Places,
    first: ArrayLike,
    remat: bool = False,
) -> Array:
    """What training descends: mean KL from teacher to student of a batch of `batch_of`.

    Args:
      params, config: the model.
      cartridge: the student's, or None.
      rows: [B, T].
      lesson: of the predicted tokens, [M, ...] arrays.
      there: their places, [M].
      first: position of the first token of an example, scalar.
      remat: see `Recipe`.

    Returns:
      Nats a token, scalar.
    """
    hidden, _ = hidden_states(params, config, *as_read(rows, first), cartridge, remat=remat)
    states = hidden.reshape(-1, config.hidden)[there.at]
    return mean_kl(states, head_of(params), lesson, there.weights)


@partial(jax.jit, static_argnames=("config", "recipe"))
def _step(
    params: Params,
    config: Config,
    recipe: Recipe,
    slots: Slots,
    optimizer: Any,
    units: Slots,
    cartridge: Cartridge | None,
    rows: Rows,
    lesson: Lesson,
    there: Places,
    first: int,
    rate: float,
) -> tuple[Slots, Any, Array]:
    def loss_of(slots: Slots) -> Array:
        model, slots_now = student(params, cartridge, slots)
        return batch_kl(model, config, slots_now, rows, lesson, there, first, recipe.remat)

    loss, gradient = jax.value_and_grad(loss_of)(slots)
    gradient = _trained(gradient, recipe, 0 if cartridge is None else cartridge.frozen)
    update, optimizer = _adam(recipe).update(gradient, optimizer)
    slots = jax.tree.map(lambda old, unit, by: old - rate * unit * by, slots, units, update)
    return slots, optimizer, loss


def _adam(recipe: Recipe) -> optax.GradientTransformation:
    clip = optax.identity() if recipe.clip is None else optax.clip_by_global_norm(recipe.clip)
    return optax.chain(clip, optax.scale_by_adam())


def _trained(gradient: Slots, recipe: Recipe, frozen: int) -> Slots:
    """The gradient, 0 for what stays."""

    def part(array: Array | None, wanted: bool) -> Array | None:
        if array is None:
            return None
        free = jnp.arange(array.shape[2]) >= frozen
        return array * jnp.expand_dims(free, range(1, array.ndim - 2)) * wanted

    return Slots(
        part(gradient.keys, recipe.keys),
        part(gradient.values, recipe.values),
        part(gradient.bias, recipe.bias),
        gradient.adapters,
    )


def _units(start: Slots) -> Slots:
    """What a rate of 1 means: a layer's root mean square key or value, 1 for a bias (a logit).

    Both parts of an adapter move by the root mean square of the first.
    """

    def rms(part: Array) -> Array:
        return jnp.sqrt(jnp.mean(jnp.square(part), axis=range(1, part.ndim), keepdims=True))

    keys, values, bias, adapters = start
    return Slots(
        None if keys is None else rms(keys),
        None if values is None else rms(values),
        None if bias is None else jnp.ones((len(bias), 1, 1)),
        None if adapters is None else {n: (rms(a), rms(a)) for n, (a, _) in adapters.items()},
    )


def _batches(
    rows: int, batch: int, seed: int, done: int, last: int
) -> Iterator[tuple[int, np.ndarray]]:
    """Steps done + 1 .. last, each with its rows: the same whenever a run is taken up again."""
    for step in range(done, last):
        drawn = np.arange(step * batch, (step + 1) * batch)
        turns, numbers = np.divmod(drawn, rows)
        orders = {
            turn: np.random.default_rng([seed, int(turn)]).permutation(rows)
            for turn in np.unique(turns)
        }
        yield step, np.unique([orders[turn][number] for turn, number in zip(turns, numbers)])


def _look(
    state: State,
    step: int,
    loss: float,
    spent: float,
    tokens_s: float,
    params: Params,
    config: Config,
    cartridge: Cartridge | None,
    held_out: Course | None,
    recipe: Recipe,
) -> State:
    """The state with a look at it in its history, and the best slots so far."""
    found = float("nan")
    began = time.monotonic()
    if held_out is not None:
        model, slots = student(params, cartridge, state.slots)
        found = evaluate(model, config, slots, held_out, recipe.batch)
    spent += time.monotonic() - began
    before = state.history[-1].seconds if state.history else 0.0
    earlier = [moment.held_out for moment in state.history]
    # Without held-out rows the last is taken; a NaN never is.
    better = held_out is None or (found == found and not any(e <= found for e in earlier))
    best = state.slots if better and is_finite(state.slots) else state.best
    moment = Moment(step, loss, found, before + spent, tokens_s)
    return State(state.slots, state.optimizer, best, (*state.history, moment))


def _check(config: Config, cartridge: Cartridge | None, course: Course) -> None:
    if cartridge is not None:
        check_fit(cartridge, config)
    if course.lesson.ids.shape[:2] != course.rows.ids.shape:
        raise ValueError(
            f"expected a lesson of {list(course.rows.ids.shape)} tokens, got "
            f"{list(course.lesson.ids.shape[:2])}"
        )
    longest = first_question(cartridge) + int(course.rows.offsets.max()) + 1
    if longest > config.positions:
        raise ValueError(
            f"expected at most {config.positions} positions, the model's, got {longest}"
        )
