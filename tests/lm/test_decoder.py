"""The decoder against its twin, against itself cut in pieces, and a cartridge against its text."""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from jaxmem.lm import attention
from jaxmem.lm import product as product_module
from jaxmem.lm.attention import own_read, shared_read
from jaxmem.lm.config import Config, Llama3Scaling
from jaxmem.lm.decoder import Cache, forward, init_cache
from jaxmem.lm.generation import prefill
from jaxmem.lm.parameters import Params, fingerprint, flat, nested
from jaxmem.lm.product import product, transposed_product
from jaxmem.recall.cartridges import Cartridge
from jaxmem.reference import decoder as reference

pytestmark = pytest.mark.usefixtures("unoptimised")

forward_jit = jax.jit(forward, static_argnames=("config", "remat"))

PLAIN = Config(61, 24, 2, 4, 4, 8, 40, 64)
LLAMA3 = Llama3Scaling(8.0, 1.0, 4.0, 16)
SHAPES = {
    "mha": {},
    "gqa-bias-tied": {"kv_heads": 2, "qkv_bias": True, "tied": True, "rope_factor": 4.0},
    "mqa-all": {
        "kv_heads": 1,
        "qk_norm": True,
        "qkv_bias": True,
        "tied": True,
        "rope_llama3": LLAMA3,
        "rope_theta": 100.0,
    },
}


def assert_near(found: object, wanted: object, most: float, name: str = "logits") -> None:
    """Relative RMS error."""
    found, wanted = np.asarray(found, np.float64), np.asarray(wanted, np.float64)
    assert found.shape == wanted.shape, f"{name}: {found.shape}, not {wanted.shape}"
    error = np.sqrt(np.mean((found - wanted) ** 2)) / np.sqrt(np.mean(wanted**2))
    assert error <= most, f"{name}: relative RMS error {error:.2e}, at most {most:.0e}"


def tokens(seed: int, config: Config, batch: int, length: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, config.vocabulary, (batch, length))


def places(batch: int, length: int, start: int = 0) -> np.ndarray:
    return np.broadcast_to(start + np.arange(length), (batch, length))


def random_cartridge(config: Config, slots: int = 5, kind: str = "float32") -> Cartridge:
    """With a bias and hidden slots."""
    rng = np.random.default_rng(3)
    shape = config.layers, config.kv_heads, slots
    keys, values = rng.normal(size=(2, *shape, config.head_dim)).astype(kind)
    return Cartridge(
        jnp.asarray(keys),
        jnp.asarray(values),
        config.scale,
        bias=jnp.asarray(rng.normal(size=shape).astype(kind)),
        mask=jnp.asarray(rng.random(shape) < 0.8),
        first_question=slots,
    )


def as_cartridge(config: Config, cache: Cache) -> Cartridge:
    """The first row's tokens as slots."""
    keys, values = (jnp.swapaxes(part[:, 0], 1, 2) for part in (cache.keys, cache.values))
    return Cartridge(keys, values, config.scale, first_question=keys.shape[2])


def twin(
    params: Params,
    config: Config,
    ids: Array,
    positions: Array,
    segment_ids: Array | None = None,
    cartridge: Cartridge | None = None,
) -> np.ndarray:
    slots = None
    if cartridge is not None:
        slots = {name: getattr(cartridge, name) for name in ("keys", "values", "bias", "mask")}
        slots = {name: np.asarray(one) for name, one in slots.items()}
    arrays = {name: np.asarray(array) for name, array in flat(params).items()}
    rows = (None if one is None else np.asarray(one) for one in (ids, positions, segment_ids))
    return reference.forward(arrays, dataclasses.asdict(config), *rows, slots)


@pytest.mark.parametrize(
    ("shape", "kind"), [(one, "float64" if one == "mqa-all" else "float32") for one in SHAPES]
)
def test_forward_equals_its_twin(shape: str, kind: str, make_params: Callable[..., Params]) -> None:
    config = dataclasses.replace(PLAIN, **SHAPES[shape])
    with jax.enable_x64(kind == "float64"):
        params = make_params(config, kind)
        ids, positions = tokens(2, config, 2, 7), places(2, 7, 5)
        segments = np.array([[0, 0, 0, 1, 1, 2, 2], [0, 0, 0, 0, 0, 0, 1]])
        rest = (segments, random_cartridge(config, kind=kind)) if shape != "mha" else ()
        found, _ = forward_jit(params, config, ids, positions, *rest)
    wanted = twin(params, config, ids, positions, *rest)
    assert_near(found, wanted, 1e-12 if kind == "float64" else 2e-6)


def test_cached_equals_uncached(params: Params, config: Config) -> None:
    ids, lengths = tokens(4, config, 2, 8), np.array([5, 3])
    cartridge = random_cartridge(config)
    wanted, _ = forward_jit(params, config, ids, places(2, 8, 5), cartridge=cartridge)
    found, cache = forward_jit(
        params,
        config,
        ids[:, :5],
        places(2, 5, 5),
        cartridge=cartridge,
        cache=init_cache(config, 2, 9),
        lengths=jnp.array(lengths),
    )
    for row, length in enumerate(lengths):
        assert_near(found[row, :length], wanted[row, :length], 2e-6, f"row {row}")
    for step in range(3):
        at = lengths + step
        now = ids[np.arange(2), at][:, None]
        found, cache = forward_jit(
            params, config, now, 5 + at[:, None], cartridge=cartridge, cache=cache
        )
        assert_near(found[:, 0], wanted[np.arange(2), at], 2e-6, f"step {step}")
    np.testing.assert_array_equal(cache.lengths, lengths + 3)


def test_every_number_is_in_the_fingerprint(params: Params, config: Config) -> None:
    wanted = fingerprint(params, config)
    draw = np.random.default_rng(0)
    for name, part in flat(params).items():
        place = np.unravel_index(draw.integers(part.size), part.shape)
        changed = nested(flat(params) | {name: part.at[place].add(1.0)})
        assert fingerprint(changed, config) != wanted, name
    assert fingerprint(params, config) == wanted


def test_a_cache_without_room(params: Params, config: Config) -> None:
    cache = init_cache(config, 1, 10)
    ids = tokens(3, config, 1, 6)
    _, cache = forward(params, config, ids, places(1, 6, 0), cache=cache)
    with pytest.raises(ValueError, match="expected room for 6 \\+ 6 tokens in the cache, got 10"):
        forward(params, config, ids, places(1, 6, 6), cache=cache)
    with pytest.raises(ValueError, match="expected room for 0 \\+ 6 tokens in the cache, got 5"):
        forward_jit(params, config, ids, places(1, 6, 0), cache=init_cache(config, 1, 5))


def test_prefill_in_pieces_equals_whole(params: Params, config: Config) -> None:
    ids, cartridge = tokens(5, config, 2, 11), random_cartridge(config)
    _, wanted = forward_jit(
        params,
        config,
        ids,
        places(2, 11, 5),
        cartridge=cartridge,
        cache=init_cache(config, 2, 11),
    )
    for chunk in (4, 512):
        found = prefill(params, config, ids, cartridge, chunk=chunk)
        for name in ("keys", "values", "lengths"):
            assert_near(getattr(found, name), getattr(wanted, name), 2e-6, f"{name} by {chunk}")


def test_packed_equals_unpacked(params: Params, config: Config) -> None:
    ids, lengths, cartridge = tokens(6, config, 2, 8), [5, 3], random_cartridge(config)
    wanted, _ = forward_jit(params, config, ids, places(2, 8, 5), cartridge=cartridge)
    packed, positions, segments, unpacked = (
        np.concatenate([row[:length] for row, length in zip(np.asarray(rows), lengths)])
        for rows in (ids, places(2, 8, 5), np.tile([[0], [1]], 8), wanted)
    )
    found, _ = forward_jit(params, config, packed[None], positions[None], segments[None], cartridge)
    assert_near(found[0], unpacked, 2e-6)


def test_only_the_wanted_logits_are_made(params: Params, config: Config) -> None:
    ids, at, cartridge = (
        tokens(6, config, 2, 8),
        jnp.array([[7, 0], [1, 1]]),
        random_cartridge(config),
    )
    every, _ = forward_jit(params, config, ids, places(2, 8, 5), cartridge=cartridge)
    some, _ = forward_jit(params, config, ids, places(2, 8, 5), cartridge=cartridge, at=at)
    assert_near(some, every[jnp.arange(2)[:, None], at], 1e-6)


@pytest.mark.parametrize("extra", [False, True], ids=["alone", "bias-and-hidden-slots"])
def test_a_cartridge_of_a_whole_prefix_is_the_prefix(
    params: Params, config: Config, extra: bool
) -> None:
    ids = tokens(8, config, 1, 17)
    full, _ = forward_jit(params, config, ids, places(1, 17))
    cartridge = as_cartridge(config, prefill(params, config, ids[:, :9]))
    if extra:
        heads = cartridge.keys.shape[:2]
        junk = 1e3 * jnp.ones((*heads, 3, config.head_dim))
        cartridge = dataclasses.replace(
            cartridge,
            keys=jnp.concatenate([cartridge.keys, junk], axis=2),
            values=jnp.concatenate([cartridge.values, junk], axis=2),
            bias=jnp.zeros((*heads, 12)),
            mask=jnp.ones((*heads, 12), bool).at[..., 9:].set(False),
        )
    rest, at = np.tile(ids[:, 9:], (2, 1)), places(2, 8, 9)
    found, _ = forward_jit(params, config, rest, at, cartridge=cartridge)
    for row in found:  # all rows read it
        np.testing.assert_allclose(row, full[0, 9:], atol=1e-5, rtol=1e-5)


def test_the_order_of_slots_does_not_matter(params: Params, config: Config) -> None:
    cartridge, ids = random_cartridge(config), tokens(9, config, 2, 8)
    order = np.array([3, 0, 4, 1, 2])
    turned = {
        name: getattr(cartridge, name)[:, :, order] for name in ("keys", "values", "bias", "mask")
    }
    turned = dataclasses.replace(cartridge, **turned)
    wanted, _ = forward_jit(params, config, ids, places(2, 8, 5), cartridge=cartridge)
    found, _ = forward_jit(params, config, ids, places(2, 8, 5), cartridge=turned)
    assert not np.allclose(turned.keys, cartridge.keys)
    assert_near(found, wanted, 1e-6)


def test_tiles_of_a_shared_read_equal_one_tile(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    cartridge = random_cartridge(config)
    slots = [part[0] for part in (cartridge.keys, cartridge.values)]
    rest = cartridge.bias[0], cartridge.mask[0]
    query = (
        np.random.default_rng(2).normal(size=(3, 15, 2, 2, 8)).astype(np.float32)
    )  # 45 rows: tiles of 16

    def total(query: Array, keys: Array, values: Array, bias: Array) -> tuple[Array, object]:
        read = shared_read(query, keys, values, 0.3, bias, rest[1])
        return jnp.sum(jnp.sin(read.output)) + jnp.sum(jnp.cos(read.log_sum_exp)), read

    def run() -> object:
        change = jax.value_and_grad(total, argnums=(0, 1, 2, 3), has_aux=True)
        return jax.jit(change)(query, *slots, rest[0])

    one = run()
    monkeypatch.setattr(attention, "TILE_LOGITS", 1)
    names = ["value", "output", "log_sum_exp", "query", "keys", "values", "bias"]
    for name, found, wanted in zip(names, jax.tree.leaves(run()), jax.tree.leaves(one)):
        assert_near(found, wanted, 2e-6, name)


def test_causal_blocks_of_own_tokens_equal_one_block(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = np.random.default_rng(4)
    query = draw.normal(size=(2, 11, 2, 3, 8)).astype(np.float32)
    keys, values = (draw.normal(size=(2, 11, 2, 8)).astype(np.float32) for _ in range(2))
    segments = np.repeat([0, 1], [5, 6])
    seen = np.tril(segments[:, None] == segments[None])
    seen = np.broadcast_to(seen, (2, 11, 11))

    def run(causal: bool) -> object:
        def total(query: Array, keys: Array, values: Array) -> tuple[Array, object]:
            read = own_read(query, keys, values, seen, 0.3, causal)
            return jnp.sum(jnp.sin(read.output)) + jnp.sum(jnp.cos(read.log_sum_exp)), read

        change = jax.value_and_grad(total, argnums=(0, 1, 2), has_aux=True)
        return jax.jit(change)(query, keys, values)

    monkeypatch.setattr(attention, "CAUSAL_BLOCK", 4)  # blocks of 4, 4 and 3
    for found, wanted in zip(jax.tree.leaves(run(True)), jax.tree.leaves(run(False))):
        assert_near(found, wanted, 2e-6)


def test_gradient_by_a_cartridge(config: Config, make_params: Callable[..., Params]) -> None:
    with jax.enable_x64(True):
        params = jax.tree.map(jnp.asarray, make_params(config, "float64"))
        cartridge = random_cartridge(config, kind="float64")
        ids = tokens(10, config, 2, 4)

        def loss(keys: Array, values: Array, bias: Array, remat: bool = False) -> Array:
            mine = dataclasses.replace(cartridge, keys=keys, values=values, bias=bias)
            found, _ = forward(params, config, ids, places(2, 4, 5), cartridge=mine, remat=remat)
            return -jnp.mean(jax.nn.log_softmax(found)[..., 3])

        change = jax.jit(jax.value_and_grad(loss, argnums=(0, 1, 2)), static_argnames="remat")
        parts = [np.asarray(one) for one in (cartridge.keys, cartridge.values, cartridge.bias)]
        kept = [np.asarray(one) for one in change(*parts)[1]]
        again = change(*parts, remat=True)[1]
        for number, name in enumerate(("keys", "values", "bias")):
            assert_near(again[number], kept[number], 1e-12, name)
            way = np.random.default_rng(number).normal(size=parts[number].shape)
            above, below = (
                change(*parts[:number], parts[number] + step * way, *parts[number + 1 :])[0]
                for step in (1e-4, -1e-4)
            )
            slope = (above - below) / 2e-4
            np.testing.assert_allclose(np.vdot(kept[number], way), slope, rtol=1e-6, err_msg=name)
        hidden = ~np.asarray(cartridge.mask)
        assert hidden.any()
        assert not kept[0][hidden].any()


def test_bfloat16_weights_are_near(params: Params, config: Config) -> None:
    ids, cartridge = tokens(11, config, 2, 8), random_cartridge(config)
    rounded = jax.tree.map(lambda part: part.astype(jnp.bfloat16), params)
    exact, near = (
        jax.nn.log_softmax(forward_jit(each, config, ids, places(2, 8, 5), cartridge=cartridge)[0])
        for each in (params, rounded)
    )
    assert near.dtype == jnp.float32
    divergence = jnp.mean(jnp.sum(jnp.exp(exact) * (exact - near), axis=-1))
    assert 0 < divergence < 1e-2


@pytest.mark.parametrize("longest", [4096, 2])  # whole sums, and in parts
@pytest.mark.parametrize("transposed", [False, True])
def test_product_and_its_gradient(
    transposed: bool, longest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(product_module, "LONGEST_SUM", longest)
    with jax.enable_x64(True):
        rng = np.random.default_rng(0)
        rows = rng.normal(size=(2, 3, 6))
        weights = rng.normal(size=(9, 6) if transposed else (6, 9))

        def ours(rows: Array, weights: Array) -> Array:
            made = (transposed_product if transposed else product)(rows, weights)
            return jnp.sum(jnp.sin(made))

        def plain(rows: Array, weights: Array) -> Array:
            return jnp.sum(jnp.sin(rows @ (weights.T if transposed else weights)))

        found, wanted = (
            jax.tree.leaves(jax.value_and_grad(each, argnums=(0, 1))(rows, weights))
            for each in (ours, plain)
        )
        for name, one, other in zip(("value", "rows", "weights"), found, wanted):
            assert_near(one, other, 1e-13, name)
