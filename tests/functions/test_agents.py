"""Typed functions as tools of an agent, and before the gate."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import yaml

from tachograph import Agent, Policy
from tachograph.runtime.log.events import Decided, Failed, ToolReturned
from tachograph.runtime.schema.python_types import AnyText, ReadPath, Text, Url, WritePath
from tachograph.runtime.tools.functions import tool
from tachograph.testing import decide
from tests.project import POLICY, merged, script

CALLED: list[Any] = []


@dataclass
class Stay:
    place: str
    day: date
    nights: int = 1


@tool(effect="read")
def look(path: ReadPath, io: Any) -> str:
    """Read a file."""
    return io.read(path)


@tool(effect="pure")
async def book(stay: Stay, more: list[Stay] | None = None) -> Stay:
    """Book a stay."""
    CALLED.append((stay, more))
    return stay


@tool(effect="network")
def mail(page: Url, others: list[Url] | None = None, to: WritePath = "box/a.txt") -> None:
    """Send it."""


@tool
def post(to: Text, body: AnyText, note: str | None = None) -> None:
    """Post it."""


ALLOWED = Policy.from_dict(merged(POLICY, {"tool_registry": {"allowed": ["look", "book", "mail", "post"]}}))


def run(name: str, arguments: dict[str, Any], policy: Policy = ALLOWED, **rest: Any) -> Any:
    CALLED.clear()
    return Agent(script([(name, arguments)], None), [look, book, mail], policy, **rest).run("?")


def test_a_typed_function_through_an_agent(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("alpha")
    result = run("look", {"path": "book/a.txt"}, mounts={"book": tmp_path})
    assert (result.ending, result.answer) == ("final_answer", '{"result":"alpha"}')


def test_arguments_arrive_as_what_the_annotation_says() -> None:
    stay = {"place": "Hof", "day": "2024-02-29", "nights": 2}
    result = run("book", {"stay": stay, "more": [stay]})
    assert [(Stay("Hof", date(2024, 2, 29), 2), [Stay("Hof", date(2024, 2, 29), 2)])] == CALLED
    assert [event.result for event in result.events if isinstance(event, ToolReturned)] == [stay]


@pytest.mark.parametrize(
    "stay",
    [
        {"place": "Hof"}, {"place": "Hof", "day": "2023-02-29"}, {"place": 1, "day": "2024-02-29"}, None, "Hof",
        {"place": "Hof", "day": "2024-02-29", "nights": "1"}, {"place": "Hof", "day": "2024-02-29", "nights": 1.5},
        {"place": "Hof", "day": "2024-02-29", "nights": True}, {"place": "Hof", "day": "2024-02-29", "other": 1},
    ],
)  # fmt: skip
def test_what_the_schema_refuses_never_reaches_the_function(stay: Any) -> None:
    result = run("book", {"stay": stay})
    assert (result.ending, result.mode, CALLED) == ("failure_mode_terminal", "schema_mismatch", [])


def test_limits_that_the_policy_drops_are_held_by_the_type() -> None:
    """A `shape` policy lets a date through that is none: the attempt fails before the function is called."""
    loose = Policy.from_dict(merged(ALLOWED.data, {"arg_schema_enforcement": "shape"}))
    result = run("book", {"stay": {"place": "Hof", "day": "today"}}, loose)
    assert [event.decision for event in result.events if isinstance(event, Decided)] == ["allow"]
    assert [event.error for event in result.events if isinstance(event, Failed)] == ["ValidationError"]
    assert not CALLED


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        ({"page": "https://good.test/a"}, None),
        ({"page": "https://evil.test/a"}, "url_allowlist"),
        ({"page": "https://good.test/a", "others": ["https://evil.test/"]}, "url_allowlist"),
        ({"page": "https://good.test/a", "to": "book/b.txt"}, "sandbox_path"),
        ({"to": "a", "body": "https://evil.test/"}, None),
        ({"to": "https://evil.test/", "body": "b"}, "url_allowlist"),
        ({"to": "a", "body": "b", "note": "c"}, "resources"),
        ({"to": "a", "body": "b", "note": None}, None),
    ],
)
def test_the_gate_judges_marked_strings(arguments: dict[str, Any], rule: str | None) -> None:
    made = mail if "page" in arguments else post
    calls = [{"name": made.name, "arguments": arguments}]
    (decision,) = decide(ALLOWED.data, [made], calls)
    assert (decision.decision == "allow") == (rule is None)
    assert rule in (None, decision.rule_id)
    if rule == "resources":  # the reason says the line to add
        line = yaml.safe_load(decision.reason.partition("add ")[2].partition(", or")[0])
        assert decide({**ALLOWED.data, **line}, [made], calls)[0].decision == "allow"
