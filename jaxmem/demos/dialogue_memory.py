"""Demo 02: what memory systems remember of long conversations, and what each answer costs."""

from collections.abc import Sequence
from functools import partial

from jaxmem.common import Interval, smaller_run
from jaxmem.demos import dialogue_pictures as pictures
from jaxmem.demos.dialogue_evidence import LECTURE_SIZE, LECTURE_SIZE_LONG, Evidence, gather
from jaxmem.demos.dialogue_prices import price_tables
from jaxmem.demos.dialogue_tables import (
    all_tables,
    mean_calls,
    mean_reading,
    row_of,
    write_calls,
)
from jaxmem.demos.lecture import Figure, beside_lecture, lecture_figures
from jaxmem.demos.result import DemoResult, Extent, Table
from jaxmem.dialogue import LECTURE_KINDS, Judged, accuracy, compare, per_question
from jaxmem.dialogue.judging import Kinds

CHOICES = (
    "no language model: each judgement is a rule with an error rate, and the reader is ideal; this"
    " shows mechanisms and costs, not how good a product is",
    "one set of parameters for every table (calibrated on 17 of the figures; the sweeps, the"
    " lengths and the grid of RAG were not used)",
    "conversations: 600 +- 60 messages of N(43, 20) tokens; 8 attributes said once, 8 that change 1"
    " to 5 times; 4 roles with 1 to 4 holders; 4 mentions a topic that state nothing",
    "20 questions about now, one about before for each key that changed, 8 of two hops: of 389 in"
    " ten conversations 200 / 109 / 80, which the lecture's fractions ask for",
    "embeddings: 256 dimensions, topic + 0.8 of random signs; 'home town' and 'job' weigh 0.55"
    " beside a name or a role (this alone sets two hops without a graph)",
    "extraction finds 0.94 of the facts; 0.10 of the changes are taken for known, 0.01 for new;"
    " mem0 and mem0g share these draws",
    "memories of N(20, 5) tokens, ten retrieved (20 where it says so), ten compared at writing;"
    " mem0g: three newest retired versions of each key found; persons named by"
    " retrieved role memories are expanded",
    "MemGPT: a queue of 6,000 tokens, 4,000 evicted at a time, 30 entries of 20 tokens, pages of 3"
    " messages and at most 3 pages a question; it stops at the first answer it can form",
    "read: material shown, once each; prompts' instructions count in the ledger only",
    "full context overlooks a statement with probability alpha 0.23 (pi / 2) sin(pi x)",
    "figures have the interval that holds a run of the lecture's size (10 conversations, 3 a"
    " length) in 95 % of cases: ok if the lecture's lies in it",
)
QUICK = "quick preset: 100 conversations; without the tables of longer conversations and of slopes"

NOTES = {
    "mem-fullctx-alpha0.5": "a miss linear in alpha pulls this figure and the next apart",
    "mem-memgpt-hop": "a search by name finds that person's messages almost always",
    "mem-memgpt-writes": "saves; the summaries are calls beside them",
    "mem-memgpt-read-x": "queue, summary and working context once, and the pages turned",
}


def dialogue_memory(extent: Extent) -> DemoResult:
    """Run demo 02 and exercise 2.

    Args:
      extent: 1,000 conversations (400 a cell of the sweeps) if full, else 100; `beyond` changes
        nothing: what goes beyond the lecture is in the same tables.

    Returns:
      The result; figures of tables that were left out are missing.
    """
    choices = CHOICES if extent.full else (*CHOICES, QUICK)
    return present(gather(extent), choices)


def present(found: Evidence, choices: Sequence[str]) -> DemoResult:
    """Tables, figures and pictures of what was run.

    Args:
      found: what was run.
      choices: what was chosen where the lecture is silent.

    Returns:
      The result.
    """
    draw = {
        "frontier.png": partial(pictures.draw_frontier, found),
        "errors.png": partial(pictures.draw_errors, found),
        "cost.png": partial(pictures.draw_cost, found),
    }
    if found.lengths:
        draw["lengths.png"] = partial(pictures.draw_lengths, found)
    if found.slopes:
        draw["slopes.png"] = partial(pictures.draw_slopes, found)
    return DemoResult(
        numbered([*all_tables(found), *price_tables(found)]), _figures(found), draw, choices
    )


def numbered(tables: Sequence[Table]) -> list[Table]:
    """Tables with numbers before their titles.

    Args:
      tables: in order.

    Returns:
      The same.
    """
    return [
        table._replace(title=f"{number}. {table.title}")
        for number, table in enumerate(tables, start=1)
    ]


def _figures(found: Evidence) -> dict[str, Figure]:
    main = found.main
    mem0, mem0g, agent = main["mem0"], main["mem0g"], main["MemGPT"]
    full = main["full context"]
    written = float(mem0.write.prefill_tokens.sum(-1).mean())
    many = found.extraction[0]["conversations"]

    def swept(id: str, rate: str, value: float) -> Figure:
        interval = row_of(found.extraction, rate, value, "current")
        beside = {}
        if found.extraction_usual:
            usual = row_of(found.extraction_usual, rate, value, "current")
            beside = {"other errors too": usual.mean}
        return _figure(id, interval, many, beside=beside)

    def judged(id: str, system: str, kinds: Kinds) -> Figure:
        return _figure(id, accuracy(main[system], kinds), len(mem0.mask))

    beats = compare(main["RAG 128 x 16"], mem0g, LECTURE_KINDS)
    more = mean_reading(main["RAG 128 x 16"]) / mean_reading(mem0g)
    entries = [
        judged("mem-fullctx-alpha0.5", "full, alpha 0.5", LECTURE_KINDS),
        judged("mem-fullctx-alpha1", "full, alpha 1", LECTURE_KINDS),
        judged("mem-mem0-current", "mem0", "current"),
        judged("mem-mem0-previous", "mem0", "previous"),
        judged("mem-mem0g-previous", "mem0g", "previous"),
        judged("mem-mem0g-nohop", "mem0g, no hop", "two_hop"),
        judged("mem-mem0g-hop", "mem0g", "two_hop"),
        judged("mem-mem0g-all", "mem0g", LECTURE_KINDS),
        judged("mem-memgpt-all", "MemGPT", LECTURE_KINDS),
        judged("mem-memgpt-hop", "MemGPT", "two_hop"),
        _figure("mem-memgpt-calls", mean_calls(agent), len(agent.mask)),
        _figure(
            "mem-mem0-read",
            per_question(mem0, mem0.read.read_tokens, LECTURE_KINDS),
            len(mem0.mask),
        ),
        _ratio("mem-memgpt-read-x", agent, mem0),
        _figure("mem-mem0-writes", write_calls(mem0), len(mem0.mask)),
        _figure("mem-memgpt-writes", write_calls(agent, "update"), len(agent.mask)),
        _figure(
            "mem-rag-128x16",
            accuracy(main["RAG 128 x 16"], LECTURE_KINDS),
            len(mem0.mask),
            f"it reads {more:.1f} x mem0g's tokens; {beats.words}",
        ),
        judged("mem-rag-2048x1", "RAG 2048 x 1", LECTURE_KINDS),
        swept("mem-extract-1.0", "recall", 1.0),
        swept("mem-extract-0.7", "recall", 0.7),
        swept("mem-noop-0.6", "change_as_known", 0.6),
    ]
    if found.lengths:
        most = max((systems["mem0g"] for systems in found.lengths.values()), key=mean_reading)
        tokens = per_question(most, most.read.read_tokens, LECTURE_KINDS)
        spread = smaller_run(tokens, len(most.mask), LECTURE_SIZE_LONG)
        entries.append(beside_lecture("mem-long-read", *spread, note="the most of any length"))
    entries += [
        beside_lecture("ex2-write", written),
        beside_lecture(
            "ex2-breakeven",
            written / mean_reading(full),
            note="counted as the exercise does; the ledger priced has the answer in GPU seconds",
        ),
    ]
    return {figure.id: figure for figure in entries}


def _figure(
    id: str,
    interval: Interval,
    samples: int,
    note: str = "",
    beside: dict[str, float] | None = None,
) -> Figure:
    """A figure with the interval of a run of the lecture's size."""
    mean, low, high = smaller_run(interval, samples, LECTURE_SIZE)
    if lecture_figures()[id].unit.startswith("acc"):
        low, high = max(low, 0.0), min(high, 1.0)
    return beside_lecture(id, mean, low, high, note=note or NOTES.get(id, ""), beside=beside)


def _ratio(id: str, first: Judged, second: Judged) -> Figure:
    """How many times the tokens of one system another reads."""
    tokens = per_question(first, first.read.read_tokens, LECTURE_KINDS)
    other = mean_reading(second)
    return _figure(id, Interval(*(x / other for x in tokens)), len(first.mask))
