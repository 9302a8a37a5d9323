"""Prices of known models, from the tables of the package genai-prices, for a policy to hold."""

from __future__ import annotations

from typing import Any, Final

from ...fail.errors import InputError
from ..clock import wall_time

# what a policy calls a price, and what the package does
_PARTS: Final = {
    "input": "input_mtok",
    "output": "output_mtok",
    "cached": "cache_read_mtok",
    "cache_write": "cache_write_mtok",
}


def known_price(model: str) -> dict[str, str]:
    """Return the entry of a model in the section `prices` of a policy.

    Where a price depends on the length of a request, it is the dearest one.

    Args:
        model: The model, as `PROVIDER:MODEL`.

    Raises:
        InputError: The package is not installed, or does not know the model.
    """
    try:
        from genai_prices import Usage, calc_price
    except ImportError:
        remedy = "run: pip install 'tachograph[live]'"
        raise InputError("the package 'genai-prices' is not installed", remedy=remedy) from None
    provider, _, name = model.partition(":")
    try:
        prices: Any = calc_price(Usage(), model_ref=name, provider_id=provider).model_price
    except LookupError:
        remedy = "write its prices by hand, as its provider states them"
        raise InputError(f"no prices are known of {model!r}", remedy=remedy) from None
    found = {"dated": wall_time()[:10]}
    for part, field in _PARTS.items():
        if (price := getattr(prices, field)) is not None:
            tiers = [tier.price for tier in getattr(price, "tiers", ())]
            found[part] = f"{max(getattr(price, 'base', price), *tiers, 0):f}"
    return found
