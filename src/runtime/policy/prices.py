"""Money: whole millionths of a US dollar, and what tokens cost."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from ..log.values import ModelName, Usage
from ..models.types import MOST_TOKENS

CURRENCY: Final = "USD"
_MILLION: Final = 1_000_000


def millionths(amount: str) -> int:
    """Return an amount such as `0.5` or `0.50 USD` in millionths."""
    whole, _, part = amount.removesuffix(f" {CURRENCY}").partition(".")
    return int(whole) * _MILLION + int(part.ljust(6, "0"))


def in_words(amount: int) -> str:
    """Return an amount in millionths as a policy writes it, such as `0.50 USD`."""
    whole, part = divmod(amount, _MILLION)
    return f"{whole}.{f'{part:06}'.rstrip('0'):0<2} {CURRENCY}"


def key_of(model: ModelName) -> str:
    """Return what people and `prices` of a policy call a model: `PROVIDER:MODEL`."""
    return f"{model.provider}:{model.name}"


class Price(Struct, frozen=True):
    """What a million tokens of a model cost, in millionths: of a request, of a reply, from a cache, into one."""

    input: int
    output: int
    cached: int
    cache_write: int

    def most_output(self, amount: int) -> int:
        """Return how many tokens of a reply an amount buys."""
        return amount * _MILLION // self.output if self.output else MOST_TOKENS

    def cost(self, usage: Usage) -> int:
        """Return what a reply costs in millionths, rounded up."""
        cached, written = usage.cached_tokens, usage.cache_write_tokens
        asked = (usage.input_tokens - cached - written) * self.input
        others = usage.output_tokens * self.output + cached * self.cached + written * self.cache_write
        return -(-(asked + others) // _MILLION)
