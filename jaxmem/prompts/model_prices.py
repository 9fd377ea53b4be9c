"""List prices of models, dated: whose a log's tokens are, where its models are known."""

import re
from typing import NamedTuple

_OPENAI = "https://developers.openai.com/api/docs/pricing"
_ANTHROPIC = "https://platform.claude.com/docs/en/about-claude/pricing"
_GOOGLE = "https://ai.google.dev/gemini-api/docs/pricing"


class ModelPrice(NamedTuple):
    """What a provider asks for a model's tokens, standard tier, without long-context surcharges.

    Attributes:
      input_usd_per_million: of prompt tokens.
      output_usd_per_million: of answers.
      read_multiplier: of the input price, for tokens read from the cache.
      as_of: when the list was read, an ISO date.
      source: whose list.
    """

    input_usd_per_million: float
    output_usd_per_million: float
    read_multiplier: float
    as_of: str
    source: str


def _rows(as_of: str, source: str, *rows: tuple[str, float, float, float]) -> dict[str, ModelPrice]:
    return {
        name: ModelPrice(paid, answered, read, as_of, source) for name, paid, answered, read in rows
    }


MODEL_PRICES: dict[str, ModelPrice] = {
    **_rows(
        "2026-11-05", _OPENAI,
        ("gpt-4o", 2.5, 10.0, 0.5), ("gpt-4o-mini", 0.15, 0.6, 0.5),
        ("gpt-4.1", 2.0, 8.0, 0.25), ("gpt-4.1-mini", 0.4, 1.6, 0.25),
        ("gpt-4.1-nano", 0.1, 0.4, 0.25), ("o3-mini", 1.1, 4.4, 0.5), ("o4-mini", 1.1, 4.4, 0.25),
        ("gpt-5", 1.25, 10.0, 0.1), ("gpt-5.1", 1.25, 10.0, 0.1), ("gpt-5-mini", 0.25, 2.0, 0.1),
        ("gpt-5-nano", 0.05, 0.4, 0.1), ("gpt-5.4", 2.5, 15.0, 0.1),
        ("gpt-5.4-mini", 0.75, 4.5, 0.1), ("gpt-6.2-sol", 2.0, 10.0, 0.05),
    ),
    **_rows(
        "2026-10-24", _ANTHROPIC,
        ("claude-3-haiku", 0.25, 1.25, 0.1), ("claude-3-5-haiku", 0.8, 4.0, 0.1),
        ("claude-3-5-sonnet", 3.0, 15.0, 0.1), ("claude-3-7-sonnet", 3.0, 15.0, 0.1),
        ("claude-3-opus", 15.0, 75.0, 0.1), ("claude-opus-4", 15.0, 75.0, 0.1),
        ("claude-opus-4-1", 15.0, 75.0, 0.1), ("claude-opus-4-5", 5.0, 25.0, 0.1),
        ("claude-opus-4-6", 5.0, 25.0, 0.1), ("claude-opus-4-7", 5.0, 25.0, 0.1),
        ("claude-opus-4-8", 5.0, 25.0, 0.1), ("claude-opus-5", 5.0, 25.0, 0.1),
        ("claude-opus-5-5", 4.0, 20.0, 0.05), ("claude-sonnet-4", 3.0, 15.0, 0.1),
        ("claude-sonnet-4-5", 3.0, 15.0, 0.1), ("claude-sonnet-5", 2.0, 10.0, 0.1),
        ("claude-sonnet-5-5", 2.0, 10.0, 0.05), ("claude-haiku-4-5", 1.0, 5.0, 0.1),
        ("claude-fable-5", 10.0, 50.0, 0.1), ("claude-fable-5-1", 10.0, 50.0, 0.025),
    ),
    **_rows(
        "2026-09-20", _GOOGLE,
        ("gemini-2.5-pro", 1.25, 10.0, 0.1), ("gemini-2.5-flash", 0.3, 2.5, 0.1),
        ("gemini-2.5-flash-lite", 0.1, 0.4, 0.1), ("gemini-2.0-flash", 0.1, 0.4, 0.25),
    ),
}  # fmt: skip
_VERSION = re.compile(r"(?:[-@](?:20\d{2}-?\d{2}-?\d{2}|\d{8}|latest|preview)(?:-v\d+:\d+)?)+$")


def model_price(model: str) -> ModelPrice | None:
    """The list price of a model.

    Args:
      model: its name as it stands in a log: a provider's prefix and a date are passed over.

    Returns:
      The price; None for a model of no known price.
    """
    name = re.split(r"/|(?<=[a-z]):(?=[a-z])", model.strip().lower())[-1]
    if "claude" in name:
        name = name[name.index("claude") :].replace(".", "-")
    return MODEL_PRICES.get(_VERSION.sub("", name))
