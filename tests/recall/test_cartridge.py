"""Cartridges: identities with attention, starts, room, composition, what is refused."""

import dataclasses
import math
import re
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmem.recall.attention import attend, merge
from jaxmem.recall.cartridges.border import check_document
from jaxmem.recall.cartridges.cartridge import (
    SCALE,
    Cartridge,
    attention_shares,
    compose,
    init_cartridge,
    pad,
    slot_entropy,
    whole,
)
from jaxmem.recall.facts import Document, facts, paraphrase

KEY = jax.random.key(3)
HOWS = ["first", "sampled", "random_text", "random_vectors"]


def document(n: int = 24, dim: int = 8, value_dim: int = 5) -> Document:
    return facts(jax.random.key(n), n, dim, value_dim=value_dim)


def cartridge(
    seed: int = 0, slots: int = 6, lead: tuple[int, ...] = (), extras: bool = False, frozen: int = 1
) -> Cartridge:
    """Random slots; with `extras` also a bias, a mask and positions."""
    rng = np.random.default_rng(seed)
    made = Cartridge(
        jnp.float32(rng.normal(size=(*lead, slots, 8))),
        jnp.float32(rng.normal(size=(*lead, slots, 5))),
        2.0,
        frozen=frozen,
    )
    if not extras:
        return made
    return dataclasses.replace(
        made,
        bias=jnp.float32(rng.normal(size=(*lead, slots))),
        mask=jnp.asarray(rng.random((*lead, slots)) < 0.8).at[..., 0].set(True),
        positions=jnp.arange(slots),
        first_question=slots,
    )


def positioned(*shape: int) -> Cartridge:
    return dataclasses.replace(cartridge(), positions=jnp.zeros(shape, jnp.int32))


def questions(shape: tuple[int, ...] = (7,)) -> jax.Array:
    return jax.random.normal(jax.random.key(9), (*shape, 8))


def test_the_whole_document_is_read_as_attention_reads_it() -> None:
    doc = document()
    query = paraphrase(KEY, doc.keys)
    found, wanted = whole(doc).read(query), attend(query, *doc, 20.0)
    np.testing.assert_array_equal(found.output, wanted.output)
    np.testing.assert_array_equal(found.log_sum_exp, wanted.log_sum_exp)
    assert whole(doc).slots == 24
    assert whole(doc).scale == SCALE == 20
    assert whole(doc, 3.0).scale == 3.0


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("slots", [1, 9, 24])
def test_starts_have_the_shapes_asked_for(how: str, slots: int) -> None:
    made = init_cartridge(KEY, document(), slots, how, frozen=1, scale=4.0)
    again = init_cartridge(KEY, document(), slots, how, frozen=1, scale=4.0)
    assert made.keys.shape == (slots, 8)
    assert made.values.shape == (slots, 5)
    assert (made.slots, made.frozen, made.scale) == (slots, 1, 4.0)
    assert made.bias is made.mask is made.positions is made.first_question is None
    np.testing.assert_array_equal(made.keys, again.keys)
    np.testing.assert_array_equal(made.values, again.values)
    other = init_cartridge(jax.random.key(4), document(), slots, how)
    same = np.array_equal(made.keys, other.keys)
    assert same == (how == "first") or (how == "sampled" and slots == 1)


def test_the_first_facts_are_truncation() -> None:
    doc = document()
    made = init_cartridge(KEY, doc, 9)
    np.testing.assert_array_equal(made.keys, doc.keys[:9])
    np.testing.assert_array_equal(made.values, doc.values[:9])


def test_sampled_facts_differ_and_keep_their_values() -> None:
    doc = document()
    for slots in (9, 24):
        made = init_cartridge(KEY, doc, slots, "sampled")
        where = np.argmax(np.asarray(made.keys @ doc.keys.T), axis=1)
        assert len(set(where.tolist())) == slots
        np.testing.assert_array_equal(made.keys, doc.keys[where])
        np.testing.assert_array_equal(made.values, doc.values[where])


def test_sampled_facts_are_uniform() -> None:
    doc = document(6)
    keys = jax.random.split(KEY, 600)
    made = jax.vmap(lambda key: init_cartridge(key, doc, 2, "sampled"))(keys)
    where = np.argmax(np.asarray(made.keys @ doc.keys.T), axis=-1)
    counts = np.bincount(where.ravel(), minlength=6)  # of 1200 draws, 200 each expected
    assert np.all(np.abs(counts - 200) < 5 * math.sqrt(600 * (1 / 3) * (2 / 3)))


def test_random_starts_have_their_lengths() -> None:
    doc = facts(KEY, 4, 64)  # fewer facts than slots is no obstacle here, nor is the same key
    text = init_cartridge(KEY, doc, 400, "random_text")
    np.testing.assert_allclose(jnp.linalg.norm(text.keys, axis=1), 1, rtol=1e-5)
    assert float(jnp.max(text.keys @ doc.keys.T)) < 0.9
    vectors = init_cartridge(KEY, doc, 400, "random_vectors")
    lengths = jnp.linalg.norm(vectors.keys, axis=1)
    assert float(jnp.mean(lengths)) == pytest.approx(math.sqrt(64), rel=0.03)
    assert float(jnp.mean(vectors.values)) == pytest.approx(0, abs=0.03)
    assert abs(float(jnp.corrcoef(vectors.keys.ravel(), vectors.values.ravel())[0, 1])) < 0.03


@pytest.mark.parametrize("extras", [False, True])
@pytest.mark.parametrize("slots", [6, 32])
def test_room_changes_no_read(extras: bool, slots: int) -> None:
    with jax.enable_x64(True):
        made = cartridge(extras=extras)
        made = dataclasses.replace(
            made, keys=made.keys.astype(float), values=made.values.astype(float)
        )
        query = questions().astype(float)
        found, wanted = pad(made, slots).read(query), made.read(query)
        np.testing.assert_allclose(found.output, wanted.output, rtol=1e-13, atol=1e-14)
        np.testing.assert_allclose(found.log_sum_exp, wanted.log_sum_exp, rtol=1e-13)
        np.testing.assert_allclose(
            slot_entropy(pad(made, slots), query), slot_entropy(made, query), rtol=1e-12
        )
    assert pad(made, slots).slots == slots
    assert int(jnp.sum(pad(made, slots).mask)) == (6 if made.mask is None else int(made.mask.sum()))


@pytest.mark.parametrize("extras", [False, True])
def test_pad_and_compose_with_layers_and_heads_in_front(extras: bool) -> None:
    lead = (2, 3)
    first, second = (cartridge(seed, 6 - seed, lead, extras) for seed in (0, 1))
    grown, both = pad(first, 10), compose(first, second)
    assert grown.keys.shape == (2, 3, 10, 8)
    assert both.values.shape == (2, 3, 11, 5)
    assert (both.slots, grown.slots) == (11, 10)
    for layer, head in np.ndindex(*lead):

        def at(made: Cartridge, layer: int = layer, head: int = head) -> Cartridge:
            parts = {"keys": made.keys, "values": made.values, "bias": made.bias, "mask": made.mask}
            return dataclasses.replace(
                made, **{n: None if a is None else a[layer, head] for n, a in parts.items()}
            )

        query = questions()
        found = at(grown).read(query)
        np.testing.assert_allclose(found.output, at(first).read(query).output, rtol=1e-5, atol=1e-6)
        one, wanted = at(both).read(query), compose(at(first), at(second)).read(query)
        np.testing.assert_allclose(one.output, wanted.output, rtol=1e-5, atol=1e-6)


def test_positions_of_every_layer_and_head_beside_positions_of_slots() -> None:
    lead = (2, 3)
    first, second = (cartridge(seed, 6 - seed, lead, extras=True) for seed in (0, 1))
    each = jnp.arange(2 * 3 * 6).reshape(2, 3, 6)
    own = dataclasses.replace(first, positions=each)
    assert pad(own, 8).positions.shape == (2, 3, 8)
    np.testing.assert_array_equal(pad(own, 8).positions[..., :6], each)
    there = jnp.broadcast_to(jnp.arange(5), (2, 3, 5))
    for both, wanted in (
        (compose(own, second), (each, there)),
        (compose(second, own), (there, each)),
        (compose(own, own, drop_sinks=False), (each, each)),
        (compose(own, own), (each, each[..., 1:])),  # the frozen slot is the same one
    ):
        np.testing.assert_array_equal(both.positions, jnp.concatenate(wanted, axis=-1))
    assert compose(first, second).positions.shape == (11,)


@pytest.mark.parametrize("extras", [False, True])
@pytest.mark.parametrize("parts", [1, 3])
def test_reading_composed_cartridges_is_merging_their_reads(extras: bool, parts: int) -> None:
    several = [cartridge(seed, 3 + seed, extras=extras) for seed in range(parts)]
    composed = compose(*several, drop_sinks=False).read(questions())
    merged = merge([part.read(questions()) for part in several])
    np.testing.assert_allclose(composed.output, merged.output, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(composed.log_sum_exp, merged.log_sum_exp, rtol=1e-6, atol=1e-6)


def with_sink(seed: int, sinks: int) -> Cartridge:
    """A cartridge whose first slots are those of seed 0, as a shared attention sink is."""
    common, own = cartridge(0, 5), cartridge(seed, 5, extras=True, frozen=sinks)
    return dataclasses.replace(
        own,
        keys=own.keys.at[:sinks].set(common.keys[:sinks]),
        values=own.values.at[:sinks].set(common.values[:sinks]),
    )


def test_composing_drops_copies_of_the_first_ones_sinks() -> None:
    first, second, third = with_sink(1, 2), with_sink(2, 2), with_sink(3, 1)
    both = compose(first, second, third)
    assert (both.slots, both.frozen) == (5 + 3 + 4, 2)
    for name in ("keys", "values", "bias", "mask", "positions"):
        parts = [getattr(a, name)[n:] for a, n in ((first, 0), (second, 2), (third, 1))]
        np.testing.assert_array_equal(getattr(both, name), jnp.concatenate(parts))
    assert compose(first, second, third, drop_sinks=False).slots == 15
    traced = jax.jit(compose)(first, second, third)
    assert traced.slots == 15
    found, wanted = traced.read(questions()), both.read(questions())
    np.testing.assert_allclose(found.output, wanted.output, rtol=1e-5, atol=1e-6)


def test_composing_keeps_frozen_facts_of_its_own() -> None:
    """Frozen slots that differ from the first's are no copies of its sink."""
    first, second = (cartridge(seed, 5, frozen=2) for seed in (1, 2))
    both = compose(first, second)
    assert both.slots == 10
    merged = merge([first.read(questions()), second.read(questions())])
    np.testing.assert_allclose(both.read(questions()).output, merged.output, rtol=1e-5, atol=1e-6)


def test_composing_fills_in_what_only_one_part_has() -> None:
    plain, full = cartridge(0, 4), dataclasses.replace(cartridge(1, 5, extras=True), positions=None)
    both = compose(plain, full, drop_sinks=False)
    np.testing.assert_array_equal(both.bias, jnp.concatenate([jnp.zeros(4), full.bias]))
    np.testing.assert_array_equal(both.mask, jnp.concatenate([jnp.ones(4, bool), full.mask]))
    assert both.bias.dtype == jnp.float32
    merged = merge([plain.read(questions()), full.read(questions())])
    np.testing.assert_allclose(both.read(questions()).output, merged.output, rtol=1e-6, atol=1e-6)


def test_the_first_question_comes_after_the_longest() -> None:
    def asked(first: int | None) -> Cartridge:
        return dataclasses.replace(cartridge(), first_question=first)

    assert compose(asked(3), asked(9), asked(4)).first_question == 9
    assert compose(asked(None), asked(2)).first_question == 2
    assert compose(asked(None), asked(None)).first_question is None


def test_composing_under_jit_with_traced_scales() -> None:
    first, second = cartridge(0, extras=True), cartridge(1, extras=True)
    found = jax.jit(compose)(first, second)
    wanted = compose(first, second)
    assert jax.tree.structure(found) == jax.tree.structure(wanted)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_array_equal(a, b)


def test_shares_sum_to_one_and_are_those_of_the_merge() -> None:
    several = [cartridge(seed, 4, extras=True) for seed in range(3)]
    for query in (questions((2, 3)), questions(())):
        shares = attention_shares(several, query)
        assert shares.shape == (3, *query.shape[:-1])
        np.testing.assert_allclose(shares.sum(axis=0), 1, rtol=1e-6)
        outputs = jnp.stack([part.read(query).output for part in several])
        mixed = jnp.sum(shares[..., None] * outputs, axis=0)
        merged = merge([part.read(query) for part in several])
        np.testing.assert_allclose(mixed, merged.output, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(attention_shares(several[:1], questions()), 1)
    twice = attention_shares([several[0], several[0]], questions())
    np.testing.assert_allclose(twice, 0.5, rtol=1e-6)


def test_shares_where_no_slot_counts() -> None:
    hidden = dataclasses.replace(cartridge(), mask=jnp.zeros(6, bool))
    both = attention_shares([cartridge(), hidden], questions())
    np.testing.assert_array_equal(both, np.stack([np.ones(7), np.zeros(7)]))
    np.testing.assert_array_equal(attention_shares([hidden, hidden], questions()), np.zeros((2, 7)))


def test_entropy_between_none_and_log_p() -> None:
    made = dataclasses.replace(cartridge(slots=11), scale=0.0)
    np.testing.assert_allclose(slot_entropy(made, questions()), math.log(11), rtol=1e-6)
    sharp = dataclasses.replace(made, scale=1e6)
    np.testing.assert_allclose(slot_entropy(sharp, questions()), 0, atol=1e-6)
    half = dataclasses.replace(made, mask=jnp.arange(11) < 4)
    np.testing.assert_allclose(slot_entropy(half, questions()), math.log(4), rtol=1e-6)
    biased = dataclasses.replace(made, bias=jnp.where(jnp.arange(11) < 2, 0, -jnp.inf))
    np.testing.assert_allclose(slot_entropy(biased, questions()), math.log(2), rtol=1e-6)
    usual = cartridge(slots=11)
    weights = np.asarray(jax.nn.softmax(2.0 * questions() @ usual.keys.T), np.float64)
    plain = -np.sum(weights * np.log(weights), axis=-1)
    np.testing.assert_allclose(slot_entropy(usual, questions()), plain, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("extras", [False, True])
def test_round_trip_as_a_tree(extras: bool) -> None:
    made = cartridge(extras=extras, frozen=2)
    passed = jax.jit(lambda a: a)(made)
    assert isinstance(passed, Cartridge)
    assert passed.frozen == 2
    assert type(passed.frozen) is int
    assert (passed.bias is None) == (not extras)
    stacked = jax.tree.map(lambda *a: jnp.stack(a), made, cartridge(1, extras=extras, frozen=2))
    reads = jax.vmap(lambda a, q: a.read(q), in_axes=(0, None))(stacked, questions())
    assert reads.output.shape == (2, 7, 5)
    np.testing.assert_allclose(reads.output[0], made.read(questions()).output, rtol=1e-5, atol=1e-6)
    assert len(jax.tree.leaves(made)) == (6 if extras else 2)


def test_frozen_slots_and_scale_are_static() -> None:
    traces = []

    @jax.jit
    def read(made: Cartridge) -> jax.Array:
        traces.append((made.frozen, made.scale))
        return made.read(questions()).output

    made = cartridge(frozen=1)
    for frozen, scale in ((1, 1.0), (1, 1.0), (2, 1.0), (2, 3.0)):
        read(dataclasses.replace(made, scale=scale, frozen=frozen))
    assert traces == [(1, 1.0), (2, 1.0), (2, 3.0)]


def test_a_traced_scale_is_refused() -> None:
    with pytest.raises(ValueError, match="expected a scale known when tracing"):
        jax.jit(lambda scale: whole(document(), scale))(2.0)
    with pytest.raises(ValueError, match="expected a number for the scale, got 'a'"):
        whole(document(), "a")  # type: ignore[arg-type]


def with_nan(part: str) -> Document:
    doc = document()
    return doc._replace(**{part: getattr(doc, part).at[7, 2].set(jnp.nan)})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: init_cartridge(KEY, document(), 0), "slots must be at least 1, got 0"),
        (lambda: init_cartridge(KEY, document(), -3), "slots must be at least 1, got -3"),
        (lambda: init_cartridge(KEY, document(), 25), "as facts, 24, got 25"),
        (lambda: init_cartridge(KEY, document(), 25, "sampled"), "as facts, 24, got 25"),
        (lambda: init_cartridge(KEY, document(), 4, "frist"), "did you mean 'first'?"),
        (lambda: init_cartridge(KEY, document(), 4, "zeros"), "known: first, random_text"),
        (lambda: init_cartridge(KEY, document(), 4, frozen=5), "frozen must be at most 4, got 5"),
        (
            lambda: init_cartridge(KEY, document(), 4, frozen=-1),
            "frozen must be at least 0, got -1",
        ),
        (lambda: init_cartridge(KEY, with_nan("keys"), 4), "finite keys, got nan in fact 7"),
        (lambda: init_cartridge(KEY, with_nan("values"), 4), "finite values, got nan in fact 7"),
        (lambda: check_document(Document(jnp.ones((3, 2)), jnp.ones((4, 2)))), "(3, 2) and (4, 2)"),
        (lambda: check_document(Document(jnp.ones((0, 2)), jnp.ones((0, 2)))), "(0, 2) and (0, 2)"),
        (lambda: check_document(Document(jnp.ones(3), jnp.ones((3, 2)))), "keys [N, K]"),
        (lambda: pad(cartridge(), 5), "at least 6 slots, got 5"),
        (lambda: compose(cartridge(), whole(document(6, 8, 5))), "equal scale, got 2.0 and 20.0"),
        (lambda: compose(cartridge(), whole(document(6, 7, 5), 2.0)), "equal dims"),
        (lambda: compose(cartridge(), whole(document(6, 8, 4), 2.0)), "equal dims"),
        (lambda: compose(cartridge(), cartridge(lead=(2,))), "equal dims"),
        (lambda: compose(cartridge(), cartridge(extras=True)), "all cartridges with positions or"),
        (lambda: compose(positioned(5), positioned(6)), "expected positions (6,), got (5,)"),
        (lambda: compose(positioned(6), positioned(6, 6)), "expected positions (6,), got (6, 6)"),
        (lambda: attention_shares([], questions()), "at least one read"),
    ],
    ids=range(22),
)
def test_refusals_say_what_was_expected(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_starts_under_jit_and_vmap() -> None:
    doc = document()
    for how in ("sampled", "random_text"):
        start = jax.jit(lambda key, doc, how=how: init_cartridge(key, doc, 5, how, frozen=2))
        found, wanted = start(KEY, doc), init_cartridge(KEY, doc, 5, how)
        np.testing.assert_allclose(found.keys, wanted.keys, rtol=1e-6)
        assert found.frozen == 2
    many = jax.vmap(lambda key: init_cartridge(key, doc, 5, "sampled"))(jax.random.split(KEY, 3))
    assert many.keys.shape == (3, 5, 8)
