"""The runs behind demo 02."""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from jaxmem.demos.result import Extent
from jaxmem.dialogue import LOCOMO, Judged, error_sweep, evaluate, sensitivity
from jaxmem.dialogue.systems import (
    PERFECT,
    System,
    full_context,
    mem0,
    mem0g,
    memgpt,
    rag,
    rag_messages,
)
from jaxmem.results import Record

LECTURE_SIZE = 10  # conversations of the lecture's runs
LECTURE_SIZE_LONG = 3  # of each length
CONSOLIDATE_EVERY = 20
V3_COUNT = 20  # memories that mem0 v3 retrieves by default; the others retrieve ten

GRID = (
    (128, 1),
    (128, 4),
    (128, 8),
    (128, 16),
    (512, 1),
    (512, 4),
    (2_048, 1),
    (2_048, 4),
    (8_192, 1),
)
RECALLS = (1.0, 0.95, 0.9, 0.85, 0.8, 0.7)
KNOWN = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6)
ALPHAS = (0.0, 0.25, 0.5, 0.75, 1.0)


def systems() -> dict[str, System]:
    """The systems of table 1, by name."""
    return {
        "full context": full_context(),
        "full, alpha 0.5": full_context(alpha=0.5),
        "full, alpha 1": full_context(alpha=1.0),
        "RAG 2048 x 1": rag(2_048, 1),
        "RAG 128 x 16": rag(128, 16),
        "RAG, 48 messages": rag_messages(48),
        "mem0": mem0(),
        "mem0 v3": mem0(policy="add_only"),
        "mem0 v3, 20 memories": mem0(policy="add_only", count=V3_COUNT),
        "mem0g, no hop": mem0g(hop=False),
        "mem0g": mem0g(),
        "mem0g, Graphiti's rule": mem0g(policy="bitemporal"),
        "mem0g, ranking retired": mem0g(rank_retired=True),
        "MemGPT": memgpt(),
        "mem0 + sleep": mem0(consolidate_every=CONSOLIDATE_EVERY),
        "mem0g + sleep": mem0g(consolidate_every=CONSOLIDATE_EVERY),
        "MemGPT + sleep": memgpt(consolidate_every=CONSOLIDATE_EVERY),
    }


LONG = (
    "full context", "RAG 128 x 16", "mem0g", "mem0g, ranking retired", "mem0 v3, 20 memories",
    "MemGPT",
)  # fmt: skip
"""Names of the systems of table 4."""


class Evidence(NamedTuple):
    """What was run.

    main: systems of table 1, judged.
    grid: RAG by chunk size x count, judged on the same conversations.
    extraction: sweep of extraction recall and of changes taken for known, all else perfect.
    extraction_usual: the same with the other errors at their defaults.
    overlooking: sweep of alpha.
    lengths: systems of table 4 by length, judged.
    slopes: sensitivity to each error by system.
    """

    main: Mapping[str, Judged]
    grid: Mapping[str, Judged]
    extraction: list[Record]
    extraction_usual: list[Record]
    overlooking: list[Record]
    lengths: Mapping[int, Mapping[str, Judged]]
    slopes: Mapping[str, list[Record]]


def gather(extent: Extent) -> Evidence:
    """Run everything.

    Args:
      extent: 1,000 conversations (400 a cell of tables 3 to 5) if full, else 100 and neither
        table 4 nor 5.

    Returns:
      What was found.
    """
    most, many = (1_000, 400) if extent.full else (100, 100)
    named = systems()
    retrieval = {f"RAG {size} x {count}": rag(size, count) for size, count in GRID}
    judged = evaluate(retrieval | named, most, label="systems")
    main = {name: judged[name] for name in named}
    lengths: dict[int, Mapping[str, Judged]] = {}
    slopes: dict[str, list[Record]] = {}
    if extent.full:
        lengths[1] = {name: main[name] for name in LONG}
        for length in (2, 4, 8):
            lengths[length] = evaluate(
                {name: named[name] for name in LONG},
                many,
                replace(LOCOMO, length=length),
                seed=1,
                batch=40 // length,
                label=f"{length} x as long",
            )
        slopes = {
            "mem0": sensitivity(mem0, conversations=many),
            "mem0g": sensitivity(mem0g, conversations=many),
            "MemGPT": sensitivity(
                memgpt, conversations=many, names=("recall", "change_as_known", "stop_early")
            ),
        }
    swept = {"recall": RECALLS, "change_as_known": KNOWN}
    return Evidence(
        main=main,
        grid={f"{size} x {count}": judged[f"RAG {size} x {count}"] for size, count in GRID},
        extraction=error_sweep(mem0, swept, PERFECT, many),
        extraction_usual=error_sweep(mem0, swept, conversations=many) if extent.full else [],
        overlooking=error_sweep(full_context, {"alpha": ALPHAS}, conversations=many),
        lengths=lengths,
        slopes=slopes,
    )
