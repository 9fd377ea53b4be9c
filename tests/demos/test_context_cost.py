"""Demo 01: every figure that the lecture states there, and the tables around them."""

import math

import pytest

from jaxmem.demos import DEMOS, DemoResult, Extent, beside_lecture, lecture_figures
from jaxmem.demos.context_cost import cached_tokens_limit


@pytest.fixture(scope="module")
def result() -> DemoResult:
    return DEMOS["01"].run(Extent())


def test_every_figure_of_demo_01_and_exercises_1_and_4_is_there(result: DemoResult) -> None:
    wanted = [
        id
        for id, row in lecture_figures().items()
        if row.demo.split(".")[0] in ("01", "ex1", "ex4")
    ]
    assert sorted(result.figures) == sorted(wanted)
    assert len(wanted) == 18


def test_figures_agree_and_the_gap_is_explained(result: DemoResult) -> None:
    gaps = [id for id, figure in result.figures.items() if not figure.within]
    assert gaps == ["prefill-250"]
    assert "MBU 0.80" in result.figures["prefill-250"].note
    for figure in result.figures.values():
        assert figure.low is None, "nothing here is random"


@pytest.mark.parametrize(
    ("id", "value"),
    [
        ("kv-8b", 131_072),
        ("kv-70b", 327_680),
        ("kv-70b-128k", 41.943),
        ("ex1-free", 434.89),
        ("ex1-tokens", 1_327_187),
        ("ex1-contexts", 10),
        ("prefill-128k", 8.781),
        ("prefill-128k-attn", 6.201),
        ("prefill-250", 6.005),
        ("ttft-cached-128k", 12.25),
        ("decode-250", 1.202),
        ("decode-128k", 2.452),
        ("tput-drop", 111.3),
        ("step-time", 25.35),
        ("breakeven-128k", 8_949),
        ("breakeven-10x", 894.9),
        ("breakeven-night", 2_983),
        ("breakeven-both", 298.3),
    ],
)
def test_values(result: DemoResult, id: str, value: float) -> None:
    assert result.figures[id].value == pytest.approx(value, rel=1e-3)


def test_the_cached_time_holds_for_about_105_tokens() -> None:
    assert cached_tokens_limit() == pytest.approx(105, abs=1)


def test_tables_are_filled(result: DemoResult) -> None:
    assert [table.title[:2] for table in result.tables] == ["1.", "2.", "3.", "4.", "5."]
    for table in result.tables:
        for row in table.rows:
            assert len(row) == len(table.headers)
            assert all(not isinstance(v, float) or math.isfinite(v) for v in row)


def test_measured_kernels_are_nearer_to_an_independent_estimate(result: DemoResult) -> None:
    rows = {row[0]: row for row in result.tables[4].rows}
    plain = [abs(row[1] / row[3] - 1) for row in rows.values()]
    real = [abs(row[2] / row[3] - 1) for row in rows.values()]
    assert max(real) < 0.15
    assert max(plain) > 0.30
    assert sum(real) < sum(plain)


def test_pictures_draw(result: DemoResult) -> None:
    pytest.importorskip("matplotlib")
    assert sorted(result.pictures) == ["break_even.png", "latency.png", "throughput.png"]
    for draw in result.pictures.values():
        for panel in draw().get_axes():
            assert panel.get_xlabel()
            assert panel.get_ylabel()
            assert panel.get_legend() is not None


@pytest.mark.parametrize(
    ("id", "value", "interval", "within"),
    [
        ("kv-70b-128k", 41.949, None, True),
        ("kv-70b-128k", 41.951, None, False),
        ("ex1-tokens", 1.334e6, None, True),
        ("ex1-tokens", 1.336e6, None, False),
        ("step-time", 26.2, None, True),
        ("step-time", 26.3, None, False),
        ("step-time", math.nan, None, False),
        ("mem-mem0-current", 0.5, (0.4, 0.9), True),
        ("mem-mem0-current", 0.894, (0.893, 0.8949), False),
        ("mem-memgpt-read-x", 25, (24, 26), True),  # at least 20
        ("mem-memgpt-read-x", 15, (14, 16), False),
        ("mem-long-read", 250, (249, 251), True),  # at most 280
        ("mem-long-read", 300, (299, 301), False),
    ],
)
def test_what_agreement_means(
    id: str, value: float, interval: tuple[float, float] | None, within: bool
) -> None:
    assert beside_lecture(id, value, *(interval or ())).within is within


def test_unknown_figures_and_missing_intervals_are_refused() -> None:
    with pytest.raises(ValueError, match="no figure 'kv-9b'"):
        beside_lecture("kv-9b", 1.0)
    with pytest.raises(ValueError, match="expected the ends of its interval"):
        beside_lecture("mem-mem0-current", 0.9)


def test_lecture_figures_are_read_whole() -> None:
    rows = lecture_figures()
    assert len(rows) > 60
    for row in rows.values():
        assert row.kind in ("exact", "model", "stochastic")
        assert math.isfinite(float(row.lecture))
