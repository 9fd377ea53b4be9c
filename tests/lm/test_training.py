"""Training of cartridges on the tiny model."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmem.lm.cartridges.adapters import lora, lora_rank
from jaxmem.lm.cartridges.course import Course
from jaxmem.lm.cartridges.prefix import take
from jaxmem.lm.cartridges.recipe import Recipe
from jaxmem.lm.cartridges.rows import Rows
from jaxmem.lm.cartridges.state import State, Status, student
from jaxmem.lm.cartridges.teacher import hard, take_rows, teach
from jaxmem.lm.cartridges.training import evaluate, train
from jaxmem.lm.config import Config
from jaxmem.lm.decoder import forward
from jaxmem.lm.parameters import Params
from jaxmem.recall.cartridges import Cartridge

pytestmark = pytest.mark.usefixtures("unoptimised")
RECIPE = Recipe(steps=8, batch=2, learning_rate=0.05, evaluate=2, bias=True)


def test_the_teacher_reads_the_document(
    config: Config, params: Params, whole: Cartridge, rows: Rows, course: Course
) -> None:
    row, column = np.argwhere(rows.targets >= 0)[7]
    logits, _ = jax.jit(forward, static_argnames="config")(
        params,
        config,
        jnp.asarray(rows.ids[row : row + 1]),
        12 + jnp.asarray(rows.offsets[row : row + 1]),
        jnp.asarray(rows.segments[row : row + 1]),
        whole,
    )
    want, ids = jax.lax.top_k(jax.nn.log_softmax(logits[0, column]), 5)
    np.testing.assert_allclose(course.lesson.log_probs[row, column], want, atol=1e-5)
    np.testing.assert_array_equal(course.lesson.ids[row, column], ids)
    # The whole prefix is the teacher: nothing to learn.
    assert abs(evaluate(params, config, whole, course, batch=2)) < 1e-6
    full = Course(rows, teach(params, config, rows, whole, top_k=None, batch=2))
    assert full.lesson.hidden.shape == (*rows.ids.shape, config.hidden)
    few = take(whole, jnp.arange(4))
    top_k, everything = (evaluate(params, config, few, c, batch=2) for c in (course, full))
    assert 0 < top_k <= everything + 1e-6


def run(config: Config, params: Params, few: Any, course: Course, **options: Any) -> Any:
    recipe = options.pop("recipe", RECIPE)
    return train(params, config, few, course, recipe, held_out=course, **options)


def test_training_learns_and_leaves_the_sink(
    config: Config, params: Params, few: Cartridge, course: Course
) -> None:
    states: list[State] = []
    done = run(config, params, few, course, report=states.append)
    assert done.status is Status.OK
    assert [moment.step for moment in done.history] == [0, 4, 8]
    assert done.history[-1].held_out < 0.9 * done.history[0].held_out
    np.testing.assert_array_equal(done.cartridge.keys[:, :, 0], few.keys[:, :, 0])
    np.testing.assert_array_equal(done.cartridge.values[:, :, 0], few.values[:, :, 0])
    assert np.any(done.cartridge.keys[:, :, 1:] != few.keys[:, :, 1:])
    # Taken up again from the state in the middle: the same numbers.
    again = run(config, params, few, course, state=states[1])
    np.testing.assert_array_equal(again.cartridge.keys, done.cartridge.keys)
    np.testing.assert_array_equal(again.cartridge.values, done.cartridge.values)


def test_only_what_is_asked_for_is_trained(
    config: Config, params: Params, few: Cartridge, course: Course
) -> None:
    recipe = dataclasses.replace(RECIPE, keys=False)
    done = run(config, params, few, course, recipe=recipe).cartridge
    np.testing.assert_array_equal(done.keys, few.keys)
    assert np.any(done.bias[:, :, 1:] != 0)
    assert not np.any(done.bias[:, :, 0])


def test_the_best_moment_is_kept(
    config: Config, params: Params, few: Cartridge, course: Course
) -> None:
    wild = dataclasses.replace(RECIPE, learning_rate=10.0, warm_up=0.0)
    done = run(config, params, few, course, recipe=wild)
    assert done.status is Status.WORSE
    np.testing.assert_array_equal(done.cartridge.values, few.values)


def test_adapters_learn_hard_labels(config: Config, params: Params, rows: Rows) -> None:
    labels = Course(rows, hard(rows))
    adapters = lora(jax.random.key(0), config, lora_rank(config, 4))
    done = train(params, config, None, labels, RECIPE, held_out=labels, adapters=adapters)
    assert done.cartridge is None
    assert done.history[-1].held_out < done.history[0].held_out
    changed, _ = student(params, None, done.slots)
    assert np.any(changed["layers"]["query"] != params["layers"]["query"])
    assert lora_rank(config, 4) == 1  # 256 numbers of slots, 192 of a rank


def test_rows_are_padded_with_nothing(rows: Rows) -> None:
    part = take_rows(rows, np.array([1]), 3)
    np.testing.assert_array_equal(part.ids[0], rows.ids[1])
    assert (part.segments[1:] == -1).all()
    assert (part.targets[1:] == -1).all()


def test_what_cannot_be_trained_is_refused(
    config: Config, params: Params, few: Cartridge, course: Course
) -> None:
    with pytest.raises(ValueError, match="cartridge or adapters to train, got neither"):
        run(config, params, None, course)
    with pytest.raises(ValueError, match="learning_rate must be in"):
        Recipe(learning_rate=-1.0)
    with pytest.raises(ValueError, match="keys, values or bias"):
        Recipe(keys=False, values=False)
    with pytest.raises(ValueError, match="at most 64 positions"):
        far = dataclasses.replace(few, first_question=60)
        run(config, params, far, course)
    with pytest.raises(ValueError, match="product of the layers, got 'norm'"):
        lora(jax.random.key(0), config, 2, ("norm",))
