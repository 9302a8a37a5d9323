"""The to-do board against what it has to hold, for any order of what agents ask of it."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tachograph import Agent, Policy
from tachograph.runtime.loop.board import Board
from tests.project import BOARD, POLICY, merged, script

NAMES = "abcdef"
TODOS = st.lists(st.tuples(st.sampled_from(NAMES), st.lists(st.sampled_from(NAMES), max_size=3)), max_size=12)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["claim", "complete", "release"]), st.sampled_from(NAMES), st.sampled_from("xy")
    )
)


def has_cycle(after: dict[str, list[str]]) -> bool:
    """Take away what waits for nothing that stands there, until nothing can be taken away."""
    left = dict(after)
    while free := [name for name, before in left.items() if not {*before} & left.keys()]:
        for name in free:
            del left[name]
    return bool(left)


def added(board: Board, todos: list[tuple[str, list[str]]]) -> dict[str, list[str]]:
    """Add all that may be added, and only that."""
    known: dict[str, list[str]] = {}
    for name, after in todos:
        is_right = name not in known and not has_cycle({**known, name: after})
        before = board.listed()
        assert (board.create(name, "", after) == "") == is_right
        if is_right:
            known[name] = after
        else:
            assert board.listed() == before
    return known


@given(TODOS)
def test_a_cycle_is_always_refused(todos: list[tuple[str, list[str]]]) -> None:
    assert not has_cycle(added(Board(), todos))


@given(TODOS, STEPS)
def test_nothing_is_done_before_what_it_waits_for(
    todos: list[Any], steps: list[tuple[str, str, str]]
) -> None:
    board, by, done = Board(), dict[str, str](), list[str]()
    after = added(board, todos)

    def is_free(name: str) -> bool:
        return name in after and name not in by and name not in done and {*after[name]} <= {*done}

    for what, name, who in steps:
        free = {it for it in NAMES if is_free(it)}
        assert {*board.free()} == free
        if what == "claim":
            assert (board.claim(name, who) == "") == (name in free)
            by |= {name: who} if name in free else {}
        elif what == "complete":
            why, freed = board.complete(name, who)
            assert (why == "") == (by.get(name) == who)
            if not why:
                del by[name]
                done.append(name)
            assert {*freed} == {it for it in NAMES if is_free(it)} - free
        else:
            board.release(who)
            by = {it: its for it, its in by.items() if its != who}
    for name in done:
        assert {*after[name]} <= {*done[: done.index(name)]}


@given(TODOS.filter(bool))
def test_a_run_refuses_a_cycle(todos: list[tuple[str, list[str]]]) -> None:
    calls = [
        ("create_todo", {"todo": name, "title": f"{n}", "after": after})
        for n, (name, after) in enumerate(todos)
    ]
    roomy = {"tool_registry": {"allowed": BOARD}, "loop_budget": {"max_tool_calls": 99}}
    policy = Policy.from_dict(merged(POLICY, roomy))
    done = Agent(script(calls, "done"), BOARD, policy).run("?")
    told = [event.told["created"] for event in done.events if type(event).__name__ == "CallEnded"]
    board = Board()
    assert told == [board.create(name, "", after) == "" for name, after in todos]
