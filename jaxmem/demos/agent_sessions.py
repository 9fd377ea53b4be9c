"""Demo 03: what edits of a memory do to the prefix cache, for MemGPT sessions and ACE playbooks."""

from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import ArrayLike

from jaxmem.common import run_interval
from jaxmem.demos import session_pictures as pictures
from jaxmem.demos.dialogue_memory import numbered
from jaxmem.demos.lecture import Figure, beside_lecture
from jaxmem.demos.result import DemoResult, Extent
from jaxmem.demos.session_evidence import Evidence, gather
from jaxmem.demos.session_tables import all_tables, layout
from jaxmem.sessions.adaptation import VARIANTS, estimated_reuse, first_edit

CHOICES = (
    "one set of parameters for every table; no language model: what the agent does is drawn",
    "a session: 600 rounds, a window of 8,000 tokens, 1,000 of instructions, messages of N(43, 12)"
    " tokens",
    "0.25 of the rounds hold a fact, 0.20 of those are saved at once; a pressure warning (30"
    " tokens, once between two evictions) makes the model save at most three more",
    "a save is a call of its own; it leaves 40 tokens in the queue and an entry of 20 in the"
    " working context, which grows from 200 to 800 tokens and then replaces entries at uniform"
    " places",
    "0.13 of the rounds search recall storage: one more call, 300 tokens of results",
    "a fact that waits to be saved outlives its message, in the summary; the queue is looked at"
    " when a user message arrives (before each call, two of the figures would come out too low)",
    "evicted: whole messages until a share of the WINDOW is gone (a share of the queue does not fit"
    " the lecture); a summary of 350 tokens takes their place",
    "the cache keeps every token of the last call; replies count as new when they are first sent;"
    " what is recomputed is charged to the first break in the prompt",
    "main context: the whole prompt (the lecture says history, which 7,400 tokens in a window of"
    " 8,000 cannot be)",
    "thresholds count the working context with its edits in every layout, so that all see the same"
    " events; in `appended` an edit waits as a note of 20 tokens",
    "playbook: 300 tasks, bullets of 40 tokens with probability 0.6, three used a task; reuse"
    " against the prompt of the task before; 0.2 of the bullets are duplicates, refined every 50"
    " tasks",
    "Llama-3-8B on one H100 for GPU time; 11.7 holds with decoding at a flat time a token: reading"
    " the KV too gives the other column",
    "figures have the interval that holds one run in 95 % of cases (the lecture's are one run): ok"
    " if the lecture's lies in it",
)


def agent_sessions(extent: Extent) -> DemoResult:
    """Run demo 03 and exercises 3 and 5.

    Args:
      extent: 512 seeds if full, else 64; `beyond` changes nothing: what goes beyond the lecture is
        marked as ours in the same tables.

    Returns:
      The result.
    """
    return present(gather(extent), CHOICES)


def present(found: Evidence, choices: Sequence[str]) -> DemoResult:
    """Tables, figures and pictures of what was run.

    Args:
      found: what was run.
      choices: what was chosen where the lecture is silent.

    Returns:
      The result.
    """
    draw = {
        "causes.png": partial(pictures.draw_causes, found),
        "reuse.png": partial(pictures.draw_reuse, found),
        "layouts.png": partial(pictures.draw_history, found),
        "playbook.png": partial(pictures.draw_playbook, found),
    }
    figures = {figure.id: figure for figure in _figures(found)}
    return DemoResult(numbered(all_tables(found)), figures, draw, choices)


def _figures(found: Evidence) -> list[Figure]:
    main, few, many = found.main, found.evicted[0.10], found.evicted[0.75]
    front = partial(layout, name="front")
    three = np.stack([layout(main, name, "prefill_tokens") for name in ("front", "last", "log")])
    book, append = found.playbook, VARIANTS.index("append")
    rewrite = VARIANTS.index("rewrite")
    ratios = {name: s[:, rewrite] / s[:, append] for name, s in found.gpu_s.items()}
    memory = front(main, field="memory_tokens")
    figures = [
        _figure("mg-calls", main.calls),
        _figure("mg-saved", front(main, field="saved")),
        _figure("mg-prefill", front(main, field="prefill_tokens")),
        _figure("mg-wc-share", memory / front(main, field="prefill_tokens")),
        _figure(
            "mg-wc-tail",
            main.working_tokens / main.calls,
            "the working context itself; new tokens come on top",
        ),
        _figure("mg-log-layout", 1 + (three < three[2]).sum(0)),
        _figure("mg-evict10", few.evictions),
        _figure("mg-evict10-prefill", front(few, field="prefill_tokens")),
        _figure("mg-evict10-cause-evict", front(few, field="eviction_tokens")),
        _figure("mg-evict10-cause-wc", front(few, field="memory_tokens")),
        _figure("mg-evict50", main.evictions),
        _figure("mg-evict50-cause-evict", front(main, field="eviction_tokens")),
        _figure("mg-evict50-cause-wc", memory),
        _figure("mg-evict75", many.evictions),
        _figure("mg-evict75-prefill", front(many, field="prefill_tokens")),
        _figure("mg-hist10", front(few, field="context_tokens")),
        _figure("mg-hist75", front(many, field="context_tokens")),
        _figure("ace-rewrite-tokens", book.written_tokens[:, rewrite].sum(-1)),
        _figure(
            "ace-rewrite-x",
            ratios["flat"],
            "both sides count the generator's own 300 tokens",
            {"KV read too": float(ratios["KV read"].mean())},
        ),
        _figure("ace-counters", book.reuse[:, VARIANTS.index("counters")]),
        _figure("ace-append", book.reuse[:, append]),
    ]
    return [
        *figures,
        beside_lecture("ex5-first-edit", float(first_edit(3))),
        beside_lecture(
            "ex5-reuse",
            float(estimated_reuse()),
            note="with the playbook's mean length; the run above has the whole distribution",
        ),
    ]


def _figure(
    id: str, samples: ArrayLike, note: str = "", beside: dict[str, float] | None = None
) -> Figure:
    """A figure with the interval of one run."""
    return beside_lecture(id, *run_interval(np.asarray(samples, float)), note=note, beside=beside)
