"""Demo 04 in its quick preset, and the parts that full adds, made small."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmem import plots
from jaxmem.demos import DEMOS, Extent, lecture_figures
from jaxmem.demos import cartridge_composition as pairs
from jaxmem.demos import cartridge_runs as runs
from jaxmem.recall.cartridges import STARTS, Status


def quickly(run: Callable[..., Any]) -> Callable[..., Any]:
    """The run, compiled without the costly passes: it trains nothing."""

    def unoptimised(*arguments: Any) -> Any:
        jax.config.update("jax_disable_most_optimizations", True)
        try:
            return run(*arguments)
        finally:
            jax.config.update("jax_disable_most_optimizations", False)

    return unoptimised


def test_quick_preset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One run for all that is asked of it: it takes half a minute."""
    for name in ("baselines", "memories", "logits"):
        monkeypatch.setattr(runs, name, quickly(getattr(runs, name)))
    result = DEMOS["04"].run(Extent())
    wanted = [
        id for id, row in lecture_figures().items() if row.demo.split(".")[0] in ("04", "ex6")
    ]
    assert len(wanted) == 23
    left_out = {id for id in wanted if id.startswith(("cart-2048", "comp-"))} | {"cart-8000"}
    assert set(result.figures) == set(wanted) - left_out
    for id, figure in result.figures.items():
        assert figure.within, f"{id}: {figure.value} against {figure.lecture}"

    assert [table.title[:2] for table in result.tables] == ["1.", "2.", "3.", "Ex"]
    for table in result.tables:
        for row in table.rows:
            assert len(row) == len(table.headers)
            assert all(not isinstance(v, float) or math.isfinite(v) for v in row)
    assert [row[0] for row in result.tables[-1].rows] == list(STARTS)
    assert result.tables[0].notes[1].startswith("0 of 15 trainings")

    for name, draw in result.pictures.items():
        plots.save(draw(), tmp_path / name)
        assert (tmp_path / name).stat().st_size > 10_000


@pytest.fixture
def short(unoptimised: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of few steps, recorded every 25."""
    monkeypatch.setattr(runs, "RECORD", 25)


@pytest.mark.usefixtures("short")
def test_documents_of_a_library_split_the_vocabulary() -> None:
    shelf = jax.jit(pairs.library, static_argnums=1)(jax.random.key(0), 4)
    values = np.asarray(shelf.documents.values).reshape(2, 2 * runs.FACTS, -1)
    for pair in values:
        assert len(np.unique(pair, axis=0)) == 2 * runs.FACTS
    right = shelf.vocabulary[shelf.answers]  # [J, N, V]
    cosine = jnp.einsum("jnk,jmk->jnm", shelf.questions, shelf.documents.keys)
    found = jnp.take_along_axis(shelf.documents.values, jnp.argmax(cosine, 2)[..., None], 1)
    np.testing.assert_allclose(found, right)


@pytest.mark.usefixtures("short")
def test_composition_runs_with_and_without_a_second_training() -> None:
    for mixed_steps in (0, 4):
        course = pairs.Course(runs.OURS_COMPOSED, 4, 4, mixed_steps)
        (row,) = pairs.composition(course, 1, 8).records
        assert 0 < row["leak"] < 1
        assert ("mixed_composed" in row) == (mixed_steps > 0)


@pytest.mark.usefixtures("short")
def test_a_long_document_is_trained_in_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "LONG_FACTS", 600)
    monkeypatch.setattr(runs, "LONG_SLOTS", 32)
    (row,) = runs.long_document(1, 24, 512).records
    assert row["status"] == Status.OK
    assert row["icl"] == pytest.approx(512 / 600, abs=0.06)


@pytest.mark.usefixtures("short")
def test_a_seed_has_one_document_for_all_its_cartridges() -> None:
    found = runs.trainings(runs.LECTURE, 1, [(8, "first"), (16, "first"), (8, "sampled")], 25)
    assert [row["slots"] for row in found.records] == [8, 16, 8]
    curves = found.arrays["verbatim_curve"][0]
    assert curves[0, 0] == pytest.approx(8 / runs.FACTS)
    assert curves[1, 0] == pytest.approx(16 / runs.FACTS)


@pytest.mark.usefixtures("short")
def test_divergence_is_seen() -> None:
    wild = runs.trainings(runs.LECTURE._replace(learning_rate=50.0), 1, [(8, "first")], 25)
    assert wild.records[0]["status"] == Status.WORSE
