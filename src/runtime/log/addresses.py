"""The addresses of lines.

`at` is the address of a line. No two lines share one, and it depends on the structure of the run alone:

    0, 2.e, end      the beginning, the end of step 2, the end of the run
    2.d              the refusal of step 2 by a budget
    2.m1, 2.m1.w     the first attempt to ask the model in step 2, and the wait after it
    2.c0.d           the decision on the first call of step 2;  2.c0.d2  after a hook or a person
    2.c0.i1          the first attempt of that call;  2.c0.i1.s  its beginning,  2.c0.i1.w  the wait after it
    2.c0.i1.d1       the decision on the first fact that this attempt met; the last of them may be on its result
    2.u1             what came of it that somebody took the turn before step 2 back, or asked for a plan
    2.k1, 2.c0.k1    what the first hook said in step 2, and about its first call
    2.a1             the first thing that came from outside in step 2, such as a turn of a conversation
    2.t              the end of a turn, which step 2 is the last one of
    2.s, 2.s1        what was left out of what the model is shown; the first attempt to ask it for a summary
    2.c0.p           a person's answer about that call
    2.c0.i1.q1       a person's word on an attempt whose outcome was lost
    2.c0/0, 2.c0/end the beginning and the end of an agent that the first call of step 2 started
    2.c0/1.m1        the same as 1.m1, inside that agent
    2.c0.e           what such a call came to at once, where the agent goes on in the background
    2.c0.g1.n        the first call that the function of a tool proposes;  2.c0.g1.d, 2.c0.g1/1.m1  as of 2.c0
    2.c0.h           the head of the agent that goes on, where such a call hands over to it
    2.c0.e.d         the decision on what such a call came to
    2.r              the messages that were read at the beginning of step 2
"""

from __future__ import annotations


def place_of(at: str) -> str:
    """Return the agent that an address belongs to: "" for the run itself, `4.c0/` for one that a call started."""
    return at[: at.rfind("/") + 1]


def step_of(at: str) -> str:
    """Return the step of an address: `2` for `2.c0.i1`, `4.c0/1` for `4.c0/1.m1`."""
    end = at.find(".", at.rfind("/") + 1)
    return at if end < 0 else at[:end]


def number_of(step: str) -> int:
    """Return the number of a step in its agent: 1 for `4.c0/1`; 0 for what is not a step."""
    number = step[len(place_of(step)) :]
    return int(number) if number.isdecimal() else 0


def is_in(at: str, scope: str) -> bool:
    """Return whether an address lies in a scope.

    Everything lies in "", `3.c1.i1` and `3.c1/2.m1` in `3.c1`, and only the latter in `3.c1/`.
    """
    return not scope or at == scope or (at.startswith(scope) and (scope[-1] == "/" or at[len(scope)] in "./"))
