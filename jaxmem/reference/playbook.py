"""A growing playbook, prompt by prompt: each is built, and compared with the one before."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

VARIANTS = ("append", "counters", "sections", "sections+counters", "refined", "merged", "rewrite",
            "collapse")  # fmt: skip
Segment = tuple[str, str, str, int]


class Run(NamedTuple):
    """What a run of T tasks came to.

    prompt_tokens, reused_tokens, written_tokens: a number a task.
    playbook_tokens, kept_tokens: a number a task, and one for the playbook after the last.
    bullets: lessons in the playbook after the last task.
    lost: lessons that collapses have lost.
    """

    prompt_tokens: list[int]
    reused_tokens: list[int]
    written_tokens: list[int]
    playbook_tokens: list[int]
    kept_tokens: list[int]
    bullets: int
    lost: int


class Pollution(NamedTuple):
    """A playbook after tasks with unreliable feedback.

    helpful, harmful: bullets of either kind that are in it.
    dropped_helpful, dropped_harmful: those that were dropped.
    """

    helpful: int
    harmful: int
    dropped_helpful: int
    dropped_harmful: int


class _Book:
    """A playbook as text: bullets with a text that has a name, which changes with the text."""

    def __init__(self, draws: Any, settings: Any, variant: str) -> None:
        self.draws, self.settings, self.variant = draws, settings, variant
        self.bullets: list[dict[str, Any]] = []
        self.summary = False
        self.lost = 0
        self.text: list[tuple[str, int]] = []  # of a rewrite: (name, tokens)

    def segments(self) -> list[tuple[str, int]]:
        """Pieces of text (name, tokens), in the order of the prompt."""
        if self.variant in ("rewrite", "collapse"):
            return self.text
        order = self.bullets
        if self.variant.startswith("sections"):
            order = [b for s in range(self.settings.sections) for b in order if b["section"] == s]
        pieces = []
        size, at = int(self.settings.bullet_tokens), int(self.settings.counter_at)
        for b in order:
            name = f"bullet {b['task']} version {b['version']}"
            if self.variant.endswith("counters"):
                pieces += [(name, at), (f"{name}, used {b['used']}", size - at)]
            else:
                pieces.append((name, size))
        return [piece for piece in pieces if piece[1]]

    def learn(self, task: int) -> int:
        """Use and change the playbook after a task; the tokens generated for that."""
        settings, draws = self.settings, self.draws
        left = list(self.bullets)
        for u in draws.used[task]:
            if left:
                left.pop(int(np.float32(u) * np.float32(len(left))))["used"] += 1
        written = self.add(task)
        if self.variant in ("refined", "merged") and (task + 1) % settings.refine_every == 0:
            written += self.refine()
        if self.variant in ("rewrite", "collapse"):
            written = self.rewrite(task)
        return written

    def add(self, task: int) -> int:
        if not self.draws.added[task]:
            return 0
        originals = [b for b in self.bullets if b["original"] is None]
        original = None
        if self.draws.duplicate[task] and originals:
            place = int(np.float32(self.draws.original[task]) * np.float32(len(originals)))
            original = originals[place]
        self.bullets.append({"task": task, "section": self.draws.section[task], "used": 0,
                             "version": 0, "original": original})  # fmt: skip
        return int(self.settings.bullet_tokens)

    def refine(self) -> int:
        """Remove duplicates; an LLM that merges writes the original anew for each."""
        written = 0
        for b in self.bullets:
            if b["original"] is not None and self.variant == "merged":
                b["original"]["version"] += 1
                written += int(self.settings.bullet_tokens)
        self.bullets = [b for b in self.bullets if b["original"] is None]
        return written

    def rewrite(self, task: int) -> int:
        """All of the text anew but its first part; in a collapse a summary only."""
        bullet, summary = int(self.settings.bullet_tokens), int(self.settings.summary_tokens)
        old = sum(tokens for _, tokens in self.text)
        kept = int(np.float32(self.settings.rewrite_kept) * np.float32(old))
        size = bullet * len(self.bullets) + (summary if self.summary else 0)
        if self.variant == "collapse" and self.draws.collapsed[task] and size > summary:
            self.lost += len(self.bullets)
            self.bullets, self.summary, size, kept = [], True, summary, 0
        text: list[tuple[str, int]] = []
        for name, tokens in self.text:
            tokens = min(tokens, kept - sum(t for _, t in text))
            text.append((name, tokens))
        text.append((f"rewrite {task}", size - kept))
        self.text = [piece for piece in text if piece[1]]
        return size


def _prompt(book: _Book, task: int) -> list[Segment]:
    return [
        ("system", "system", "system", int(book.settings.system_tokens)),
        *(("playbook", "memory", name, tokens) for name, tokens in book.segments()),
        ("task", "task", f"task {task}", int(book.settings.task_tokens)),
    ]


def _check(variant: str) -> None:
    if variant not in VARIANTS:
        raise ValueError(f"expected a variant of {VARIANTS}, got {variant!r}")


def prompts(draws: Any, settings: Any, variant: str) -> Iterator[list[Segment]]:
    """The generator's prompts, one a task.

    Args:
      draws: what happens at each task: added, section, used, duplicate, original, collapsed.
      settings: what the prompts are like.
      variant: one of `VARIANTS`.

    Yields:
      Segments (label, kind, id, tokens): labels are system, playbook and task, kinds system, memory
      and task; equal ids are equal text, to the shorter's end.

    Raises:
      ValueError: if the variant is unknown.
    """
    _check(variant)
    book = _Book(draws, settings, variant)
    for task in range(len(draws.added)):
        yield _prompt(book, task)
        book.learn(task)


def common_prefix(one: list[Segment], other: list[Segment]) -> int:
    """Tokens that open both prompts.

    Args:
      one, other: segments (label, kind, id, tokens).

    Returns:
      The number of tokens before the first that differs.
    """
    same = 0
    for (_, _, name, tokens), (_, _, other_name, other_tokens) in zip(one, other):
        if name != other_name:
            break
        same += min(tokens, other_tokens)
        if tokens != other_tokens:
            break
    return same


def adaptation(draws: Any, settings: Any, variant: str) -> Run:
    """A run, from prompts that are really built.

    Args:
      draws: as in `prompts`.
      settings: what the prompts are like.
      variant: one of `VARIANTS`.

    Returns:
      The run.

    Raises:
      ValueError: if the variant is unknown.
    """
    _check(variant)
    book = _Book(draws, settings, variant)
    system, task_tokens = int(settings.system_tokens), int(settings.task_tokens)
    run = Run([], [], [], [], [], 0, 0)
    last: list[Segment] = []
    for task in range(len(draws.added) + 1):
        prompt = _prompt(book, task)
        same = common_prefix(prompt, last)
        run.playbook_tokens.append(sum(segment[3] for segment in prompt) - system - task_tokens)
        run.kept_tokens.append(max(same - system, 0))
        if task < len(draws.added):
            run.prompt_tokens.append(sum(segment[3] for segment in prompt))
            run.reused_tokens.append(same)
            run.written_tokens.append(book.learn(task))
        last = prompt
    return run._replace(bullets=len(book.bullets), lost=book.lost)


def pollution(
    added: np.ndarray,
    used: np.ndarray,
    wrong: np.ndarray,
    refine_every: int,
    margin: float,
) -> Pollution:
    """A playbook that learns from feedback which is wrong at times.

    A lesson from wrong feedback is harmful. A task marks the bullets it uses, by what they are if
    its feedback is right and by the opposite if it is wrong. At refinements, bullets whose harmful
    marks outnumber their helpful ones by the margin are dropped.

    Args:
      added: [T] whether the task adds a bullet.
      used: [T, K] uniform numbers that pick the bullets it uses.
      wrong: [T] whether its feedback is wrong.
      refine_every: tasks between two refinements.
      margin: harmful - helpful at which a bullet is dropped; infinite for never.

    Returns:
      Bullets, by what they are.
    """
    bullets: list[dict[str, int]] = []
    dropped: list[dict[str, int]] = []
    for task in range(len(added)):
        left = list(bullets)
        for u in used[task]:
            if left:
                bullet = left.pop(int(np.float32(u) * np.float32(len(left))))
                marked_harmful = bullet["harmful"] != int(wrong[task])
                bullet["balance"] += 1 if marked_harmful else -1
        if added[task]:
            bullets.append({"harmful": int(wrong[task]), "balance": 0})
        if (task + 1) % refine_every == 0:
            dropped += [b for b in bullets if b["balance"] >= margin]
            bullets = [b for b in bullets if b["balance"] < margin]
    harmful, bad = (sum(b["harmful"] for b in some) for some in (bullets, dropped))
    return Pollution(len(bullets) - harmful, harmful, len(dropped) - bad, bad)
