"""Prices of known models, from the tables of the package genai-prices, for a policy to hold."""

from __future__ import annotations

from contextlib import suppress
from decimal import ROUND_UP, Decimal
from typing import Any, Final

from ...fail.errors import InputError
from ..clock import hours_of_today, wall_time

# what a policy calls a price, and what the package does
_PARTS: Final = {
    "input": "input_mtok",
    "output": "output_mtok",
    "cached": "cache_read_mtok",
    "cache_write": "cache_write_mtok",
}


def known_price(model: str) -> dict[str, str]:
    """Return the entry of a model in the section `prices` of a policy.

    Where a price depends on the length of a request or on the hour, it is the dearest one.

    Args:
        model: The model, as `PROVIDER:MODEL`.

    Raises:
        InputError: The package is not installed, or does not know what tokens of the model cost.
    """
    try:
        from genai_prices import Usage, calc_price
    except ImportError:
        remedy = "run: pip install 'tachograph[live]'"
        raise InputError("the package 'genai-prices' is not installed", remedy=remedy) from None
    provider, _, name = model.partition(":")
    known, found = [], {"dated": wall_time()[:10]}
    for hour in hours_of_today():
        with suppress(LookupError):
            about: Any = {"model_ref": name, "provider_id": provider}
            known.append(calc_price(Usage(), **about, genai_request_timestamp=hour).model_price)
    for part, field in _PARTS.items():
        amounts = [amount for prices in known for amount in _amounts(getattr(prices, field))]
        if amounts:
            found[part] = f"{max(amounts).quantize(Decimal('0.000001'), ROUND_UP).normalize():f}"
    if not {"input", "output"} <= found.keys() or any(prices.requests_kcount for prices in known):
        remedy = "write its prices by hand, as its provider states them"
        raise InputError(f"no prices are known of {model!r} that are by tokens alone", remedy=remedy)
    return found


def _amounts(price: Any) -> list[Decimal]:
    """Return what a million tokens may cost, for a short request and for longer ones."""
    if price is None:
        return []
    return [getattr(price, "base", price), *(tier.price for tier in getattr(price, "tiers", ()))]
