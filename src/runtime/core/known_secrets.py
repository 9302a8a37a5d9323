"""Secrets that this process knows by their very text: keys of opened models, and named environment variables.

A key is registered when a model is opened, so that a function wrapped around the model keeps its redaction.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from ...fail.errors import InputError
from .secret_kinds import SHORTEST

_REGISTERED: dict[tuple[str, str], None] = {}


def register(secrets: Iterable[tuple[str, str]]) -> None:
    """Register (kind, value) pairs for every live run of this process. Values that are too short are no secret."""
    _REGISTERED.update(dict.fromkeys(pair for pair in secrets if len(pair[1]) >= SHORTEST))


def registered() -> tuple[tuple[str, str], ...]:
    """Return the (kind, value) pairs registered in this process."""
    return tuple(_REGISTERED)


def forget_all() -> None:
    """Forget what was registered, for tests."""
    _REGISTERED.clear()


def from_environment(names: Iterable[str], *, skips_short: bool = False) -> dict[str, str]:
    """Return the values of the environment variables that are set, by name; `skips_short` leaves out short ones.

    Raises:
        InputError: A value is too short to be told apart from ordinary text.
    """
    values = {name: os.environ[name] for name in names if os.environ.get(name)}
    if skips_short:
        return {name: value for name, value in values.items() if len(value) >= SHORTEST}
    for name, value in values.items():
        if len(value) < SHORTEST:
            raise InputError(
                f"the value of {name}, which redact.env names, has fewer than {SHORTEST} characters",
                remedy="give it a longer value, or take the name out of redact.env",
            )
    return values
