"""The addresses of lines: see `events.py` for what each says."""

from __future__ import annotations


def step_of(at: str) -> str:
    """Return the step of an address: `2` for `2.c0.i1`."""
    return at.partition(".")[0]


def is_in(at: str, scope: str) -> bool:
    """Return whether an address lies in a scope: everything in "", `3.c1.i1` in `3.c1`."""
    return not scope or at == scope or at.startswith(f"{scope}.")
