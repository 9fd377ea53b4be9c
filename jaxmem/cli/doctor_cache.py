"""What `jaxmem doctor` measures with: a cache, whose prices, and the log's breakpoints."""

import math
from typing import NamedTuple

from jaxmem.prompts.log import PromptLog
from jaxmem.prompts.price import price
from jaxmem.prompts.rules import Rules


class Cache(NamedTuple):
    """What the findings are measured with, and whose prices they are given in.

    Attributes:
      block_tokens, minimum_tokens, tail_tokens, ttl_s, scope: as in `reuse`.
      payer: whose prices.
      assumed: whether the log's models have no known price, and these stand for them.
      models: how many models the log has.
    """

    block_tokens: int
    minimum_tokens: int
    tail_tokens: int
    ttl_s: float
    scope: str
    payer: Rules
    assumed: bool
    models: int

    def usd(self, tokens: int) -> float | None:
        """What it costs to compute tokens that could have been read."""
        price = self.payer.input_usd_per_million
        if price is None:
            return None
        more = max(self.payer.write_multiplier, 1.0) - self.payer.read_multiplier
        return tokens * more * price / 1e6

    def __str__(self) -> str:
        kept = "kept without limit" if math.isinf(self.ttl_s) else f"kept {self.ttl_s:g} s"
        least = f", from {self.minimum_tokens:,} tokens on" if self.minimum_tokens else ""
        blocks = f"blocks of {self.block_tokens}" if self.block_tokens > 1 else "single tokens"
        within = "within a session" if self.scope == "session" else "across sessions"
        return f"{blocks}{least}, {kept} after use, reused {within}"

    @property
    def money(self) -> str:
        """What a $ of a finding is; empty where there is no price."""
        price = self.payer.input_usd_per_million
        if price is None:
            return ""
        whose = self.payer.model or "as given"
        if self.assumed:
            whose += " assumed: the log's models have no known price"
        elif self.models > 1 and self.payer.model:
            whose += f", the one of {self.models} models with most tokens"
        return (
            f"$: what computing costs above reading, at {price:g} a million input tokens ({whose},"
            f" {self.payer.as_of})"
        )


class Breakpoints(NamedTuple):
    """What explicit breakpoints do for a log.

    Attributes:
      sent: whether the log has any.
      read: share of the prompt tokens read with those.
      best: share read with breakpoints after the tools, the system prompt and the last two
        messages.
      usd, best_usd: what the log costs with each.
    """

    sent: bool
    read: float
    best: float
    usd: float | None
    best_usd: float | None

    @property
    def lost(self) -> float:
        """Share of the prompt tokens that better breakpoints would read; 0 if they cost more."""
        if self.usd is not None and self.best_usd is not None and self.best_usd >= self.usd:
            return 0.0
        return max(self.best - self.read, 0.0)


def breakpoints(log: PromptLog, payer: Rules) -> Breakpoints | None:
    """What the log's breakpoints read, and what usual ones would.

    Args:
      log: the calls.
      payer: the provider's rules.

    Returns:
      Both; None for a provider that needs none.
    """
    if payer.how != "breakpoints" or payer.implicit:
        return None
    sent, best = (price(log, payer, marks=marks) for marks in ("as_sent", "automatic"))
    shares = sent.share_read, best.share_read
    return Breakpoints(bool(log.mark.any()), *shares, sent.usd, best.usd)
