"""Generated tokens against repeated full forwards, and drawn ones against the softmax."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from jaxmem.lm import generation
from jaxmem.lm.config import Config
from jaxmem.lm.decoder import forward
from jaxmem.lm.generation import Generated, generate
from jaxmem.lm.parameters import Params
from jaxmem.lm.sampling import choose_tokens
from jaxmem.recall.cartridges import Cartridge

pytestmark = pytest.mark.usefixtures("unoptimised")

STEPS, LENGTHS = 6, np.array([7, 1, 5])
NEVER = (0, 0)  # not among the greedy tokens; as many as there are stops elsewhere: one program
forward_jit = jax.jit(forward, static_argnames="config")


@pytest.fixture(scope="module")
def prompts(config: Config) -> np.ndarray:
    """[3, 7], padded with tokens that must not matter."""
    return np.random.default_rng(3).integers(0, config.vocabulary, (3, 7))


@pytest.fixture(scope="module", params=["alone", "cartridge"])
def cartridge(request: pytest.FixtureRequest, config: Config) -> Cartridge | None:
    if request.param == "alone":
        return None
    shape = config.layers, config.kv_heads, 4, config.head_dim
    drawn = 2 * np.random.default_rng(5).normal(size=(2, *shape)).astype(np.float32)
    keys, values = map(jnp.asarray, drawn)
    bias = jnp.asarray(np.linspace(-1, 1, 16, dtype=np.float32).reshape(shape[:-1]))
    return Cartridge(keys, values, config.scale, bias=bias, first_question=9)


def assert_greedy(
    params: Params,
    config: Config,
    prompts: np.ndarray,
    cartridge: Cartridge | None,
    made: Generated,
) -> None:
    """Each row's tokens are the argmax of full forwards over what stands before them."""
    made = Generated(*map(np.asarray, made))
    first = 0 if cartridge is None else 9
    room = prompts.shape[1] + STEPS
    whole = np.zeros((len(prompts), room), int)
    for row, length in enumerate(LENGTHS):
        whole[row, :length] = prompts[row, :length]
        whole[row, length : length + STEPS] = made.ids[row]
    places = np.broadcast_to(first + np.arange(room), whole.shape)
    logits, _ = forward_jit(params, config, whole, places, cartridge=cartridge)
    for row, length in enumerate(LENGTHS):
        count = int(made.lengths[row])
        before = np.asarray(logits)[row, length - 1 : length - 1 + count]
        np.testing.assert_array_equal(made.ids[row, :count], before.argmax(axis=-1))
        wanted = -np.log(np.exp(before - before.max(axis=-1, keepdims=True)).sum(axis=-1))
        np.testing.assert_allclose(made.log_probs[row, :count], wanted, atol=2e-5)
        assert not np.any(made.log_probs[row, count:])


def test_greedy_is_the_argmax_of_full_forwards(
    params: Params, config: Config, prompts: np.ndarray, cartridge: Cartridge | None
) -> None:
    made = generate(params, config, prompts, LENGTHS, steps=STEPS, cartridge=cartridge, stop=NEVER)
    np.testing.assert_array_equal(made.lengths, STEPS)
    assert len(np.unique(made.ids)) > 3
    assert_greedy(params, config, prompts, cartridge, made)


def test_prompts_read_in_pieces(
    params: Params, config: Config, prompts: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = generate(params, config, prompts, LENGTHS, steps=STEPS, stop=NEVER)
    monkeypatch.setattr(generation, "CHUNK", 5)  # one row ends with the piece
    made = generate(params, config, prompts, LENGTHS, steps=STEPS - 1)  # another program
    np.testing.assert_array_equal(made.ids, whole.ids[:, :-1])
    np.testing.assert_allclose(made.log_probs, whole.log_probs[:, :-1], atol=2e-5)


def test_rows_end_at_stop_ids(params: Params, config: Config, prompts: np.ndarray) -> None:
    free = np.asarray(generate(params, config, prompts, LENGTHS, steps=STEPS, stop=NEVER).ids)
    stop = (int(free[0, 2]), int(free[1, 0]))
    made = generate(params, config, prompts, LENGTHS, steps=STEPS, stop=stop)
    for row in range(3):
        ends = np.flatnonzero(np.isin(free[row], stop))
        count = ends[0] + 1 if len(ends) else STEPS
        assert made.lengths[row] == count
        np.testing.assert_array_equal(made.ids[row, :count], free[row, :count])
        np.testing.assert_array_equal(made.ids[row, count:], stop[0])
    assert made.lengths[1] == 1
    alone = generate(params, config, prompts, LENGTHS, steps=STEPS, stop=stop[1])
    assert alone.lengths[1] == 1
    assert_greedy(params, config, prompts, None, made)


def test_drawn_tokens_are_the_models(params: Params, config: Config, prompts: np.ndarray) -> None:
    drawn = {"steps": STEPS, "key": jax.random.key(1), "temperature": 1.3}
    made = generate(params, config, prompts, LENGTHS, **drawn)
    again = generate(params, config, prompts, LENGTHS, **drawn)
    np.testing.assert_array_equal(made.ids, again.ids)
    one = np.array([*prompts[0], *made.ids[0]])[None]
    logits, _ = forward_jit(params, config, one, jnp.arange(one.size)[None])
    wanted = jax.nn.log_softmax(logits[0, 6:-1])[np.arange(STEPS), made.ids[0]]
    np.testing.assert_allclose(made.log_probs[0], wanted, atol=2e-5)  # at temperature 1


choose = jax.jit(choose_tokens)


def counts(scores: np.ndarray, temperature: float, top_p: float | None, rows: int) -> np.ndarray:
    """How often each token is drawn in so many rows."""
    many = jnp.broadcast_to(jnp.asarray(scores, jnp.float32), (rows, len(scores)))
    drawn, _ = choose(many, jax.random.key(0), temperature, top_p)
    return np.bincount(np.asarray(drawn), minlength=len(scores))


def chi_square(found: np.ndarray, probs: np.ndarray) -> float:
    """Chi-square statistic in deviations from its mean, tokens expected under 5 times pooled."""
    expected = probs * found.sum()
    rare = expected < 5
    found = np.append(found[~rare], found[rare].sum())
    expected = np.append(expected[~rare], expected[rare].sum())
    some = expected > 0
    statistic = np.sum((found[some] - expected[some]) ** 2 / expected[some])
    freedom = some.sum() - 1
    return float((statistic - freedom) / np.sqrt(2 * freedom))


@pytest.mark.parametrize(("temperature", "top_p"), [(0.7, None), (2.0, None), (1.3, 0.8)])
def test_frequencies_are_the_softmax(temperature: float, top_p: float | None) -> None:
    scores = np.random.default_rng(0).normal(size=600) * 2  # three blocks, the last not full
    probs = np.exp(scores / temperature - np.max(scores / temperature))
    probs /= probs.sum()
    if top_p is not None:
        order = np.argsort(-probs)
        inside = order[: np.searchsorted(np.cumsum(probs[order]), top_p) + 1]
        kept = np.zeros_like(probs)
        kept[inside] = probs[inside] / probs[inside].sum()
        probs = kept
    found = counts(scores, temperature, top_p, 12_000)
    assert not found[probs == 0].any()
    assert abs(chi_square(found, probs)) < 4


def test_a_tiny_share_keeps_the_likeliest() -> None:
    scores = np.array([0.0, 3.0, 2.9, -np.inf])
    np.testing.assert_array_equal(counts(scores, 1.0, 1e-3, 64), [0, 64, 0, 0])


def test_of_equal_scores_the_first_is_likeliest() -> None:
    scores = np.zeros((2, 700), np.float32)
    scores[0, [300, 301, 650]] = 1
    scores[1, 699] = 1
    found, log_probs = choose(jnp.asarray(scores), None, 0.0, None)
    np.testing.assert_array_equal(found, [300, 699])
    np.testing.assert_allclose(log_probs[1], 1 - np.log(699 + np.e), rtol=1e-5)


def test_the_coldest_temperatures_take_the_likeliest(params: Params, config: Config) -> None:
    given = {"ids": [[3, 5, 8]], "lengths": [3], "steps": 4}
    likeliest = generate(params, config, **given).ids
    for temperature in (1e-46, 1e-38, 1e-29):
        cold = generate(params, config, **given, key=jax.random.key(0), temperature=temperature)
        assert (cold.ids == likeliest).all(), temperature


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ids": np.zeros(3, int)}, r"expected ids \[B, T\] and lengths \[B\], got \(3,\)"),
        ({"ids": np.zeros((2, 3))}, "expected ids of whole numbers, got float64"),
        ({"lengths": [3, 0]}, r"expected lengths in 1..3, got 0 in row 1"),
        ({"lengths": [4, 3]}, r"expected lengths in 1..3, got 4 in row 0"),
        ({"ids": [[1, 2, 3], [0, 61, 0]]}, r"expected ids in 0..60, got 61 in row 1"),
        ({"steps": 0}, "steps must be at least 1"),
        ({"steps": 62}, r"the model's context is 64 tokens, got 65"),
        ({"temperature": -1.0}, "temperature must be"),
        ({"temperature": 1.0}, "expected a key"),
        ({"top_p": 0.0}, "top_p must be above 0"),
        ({"stop": (61,)}, "stop must be at most 60"),
    ],
    ids=lambda one: next(iter(one)) if isinstance(one, dict) else "",
)
def test_bad_input(
    params: Params, config: Config, changes: dict[str, object], message: str
) -> None:
    given = {"ids": np.zeros((2, 3), int), "lengths": [3, 3], "steps": 2} | changes
    with pytest.raises(ValueError, match=message):
        generate(params, config, **given)


def test_bad_cartridges(params: Params, config: Config) -> None:
    def run(keys: Array, scale: float, first: int) -> None:
        cartridge = Cartridge(keys, keys, scale, first_question=first)
        generate(params, config, [[1, 2]], [2], steps=2, cartridge=cartridge)

    keys = jnp.zeros((config.layers, config.kv_heads, 3, config.head_dim))
    with pytest.raises(ValueError, match=r"expected keys and values \[2, 2, slots, 8\]"):
        run(keys[:1], config.scale, 3)
    with pytest.raises(ValueError, match="scale of attention, 0.3535.*, got 20"):
        run(keys, 20.0, 3)
    with pytest.raises(ValueError, match="context is 64 tokens, got 4 after 61 positions"):
        run(keys, config.scale, 61)
