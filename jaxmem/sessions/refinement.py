"""Keeping a playbook small: duplicates merged, harmful bullets dropped, a budget enforced."""

import re
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jaxmem.common import check_number, check_size
from jaxmem.sessions.playbook import Delta, Playbook, merge, render

Embed = Callable[[list[str]], Any]
Count = Callable[[str], int]
_EMBEDDING_DIM = 1024
_WORD = re.compile(r"\w+")


def hashed_ngrams(texts: Sequence[str]) -> np.ndarray:
    """Embeddings of words and their letters, three by three, hashed: no meaning, only spelling.

    It finds texts that say nearly the same in the same words; give a real embedder for others.

    Args:
      texts: n texts.

    Returns:
      Unit vectors [n, 1024]; zero for a text without a letter.
    """
    vectors = np.zeros((len(texts), _EMBEDDING_DIM))
    for row, text in zip(vectors, texts):
        for word in _WORD.findall(text.lower()):
            padded = f" {word} "
            for gram in (word, *(padded[i : i + 3] for i in range(len(padded) - 2))):
                code = zlib.crc32(gram.encode())
                row[code % _EMBEDDING_DIM] += 1.0 if code >> 31 else -1.0
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-30)


def refined(
    playbook: Playbook,
    embed: Embed = hashed_ngrams,
    similarity: float = 0.9,
    margin: int | None = None,
) -> Playbook:
    """Merge bullets that say the same: grow and refine.

    In canonical order, a bullet joins the nearest of those kept so far if their cosine reaches
    `similarity`, and else is kept: a bullet joins one other, so each mark counts once, and later
    bullets never change earlier ones. (The official greedy search lets each bullet that is not in a
    group yet collect all later ones, without asking whether they are in one: such a bullet is in
    two groups and its marks count twice.) The kept text stays as it is; no LLM rewrites it.

    Args:
      playbook: what is there.
      embed: texts to vectors [n, d], of any length; deterministic.
      similarity: least cosine of duplicates, in 0..1.
      margin: bullets with harmful - helpful at least this are dropped, duplicates counted
        together; None drops none.

    Returns:
      The playbook after a delta that merges and removes; itself if there is nothing to do.

    Raises:
      ValueError: if the similarity is out of range, the margin is below 1, or `embed` does not give
        a finite vector a text.
    """
    check_number("similarity", similarity, 0.0, 1.0, scalar=True)
    bullets = playbook.bullets
    vectors = _embedded(embed, [bullet.text for bullet in bullets])
    kept: list[int] = []
    merges = []
    for i, bullet in enumerate(bullets):
        cosines = vectors[kept] @ vectors[i]
        nearest = int(cosines.argmax()) if kept else -1
        if kept and cosines[nearest] >= similarity:
            merges.append((bullet.id, bullets[kept[nearest]].id))
        else:
            kept.append(i)
    if merges:
        playbook = merge(playbook, Delta(playbook.step, merges=tuple(merges), author="refined"))
    if margin is not None:
        check_size("margin", margin)
        harmful = [b.id for b in playbook.bullets if b.harmful - b.helpful >= margin]
        playbook = _without(playbook, harmful)
    return playbook


def refine_at(
    playbook: Playbook,
    max_tokens: int | None = None,
    max_bullets: int | None = None,
    *,
    count: Count | None = None,
    embed: Embed = hashed_ngrams,
    similarity: float = 0.9,
    margin: int | None = None,
) -> Playbook:
    """Refine lazily: only a playbook that has outgrown a size.

    Args:
      playbook: what is there.
      max_tokens: most tokens of its rendering, appended and without counters.
      max_bullets: most bullets.
      count: tokens of a text; None for `about_tokens`.
      embed, similarity, margin: as in `refined`.

    Returns:
      The playbook, refined if it was larger than either size.

    Raises:
      ValueError: if no size is given, or as `refined`.
    """
    if max_tokens is None and max_bullets is None:
        raise ValueError("expected max_tokens or max_bullets, got neither")
    over = max_bullets is not None and len(playbook.bullets) > check_size(
        "max_bullets", max_bullets, 0
    )
    if max_tokens is not None and not over:
        size = (count or about_tokens)(render(playbook))
        over = size > check_size("max_tokens", max_tokens, 0)
    return refined(playbook, embed, similarity, margin) if over else playbook


def about_tokens(text: str) -> int:
    """About the tokens of a text: 4 characters each. A tokenizer knows better.

    Args:
      text: any.

    Returns:
      Its length over 4, rounded up.
    """
    return -(-len(text) // 4)


def within(
    playbook: Playbook,
    budget_tokens: int,
    count: Count = about_tokens,
    *,
    layout: str = "appended",
    counters: str = "none",
) -> Playbook:
    """Enforce a budget: drop the fewest bullets, the least useful first, so that the text fits.

    Least useful is the lowest helpful - harmful; of equals the oldest goes first. (The official
    code prints its budget into the curator's prompt and enforces nothing.)

    Args:
      playbook: what is there.
      budget_tokens: most tokens of its rendering.
      count: tokens of a text; must not grow when a bullet goes.
      layout, counters: how it is rendered, as in `render`.

    Returns:
      The playbook after a delta that removes them; itself if it fits.

    Raises:
      ValueError: if not even an empty playbook fits.
    """
    check_size("budget_tokens", budget_tokens, 0)
    usefulness = [bullet.helpful - bullet.harmful for bullet in playbook.bullets]
    order = [playbook.bullets[i].id for i in np.argsort(usefulness, kind="stable")]

    def fits(dropped: int) -> bool:
        return count(render(_without(playbook, order[:dropped]), layout, counters)) <= budget_tokens

    low, high = 0, len(order)  # bisection: the fewest that have to go
    if not fits(high):
        raise ValueError(f"budget_tokens must hold an empty playbook, got {budget_tokens}")
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle + 1, high)
    return _without(playbook, order[:low])


def _without(playbook: Playbook, ids: Sequence[str]) -> Playbook:
    return merge(playbook, Delta(playbook.step, removes=tuple(ids))) if ids else playbook


def _embedded(embed: Embed, texts: list[str]) -> np.ndarray:
    vectors = np.asarray(embed(texts) if texts else np.zeros((0, 1)), np.float64)
    if vectors.ndim != 2 or len(vectors) != len(texts) or not np.isfinite(vectors).all():
        raise ValueError(f"embed must give [{len(texts)}, d] finite numbers, got {vectors.shape}")
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-30)
