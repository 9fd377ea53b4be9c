"""The doctor: what breaks the prefix of an agent's prompts, what it costs, what would not."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from jaxmem.common import check_size
from jaxmem.prompts.findings import (
    Finding,
    Remedied,
    advised,
    candidates,
    finding_of,
    groups,
    remedy,
)
from jaxmem.prompts.log import PromptLog
from jaxmem.prompts.reuse import Reuse, reuse, served

_Replay = Callable[[PromptLog], np.ndarray]  # reused tokens of each call
_Known = dict[tuple[str, tuple[str, ...], tuple[str, ...]], Remedied]  # by name, labels, fields
SMALL_SHARE = 0.001  # of all prompt tokens: for less no remedy is tried
_MOST_STEPS = 10
_TOO_LITTLE = 0.002  # of all prompt tokens: the last steps together save more, or are left out


class Step(NamedTuple):
    """One remedy of a plan, after those before it.

    Attributes:
      label: the segment that it is for.
      remedied: what it does, by replay; `saved_tokens` counts from the step before.
    """

    label: str
    remedied: Remedied


class Diagnosis(NamedTuple):
    """A log, what a prefix cache reuses of it, and why not more.

    Attributes:
      log: the calls.
      reuse: what became of their tokens.
      findings: the costliest first; each remedy is tried alone.
      plan: remedies one after another, each for what breaks most after those before: a break may
        hide the next, so that a step alone may save nothing.
      avoidable_tokens: tokens computed now and not after the plan.
      reused_share: reused tokens over all prompt tokens, after the plan.
    """

    log: PromptLog
    reuse: Reuse
    findings: tuple[Finding, ...]
    plan: tuple[Step, ...]
    avoidable_tokens: int
    reused_share: float

    @property
    def avoidable_share(self) -> float:
        """Avoidable tokens over all prompt tokens."""
        return self.avoidable_tokens / max(int(self.log.prompt_tokens.sum()), 1)


def diagnose(
    log: PromptLog,
    block_tokens: int = 16,
    *,
    scope: str = "session",
    ttl_s: float = np.inf,
    minimum_tokens: int = 0,
    tail_tokens: int = 0,
    limit: int = 10,
) -> Diagnosis:
    """Find what breaks the prefix, and replay the log under each remedy.

    Args:
      log: the calls.
      block_tokens, scope, ttl_s, minimum_tokens, tail_tokens: of the cache, as in `reuse`.
      limit: findings to look into, the costliest ones; the plan does not depend on it.

    Returns:
      The findings, and a plan.

    Raises:
      ValueError: as `reuse`.
    """
    limit = check_size("limit", limit)
    cache = {
        "block_tokens": block_tokens, "scope": scope, "ttl_s": ttl_s,
        "minimum_tokens": minimum_tokens, "tail_tokens": tail_tokens,
    }  # fmt: skip
    now = reuse(log, **cache)  # type: ignore[arg-type]  # one dict for arguments of several types
    replay: _Replay = partial(served, **cache)  # type: ignore[arg-type]
    known: _Known = {}
    findings, least = [], SMALL_SHARE * log.prompt_tokens.sum()
    for group in groups(now)[:limit]:
        found = finding_of(now, *group)
        if found.tokens >= least:
            found = advised(found, _tried(now, found, replay, known), log)
        else:
            found = found._replace(advice="none: too small for a remedy to be tried")
        findings.append(found)
    plan = _plan(now, partial(reuse, **cache), replay, known)  # type: ignore[arg-type]
    recomputed = plan[-1].remedied.recomputed_tokens if plan else int(now.recomputed.sum())
    return Diagnosis(
        log=log,
        reuse=now,
        findings=tuple(findings),
        plan=plan,
        avoidable_tokens=int(now.recomputed.sum()) - recomputed,
        reused_share=plan[-1].remedied.reused_share if plan else now.share,
    )


def _tried(
    now: Reuse,
    finding: Finding,
    replay: _Replay,
    known: _Known,
) -> list[Remedied]:
    """Every remedy for a finding, replayed alone; `known` has those for the same segments."""
    tried = []
    for name in candidates(finding):
        key = (name, finding.labels if name != "sort_tools" else (), finding.fields)
        if key not in known:
            laid_out = remedy(name, finding)(now.log)
            reused, prompt = int(replay(laid_out).sum()), int(laid_out.prompt_tokens.sum())
            saved = int(now.recomputed.sum()) - (prompt - reused)
            known[key] = Remedied(
                name, prompt, prompt - reused, saved, reused / max(prompt, 1), laid_out
            )
        tried.append(known[key])
    return tried


def _plan(
    now: Reuse,
    diagnosed: Callable[[PromptLog], Reuse],
    replay: _Replay,
    known: _Known,
) -> tuple[Step, ...]:
    """Remedies for what breaks most, then for what breaks most after them, and so on."""
    steps: list[Step] = []
    mended: set[str] = set()  # a segment is laid out otherwise once
    hopeless: set[tuple[str, str]] = set()
    start = int(now.recomputed.sum())
    prompt = int(now.log.prompt_tokens.sum())
    for _ in range(_MOST_STEPS):
        left = (g for g in groups(now) if g[0] not in mended and g[:2] not in hopeless)
        group = next(left, None)
        if group is None or group[3] < SMALL_SHARE * prompt:
            break
        found = finding_of(now, *group)
        found = advised(found, _tried(now, found, replay, known), now.log)
        if found.remedies:
            mended.add(found.label)
            steps.append(Step(found.label, found.remedies[0]))
            now, known = diagnosed(found.remedies[0].log), {}
        else:
            hopeless.add(group[:2])
    tokens_left = [start, *(step.remedied.recomputed_tokens for step in steps)]
    enough = min(tokens_left) + _TOO_LITTLE * prompt
    return tuple(steps[: next(n for n, tokens in enumerate(tokens_left) if tokens <= enough)])


def without_text(diagnosis: Diagnosis) -> Diagnosis:
    """The same with nothing of the log's text in its findings.

    Args:
      diagnosis: from `diagnose`.

    Returns:
      Its findings with empty excerpts; labels stay.
    """
    bare = tuple(finding._replace(old="", new="") for finding in diagnosis.findings)
    return diagnosis._replace(findings=bare)
