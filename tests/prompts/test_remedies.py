"""Remedies: layouts by hand on logs of a few calls, and the volatile fields they drop."""

import numpy as np
import pytest

from jaxmem.prompts import LogBuilder, PromptLog, Segment, reuse
from jaxmem.prompts.remedies import (
    append_edits,
    drop_volatile,
    freeze,
    move_last,
    move_lines_last,
    sort_tools,
)
from jaxmem.prompts.volatile import differing_fields, field_at, masked

KIND = {"S": "system", "T": "tools", "M": "memory", "H": "history"}


def log_of(*prompts: str) -> PromptLog:
    """ "S1 M2 H3" has a segment S named S1, M named M2, H named H3, each of 10 tokens."""
    builder = LogBuilder()
    for prompt in prompts:
        parts = prompt.split()
        builder.call([Segment(p[0], KIND[p[0]], p.encode(), tokens=10) for p in parts])
    return builder.build()


def shown(log: PromptLog) -> list[str]:
    return [
        b" ".join(log.contents[c] for c in log.content[a:b]).decode()
        for a, b in zip(log.starts, log.starts[1:])
    ]


SESSION = ("S M1 H1", "S M1 H1 H2", "S M1 M2 H1 H2 H3", "S M1 M3 H1 H2 H3 H4", "S M1 M3 H3 H4 H5")


def test_layouts_of_an_edited_memory() -> None:
    log = log_of(*SESSION)
    assert shown(move_last(log, "M"))[2] == "S H1 H2 H3 M1 M2"
    assert shown(freeze(log, ["M"])) == [
        "S M1 H1", "S M1 H1 H2", "S M1 H1 H2 H3", "S M1 H1 H2 H3 H4", "S M1 M3 H3 H4 H5",
    ]  # fmt: skip
    assert shown(append_edits(log, "M")) == [
        "S M1 H1", "S M1 H1 H2", "S M1 H1 H2 H3 M2", "S M1 H1 H2 H3 M2 H4 M3", "S M1 M3 H3 H4 H5",
    ]  # fmt: skip
    costs = [reuse(x).recomputed.sum() for x in (log, append_edits(log, "M"), freeze(log, "M"))]
    assert costs[0] > costs[1] > costs[2]


def test_agents_that_take_turns_wait_for_their_own_compaction() -> None:
    other = ("T M7 H8", "T M8 H8 H9")
    log = log_of(SESSION[1], other[0], SESSION[2], other[1])
    assert shown(freeze(log, "M"))[2:] == ["S M1 H1 H2 H3", "T M7 H8 H9"]


def test_a_changed_text_leaves_its_new_lines_as_the_note() -> None:
    builder = LogBuilder()
    for memory in (b"likes tea\nhas a dog\nRome", b"likes tea\nParis", b"Paris\nlikes jam"):
        builder.call([Segment("M", "memory", memory), Segment("H", "history", b"hello")])
    assert shown(append_edits(builder.build(), "M"))[1:] == [
        "likes tea\nhas a dog\nRome hello Paris\nno more: has a dog\nno more: Rome",
        "likes tea\nhas a dog\nRome hello Paris\nno more: has a dog\nno more: Rome likes jam",
    ]


def test_an_entry_that_goes_leaves_a_note() -> None:
    log = append_edits(log_of("S M1 M2 H1", "S M2 H1 H2"), "M")
    assert shown(log)[1] == "S M1 M2 H1 H2 no more: M1"


def test_lines_that_change_move_last() -> None:
    builder = LogBuilder()
    for minute in (b"05", b"06", b"07"):
        system = b"Be kind.\nIt is 10:" + minute + b".\nBe brief."
        builder.call([Segment("S", "system", system), Segment("H", "history", b"hello")])
    log = move_lines_last(builder.build(), "S")
    assert shown(log)[2] == "Be kind.\nBe brief. hello It is 10:07.\n"
    assert reuse(log).recomputed[1] <= 4  # the line


def test_a_task_that_changes_behind_the_history_is_no_compaction() -> None:
    history = "H1 H2 H3 H4 H5 H6"
    log = log_of(f"S M1 {history} T1 T9", f"S M2 {history} T2 T9", f"S M3 {history} H7 T3 T9")
    assert [prompt[:4] for prompt in shown(freeze(log, "M"))] == ["S M1"] * 3


def test_sorted_tools_stand_where_they_stood() -> None:
    log = log_of("S T2 T1 H1", "S T1 T2 H1 H2")
    assert shown(sort_tools(log)) == ["S T1 T2 H1", "S T1 T2 H1 H2"]


def test_what_is_said_about_tools_is_no_tool() -> None:
    builder = LogBuilder()
    about = Segment("system: ## Tools", "tools", b"## Tools\nUse them.")
    tools = [Segment(f"tool {name}", "tools", b'{"name": "%s"}' % name) for name in (b"z", b"a")]
    builder.call([*tools, Segment("S", "system", b"Hi"), about])
    assert shown(sort_tools(builder.build())) == [
        '{"name": "a"} {"name": "z"} Hi ## Tools\nUse them.'
    ]


def test_dropped_fields() -> None:
    builder = LogBuilder()
    for minute in (b"10:05", b"10:06"):
        builder.call(
            [
                Segment("S", "system", b"Now " + minute + b". Be kind."),
                Segment("H", "history", b"1"),
            ]
        )
    log = drop_volatile(builder.build(), "S")
    assert shown(log) == ["Now #. Be kind. 1"] * 2
    assert reuse(log).reused[1] == log.prompt_tokens[1]


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        (b"at 2026-01-02T10:05:01Z go", b"at 2026-01-02T10:05:02Z go", "time"),
        (b"Today is Mon, 30 Nov 2026.", b"Today is Tue, 1 Dec 2026.", "time"),
        (b"Today is Monday, November 30, 2026", b"Today is Tuesday, December 1, 2026", "time"),
        (b"at 9:59 am", b"at 10:00 am", "time"),
        (b"am 23.11.2026 09:05 Uhr", b"am 24.11.2026 09:06 Uhr", "time"),
        (b"now=1795000000;", b"now=1795000060;", "time"),
        (b"jaxlib 1.2.3", b"jaxlib 1.2.4", "number"),
        (b"[49% - 1,085/2,200 chars]", b"[50% - 1,100/2,200 chars]", "number"),
        (b"run 1b4e28ba-2fa1-11d2-883f-0016d3cca427", b"run 1b4e28ba-2fa1-11d2-883f-0016d3cca428",
         "id"),
        (b"I like tea", b"I like jam", None),
        (b"may 5 cats", b"may 6 cats", "number"),
    ],
)  # fmt: skip
def test_what_differs(old: bytes, new: bytes, field: str | None) -> None:
    assert differing_fields(old, new) == ((field,) if field else ())
    assert (masked(old) == masked(new)) == (field is not None)


def test_the_field_at_a_place() -> None:
    text = b"a [49% - 1,085/2,200 chars] 10:05"
    assert field_at(text, text.index(b"85")) == ("number", 9, 14)
    assert field_at(text, text.index(b"05", 12)) == ("time", 28, 33)
    assert field_at(text, 0) is None
    assert masked(text, ("time",)) == b"a [49% - 1,085/2,200 chars] #"


@pytest.mark.parametrize(
    "remedy", [move_last, move_lines_last, freeze, append_edits, drop_volatile]
)
def test_an_unknown_label_is_named(remedy) -> None:
    with pytest.raises(ValueError, match="label"):
        remedy(log_of("S H1"), ["memory"])


def test_nothing_is_lost_by_moving() -> None:
    log = log_of(*SESSION)
    for laid_out in (move_last(log, "M"), sort_tools(log)):
        np.testing.assert_array_equal(laid_out.prompt_tokens, log.prompt_tokens)
