"""Demo 02's ledgers priced: exercise 2's argument in GPU seconds."""

import math

from jaxmem.demos.dialogue_evidence import Evidence
from jaxmem.demos.result import Table
from jaxmem.dialogue import LECTURE_KINDS
from jaxmem.ledger import records, with_answers
from jaxmem.results import Record
from jaxmem.roofline import ACCELERATORS, MODELS

MODEL, GPU = MODELS["llama-3-8b"], ACCELERATORS["h100-80gb"]
PRICED = (
    "full context", "RAG 128 x 16", "mem0", "mem0 v3, add only", "mem0g", "MemGPT",
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


def price_table(found: Evidence) -> Table:
    """GPU seconds of writing and reading, and where systems overtake full context.

    Args:
      found: what was run.

    Returns:
      The table.
    """
    long = {row["system"]: row for row in prices(found, LONG_ANSWER)}
    rows = [
        [
            row["system"],
            round(row["write_s"], 2),
            round(1e3 * row["read_s"], 1),
            _count(row["overtakes"]),
            _count(long[row["system"]]["overtakes"]),
            round(row["write_s_cached"], 2),
            round(1e3 * row["read_s_cached"], 1),
            _count(row["overtakes_cached"]),
            _count(long[row["system"]]["overtakes_cached"]),
        ]
        for row in prices(found)
    ]
    half = ["write s", "question ms", "overtakes at", f"({LONG_ANSWER})"]
    return Table(
        f"6. The ledger priced: {MODEL.name} on one {GPU.name}; right: prefixes are kept",
        ["system", *half, *(f"kept: {name}" for name in half)],
        rows,
        [
            "overtakes at: questions a conversation from which on it costs less in all than full"
            f" context, with answers of 30 tokens and, ({LONG_ANSWER}), of {LONG_ANSWER}",
            "kept: what all questions of a conversation share (full context: all of it; MemGPT: its"
            " main context; what is retrieved: nothing) and the instructions of prompts at writing"
            " are not prefilled again; KV is still read and held while an answer is decoded",
            "never: full context stays cheaper. RAG and kept full context are within 1 %: a tie",
        ],
    )


def _count(questions: float) -> str:
    if not math.isfinite(questions):
        return "never"
    return "at once" if questions == 0 else f"{questions:,.0f}"
