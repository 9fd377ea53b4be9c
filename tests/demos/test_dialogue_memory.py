"""Demo 02 in its quick preset."""

import math
from pathlib import Path

import pytest

from jaxmem import plots
from jaxmem.demos import Extent, dialogue_evidence, dialogue_pictures, lecture_figures
from jaxmem.demos.dialogue_evidence import LONG, gather, systems
from jaxmem.demos.dialogue_memory import CHOICES, present
from jaxmem.demos.dialogue_tables import ALL
from jaxmem.dialogue import KINDS

SMALL_GRID = ((128, 1), (128, 16), (2_048, 1))


@pytest.mark.usefixtures("unoptimised")
def test_quick_preset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One run for all that is asked of it, with less of the grid: it takes half a minute."""
    for module in (dialogue_evidence, dialogue_pictures):
        monkeypatch.setattr(module, "GRID", SMALL_GRID)
    found = gather(Extent())
    result = present(found, CHOICES)
    wanted = [
        id for id, row in lecture_figures().items() if row.demo.split(".")[0] in ("02", "ex2")
    ]
    assert len(wanted) == 23
    assert set(result.figures) == set(wanted) - {"mem-long-read"}
    for id, figure in result.figures.items():
        assert figure.within, f"{id}: {figure.value} against {figure.lecture}"
    assert [table.title[:2] for table in result.tables] == ["1.", "2.", "3.", "4.", "5.", "6."]
    assert [row[0] for row in result.tables[0].rows] == list(systems())
    assert len(result.tables[2].rows) == len(SMALL_GRID)

    # What only a full run adds, from made-up lengths and slopes.
    slope = {"slope": -0.5, "low": -0.6, "high": -0.4}
    slopes = [
        {"rate": rate, "kind": kind, **slope}
        for kind in (ALL, *KINDS)
        for rate in ("recall", "undated")
    ]
    lengths = {length: {name: found.main[name] for name in LONG} for length in (1, 2)}
    whole = found._replace(
        lengths=lengths,
        slopes={"mem0": slopes, "MemGPT": slopes},
        extraction=[{**row, "conversations": 400} for row in found.extraction],
        extraction_usual=found.extraction,
    )
    full = present(whole, CHOICES)
    assert set(full.figures) == set(wanted)
    few, many = (x.figures["mem-extract-0.7"] for x in (result, full))
    assert few.high is not None
    assert many.high is not None  # the same interval of more conversations: ten of them vary more
    ratio = (many.high - many.value) / (few.high - few.value)
    assert ratio == pytest.approx(math.sqrt((1 + 400 / 10) / (1 + 100 / 10)))
    for table in full.tables:
        for row in table.rows:
            assert len(row) == len(table.headers), table.title
            assert all(not isinstance(v, float) or math.isfinite(v) for v in row)
    for name, draw in full.pictures.items():
        plots.save(draw(), tmp_path / name)
        assert (tmp_path / name).stat().st_size > 10_000
