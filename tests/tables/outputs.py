"""Every place where foreign text enters a run, and texts that would forge something where they are shown.

A case is (text, place). What must come of it is what comes of a calm text at the same place: same lines, same
blocks, same spans; and the text itself stands unchanged in the ledger.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tachograph.runtime.agent import Agent
from tachograph.runtime.core.clock import VirtualClock
from tachograph.runtime.core.effects import Answer
from tachograph.runtime.models.types import LLMOutput, ToolCall
from tachograph.runtime.policy.policy import Policy
from tachograph.runtime.workspace.mounts import Host
from tests.support import ROOT, Script, answer, ask, policy_data, probe, tool
from tests.tables.output_texts import TEXTS

CALM = "calm"


@dataclass(frozen=True, slots=True)
class Case:
    place: str
    text: str


@dataclass
class Scene:
    """A small run with one foreign text in it."""

    replies: list[Any]
    question: str = "What now?"
    identity: dict[str, Any] = field(default_factory=lambda: dict(Script.identity))
    run: Callable[[dict[str, Any], Any], Any] = lambda args, io: {"said": "ok"}
    person: Answer | None = None
    location: str = "https://good.test/there"


def _raising(name: str) -> Callable[[dict[str, Any], Any], Any]:
    def run(_args: dict[str, Any], _io: Any) -> Any:
        raise type(name, (Exception,), {})

    return run


def _getting(_args: dict[str, Any], io: Any) -> Any:
    return {"said": io.get("https://good.test/here").text}


# each has a step that ends well beside it, so that there are rows to be confused with
PLACES: dict[str, Callable[[str], Scene]] = {
    "question": lambda t: Scene([ask(probe()), answer()], question=t),
    "said": lambda t: Scene([ask(probe(), text=t), answer()]),
    "answer": lambda t: Scene([ask(probe()), answer(t)]),
    "model of a reply": lambda t: Scene([ask(probe()), answer(model=t)]),
    "model": lambda t: Scene([answer()], identity={**Script.identity, "name": t, "provider": t}),
    "tool": lambda t: Scene([ask(probe(), probe(t)), answer()]),
    "argument": lambda t: Scene([ask(probe(), ToolCall("echo", {"n": t})), answer()]),
    "key": lambda t: Scene([ask(probe(), ToolCall("echo", {t: 1})), answer()]),
    "argument text": lambda t: Scene([ask(probe(), ToolCall("echo", f"<{t}")), answer()]),
    "path": lambda t: Scene([ask(probe(), probe(path=t)), answer()]),
    "part of a path": lambda t: Scene([ask(probe(), probe(path=f"other/{t}")), answer()]),
    "URL": lambda t: Scene([ask(probe(), probe(url=t)), answer()]),
    "path of a URL": lambda t: Scene([ask(probe(), probe(url=f"ftp://evil.test/{t}")), answer()]),
    "result": lambda t: Scene([ask(probe()), answer()], run=lambda args, io: {"said": t}),
    "key of a result": lambda t: Scene([ask(probe())], run=lambda args, io: {t: "x"}),
    "redirect": lambda t: Scene([ask(probe()), answer()], run=_getting, location=f"https://evil.test/{t}"),
    "exception": lambda t: Scene([ask(probe())], run=_raising(t.replace("\0", "0"))),
    "name of a person": lambda t: Scene(
        [ask(ToolCall("echo", {})), answer()], person=Answer("allow", by=t, why="so")
    ),
    "word of a person": lambda t: Scene(
        [ask(ToolCall("echo", {})), answer()], person=Answer("deny", by="me", why=t)
    ),
}
# shown in several lines, as many as the text has
QUOTED = ("question", "answer")
POLICY = Policy.from_dict(
    policy_data(
        on_deny="inform",
        approval={"required_for": ["echo"], "timeout_s": 9},
        loop_budget={"max_tokens": 10_000_000, "max_result_bytes": 10_000_000},
    )
)


class _Model(Script):
    def __init__(self, replies: list[LLMOutput], identity: dict[str, Any]) -> None:
        super().__init__(replies)
        self.identity = identity  # type: ignore[misc]


def record(case: Case, listener: Callable[[Any], None]) -> bytes:
    """The ledger of a case; the listener hears of the run as it goes on."""
    scene = PLACES[case.place](case.text)
    agent = Agent(
        _Model(scene.replies, scene.identity),
        [tool(run=scene.run), tool("echo")],
        POLICY,
        hosts={"good.test": Host(ROOT / "data", "data", {"/here": scene.location})},
    )
    config = agent.configure_run(
        scene.question,
        run_id="test-run",
        approve=lambda asked: scene.person if scene.person is not None else True,
        clock=VirtualClock(),
    )
    lines: list[str] = []
    agent.execute(config, listeners=[listener], on_line=lambda _line, text: lines.append(text))
    return "".join(f"{line}\n" for line in lines).encode()


def calm(case: Case) -> Case:
    """The same place with a harmless text of as many lines."""
    if case.place not in QUOTED:
        return Case(case.place, CALM)
    lines = case.text.replace("\r\n", "\n").split("\n")
    return Case(case.place, "\n".join(CALM if line.strip(" ") else "" for line in lines))


SHARE = 60  # of the cases of a class


def cases(name: str) -> Iterator[Case]:
    """An even share of all texts of a class at all places: every place, with ever other texts."""
    every = [
        Case(place, text)
        for text, place in itertools.product(dict.fromkeys(TEXTS[name]()), PLACES)
        # the key of an object has a canonical form up to U+FFFF only
        if "key" not in place or all(ord(c) <= 0xFFFF for c in text)
    ]
    stride = len(every) // SHARE
    while math.gcd(stride, len(PLACES)) > 1:
        stride -= 1
    yield from every[::stride]
