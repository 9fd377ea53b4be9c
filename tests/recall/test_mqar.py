"""Streams of multi-query associative recall, replayed with a dict."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxmem.recall.facts import facts
from jaxmem.recall.mqar import FILLER, QUERY, WRITE, Stream, accuracy, mqar


def replay(stream: Stream, n: int) -> list[tuple[int, int]]:
    """Check a stream against a dict, and return (fact, new value) of the repeated writes."""
    kind, fact, answer, gap = (
        np.asarray(part).tolist() for part in (stream.kind, stream.fact, stream.answer, stream.gap)
    )
    truth: dict[int, tuple[int, int]] = {}
    fillers, repeated = [], []
    for t, (what, key) in enumerate(zip(kind, fact, strict=True)):
        if what == WRITE:
            assert 0 <= key < n
            if key in truth:
                repeated.append((truth[key][0], answer[t]))
            truth[key] = (answer[t], t)
        elif what == QUERY:
            assert (answer[t], t - gap[t]) == truth[key], f"query at {t}"
        else:
            assert answer[t] == -1
            fillers.append(key)
        assert gap[t] == 0 or what == QUERY
    assert fillers == list(range(n, n + len(fillers)))  # each its own, none a fact
    latest = [truth.get(f, (-1, 0))[0] for f in range(n)]
    assert np.asarray(stream.latest).tolist() == latest
    return repeated


@given(
    seed=st.integers(0, 2**31 - 1),
    skew=st.sampled_from([0.0, 1.0, 3.0]),
    overwrites=st.sampled_from([0.0, 0.5, 1.0]),
    gap_power=st.sampled_from([-3.0, 0.01, 1.0, 4.0]),
    shape=st.sampled_from(
        [
            (1, 1, 1, 0, 0, False),
            (5, 3, 3, 7, 4, False),
            (6, 2, 40, 30, 9, True),
        ]
    ),
)
@settings(max_examples=40, deadline=None)
def test_answers_are_the_last_writes(
    seed: int,
    skew: float,
    overwrites: float,
    gap_power: float,
    shape: tuple[int, int, int, int, int, bool],
) -> None:
    n, vocabulary, writes, queries, filler, interleave = shape
    stream = mqar(
        jax.random.key(seed),
        n,
        4,
        vocabulary=vocabulary,
        writes=writes,
        queries=queries,
        filler=filler,
        skew=skew,
        overwrites=overwrites,
        gap_power=gap_power,
        interleave=interleave,
    )
    assert np.bincount(stream.kind, minlength=3).tolist() == [writes, queries, filler]
    repeated = replay(stream, n)
    changes = sum(old != new for old, new in repeated)
    assert changes == {0.0: 0, 1.0: len(repeated) if vocabulary > 1 else 0}.get(overwrites, changes)
    once = np.unique(np.asarray(stream.fact)[np.asarray(stream.kind) == WRITE]).size
    assert once == min(n, writes)
    if not interleave:
        assert np.all(np.asarray(stream.kind)[:writes] == WRITE)


def test_vectors_are_rows_of_the_tables() -> None:
    stream = mqar(
        jax.random.key(0),
        20,
        8,
        value_dim=5,
        vocabulary=30,
        writes=50,
        filler=25,
        overwrites=0.5,
        interleave=True,
        unit_values=False,
    )
    assert stream.keys.shape == (95, 8)
    assert stream.values.shape == (95, 5)
    np.testing.assert_array_equal(stream.keys, stream.table[stream.fact])
    wanted = np.where(
        (stream.kind == FILLER)[:, None], 0, np.asarray(stream.vocabulary)[stream.answer]
    )
    np.testing.assert_array_equal(stream.values, wanted)
    np.testing.assert_allclose(jnp.linalg.norm(stream.table, axis=1), 1, rtol=1e-6)
    assert not np.allclose(jnp.linalg.norm(stream.vocabulary, axis=1), 1)
    # No two rows of the table are alike, so no filler is a live key.
    closeness = np.asarray(stream.table @ stream.table.T) - np.eye(45)
    assert np.abs(closeness).max() < 0.99


def test_tables_are_those_of_facts() -> None:
    key = jax.random.key(5)
    stream = mqar(key, 12, 8, filler=3)
    document = facts(jax.random.split(key, 6)[0], 15, 8)
    np.testing.assert_allclose(stream.table, document.keys, rtol=1e-6)
    np.testing.assert_allclose(stream.vocabulary, document.values[:12], rtol=1e-6)


def test_paraphrases_are_of_queries_only() -> None:
    stream = mqar(jax.random.key(0), 200, 64, filler=20, noise=0.3, interleave=True)
    cosine = np.sum(np.asarray(stream.keys * stream.table[stream.fact]), axis=1)
    asked = np.asarray(stream.kind) == QUERY
    np.testing.assert_allclose(cosine[~asked], 1, rtol=1e-6)
    assert cosine[asked].mean() == pytest.approx(1 / np.sqrt(1.09), abs=0.004)
    np.testing.assert_allclose(jnp.linalg.norm(stream.keys, axis=1), 1, rtol=1e-6)


def test_the_key_decides_everything() -> None:
    make = partial(mqar, n=9, dim=4, writes=30, filler=5, overwrites=0.5, noise=0.3)
    first, same, other = make(jax.random.key(1)), make(jax.random.key(1)), make(jax.random.key(2))
    jax.tree.map(np.testing.assert_array_equal, first, same)
    assert not np.array_equal(first.fact, other.fact)
    assert not np.array_equal(first.table, other.table)


def test_axes_are_separate() -> None:
    """Changing one axis leaves what the others decide."""
    make = partial(mqar, jax.random.key(3), 16, 8, writes=64, queries=40, filler=8)
    plain = make()
    for changed in (make(overwrites=0.7), make(noise=0.5), make(gap_power=0.01)):
        written = np.asarray(plain.kind) == WRITE
        np.testing.assert_array_equal(plain.kind, changed.kind)
        np.testing.assert_array_equal(plain.table, changed.table)
        np.testing.assert_array_equal(
            np.asarray(plain.fact)[written], np.asarray(changed.fact)[written]
        )
    np.testing.assert_array_equal(plain.fact, make(overwrites=0.7).fact)
    np.testing.assert_array_equal(plain.answer, make(noise=0.5).answer)
    assert not np.array_equal(plain.fact, make(gap_power=0.01).fact)


def test_transforms() -> None:
    keys = jax.random.split(jax.random.key(0), 3)
    many = jax.jit(jax.vmap(lambda key, skew: mqar(key, 7, 4, writes=20, skew=skew, filler=2)))
    streams = many(keys, jnp.array([0.0, 1.0, 2.0]))
    for i in range(3):
        one = mqar(keys[i], 7, 4, writes=20, skew=float(i), filler=2)
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-6, atol=1e-7),
            one,
            jax.tree.map(lambda leaf, i=i: leaf[i], streams),
        )


@pytest.mark.parametrize("skew", [0.0, 1.5])
def test_repeats_follow_zipf(skew: float) -> None:
    n, writes = 8, 4008
    stream = mqar(jax.random.key(0), n, 2, writes=writes, queries=0, skew=skew)
    counts = np.bincount(stream.fact, minlength=n) - 1
    weights = (1.0 + np.arange(n)) ** -skew
    share = weights / weights.sum()
    sd = np.sqrt(4000 * share * (1 - share))
    assert np.all(np.abs(counts - 4000 * share) < 4 * sd)


def test_overwrites_are_that_frequent_and_uniform() -> None:
    stream = mqar(jax.random.key(1), 10, 2, vocabulary=4, writes=3010, queries=0, overwrites=0.4)
    repeated = replay(stream, 10)
    changed = [(new - old) % 4 for old, new in repeated if old != new]
    assert len(changed) / len(repeated) == pytest.approx(0.4, abs=0.04)
    assert np.all(np.abs(np.bincount(changed, minlength=4)[1:] / len(changed) - 1 / 3) < 0.06)


one_query = jax.jit(
    jax.vmap(lambda key, power: mqar(key, 12, 2, queries=1, gap_power=power), (0, None))
)


@pytest.mark.parametrize("power", [0.01, 1.0, 2.5])
def test_gaps_follow_the_power_law(power: float) -> None:
    """One query after n writes: every gap of 1..n is open, and p ~ gap^(a - 1)."""
    n, draws = 12, 4000
    streams = one_query(jax.random.split(jax.random.key(0), draws), power)
    counts = np.bincount(np.asarray(streams.gap[:, -1]), minlength=n + 1)
    assert counts[0] == 0
    weights = np.arange(1.0, n + 1) ** (power - 1)
    wanted = draws * weights / weights.sum()
    assert np.sum((counts[1:] - wanted) ** 2 / wanted) < 36  # chi2 of 11: p = 2e-4


def test_gaps_hold_within_a_long_interleaved_stream() -> None:
    """Among the facts written so far, the share of the newest is that of the law."""
    stream = mqar(
        jax.random.key(0),
        16,
        2,
        writes=2000,
        queries=2000,
        filler=500,
        gap_power=0.01,
        interleave=True,
    )
    last, expected, found = {}, 0.0, 0
    for t, (kind, fact) in enumerate(
        zip(np.asarray(stream.kind).tolist(), np.asarray(stream.fact).tolist(), strict=True)
    ):
        if kind == WRITE:
            last[fact] = t
        elif kind == QUERY:
            ages = {f: (t - at) ** -0.99 for f, at in last.items()}
            newest = max(last, key=last.__getitem__)
            expected += ages[newest] / sum(ages.values())
            found += fact == newest
    assert found == pytest.approx(expected, abs=4 * np.sqrt(2000 * 0.25))


def test_accuracy_counts_nearest_values() -> None:
    vocabulary = jnp.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    outputs = jnp.array([[2.0, 1.0], [0.1, 0.2], [-3.0, 1.0], [jnp.nan, 0.0], [0.0, jnp.inf]])
    answers = jnp.array([0, 1, 0, 0, 1])
    assert float(accuracy(outputs, vocabulary, answers)) == pytest.approx(2 / 5)
    mask = jnp.array([True, False, True, True, False])
    assert float(accuracy(outputs, vocabulary, answers, mask)) == pytest.approx(1 / 3)


def test_accuracy_of_a_perfect_and_of_a_stale_memory() -> None:
    stream = mqar(
        jax.random.key(0), 64, 16, writes=256, queries=500, overwrites=0.5, interleave=True
    )
    asked = stream.kind == QUERY
    assert float(accuracy(stream.values, stream.vocabulary, stream.answer, asked)) == 1
    stale = stream.vocabulary[jnp.minimum(stream.fact, 63)]  # the first value under each key
    assert 0.2 < float(accuracy(stale, stream.vocabulary, stream.answer, asked)) < 0.9


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n": 0}, "n must be at least 1, got 0"),
        ({"dim": 1}, "dim must be at least 2, got 1"),
        ({"writes": 0}, "writes must be at least 1"),
        ({"queries": -1}, "queries must be at least 0"),
        ({"filler": -1}, "filler must be at least 0"),
        ({"vocabulary": 0}, "vocabulary must be at least 1"),
        ({"value_dim": 0}, "value_dim must be at least 1"),
        ({"overwrites": 1.5}, "overwrites must be in 0..1, got 1.5"),
        ({"skew": -1}, "skew must be at least 0, got -1"),
        ({"noise": float("nan")}, "noise must be in 0..1e.06, got nan"),
        ({"noise": np.float32(-1)}, "noise must be in"),
        ({"gap_power": float("inf")}, "gap_power must be in"),
        ({"n": 2.5}, "n must be a whole number, got 2.5"),
        ({"skew": "a"}, "skew must be a number, got 'a'"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_bad_arguments(arguments: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        mqar(jax.random.key(0), **({"n": 4, "dim": 4} | arguments))  # type: ignore[arg-type]


def test_bad_shapes() -> None:
    with pytest.raises(ValueError, match="expected outputs"):
        accuracy(jnp.ones((3, 2)), jnp.ones((4, 5)), jnp.zeros(3, int))
    with pytest.raises(ValueError, match="expected answers"):
        accuracy(jnp.ones((3, 2)), jnp.ones((4, 2)), jnp.zeros(4, int))
