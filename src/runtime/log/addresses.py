"""The addresses of lines: see `events.py` for what each says."""

from __future__ import annotations


def place_of(at: str) -> str:
    """Return the agent that an address belongs to: "" for the run itself, `4.c0/` for one that a call started."""
    return at[: at.rfind("/") + 1]


def step_of(at: str) -> str:
    """Return the step of an address: `2` for `2.c0.i1`, `4.c0/1` for `4.c0/1.m1`."""
    place = place_of(at)
    return place + at[len(place) :].partition(".")[0]


def number_of(step: str) -> int:
    """Return the number of a step in its agent: 1 for `4.c0/1`; 0 for what is no step."""
    number = step[len(place_of(step)) :]
    return int(number) if number.isdecimal() else 0


def is_in(at: str, scope: str) -> bool:
    """Return whether an address lies in a scope.

    Everything lies in "", `3.c1.i1` and `3.c1/2.m1` in `3.c1`, and only the latter in `3.c1/`.
    """
    return not scope or at == scope or (at.startswith(scope) and (scope[-1] == "/" or at[len(scope)] in "./"))
