"""The shared helpers."""

import gzip
import io
import os
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmem.common import (
    Interval,
    clustered_bootstrap,
    clustered_interval,
    lookup,
    masked_softmax,
    masked_top_k,
    mean_interval,
    open_text,
    paired_bootstrap,
    progress,
    smaller_run,
    write_text,
)
from jaxmem.common.files import atomic_path
from jaxmem.common.intervals import wilson_interval
from jaxmem.common.table import text_table


def test_files_are_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.txt"
    write_text(path, "first")
    with pytest.raises(RuntimeError), atomic_path(path) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert path.read_text() == "first"
    assert os.listdir(path.parent) == ["a.txt"]
    path.chmod(0o600)
    (tmp_path / "link").symlink_to(path)
    write_text(tmp_path / "link", "second")
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("second", 0o600)
    with pytest.raises(ValueError, match="expected a file"):
        write_text(path.parent, "x")
    write_text(tmp_path / "new" / "b.txt", "")
    path = tmp_path / "new" / "b.txt"
    (tmp_path / "plain").write_text("")
    assert path.stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_gzip_is_told_by_its_first_bytes(tmp_path: Path) -> None:
    write_text(tmp_path / "a.gz", "héllo\n")
    assert gzip.decompress((tmp_path / "a.gz").read_bytes()).decode() == "héllo\n"
    (tmp_path / "a.txt").write_bytes((tmp_path / "a.gz").read_bytes())
    for name in ("a.gz", "a.txt"):
        with open_text(tmp_path / name) as lines:
            assert lines.read() == "héllo\n"


def test_lookup_names_the_nearest() -> None:
    table = {"h100-80gb": 1, "a100-80gb": 2}
    assert lookup(table, "H100-80GB", "accelerator") == 1
    with pytest.raises(
        ValueError, match="unknown accelerator 'h10-80gb' .did you mean 'h100-80gb'"
    ):
        lookup(table, "h10-80gb", "accelerator")
    with pytest.raises(ValueError, match="known: a100-80gb, h100-80gb"):
        lookup(table, "xyz", "accelerator")


def test_mean_interval_covers() -> None:
    rng = np.random.default_rng(0)
    covered = [
        low <= 3.0 <= high
        for _, low, high in (mean_interval(rng.normal(3, 2, 5)) for _ in range(2000))
    ]
    assert 0.935 < np.mean(covered) < 0.965
    assert mean_interval([4.0]) == (4.0, -np.inf, np.inf)
    with pytest.raises(ValueError, match="at least one"):
        mean_interval([])
    with pytest.raises(ValueError, match="NaN at position 1"):
        mean_interval([1.0, np.nan])


def test_clustered_interval_is_wider_than_pooling() -> None:
    rng = np.random.default_rng(1)
    rates = rng.beta(2, 2, 40)
    right = rng.binomial(20, rates)
    mean, low, high = clustered_interval(right, np.full(40, 20))
    assert mean == pytest.approx(right.sum() / 800)
    pooled = 1.96 * np.sqrt(mean * (1 - mean) / 800)
    assert high - mean > 2 * pooled
    assert mean - low == pytest.approx(high - mean)
    assert clustered_interval([1], [2]).high == np.inf
    with pytest.raises(ValueError, match="as many sizes"):
        clustered_interval([1], [2, 3])
    with pytest.raises(ValueError, match="positive sum"):
        clustered_interval([0], [0])


def test_paired_bootstrap_uses_the_pairing() -> None:
    rng = np.random.default_rng(2)
    shared = rng.normal(0, 10, 60)
    mean, low, high = paired_bootstrap(shared + 1 + rng.normal(0, 0.1, 60), shared)
    assert low < mean < high
    assert high - low < 0.2
    assert 0.9 < mean < 1.1
    with pytest.raises(ValueError, match="pairs"):
        paired_bootstrap([1.0], [1.0, 2.0])


def test_masked_softmax() -> None:
    logits = jnp.array([[1.0, 2.0, 3.0], [5.0, 5.0, 5.0]])
    mask = jnp.array([[True, False, True], [False, False, False]])
    p = masked_softmax(logits, mask)
    wanted = np.exp([1, 3]) / np.exp([1, 3]).sum()
    np.testing.assert_allclose(p[0], [wanted[0], 0, wanted[1]], rtol=1e-6)
    np.testing.assert_array_equal(p[1], 0)
    gradient = jax.grad(lambda x: masked_softmax(x, mask)[:, 0].sum())(logits)
    assert np.isfinite(gradient).all()
    extreme = masked_softmax(jnp.array([-3e38, -3e38]), jnp.array([True, False]))
    np.testing.assert_array_equal(extreme, [1, 0])


def test_masked_top_k() -> None:
    scores = jnp.array([[0.1, 0.9, 0.5], [3.0, 2.0, 1.0]])
    mask = jnp.array([[True, False, True], [False, True, False]])
    indices, valid = masked_top_k(scores, mask, 2)
    np.testing.assert_array_equal(indices[0], [2, 0])
    np.testing.assert_array_equal(valid, [[True, True], [True, False]])
    assert indices[1, 0] == 1
    lowest = jnp.array([5.0, -jnp.inf, 2.0])
    indices, valid = masked_top_k(lowest, jnp.array([False, True, False]), 1)
    assert (indices[0], valid[0]) == (1, True)
    with pytest.raises(ValueError, match="k must be in 1..3, got 4"):
        masked_top_k(scores, mask, 4)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_silent_in_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    for stream, silent in ((io.StringIO(), True), (Terminal(), False)):
        clock = iter(np.arange(100.0))
        monkeypatch.setattr(sys, "stderr", stream)
        monkeypatch.setattr("time.monotonic", lambda clock=clock: next(clock))
        assert list(progress(range(5), "counting")) == [0, 1, 2, 3, 4]
        assert (stream.getvalue() == "") is silent
        if not silent:
            assert "counting 4/5 (80 %)" in stream.getvalue()
            assert stream.getvalue().endswith("\r\033[K")


def test_table() -> None:
    text = text_table(["name", "value"], [["a", 1.23456], ["bb", None], ["c", 12_345_678]])
    assert text.splitlines() == [
        "name       value",
        "----  ----------",
        "a          1.235",
        "bb             -",
        "c     12,345,678",
    ]


def test_bootstrap_covers_also_with_few_clusters() -> None:
    rng = np.random.default_rng(0)
    for clusters in (3, 5, 10):
        held = 0
        for _ in range(200):
            asked = rng.integers(30, 45, clusters)
            ahead = rng.normal(0.1, 0.05, clusters) * asked
            _, low, high = clustered_bootstrap(ahead, asked, resamples=400)
            held += low <= 0.1 <= high
        assert 0.90 <= held / 200 <= 1.0, clusters


def test_a_smaller_run_spreads_more() -> None:
    mean, low, high = smaller_run(Interval(0.5, 0.4, 0.6), samples=300, size=100)
    assert (mean, low, high) == pytest.approx((0.5, 0.3, 0.7))
    with pytest.raises(ValueError, match="expected sizes of at least 1"):
        smaller_run(Interval(0.5, 0.4, 0.6), 10, 0)


def test_wilson_interval() -> None:
    share, low, high = wilson_interval(8, 10)
    assert (share, round(low, 4), round(high, 4)) == (0.8, 0.4902, 0.9433)
    assert wilson_interval(0, 10)[:2] == (0.0, 0.0)
    assert 0.25 < wilson_interval(0, 10).high < 0.31
    assert wilson_interval(30, 30).high == 1.0
    for right, count in ((1, 0), (3, 2), (-1, 2)):
        with pytest.raises(ValueError, match="right answers"):
            wilson_interval(right, count)
