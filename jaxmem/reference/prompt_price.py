"""How providers charge the tokens of prompts, call by call: twin of `jaxmem.prompts.price`."""

from collections.abc import Sequence

Prompt = Sequence[tuple[int, int]]
"""A prompt's segments: an identity and a number of tokens each."""

Charged = tuple[int, int, int]
"""Tokens of a call: fresh, written, read."""


def size(prompt: Prompt) -> int:
    """Tokens of a prompt.

    Args:
      prompt: its segments.

    Returns:
      Their sum.
    """
    return sum(tokens for _, tokens in prompt)


def automatic_tokens(
    prompts: Sequence[Prompt],
    caches: Sequence[int],
    times_s: Sequence[float],
    *,
    ttl_s: float,
    block: int,
    minimum: int,
    tail: int,
    writes_cost: bool,
) -> list[Charged]:
    """A cache that keeps every prefix of every prompt, in blocks.

    Args:
      prompts: C of them; segments are equal or share nothing.
      caches: C, which cache each call uses.
      times_s: C, ascending.
      ttl_s: how long after a prompt its prefixes are kept.
      block: tokens read at a time.
      minimum: tokens below which nothing is read or written.
      tail: tokens at the end that are always computed.
      writes_cost: whether tokens that are not read are written, block by block.

    Returns:
      C times (fresh, written, read).
    """
    charged = []
    for i, prompt in enumerate(prompts):
        longest = 0
        for j in range(i):
            if caches[j] != caches[i] or times_s[i] - times_s[j] > ttl_s:
                continue
            same = 0
            for mine, theirs in zip(prompt, prompts[j]):
                if mine != theirs:
                    break
                same += mine[1]
            longest = max(longest, same)
        read = 0
        while read + block <= min(longest, size(prompt) - tail):
            read += block
        if read < minimum:
            read = 0
        stored = size(prompt) - size(prompt) % block
        written = stored - read if writes_cost and stored >= minimum else 0
        charged.append((size(prompt) - read - written, written, read))
    return charged


def breakpoint_tokens(
    prompts: Sequence[Prompt],
    caches: Sequence[int],
    times_s: Sequence[float],
    marks: Sequence[Sequence[int]],
    *,
    ttl_s: float,
    refreshed: bool,
    minimum: int,
    lookback: int | None,
) -> list[Charged]:
    """A cache that keeps the prefixes at breakpoints only, whole.

    Args:
      prompts: C of them.
      caches: C, which cache each call uses.
      times_s: C, ascending.
      marks: C lists of positions, each a segment that a breakpoint follows.
      ttl_s: how long an entry lives.
      refreshed: whether being read starts its life again.
      minimum: tokens below which a prefix is no entry.
      lookback: positions looked at from a breakpoint back, itself the first; None for all.

    Returns:
      C times (fresh, written, read).
    """
    dies_after: dict[tuple[int, tuple[tuple[int, int], ...]], float] = {}
    charged = []
    for prompt, cache, now, stops in zip(prompts, caches, times_s, marks):
        prefixes = [tuple(prompt[: n + 1]) for n in range(len(prompt))]
        stops = [n for n in stops if size(prefixes[n]) >= minimum]
        hits = []
        for stop in stops:
            steps = 0
            while stop - steps >= 0 and (lookback is None or steps < lookback):
                entry = (cache, prefixes[stop - steps])
                if size(entry[1]) >= minimum and dies_after.get(entry, now - 1) >= now:
                    hits.append(entry)
                    break
                steps += 1
        best = max(hits, key=lambda entry: len(entry[1]), default=(cache, ()))
        read = size(best[1])
        if hits and refreshed:
            dies_after[best] = now + ttl_s
        last = max((size(prefixes[n]) for n in stops), default=0)
        for n in stops:
            entry = (cache, prefixes[n])
            if refreshed or dies_after.get(entry, now - 1) < now:
                dies_after[entry] = now + ttl_s
        charged.append((size(prompt) - last, last - read, read))
    return charged


def automatic_marks(kinds: Sequence[str], most: int) -> list[int]:
    """Where breakpoints pay as a rule: the ends of tools, of system, and of the last two others.

    Args:
      kinds: of a prompt's segments.
      most: how many are allowed; the last are kept.

    Returns:
      Positions, ascending.
    """
    chosen = set()
    for part, count in (("tools", 1), ("system", 1), ("", 2)):
        own = [
            n
            for n, kind in enumerate(kinds)
            if (kind if kind in ("tools", "system") else "") == part
        ]
        chosen.update(own[-count:])
    return sorted(chosen)[-most:]


def usd(
    charged: Sequence[Charged],
    input_usd_per_million: float,
    write_multiplier: float,
    read_multiplier: float,
) -> float:
    """What prompts cost.

    Args:
      charged: (fresh, written, read) of each call.
      input_usd_per_million: price of input tokens.
      write_multiplier: price of a token written, over that.
      read_multiplier: price of a token read, over that.

    Returns:
      USD.
    """
    return sum(
        (fresh + write_multiplier * written + read_multiplier * read) * input_usd_per_million / 1e6
        for fresh, written, read in charged
    )
