"""What a tool of each effect kind may do with its `io`, and what becomes of a run whose tool does more."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tachograph.runtime.resources.http_methods import METHODS as HTTP_METHODS
from tachograph.runtime.tools.contract import EFFECTS, USES
from tests.support import answer, ask, perform, policy_data, probe, tool

POLICY = policy_data(
    sandbox={"mounts": {"books": "read", "desk": "write"}},
    url_allowlist=[{"url": "https://good.test/", "methods": list(HTTP_METHODS)}],
)
METHODS: dict[str, Callable[[Any], Any]] = {
    "read": lambda io: io.read("books/a.md"),
    "list": lambda io: io.list("books"),
    "write": lambda io: io.write("desk/new", "x"),
    "get": lambda io: io.get("https://good.test/a.md"),
    **{
        f"request:{method}": lambda io, method=method: io.request(method, "https://good.test/a.md")
        for method in HTTP_METHODS
    },
}
COVERED = {
    "pure": set(),
    "read": {"read", "list"},
    "write": {"read", "list", "write"},
    "network": {"read", "list", "write", "get", "request:GET", "request:HEAD"},
    "external": set(METHODS),
}


@pytest.fixture
def books(tmp_path: Path) -> Path:
    place = tmp_path / "books"
    place.mkdir()
    for name in ("a.md", *(f"a.md.{method}" for method in HTTP_METHODS)):
        (place / name).write_text("page")
    return place


def _performed(books: Path, desk: Path, run: Callable[[Any, Any], Any], **more: Any) -> Any:
    desk.mkdir()
    return perform(
        [ask(probe()), answer()],
        [tool(run=run, **more)],
        POLICY,
        mounts={"books": books, "desk": desk},
        hosts={"good.test": books},
    )


def test_every_kind_is_in_the_table() -> None:
    assert set(EFFECTS) == set(COVERED)
    assert {kind: set(uses) for kind, uses in USES.items()} == COVERED


@pytest.mark.parametrize("effect", EFFECTS)
@pytest.mark.parametrize("method", METHODS)
def test_a_kind_covers_these_methods_and_no_other(
    effect: str, method: str, books: Path, tmp_path: Path
) -> None:
    def run(args: dict[str, Any], io: Any) -> dict[str, Any]:
        METHODS[method](io)
        return {"said": "done"}

    ran = _performed(books, tmp_path / "desk", run, effect=effect)
    attempt = ran.results[0]["attempts"][0]
    if method in COVERED[effect]:
        assert (ran.result.answer, attempt["outcome"]) == ("done", "success")
        return
    assert (ran.result.ending, ran.result.mode) == ("failure_mode_terminal", "catalogued_unhandled")
    assert attempt["fault"] == {"exception": "PermissionError", "kind": "other", "undeclared": f"io.{method}"}
    assert not {"reads", "writes", "checks"} & attempt.keys()
    assert list((tmp_path / "desk").iterdir()) == []
    assert ran.steps[0]["errors"][0]["undeclared"] == f"io.{method}"


def test_a_tool_cannot_hide_it_nor_have_it_tried_again_nor_go_on(books: Path, tmp_path: Path) -> None:
    calls = []

    def run(args: dict[str, Any], io: Any) -> dict[str, Any]:
        calls.append(io.idempotency_key)
        try:
            io.write("desk/new", "x")
        except PermissionError:
            with pytest.raises(PermissionError):
                io.read("books/a.md")
        return {"said": "hidden"}

    ran = _performed(books, tmp_path / "desk", run, effect="read", transient=(PermissionError,))
    assert ran.result.mode == "catalogued_unhandled" and len(calls) == 1
    assert ran.results[0]["attempts"][0]["fault"]["undeclared"] == "io.write"
    assert "reads" not in ran.results[0]["attempts"][0]


def test_a_denial_before_it_stays_a_denial(books: Path, tmp_path: Path) -> None:
    def run(args: dict[str, Any], io: Any) -> dict[str, Any]:
        with pytest.raises(PermissionError):
            io.read("elsewhere/a.md")
        with pytest.raises(PermissionError):
            io.get("https://good.test/a.md")
        return {"said": "hidden"}

    ran = _performed(books, tmp_path / "desk", run, effect="read")
    assert ran.result.ending == "policy_denial_terminal"
    assert "fault" not in ran.results[0]["attempts"][0]
