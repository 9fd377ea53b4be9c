"""Starts, moved keys and composition: the same as reading the tokens there."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmem.lm.cartridges.compaction import attention_matching, evict
from jaxmem.lm.cartridges.composition import compose
from jaxmem.lm.cartridges.prefix import prefix_cartridge, take
from jaxmem.lm.cartridges.starts import packed, reposition
from jaxmem.lm.config import Config
from jaxmem.lm.decoder import forward
from jaxmem.lm.fit import first_question
from jaxmem.lm.parameters import Params
from jaxmem.recall import cartridges as recall
from jaxmem.recall.facts import Document

pytestmark = pytest.mark.usefixtures("unoptimised")
forward_jit = jax.jit(forward, static_argnames="config")


@pytest.fixture(scope="module")
def whole(config: Config, params: Params) -> recall.Cartridge:
    """The prefix of 20 tokens."""
    ids = np.random.default_rng(0).integers(0, config.vocabulary, 20)
    return prefix_cartridge(params, config, ids)


@pytest.fixture(scope="module")
def asked(config: Config) -> jax.Array:
    """Questions of each layer and head."""
    shape = (config.layers, config.kv_heads, 40, config.head_dim)
    return jax.random.normal(jax.random.key(1), shape)


def test_a_prefix_is_its_text_in_context(
    config: Config, params: Params, whole: recall.Cartridge
) -> None:
    ids = np.random.default_rng(0).integers(0, config.vocabulary, 20)
    question = np.array([[5, 9, 2, 40]])
    together = np.concatenate([ids[None], question], axis=1)
    want, _ = forward_jit(params, config, jnp.asarray(together), jnp.arange(24)[None])
    got, _ = forward_jit(
        params, config, jnp.asarray(question), 20 + jnp.arange(4)[None], cartridge=whole
    )
    np.testing.assert_allclose(got[0], want[0, 20:], atol=1e-5)
    assert first_question(whole) == 20
    assert whole.frozen == 1


def test_moved_keys_are_those_of_other_positions(
    config: Config, params: Params, whole: recall.Cartridge
) -> None:
    back = reposition(config, reposition(config, whole, 13), -13)
    np.testing.assert_allclose(back.keys, whole.keys, atol=1e-5)
    # The first layer's keys depend on the token and its position alone.
    some = take(whole, jnp.array([0, 4, 9]))
    here = packed(config, some)
    ids = np.random.default_rng(0).integers(0, config.vocabulary, 20)[[0, 4, 9]]
    read = prefix_cartridge(params, config, ids)
    np.testing.assert_allclose(here.keys[0], read.keys[0], atol=1e-5)
    assert first_question(here) == 3
    everywhere = jnp.broadcast_to(jnp.array([0, 4, 9]), (2, 2, 3))
    np.testing.assert_array_equal(take(whole, everywhere).keys, some.keys)
    np.testing.assert_allclose(packed(config, take(whole, everywhere)).keys, here.keys, atol=1e-6)
    with pytest.raises(ValueError, match=r"positions in 0\.\.63, got 50 to 70"):
        reposition(config, whole, 50)


@pytest.mark.parametrize("select", ["attention", "peak"])
def test_matching_is_that_of_each_head(
    whole: recall.Cartridge, asked: jax.Array, select: str
) -> None:
    got = attention_matching(whole, 6, asked, select=select)
    assert got.keys.shape == (2, 2, 6, 8)
    assert got.first_question == 20
    for layer in range(2):
        for head in range(2):
            alone = Document(whole.keys[layer, head], whole.values[layer, head])
            positions = np.asarray(got.positions)[layer, head]
            assert positions[0] == 0  # the sink
            np.testing.assert_array_equal(got.keys[layer, head], alone.keys[positions])
            scores = jax.nn.softmax(whole.scale * asked[layer, head] @ alone.keys.T)
            scores = scores.max(0) if select == "peak" else scores.sum(0)
            wanted = np.sort(np.append(np.argsort(-scores[1:])[:5] + 1, 0))
            np.testing.assert_array_equal(positions, wanted)
    kept = evict(whole, 6, asked, select)
    np.testing.assert_array_equal(kept.positions, got.positions)


def test_matching_as_recall_has_it(whole: recall.Cartridge, asked: jax.Array) -> None:
    got = attention_matching(whole, 20, asked, select="omp")
    alone = Document(whole.keys[1, 0], whole.values[1, 0])
    want = recall.attention_matching(alone, 20, asked[1, 0], whole.scale, select="omp")
    np.testing.assert_allclose(got.values[1, 0], want.values, atol=1e-4)
    # Everything kept is the document itself.
    np.testing.assert_allclose(got.values, whole.values, atol=1e-3)
    np.testing.assert_allclose(got.bias, 0, atol=1e-3)


def test_bad_selections_are_refused(whole: recall.Cartridge, asked: jax.Array) -> None:
    with pytest.raises(ValueError, match="at most as many slots as tokens, 20, got 21"):
        attention_matching(whole, 21, asked)
    with pytest.raises(ValueError, match="unknown selection of keys 'peek'"):
        evict(whole, 3, asked, "peek")
    with pytest.raises(ValueError, match=r"questions \[2, 2, Q, 8\], got \(2, 2, 8\)"):
        evict(whole, 3, asked[:, :, 0])


def test_composition_drops_later_sinks(config: Config, whole: recall.Cartridge) -> None:
    both = compose(config, whole, whole)
    assert both.slots == 39
    assert first_question(both) == 20
    assert compose(config, whole, whole, drop_sinks=False).slots == 40
    moved = compose(config, whole, whole, move=True)
    assert first_question(moved) == 40
    np.testing.assert_array_equal(moved.positions, [*range(20), *range(21, 40)])
    alone = dataclasses.replace(take(whole, jnp.arange(1)), frozen=1)
    with pytest.raises(ValueError, match="more slots than the 1 left out"):
        compose(config, whole, alone)
