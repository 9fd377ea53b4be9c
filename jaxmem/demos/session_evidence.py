"""The runs behind demo 03."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np

from jaxmem.common import Interval
from jaxmem.demos.result import Extent
from jaxmem.roofline import ACCELERATORS, MODELS
from jaxmem.sessions import adaptation, feedback, serving, session
from jaxmem.sessions.session import LAYOUTS, LECTURE, PRESETS, Session, Settings, Trace

EVICTED = (0.10, 0.20, 0.30, 0.50, 0.75)
AT_ONCE = (0.0, 0.2, 0.4, 0.5, 0.6, 0.8, 1.0)
ERRORS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
MODEL, GPU = "llama-3-8b", "h100-80gb"
FULL, QUICK = 512, 64  # seeds


class Evidence(NamedTuple):
    """What was run, all on the same seeds; totals of N sessions.

    Attributes:
      seeds: N.
      main: the lecture's session.
      evicted: sessions by `evicted_share`.
      at_once: sessions by `saved_at_once`.
      presets: sessions by preset.
      trace: one session call by call.
      playbook: N adaptations, in all variants.
      roles: their totals by role as the official code calls, [N, V, 3].
      gpu_s: their GPU seconds as the lecture counts, [N, V]; with flat decoding, and with the KV
        read.
      harmful: share of harmful bullets, [N, E, 2] by `ERRORS` and `feedback.KEEPING`.
      served: rows of `serving.served`.
    """

    seeds: int
    main: Session
    evicted: dict[float, Session]
    at_once: dict[float, Session]
    presets: dict[str, Session]
    trace: Trace
    playbook: adaptation.Adaptation
    roles: serving.Roles
    gpu_s: dict[str, np.ndarray]
    harmful: np.ndarray
    served: list[dict]


def gather(extent: Extent) -> Evidence:
    """Run everything once.

    Args:
      extent: 512 seeds if full, else 64.

    Returns:
      What was run.
    """
    seeds = FULL if extent.full else QUICK
    keys = jax.random.split(jax.random.key(3), seeds)
    evicted = [dataclasses.replace(LECTURE, evicted_share=share) for share in EVICTED]
    at_once = [dataclasses.replace(LECTURE, saved_at_once=share) for share in AT_ONCE]
    ran = _sessions(keys, [LECTURE, *evicted, *at_once, *PRESETS.values()])
    shares, saves = 1 + len(EVICTED), 1 + len(EVICTED) + len(AT_ONCE)
    grown = jax.jit(jax.vmap(adaptation.adapt))(keys)
    model, gpu = MODELS[MODEL], ACCELERATORS[GPU]
    lecture = serving.calls(grown, accounting="lecture")
    harmful = jax.vmap(
        jax.vmap(lambda key, error: feedback.pollution(key, error).harmful_share, (None, 0)),
        (0, None),
    )
    return Evidence(
        seeds=seeds,
        main=ran[0],
        evicted=dict(zip(EVICTED, ran[1:shares])),
        at_once=dict(zip(AT_ONCE, ran[shares:saves])),
        presets=dict(zip(PRESETS, ran[saves:])),
        trace=jax.tree.map(np.asarray, jax.jit(session.trace)(keys[0])),
        playbook=jax.tree.map(np.asarray, grown),
        roles=jax.tree.map(np.asarray, serving.by_role(serving.calls(grown))),
        gpu_s={
            name: np.asarray(serving.gpu_seconds(lecture, model, gpu, flat=flat))
            for name, flat in (("flat", True), ("KV read", False))
        },
        harmful=np.asarray(jax.jit(harmful)(keys, np.array(ERRORS, np.float32))),
        served=serving.served(model, gpu),
    )


def crossing(found: Evidence) -> Interval:
    """Share of facts saved at once from which on the working context last costs less than in front.

    Where the mean difference of their prefill, linear between the shares run, is zero.

    Args:
      found: what was run.

    Returns:
      The share, with its 95 % interval from 1,000 resamples of the seeds.
    """
    front, last = LAYOUTS.index("front"), LAYOUTS.index("last")
    prefill = np.stack([np.asarray(s.prefill_tokens) for s in found.at_once.values()])
    gap = prefill[..., last] - prefill[..., front]  # [P, N]
    draws = np.random.default_rng(0).integers(found.seeds, size=(1000, found.seeds))
    shares = np.array(list(found.at_once))
    # The gap falls with the share: interpolated from its end.
    zeros = [float(np.interp(0.0, g[::-1], shares[::-1])) for g in gap[:, draws].mean(-1).T]
    low, high = np.quantile(zeros, [0.025, 0.975])
    return Interval(float(np.interp(0.0, gap.mean(1)[::-1], shares[::-1])), float(low), float(high))


def _sessions(keys: jax.Array, settings: Sequence[Settings]) -> list[Session]:
    """The same keys under each of the settings, in one call."""
    stacked = jax.tree.map(lambda *numbers: np.array(numbers, np.float32), *settings)
    ran = jax.tree.map(np.asarray, session.memgpt_sessions(keys, stacked))
    return [jax.tree.map(lambda x, s=s: x[s], ran) for s in range(len(settings))]
