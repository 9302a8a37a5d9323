"""What an agent makes of `deps` and `output_type`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from tachograph import Agent, Context, LLMInput, Policy, tool
from tachograph.runtime.formats.strict_json import canonical
from tests.project import POLICY, merged, script
from tests.test_live import replayed


@dataclass
class Rest:
    place: str
    hours: int


@tool(effect="pure")
async def greet(context: Context[list[str]], word: str = "Hello") -> str:
    """Greet the caller."""
    return f"{word}, {context.deps[0]}"


def agent(model: Any, **rest: Any) -> Agent:
    policy = Policy.from_dict(merged(POLICY, {"tool_registry": {"allowed": ["greet"]}}))
    return Agent(model, [greet], policy, **rest)


def test_the_object_of_the_caller_reaches_the_tool_and_no_record() -> None:
    made = agent(script([("greet", {})], "done"), deps=["secret name"])
    for name, result in (("secret name", made.run("?")), ("other", made.run("?", deps=["other"]))):
        log = b"".join(map(canonical, result.events))
        assert f"Hello, {name}".encode() in log
        assert b"context" not in log


def test_an_answer_that_does_not_fit_is_asked_for_again() -> None:
    asked: list[LLMInput] = []
    wrong, right = ({"place": "Hof", "hours": hours} for hours in ("9", 9))
    model = script("At Hof.", *map(json.dumps, (wrong, right)))
    made = agent(lambda request: asked.append(request) or model(request), output_type=Rest)
    result = made.run("?")
    assert (result.ending, result.output, result.steps) == ("final_answer", Rest("Hof", 9), 3)
    assert all(request.output_schema and request.output_schema["type"] == "object" for request in asked)
    assert [message["role"] for message in asked[1].messages] == ["user", "assistant", "user"]
    assert "/hours" in asked[2].messages[-1]["content"]
    replayed(made, result.events)
    assert agent(script(*["At Hof."] * 9), output_type=Rest).run("?").output is None
