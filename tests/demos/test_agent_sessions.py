"""Demo 03 in its quick preset."""

import math
from pathlib import Path

import numpy as np

from jaxmem import plots
from jaxmem.demos import Extent, lecture_figures
from jaxmem.demos.agent_sessions import CHOICES, present
from jaxmem.demos.session_evidence import QUICK, crossing, gather
from jaxmem.demos.session_tables import layout


def test_quick_preset(tmp_path: Path) -> None:
    """One run for all that is asked of it."""
    found = gather(Extent())
    result = present(found, CHOICES)
    assert found.seeds == QUICK >= 32
    wanted = [
        id
        for id, row in lecture_figures().items()
        if row.demo.split(".")[0] in ("03", "ex3", "ex5")
    ]
    assert list(result.figures) == wanted
    for id, figure in result.figures.items():
        if id == "mg-evict50-cause-evict":  # printed as 4.5e4, and at the end of our interval
            assert figure.high is not None
            assert figure.high > 44_500
        else:
            assert figure.within, f"{id}: {figure.value} against {figure.lecture}"
    assert [table.title[:2] for table in result.tables] == [f"{n}." for n in range(1, 8)]
    for table in result.tables:
        for row in table.rows:
            assert len(row) == len(table.headers), table.title
            assert all(not isinstance(v, float) or math.isfinite(v) for v in row)
    for name, draw in result.pictures.items():
        plots.save(draw(), tmp_path / name)
        assert (tmp_path / name).stat().st_size > 10_000

    # Where the lecture's claims hold.
    for session in (*found.at_once.values(), *found.evicted.values()):
        log = layout(session, "log", "prefill_tokens")
        assert np.all(log < layout(session, "front", "prefill_tokens"))
        assert np.all(log < layout(session, "last", "prefill_tokens"))
    where = crossing(found)
    assert 0.2 < where.low < where.mean < where.high < 0.9
