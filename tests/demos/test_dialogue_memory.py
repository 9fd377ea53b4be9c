"""Demo 02 in its quick preset."""

import math
from pathlib import Path

from jaxmem import plots
from jaxmem.demos import DEMOS, Extent, lecture_figures
from jaxmem.demos.dialogue_evidence import GRID, systems


def test_quick_preset(tmp_path: Path) -> None:
    """One run for all that is asked of it: it takes half a minute."""
    result = DEMOS["02"].run(Extent())
    wanted = [
        id for id, row in lecture_figures().items() if row.demo.split(".")[0] in ("02", "ex2")
    ]
    assert len(wanted) == 23
    assert set(result.figures) == set(wanted) - {"mem-long-read"}
    for id, figure in result.figures.items():
        assert figure.within, f"{id}: {figure.value} against {figure.lecture}"

    assert [table.title[:2] for table in result.tables] == ["1.", "  ", "2.", "3.", "6."]
    for table in result.tables:
        for row in table.rows:
            assert len(row) == len(table.headers), table.title
            assert all(not isinstance(v, float) or math.isfinite(v) for v in row)
    assert [row[0] for row in result.tables[0].rows] == list(systems())
    assert len(result.tables[2].rows) == len(GRID)

    for name, draw in result.pictures.items():
        plots.save(draw(), tmp_path / name)
        assert (tmp_path / name).stat().st_size > 10_000
