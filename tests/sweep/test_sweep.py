"""Seeds x settings in one process: sharing, batches, summaries, bad input."""

import functools
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sweep_workers import fit

from jaxmem.common.intervals import mean_interval
from jaxmem.common.masked import masked_softmax
from jaxmem.results import read_records
from jaxmem.sweep import batches, grid, sweep


def scaled(key: jax.Array, setting: dict[str, Any]) -> dict[str, Any]:
    return {"y": setting["a"] * jax.random.normal(key)}


# One process, one device.


def test_equals_a_loop() -> None:
    settings = grid(rate=[0.1, 0.4], steps=[0, 2, 4])
    found = sweep(fit, [7, 3], settings)
    assert (found.fields, found.metrics) == (("rate", "steps"), ("loss", "large"))
    assert found.arrays["weights"].shape == (2, 6, 4)
    rows, one = iter(found.records), jax.jit(fit)
    for i, seed in enumerate([7, 3]):
        for j, setting in enumerate(settings):
            row = next(rows)
            wanted = one(jax.random.key(seed), setting)
            assert {name: row[name] for name in ("seed", "rate", "steps")} == {
                "seed": seed,
                **setting,
            }
            np.testing.assert_allclose(row["loss"], wanted["loss"], rtol=1e-5)
            assert row["large"] is bool(wanted["large"])
            np.testing.assert_allclose(
                found.arrays["weights"][i, j], wanted["weights"], rtol=1e-5, atol=1e-6
            )


@pytest.mark.parametrize("batch", [1, 2, 1000])
def test_batches_change_only_rounding(batch: int) -> None:
    seeds, settings = 5, grid(rate=[0.1, 0.3, 0.5])
    found, wanted = (sweep(fit, seeds, settings, batch=b) for b in (batch, 6))
    np.testing.assert_allclose(
        [row["loss"] for row in found.records],
        [row["loss"] for row in wanted.records],
        rtol=1e-6,
        atol=1e-7,
    )


@pytest.mark.parametrize(("seeds", "batch"), [(5, 4), (5, 7), (1, 2), (2, 1)])
def test_no_batch_is_larger_than_asked(
    monkeypatch: pytest.MonkeyPatch, seeds: int, batch: int
) -> None:
    ran, original = [], batches._batch

    def counted(*arguments: Any) -> Any:
        ran.append((len(arguments[5]), len(arguments[6][0])))
        return original(*arguments)

    monkeypatch.setattr(batches, "_batch", counted)
    found = sweep(scaled, np.arange(seeds), grid(a=[1.0, 2.0, 3.0]), batch=batch)
    assert len(set(ran)) == 1
    assert ran[0][0] * ran[0][1] <= batch
    assert ran[0][1] == 3 or batch < 3  # whole seeds where they fit
    assert len({row["y"] for row in found.records}) == 3 * seeds


def test_one_compilation_serves_all_batches_and_calls() -> None:
    traces = 0

    def counted(key: jax.Array, setting: dict[str, Any]) -> dict[str, Any]:
        nonlocal traces
        traces += isinstance(setting["a"], jax.core.Tracer)
        return scaled(key, setting)

    sweep(counted, 5, grid(a=[1.0, 2.0, 3.0]), batch=6)
    once = traces
    sweep(counted, [8, 9, 10, 11, 12], grid(a=[4.0, 5.0, 6.0]), batch=6)
    # One trace to learn the shapes, each call; one for the batches, all calls together.
    assert (once, traces - once) == (2, 1)


def test_a_changed_closure_is_not_stale() -> None:
    factor = 2.0

    def times(key: jax.Array, setting: dict[str, Any]) -> dict[str, Any]:
        return {"y": factor * setting["a"]}

    found = [sweep(times, 1, [{"a": 1.0}]).records[0]["y"]]
    factor = 3.0
    found.append(sweep(times, 1, [{"a": 1.0}]).records[0]["y"])
    assert found == [2.0, 3.0]


def test_settings_share_what_the_key_alone_decides() -> None:
    def document(key: jax.Array, setting: dict[str, Any]) -> dict[str, Any]:
        x = jax.random.normal(key, (37, 37))
        return {"y": setting["a"] * jnp.trace(x @ x)}

    def lowered(settings: int) -> Any:
        mesh = batches._mesh(jax.devices()[:1], 2)
        numbered = (np.arange(settings), {"a": np.ones(settings, np.float32)})
        seeds = np.arange(2, dtype=np.uint32)
        return batches._batch.lower(document, "", mesh, None, None, seeds, numbered)

    text = lowered(5).as_text()
    assert "2x37x37xf32" in text
    assert "5x37x37xf32" not in text
    assert "2x5xf32" in text
    one, five = (lowered(n).compile().cost_analysis()["flops"] for n in (1, 5))
    assert one <= five < 1.01 * one


def test_base_key_is_folded_with_the_seed() -> None:
    base = jax.random.key(17)
    found = sweep(scaled, [4, 2], [{"a": 1.0}], key=base)
    for row in found.records:
        wanted = jax.random.normal(jax.random.fold_in(base, row["seed"]))
        np.testing.assert_allclose(row["y"], wanted, rtol=1e-6)


def test_largest_seed() -> None:
    found = sweep(scaled, [2**32 - 1], [{"a": 1.0}])
    wanted = jax.random.normal(jax.random.key(np.uint32(2**32 - 1)))
    np.testing.assert_allclose(found.records[0]["y"], wanted, rtol=1e-6)
    assert found.records[0]["seed"] == 2**32 - 1


class Start(NamedTuple):
    a: Any
    b: Any


def test_settings_as_arrays_and_pytrees() -> None:
    def total(key: jax.Array, setting: dict[str, Any]) -> dict[str, Any]:
        return {"y": setting["start"].a.sum() + setting["start"].b + setting["k"]}

    rng = np.random.default_rng(0)
    states = rng.normal(size=(4, 3)).astype(np.float32)
    found = sweep(total, 2, {"start": Start(states, np.arange(4)), "k": [1, 2, 3, 4]}, batch=3)
    again = sweep(total, 2, [{"start": Start(states[i], i), "k": i + 1} for i in range(4)])
    assert found.fields == ("k", "setting")
    assert [row["setting"] for row in found.records] == [0, 1, 2, 3] * 2
    for row, other in zip(found.records, again.records):
        i = row["setting"]
        np.testing.assert_allclose(row["y"], states[i].sum() + i + row["k"], rtol=1e-6)
        assert row == pytest.approx(other, rel=1e-6)


def test_no_settings_and_double_precision() -> None:
    with jax.enable_x64(True):
        found = sweep(lambda key, setting: {"y": jnp.float64(1) / 3}, 2, [{}])
        one = sweep(lambda key, setting: {"y": setting["a"] / 3}, 1, grid(a=[1.0, 2**40]))
    assert found.records == [{"seed": 0, "y": 1 / 3}, {"seed": 1, "y": 1 / 3}]
    assert [row["y"] for row in one.records] == [1 / 3, 2**40 / 3]
    assert found.summary() == [
        {"metric": "y", "mean": 1 / 3, "sd": 0.0, "low": 1 / 3, "high": 1 / 3}
        | {"n_seeds": 2, "n_not_finite": 0}
    ]


def test_progress_counts_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(
        batches, "progress", lambda items, label: seen.append((len(items), label)) or items
    )
    sweep(scaled, 5, grid(a=[1.0, 2.0]), batch=4, label="capacity")
    assert seen == [(3, "capacity")]


def test_grid() -> None:
    assert grid(a=[1, 2], b=np.array([0.5])) == [{"a": 1, "b": 0.5}, {"a": 2, "b": 0.5}]
    assert grid() == [{}]


# Padding to the largest size: one program for every compression ratio.


def cartridge(key: jax.Array, p: Any, slots: int) -> jax.Array:
    """Loss after training the first p of `slots` key-value pairs to answer as a document does."""
    # Prefix-stable: the document and slot i are the same whatever `slots` is.
    draws = jax.random.normal(key, (64 + 2 * slots, 8))
    document, questions = draws[:48].reshape(2, 24, 8), draws[48:64]  # keys and values; queries
    pairs = draws[64:].reshape(slots, 2, 8).swapaxes(0, 1)
    mask = jnp.arange(slots) < p

    def answer(pairs: jax.Array, mask: Any) -> jax.Array:
        return masked_softmax(questions @ pairs[0].T / 8**0.5, mask) @ pairs[1]

    wanted = answer(document, True)

    def loss(pairs: jax.Array) -> jax.Array:
        return jnp.mean((answer(pairs, mask) - wanted) ** 2)

    def step(pairs: jax.Array, _: None) -> tuple[jax.Array, None]:
        return pairs - 0.5 * jax.grad(loss)(pairs), None

    pairs, _ = jax.lax.scan(step, pairs, None, length=8)
    return loss(pairs)


def test_padded_run_is_the_run_at_its_own_shape() -> None:
    sizes = [2, 7]
    found = sweep(lambda key, s: {"loss": cartridge(key, s["p"], 12)}, 2, grid(p=sizes))
    for p in sizes:
        own = sweep(functools.partial(lambda p, key, _: {"loss": cartridge(key, p, p)}, p), 2, [{}])
        padded = [row["loss"] for row in found.records if row["p"] == p]
        np.testing.assert_allclose(padded, [row["loss"] for row in own.records], rtol=1e-6)


# Summaries.


def test_summary_is_student_over_seeds() -> None:
    found = sweep(scaled, 6, grid(a=[1.0, 3.0], b=[0, 1]))
    by_both, by_a = found.summary(), found.summary("a")
    assert [(row["a"], row["b"]) for row in by_both] == [(1, 0), (1, 1), (3, 0), (3, 1)]
    y = np.array([float(jax.random.normal(jax.random.key(seed))) for seed in range(6)])
    for row in by_both + by_a:
        wanted = mean_interval(row["a"] * y)
        got = (row["mean"], row["low"], row["high"])
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(row["sd"], row["a"] * y.std(ddof=1), rtol=1e-5)
        # Two settings of a group share their draws: still six independent values.
        assert (row["n_seeds"], row["n_not_finite"]) == (6, 0)


def test_diverged_runs_are_kept_and_counted(tmp_path: Path) -> None:
    def diverges(key: jax.Array, setting: dict[str, Any]) -> dict[str, Any]:
        return {"y": jnp.log(setting["a"]) + 0 * jax.random.normal(key)}

    found = sweep(diverges, 3, grid(a=[1.0, 0.0, -1.0]), path=tmp_path / "r.json")
    assert [row["y"] for row in found.records][:2] == [0.0, -np.inf]
    assert np.isnan(found.records[2]["y"])
    assert [row["y"] for row in read_records(tmp_path / "r.json")] == [0.0, None, None] * 3
    good, infinite, nan = found.summary()
    assert (good["n_seeds"], good["n_not_finite"]) == (3, 0)
    for row in (infinite, nan):
        assert (row["n_seeds"], row["n_not_finite"]) == (0, 3)
        assert np.isnan(row["mean"])
    with pytest.raises(ValueError, match=r"unknown field 'b'"):
        found.summary("b")


def test_written_as_csv(tmp_path: Path) -> None:
    found = sweep(scaled, 2, grid(a=[1.0, 2.0]), path=tmp_path / "r.csv")
    found.write(tmp_path / "again.csv")
    assert read_records(tmp_path / "r.csv") == found.records
    assert (tmp_path / "again.csv").read_bytes() == (tmp_path / "r.csv").read_bytes()
    assert sorted(f.name for f in tmp_path.iterdir()) == ["again.csv", "r.csv"]


def test_program_tells_closed_over_arrays_apart() -> None:
    def over(table: jax.Array) -> Any:
        return lambda key, setting: {"y": (jax.jit(lambda a: table * a)(setting["a"])).sum()}

    setting = {"a": np.ones(1, np.float32)}
    tables = [jnp.arange(100.0), jnp.arange(100.0).at[50].set(-1)]
    first, other, again = (
        batches._traced(over(table), jax.random.key(0), setting)[1]
        for table in (*tables, tables[0])
    )
    assert first == again
    assert first != other


# Bad input.


def returns(value: Any) -> Any:
    return lambda key, setting: value


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seeds": 0}, "at least one seed, got 0"),
        ({"seeds": []}, r"at least one seed, got \[\]"),
        ({"seeds": [1, 2, 1]}, "different seeds, got 1 twice"),
        ({"seeds": [-1]}, r"integer seeds in \[0, 2\^32\)"),
        ({"seeds": [0.5]}, "integer seeds"),
        ({"settings": []}, "at least one setting, got none"),
        ({"settings": {}}, "one leading axis of at least 1"),
        ({"settings": {"a": 3}}, "one leading axis"),
        ({"settings": {"a": [1, 2], "b": [1]}}, r"got shapes \[\(2,\), \(1,\)\]"),
        (
            {"settings": [{"a": 1}, {"b": 1}]},
            r"setting 1: expected the fields \['a'\], got \['b'\]",
        ),
        ({"settings": [3]}, "setting 0: expected a dict, got 3"),
        ({"settings": [{"a": "x"}]}, "field 'a': expected numbers, got 'x'"),
        ({"settings": [{"a": None}]}, "field 'a': expected numbers, got None"),
        ({"settings": [{"a": jax.random.key(0)}]}, "field 'a': expected numbers"),
        ({"settings": [{"a": [1, 2]}, {"a": [1]}]}, "field 'a': shapes differ"),
        ({"settings": [{"a": 2**40}]}, "field 'a': 1099511627776 exceeds int32"),
        ({"settings": [{"a": 1e300}]}, "field 'a': 1e[+]300 exceeds float32"),
        ({"settings": [{"a": 2**70}]}, "field 'a': expected numbers"),
        ({"settings": None}, "settings as dicts or a dict, got None"),
        ({"seeds": 2.0}, "a number of seeds or a list of them, got 2.0"),
        ({"settings": [{"seed": 1}]}, "'seed' cannot be the name of a field"),
        ({"batch": 0}, "batch >= 1, got 0"),
        ({"batch": 2.0}, "batch >= 1, got 2.0"),
        ({"path": "r.txt"}, r"r\.txt: results are written to \.json or \.csv"),
        ({"devices": []}, "at least one device"),
        ({"key": 3}, "expected a typed key"),
        ({"function": returns(3.0)}, "return a dict of metrics, got 3.0"),
        ({"function": returns({})}, "return a dict of metrics"),
        ({"function": returns({"y": "high"})}, "metric 'y': expected numbers, got 'high'"),
        ({"function": returns({"y": {"z": 1}})}, "metric 'y': expected numbers"),
        ({"function": returns({"y": 1j})}, "metric 'y': expected numbers"),
        ({"function": returns({1: 1.0})}, "names of metrics to be text, got 1"),
        ({"function": returns({"a": 1.0})}, "'a' cannot be the name of a metric"),
        ({"function": returns({"seed": 1.0})}, "'seed' cannot be the name of a metric"),
    ],
    ids=lambda value: None if isinstance(value, str) else "-".join(value),
)
def test_bad_input(change: dict[str, Any], message: str) -> None:
    arguments = {"function": scaled, "seeds": 2, "settings": [{"a": 1.0}], **change}
    with pytest.raises(ValueError, match=message) as caught:
        sweep(**arguments)
    assert "\n" not in str(caught.value)


def test_bad_paths_and_axes(tmp_path: Path) -> None:
    (tmp_path / "d.json").mkdir()
    with pytest.raises(ValueError, match="expected a file to write"):
        sweep(scaled, 1, [{"a": 1.0}], path=tmp_path / "d.json")
    for axis, message in ((3, "a list of values, got 3"), ("ab", "got 'ab'"), ([], "got none")):
        with pytest.raises(ValueError, match=f"axis 'a': expected .*{message}"):
            grid(a=axis)  # type: ignore[arg-type]
