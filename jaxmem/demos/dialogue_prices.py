"""Demo 02's ledgers priced: exercise 2's argument in GPU seconds."""

import math

import numpy as np

from jaxmem.demos.dialogue_evidence import Evidence
from jaxmem.demos.result import Table
from jaxmem.dialogue import LECTURE_KINDS
from jaxmem.ledger import records, with_answers
from jaxmem.results import Record
from jaxmem.roofline import ACCELERATORS, MODELS

MODEL, GPU = MODELS["llama-3-8b"], ACCELERATORS["h100-80gb"]
PRICED = (
    "full context", "RAG 128 x 16", "mem0", "mem0 v3, 20 memories", "mem0g", "MemGPT",
    "mem0g + sleep", "MemGPT + sleep",
)  # fmt: skip


LONG_ANSWER = 200  # tokens; the world's answers have 30


def prices(found: Evidence, answer_tokens: float | None = None) -> list[Record]:
    """The ledgers of table 1 in GPU seconds.

    Args:
      found: what was run.
      answer_tokens: tokens of an answer; None for those of the ledger.

    Returns:
      A row a system.
    """
    priced = {name: found.main[name] for name in PRICED}
    if answer_tokens is not None:
        priced = {name: with_answers(judged, answer_tokens) for name, judged in priced.items()}
    return records(priced, MODEL, GPU, kinds=LECTURE_KINDS)


def price_tables(found: Evidence) -> list[Table]:
    """GPU seconds of writing and reading, and where systems overtake full context.

    Args:
      found: what was run.

    Returns:
      A table without and one with kept prefixes.
    """
    rows, long = prices(found), {row["system"]: row for row in prices(found, LONG_ANSWER)}
    return [_price_table(rows, long, end) for end in ("", "_cached")]


def _price_table(rows: list[Record], long: dict[str, Record], end: str) -> Table:
    how = "prefixes are kept between calls" if end else "every prompt is prefilled anew"
    kept = (
        "kept: what all questions of a conversation share (full context: all of it; MemGPT: its"
        " main context; what is retrieved: nothing) and the instructions of prompts at writing;"
        " KV is still read and held while an answer is decoded; RAG and full context are a tie here"
    )
    return Table(
        f"The ledger priced, {how}: {MODEL.name} on one {GPU.name}",
        ["system", "write s", "question ms", "overtakes at", f"{LONG_ANSWER}-token answers"],
        [
            [
                row["system"],
                round(row["write_s" + end], 2),
                round(1e3 * row["read_s" + end], 1),
                _count(row["overtakes" + end]),
                _count(long[row["system"]]["overtakes" + end]),
            ]
            for row in rows
        ],
        [
            *([kept] if end else []),
            "overtakes at: questions about a conversation (now, before, two hops) from which on it"
            " costs less in all than full context; never: full context stays cheaper; answers have"
            f" 30 tokens, in the last column {LONG_ANSWER}",
            f"cheapest in all: {_cheapest(rows, end)}",
        ],
    )


def _cheapest(rows: list[Record], end: str) -> str:
    """Which system costs least by the number of questions."""
    found = []
    for questions in (1, 10, 100, 1_000):
        total = [row["write_s" + end] + questions * row["read_s" + end] for row in rows]
        found.append(f"{rows[int(np.argmin(total))]['system']} for {questions:,}")
    return ", ".join(found) + " questions"


def _count(questions: float) -> str:
    if not math.isfinite(questions):
        return "never"
    return "at once" if questions == 0 else f"{questions:,.0f}"
