"""Conversations kept apart from others: what is trained on from what is tested or held out."""

from collections.abc import Sequence

import numpy as np

from jaxmem.lm.self_study.conversations import Conversation, without_shared_runs
from jaxmem.lm.self_study.templates import template_conversations


def without(
    conversations: Sequence[Conversation], apart: Sequence[Conversation]
) -> list[Conversation]:
    """Those that have no question of the others and share no eight words in a row with one.

    Args:
      conversations: to choose from.
      apart: whose questions are kept out.

    Returns:
      The others, in their order.
    """
    if not apart:
        return list(conversations)
    asked = {_plain(one.question) for one in apart}
    far = without_shared_runs(conversations, [one.question for one in apart])
    return [one for one in far if _plain(one.question) not in asked]


def draw_apart(
    seed: int, text: str, count: int, apart: Sequence[Conversation]
) -> list[Conversation]:
    """`template_conversations` that keep apart, as many as wanted if there are as many.

    Args:
      seed: of the draw.
      text: the document.
      count: conversations wanted, 0 or more.
      apart: see `without`.

    Returns:
      At most that many.
    """
    if not count:
        return []
    found = template_conversations(seed, text, count)
    lost = count - len(without(found, apart))
    if lost:
        found = template_conversations(seed, text, count + 2 * lost)
    return without(found, apart)[:count]


def hold_out(seed: int, text: str, count: int, apart: Sequence[Conversation]) -> list[Conversation]:
    """Conversations of a draw of their own; the same however many are trained on.

    Args:
      seed: of the draw that is trained on; theirs is the next.
      text: the document.
      count: conversations wanted.
      apart: see `without`.

    Returns:
      That many with questions that differ; fewer of a text with few questions.
    """
    if not count:
        return []
    pool = without(template_conversations(seed + 1, text, 6 * count), apart)
    questions = {_plain(one.question) for one in pool}
    return split_apart(pool, seed, min(count, len(questions) // 3))[0]


def split_apart(
    pool: Sequence[Conversation], seed: int, count: int
) -> tuple[list[Conversation], list[Conversation]]:
    """Some conversations, and those that ask something else.

    Args:
      pool: to draw from.
      seed: of the draw.
      count: conversations wanted.

    Returns:
      At most that many, whose questions differ, and what has none of these questions.
    """
    order = np.random.default_rng([seed, 1]).permutation(len(pool))
    kept: list[Conversation] = []
    there: set[str] = set()
    for number in order:
        one = pool[number]
        if len(kept) < count and _plain(one.question) not in there:
            kept.append(one)
            there.add(_plain(one.question))
    return kept, [one for one in pool if _plain(one.question) not in there]


def _plain(question: str) -> str:
    return " ".join(question.lower().split())
