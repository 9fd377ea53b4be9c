"""List prices by the names that models have in logs."""

import datetime

import pytest

from jaxmem.prompts.model_prices import MODEL_PRICES, model_price


@pytest.mark.parametrize(
    ("model", "usd"),
    [
        ("gpt-4o-mini", 0.15), ("openai/gpt-4o-mini-2024-07-18", 0.15), ("gpt-5.1", 1.25),
        ("claude-sonnet-4-5-20250929", 3.0), ("anthropic/claude-sonnet-4.5", 3.0),
        ("us.anthropic.claude-opus-4-1-20250805-v1:0", 15.0), ("claude-3-7-sonnet-latest", 3.0),
        ("models/gemini-2.5-flash", 0.3), ("gpt-5.2", None), ("house-model", None), ("", None),
    ],
)  # fmt: skip
def test_list_prices_by_name(model: str, usd: float | None) -> None:
    found = model_price(model)
    assert (found and found.input_usd_per_million) == usd


def test_every_price_has_its_date_and_source() -> None:
    for name, price in MODEL_PRICES.items():
        assert price.output_usd_per_million > price.input_usd_per_million > 0, name
        assert 0 < price.read_multiplier < 1, name
        assert datetime.date.fromisoformat(price.as_of) < datetime.date(2027, 1, 1)
        assert price.source.startswith("https://")
