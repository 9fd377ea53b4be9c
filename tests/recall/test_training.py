"""Training of cartridges: against the numpy twin, differences, and at other sizes and batches."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxmem.recall import Document, facts, paraphrase
from jaxmem.recall.cartridges import (
    Cartridge,
    Status,
    init_cartridge,
    pad,
    train_cartridge,
    training,
    whole,
)
from jaxmem.reference import cartridges as reference

N, K, P, STEPS, BATCH = 24, 8, 5, 12, 7


def world(seed: int = 0) -> tuple[jax.Array, Document, Cartridge]:
    key = jax.random.key(seed)
    document = facts(key, N, K)
    return jax.random.fold_in(key, 1), document, init_cartridge(key, document, P)


def lessons(
    key: jax.Array, document: Document, objective: str, noise: float
) -> tuple[np.ndarray, np.ndarray]:
    """Questions [T, B, K] and numbers of facts [T, B] that a run of STEPS draws."""
    numbers, questions = [], []
    for step in jax.random.split(jax.random.split(key)[0], STEPS):
        key_numbers, key_words, _ = jax.random.split(step, 3)
        drawn = jax.random.randint(key_numbers, (BATCH,), 0, N)
        keys = document.keys[drawn]
        asked = paraphrase(key_words, keys, noise) if objective == "self_study" else keys
        numbers.append(np.asarray(drawn))
        questions.append(np.asarray(asked))
    return np.stack(questions), np.stack(numbers)


def twin(key: jax.Array, document: Document, start: Cartridge, **options: Any) -> reference.Slots:
    """The numpy training on the same questions."""
    objective, loss = options.get("objective", "self_study"), options.get("loss", "distill")
    questions, numbers = lessons(key, document, objective, 0.3)
    vocabulary = np.asarray(document.values)
    known = reference.Slots(np.asarray(document.keys), vocabulary)
    if loss == "hard":
        targets = np.eye(N)[numbers]
    else:
        targets = np.zeros((*numbers.shape, N))
        for at in np.ndindex(numbers.shape):
            window = options.get("window") or N
            chunk = slice(numbers[at] // window * window, (numbers[at] // window + 1) * window)
            seen = reference.Slots(known.keys[chunk], known.values[chunk])
            targets[at] = reference.distribution(seen, questions[at][None], vocabulary, 20.0, 20.0)[
                0
            ]
    return reference.train(
        reference.Slots(np.asarray(start.keys), np.asarray(start.values)),
        questions,
        targets,
        vocabulary,
        np.full(STEPS, 0.01),
        key_norm=options.get("key_norm", np.inf),
        focus=None if options.get("focus") is None else np.full(STEPS, options["focus"]),
        frozen=start.frozen,
    )


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"objective": "recitation", "loss": "hard"},
        {"window": 10, "focus": 0.3},
        {"frozen": 2, "key_norm": 0.7},
    ],
    ids=lambda options: "-".join(options) or "plain",
)
def test_training_is_the_twins(options: dict[str, Any]) -> None:
    with jax.enable_x64(True):
        key, document, start = world()
        options = dict(options)
        start = dataclasses.replace(start, frozen=options.pop("frozen", 0))
        found = train_cartridge(
            key, start, document, steps=STEPS, batch=BATCH, learning_rate=0.01, **options
        ).cartridge
        wanted = twin(key, document, start, **options)
        for name in ("keys", "values"):
            got, want = np.asarray(getattr(found, name)), getattr(wanted, name)
            error = np.linalg.norm(got - want) / np.linalg.norm(want)
            assert error < 1e-10, f"{name}: {error}"
            np.testing.assert_array_equal(got[: start.frozen], getattr(start, name)[: start.frozen])


@pytest.mark.parametrize("focus", [0.0, 0.4])
def test_gradient_is_that_of_central_differences(focus: float) -> None:
    with jax.enable_x64(True):
        key, document, start = world()
        questions, _ = lessons(key, document, "self_study", 0.3)
        vocabulary = np.asarray(document.values)
        known = reference.Slots(np.asarray(document.keys), vocabulary)
        asked = questions[0]
        targets = reference.distribution(known, asked, vocabulary, 20.0, 20.0)
        slots = reference.Slots(np.asarray(start.keys), np.asarray(start.values))
        by_hand = reference.gradient(slots, asked, targets, vocabulary, 20.0, 20.0, focus)
        for part, slope in zip(slots, by_hand):
            for at in [(0, 0), (1, 3), (4, 7)]:
                ends = []
                for step in (1e-6, -1e-6):
                    moved = np.array(part)
                    moved[at] += step
                    pair = [moved if other is part else other for other in slots]
                    ends.append(
                        reference.loss(
                            reference.Slots(*pair), asked, targets, vocabulary, 20.0, 20.0, focus
                        )
                    )
                assert (ends[0] - ends[1]) / 2e-6 == pytest.approx(slope[at], rel=1e-5, abs=1e-9)

        def kl(keys: jax.Array) -> jax.Array:
            weights = jax.nn.softmax(20 * asked @ keys.T, axis=-1)
            given = jax.nn.log_softmax(20 * weights @ start.values @ document.values.T, axis=-1)
            each = jnp.sum(jax.scipy.special.xlogy(targets, targets) - targets * given, axis=-1)
            return jnp.mean(-jnp.expm1(-focus * each) / focus if focus else each)

        np.testing.assert_allclose(jax.grad(kl)(start.keys), by_hand.keys, rtol=1e-8, atol=1e-10)


def test_padded_run_is_the_run_at_its_own_shape() -> None:
    key, document, start = world()
    options = {"steps": STEPS, "batch": BATCH, "learning_rate": 0.01, "key_norm": 0.8}
    own = train_cartridge(key, start, document, **options)
    padded = train_cartridge(key, pad(start, 11), document, **options)
    np.testing.assert_allclose(padded.cartridge.keys[:P], own.cartridge.keys, atol=1e-6)
    np.testing.assert_allclose(padded.cartridge.values[:P], own.cartridge.values, atol=1e-6)
    np.testing.assert_array_equal(padded.cartridge.keys[P:], 0)
    for name, mine, other in zip(own.history._fields, own.history, padded.history):
        np.testing.assert_allclose(mine, other, atol=1e-5, err_msg=name)


def test_questions_are_shared_by_cartridges_of_one_key() -> None:
    """Vmapped over cartridges, the teacher's products are not repeated for each."""
    key, document, start = world()

    answers = jnp.concatenate([document.values, facts(jax.random.key(5), N, K).values])
    many = jax.tree.map(lambda x: jnp.stack([x] * 3), start)

    def run(cartridge: Cartridge) -> Any:
        return train_cartridge(key, cartridge, document, steps=1, batch=512, vocabulary=answers)

    text = jax.jit(jax.vmap(run)).lower(many).as_text()
    assert "tensor<3x512x48xf32>" in text, "the answers of each student"
    assert f"tensor<512x{N}xf32>" in text, "the attention of the teacher"
    assert f"tensor<3x512x{N}xf32>" not in text, "the attention of the teacher, repeated"


def test_many_numbers_share_one_program() -> None:
    key, document, start = world()
    before = training._train._cache_size()
    for rate, norm in ((0.01, 0.5), (0.02, 0.6), (0.03, 0.7)):
        train_cartridge(key, start, document, steps=6, learning_rate=rate, key_norm=norm)
    assert training._train._cache_size() == before + 1


def test_whole_document_as_a_cartridge_has_no_loss_and_no_gradient() -> None:
    key, document, _ = world()
    trained = train_cartridge(key, whole(document), document, steps=3, learning_rate=0.01)
    assert float(trained.history.loss[0]) == pytest.approx(0, abs=1e-6)


def test_history_and_schedules() -> None:
    key, document, start = world()
    trained = train_cartridge(
        key,
        start,
        document,
        steps=STEPS,
        learning_rate=optax.cosine_decay_schedule(0.05, STEPS),
        record_every=4,
    )
    np.testing.assert_array_equal(trained.history.step, [0, 4, 8, 12])
    same = train_cartridge(
        key,
        start,
        document,
        steps=STEPS,
        learning_rate=optax.cosine_decay_schedule(0.05, STEPS)(np.arange(STEPS)),
        record_every=STEPS,
    )
    np.testing.assert_allclose(same.cartridge.keys, trained.cartridge.keys, atol=1e-6)
    assert float(trained.history.loss[-1]) < float(trained.history.loss[0])
    assert int(trained.status) == Status.OK


def test_a_longer_run_goes_on_from_a_shorter_one() -> None:
    key, document, start = world()
    long = train_cartridge(key, start, document, steps=12, record_every=4, learning_rate=0.01)
    short = train_cartridge(key, start, document, steps=8, learning_rate=0.01)
    assert float(long.history.loss[2]) == pytest.approx(float(short.history.loss[-1]), abs=1e-5)


def test_key_norm_bounds_every_trained_key() -> None:
    key, document, start = world()
    trained = train_cartridge(key, start, document, steps=STEPS, key_norm=0.5, learning_rate=0.1)
    assert float(jnp.max(jnp.linalg.norm(trained.cartridge.keys, axis=-1))) <= 0.5 + 1e-6


def test_a_bias_is_trained_where_there_is_one() -> None:
    key, document, start = world()
    start = dataclasses.replace(start, bias=jnp.zeros(P), frozen=1)
    bias = train_cartridge(key, start, document, steps=STEPS).cartridge.bias
    assert bias is not None
    assert float(bias[0]) == 0
    assert float(jnp.min(jnp.abs(bias[1:]))) > 0


def test_divergence_is_said() -> None:
    key, document, start = world()
    run = jax.vmap(lambda rate: train_cartridge(key, start, document, steps=40, learning_rate=rate))
    status = run(jnp.array([0.005, 30.0, jnp.nan])).status
    assert [Status(int(s)).name for s in status] == ["OK", "WORSE", "NOT_FINITE"]


def test_distractors_are_read_along_and_left_alone() -> None:
    key, document, start = world()
    other = jax.tree.map(lambda x: x[None], init_cartridge(key, facts(key, N, K), P, "random_text"))
    alone = train_cartridge(key, start, document, steps=STEPS).cartridge
    beside = train_cartridge(key, start, document, steps=STEPS, distractors=other).cartridge
    unheard = train_cartridge(
        key, start, document, steps=STEPS, distractors=other, distractor_weight=0.0
    ).cartridge
    assert float(jnp.max(jnp.abs(alone.keys - beside.keys))) > 1e-4
    np.testing.assert_allclose(unheard.keys, alone.keys, atol=1e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"steps": 0}, "steps must be at least 1, got 0"),
        ({"batch": 0}, "batch must be at least 1, got 0"),
        ({"window": 0}, "window must be at least 1, got 0"),
        ({"steps": 10, "record_every": 3}, "record_every must divide steps, got 3 and 10"),
        ({"objective": "selfstudy"}, "unknown objective 'selfstudy' .*self_study"),
        ({"loss": "mse"}, r"unknown loss 'mse' .*distill, hard"),
        ({"learning_rate": np.ones(3)}, r"expected one learning rate or 4 of them, got \(3,\)"),
        ({"vocabulary": np.ones((4, 3))}, r"expected a vocabulary \[M, 8\], got \(4, 3\)"),
    ],
    ids=lambda x: next(iter(x)) if isinstance(x, dict) else "",
)
def test_bad_options(change: dict[str, Any], message: str) -> None:
    key, document, start = world()
    with pytest.raises(ValueError, match=message):
        train_cartridge(key, start, document, **{"steps": 4, **change})


def test_bad_shapes_and_numbers() -> None:
    key, document, start = world()
    wider = Document(jnp.ones((N, K + 1)), document.values)
    with pytest.raises(ValueError, match="to fit the document"):
        train_cartridge(key, start, wider, steps=4)
    with pytest.raises(ValueError, match="expected finite values, got nan in fact 3"):
        broken = Document(document.keys, document.values.at[3, 1].set(jnp.nan))
        train_cartridge(key, start, broken, steps=4)
    with pytest.raises(ValueError, match="expected finite keys in the cartridge"):
        odd = dataclasses.replace(start, keys=start.keys.at[0].set(jnp.inf))
        train_cartridge(key, odd, document, steps=4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"noise": -1.0}, "noise must be at least 0, got -1.0"),
        ({"key_norm": np.nan}, "key_norm must be at least 0, got nan"),
        ({"focus": -1.0}, "focus must be at least 0"),
        ({"learning_rate": np.nan}, "learning_rate must be at least 0"),
        ({"learning_rate": "a"}, "learning_rate must be a number, got 'a'"),
        ({"noise": None}, "noise must be a number, got None"),
        ({"window": 2.5}, "window must be a whole number, got 2.5"),
        ({"steps": "3"}, "steps must be a whole number, got '3'"),
        ({"batch": True}, "batch must be a whole number, got True"),
    ],
    ids=lambda x: next(iter(x)) if isinstance(x, dict) else "",
)
def test_numbers_out_of_range(change: dict[str, Any], message: str) -> None:
    key, document, start = world()
    with pytest.raises(ValueError, match=message):
        train_cartridge(key, start, document, **{"steps": 4, **change})


def test_vocabulary_and_distractors_must_fit() -> None:
    key, document, start = world()
    with pytest.raises(ValueError, match="expected every value in the vocabulary, fact 3's is not"):
        train_cartridge(key, start, document, steps=4, vocabulary=document.values[:3])
    one = jax.tree.map(lambda x: x[None], start)
    with pytest.raises(ValueError, match=r"expected distractors of scale 20.0, got 3.0"):
        odd = dataclasses.replace(one, scale=3.0)
        train_cartridge(key, start, document, steps=4, distractors=odd)
    with pytest.raises(ValueError, match=r"distractors with keys \[J, P, 8\], got \(5, 8\)"):
        train_cartridge(key, start, document, steps=4, distractors=start)
    with pytest.raises(ValueError, match="frozen must be at most 5, got 99"):
        train_cartridge(key, dataclasses.replace(start, frozen=99), document, steps=4)


@pytest.mark.parametrize(
    ("kind", "x64"),
    [(jnp.bfloat16, False), (jnp.bfloat16, True), (jnp.float16, False), (jnp.float32, True)],
)
def test_slots_keep_their_type(kind: Any, x64: bool) -> None:
    key, document, start = world()
    start = jax.tree.map(lambda x: x.astype(kind), start)
    with jax.enable_x64(x64):
        trained = train_cartridge(key, start, document, steps=4, batch=8, key_norm=0.9)
    assert trained.cartridge.keys.dtype == trained.cartridge.values.dtype == kind


def test_weight_decay_leaves_frozen_and_masked_slots_alone() -> None:
    key, document, start = world()
    start = dataclasses.replace(start, frozen=1, mask=jnp.arange(P) < 4)
    decaying = optax.chain(optax.scale_by_adam(), optax.add_decayed_weights(0.1))
    end = train_cartridge(key, start, document, steps=5, optimizer=decaying).cartridge
    for slot, moves in ((0, False), (1, True), (4, False)):
        assert bool(jnp.any(end.keys[slot] != start.keys[slot])) == moves


def test_training_has_a_gradient_by_its_learning_rate() -> None:
    with jax.enable_x64(True):
        key, document, start = world()

        def loss(rate: jax.Array) -> jax.Array:
            run = train_cartridge(key, start, document, steps=3, learning_rate=rate)
            return run.history.loss[-1]

        slope = float(jax.grad(loss)(0.01))
        rise = float(loss(0.01 + 1e-6) - loss(0.01 - 1e-6)) / 2e-6
        assert slope == pytest.approx(rise, rel=1e-4)


def test_a_run_that_stands_still_is_not_worse() -> None:
    key, document, start = world()
    still = train_cartridge(key, start, document, steps=4, learning_rate=0.0)
    assert int(still.status) == Status.OK
