"""Rules of prompt caches and their prices, as data: each with its document and the date of that."""

import dataclasses
import datetime
import math
from collections.abc import Mapping

from jaxmem.common import check_flag, check_number, check_size, choice
from jaxmem.prompts.reuse import SCOPES

WAYS = ("automatic", "breakpoints")


@dataclasses.dataclass(frozen=True)
class Rules:
    """How one provider or engine caches prefixes, and what it charges.

    Attributes:
      name: of these rules.
      provider: who runs the cache.
      as_of: date at which the numbers were read, ISO.
      source: the document they are from.
      how: "automatic": any prefix that an earlier prompt had is read. "breakpoints": a prefix is
        stored where a breakpoint stands, and read as a whole.
      model: the model that the prices are of; empty where there are none.
      minimum_tokens: shorter prefixes are neither written nor read.
      granularity: tokens a block; automatic caches read whole blocks.
      tail_tokens: tokens at the end of a prompt that an automatic cache always computes.
      ttl_s: time to live, seconds; infinite where memory alone decides.
      refreshed: whether a read starts the time to live again.
      most_breakpoints: a call writes at most so many; 0 for automatic caches.
      lookback: segments looked at from a breakpoint back, itself included; None for no limit.
      implicit: whether the provider adds a breakpoint of its own at the end of each prompt.
      write_multiplier: price of a token written, over that of an input token.
      read_multiplier: price of a token read, over that of an input token.
      scope: "all" where the sessions of one account share a cache, else "session".
      input_usd_per_million: price of input tokens, USD a million; None for an engine.
      output_usd_per_million: the same for output tokens.
      storage_usd_per_million_hour: what a cache that the caller creates costs, USD for a million
        tokens an hour, where there is such a thing. For information: not in any total.
      notes: choices made here, and what is not modelled.
    """

    name: str
    provider: str
    as_of: str
    source: str
    how: str
    model: str = ""
    minimum_tokens: int = 0
    granularity: int = 1
    tail_tokens: int = 0
    ttl_s: float = math.inf
    refreshed: bool = True
    most_breakpoints: int = 0
    lookback: int | None = None
    implicit: bool = False
    write_multiplier: float = 1.0
    read_multiplier: float = 0.1
    scope: str = "all"
    input_usd_per_million: float | None = None
    output_usd_per_million: float | None = None
    storage_usd_per_million_hour: float | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check the numbers.

        Raises:
          ValueError: for an unknown way or scope, a number out of range, a date that is none, or
            an automatic cache whose entries a read does not renew.
        """
        for name, known, what in (("how", WAYS, "way of caching"), ("scope", SCOPES, "scope")):
            value = choice(known, getattr(self, name), what)
            object.__setattr__(self, name, value)  # as spelt here, whatever the case
        check_size("granularity", self.granularity)
        check_size("minimum_tokens", self.minimum_tokens, 0)
        check_size("tail_tokens", self.tail_tokens, 0)
        check_size("most_breakpoints", self.most_breakpoints, int(self.how == "breakpoints"))
        if self.lookback is not None:
            check_size("lookback", self.lookback)
        check_flag("refreshed", self.refreshed)
        check_flag("implicit", self.implicit)
        for name in ("ttl_s", "write_multiplier", "read_multiplier"):
            check_number(name, getattr(self, name), scalar=True)
        for name in ("input", "output", "storage"):
            name += "_usd_per_million" + "_hour" * (name == "storage")
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name), scalar=True)
        if self.how == "automatic" and not self.refreshed and math.isfinite(self.ttl_s):
            raise ValueError("refreshed must be True for automatic caches, got False")
        try:
            datetime.date.fromisoformat(self.as_of)
        except (TypeError, ValueError):
            raise ValueError(f"as_of must be a date as 2026-01-31, got {self.as_of!r}") from None


_OPENAI = Rules(
    name="openai",
    provider="OpenAI",
    as_of="2026-03-05",
    source="https://developers.openai.com/api/docs/guides/prompt-caching",
    how="automatic",
    model="gpt-5.4",
    minimum_tokens=1024,
    granularity=128,
    ttl_s=600.0,
    read_multiplier=0.1,
    input_usd_per_million=2.5,
    output_usd_per_million=15.0,
    notes=(
        "models before GPT-5.6, kept in memory: documented as 5 to 10 minutes without use and at "
        "most an hour; 10 minutes taken",
        "reads of models before GPT-5 cost .25 (GPT-4.1) or .5 (GPT-4o) of the input price",
        "not modelled: calls are routed by a hash of the first tokens and prompt_cache_key, above "
        "about 15 a minute some reach another machine and miss; long-context prices",
    ),
)
_ANTHROPIC = Rules(
    name="anthropic-5m",
    provider="Anthropic",
    as_of="2026-10-10",
    source="https://platform.claude.com/docs/en/build-with-claude/prompt-caching",
    how="breakpoints",
    model="claude-sonnet-5",
    minimum_tokens=1024,
    ttl_s=300.0,
    most_breakpoints=4,
    lookback=20,
    write_multiplier=1.25,
    read_multiplier=0.1,
    input_usd_per_million=2.0,
    output_usd_per_million=10.0,
    notes=(
        "minimum by model: 512 (Opus 5), 1,024 (Sonnet 5, Opus 4.8), 2,048 (Opus 4.7), 4,096 "
        "(Opus 4.6, Haiku 4.5)",
        "reads of Opus 5.5 and Sonnet 5.5 cost .05, of Fable 5.1 .025 of the input price",
        "the look-back counts content blocks; the API counts a run of tool calls, or of their "
        "results, as one, so that long parallel turns may miss less than shown",
        "not modelled: an entry is readable once its first answer begins, so parallel calls all "
        "write; a change of tool_choice, thinking or images drops the messages; both lifetimes "
        "in one prompt; workspaces",
    ),
)
_ALL = (
    _OPENAI,
    dataclasses.replace(
        _OPENAI,
        name="openai-24h",
        as_of="2026-05-29",
        ttl_s=86_400.0,
        notes=(
            "extended retention, the default since May 2026 except under zero data retention; "
            "documented as at most 24 hours",
            *_OPENAI.notes[1:],
        ),
    ),
    Rules(
        name="openai-breakpoints",
        provider="OpenAI",
        as_of="2026-11-20",
        source="https://developers.openai.com/api/docs/models/gpt-6.2-sol",
        how="breakpoints",
        model="gpt-6.2-sol",
        minimum_tokens=1024,
        ttl_s=1800.0,
        most_breakpoints=4,
        implicit=True,
        write_multiplier=1.25,
        read_multiplier=0.05,
        input_usd_per_million=2.0,
        output_usd_per_million=10.0,
        notes=(
            "GPT-5.6 and later; reads of GPT-5.6 and GPT-6 cost .1 of the input price",
            "30 minutes is the least that an entry lives; it may live longer. A 12-hour write "
            "costs 2.5 times the input price",
            "a prompt is matched with its latest 80 breakpoints: here with all of them",
            "not modelled: routing by prompt_cache_key; long-context prices",
        ),
    ),
    _ANTHROPIC,
    dataclasses.replace(_ANTHROPIC, name="anthropic-1h", ttl_s=3600.0, write_multiplier=2.0),
    Rules(
        name="gemini",
        provider="Google",
        as_of="2026-09-20",
        source="https://ai.google.dev/gemini-api/docs/caching",
        how="automatic",
        model="gemini-2.5-pro",
        minimum_tokens=4096,
        ttl_s=3600.0,
        read_multiplier=0.1,
        input_usd_per_million=1.25,
        output_usd_per_million=10.0,
        storage_usd_per_million_hour=4.5,
        notes=(
            "implicit caching, which saves without a guarantee: best effort is not modelled",
            "minimum 1,024 for Flash; 2,048 for Gemini 2.5 on Vertex AI",
            "time to live of implicit caches not stated: that of explicit ones, an hour, taken; "
            "block size not stated: 1 taken",
            "not modelled: explicit caches and their storage; prices above 200,000 tokens",
        ),
    ),
    Rules(
        name="deepseek",
        provider="DeepSeek",
        as_of="2026-10-27",
        source="https://api-docs.deepseek.com/quick_start/pricing",
        how="automatic",
        model="deepseek-flash",
        minimum_tokens=64,
        granularity=64,
        read_multiplier=0.02,
        input_usd_per_million=0.15,
        output_usd_per_million=0.6,
        notes=(
            "off-peak prices of V4.1 Flash; twice that at peak hours. In 2025 deepseek-chat cost "
            "$.27 a million, .07 read",
            "64-token units are of the announcement of August 2024; entries live hours to days "
            "without use: no limit taken",
            "not modelled: today's units end where a prompt or an answer ends, at common prefixes "
            "and at fixed intervals, and match as a whole, so that the first call that branches "
            "off inside an earlier prompt may read less than shown; best effort",
        ),
    ),
    Rules(
        name="vllm",
        provider="vLLM",
        as_of="2026-11-30",
        source="vllm 0.33.0: vllm/v1/core/kv_cache_manager.py",
        how="automatic",
        granularity=16,
        tail_tokens=1,
        read_multiplier=0.0,
        notes=(
            "memory without limit assumed: jaxmem.prefix_cache has hits by capacity",
            "a token read costs nothing here; answers, which the engine caches too, are not seen",
        ),
    ),
    Rules(
        name="sglang",
        provider="SGLang",
        as_of="2026-11-30",
        source="sglang 0.5.23: srt/mem_cache/radix_cache.py, srt/managers/schedule_batch.py",
        how="automatic",
        granularity=1,
        tail_tokens=1,
        read_multiplier=0.0,
        notes=(
            "page size 1, the default; memory without limit assumed",
            "a token read costs nothing here; answers, which the engine caches too, are not seen",
        ),
    ),
)

RULES: Mapping[str, Rules] = {rules.name: rules for rules in _ALL}
