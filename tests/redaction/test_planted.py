"""Secrets of each sort, planted in every way into runs: no byte holds one, and with redaction off all are there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tachograph
from tachograph import (
    Agent,
    Answer,
    AnyText,
    Hooks,
    LLMInput,
    LLMOutput,
    Piece,
    Policy,
    ReadPath,
    ToolCall,
    tool,
)
from tachograph.fail.errors import TransientModelError
from tests.commands import exit_code
from tests.redaction.shapes import KEY_KINDS, SHAPES, draw
from tests.tables.rows import roomy

RECORDED = "question instructions history said argument malformed changed result key document person".split()
RECORDED += ["sent back", "service", "answer"]
# of a key without its end all that follows is a part, so it comes last
ORDERED = sorted(SHAPES, key=lambda shape: "BEGIN" in shape and "END" not in shape)


def texts(way: str) -> list[str]:
    """Return a text with a secret for each shape; those of another way hold others."""
    return [f"It is {draw(shape, way)[0]} here." for shape in ORDERED]


def together(way: str, size: int = 1_000_000) -> list[str]:
    """Return the texts of a way, as many in one as its size lets."""
    out = [""]
    for one in texts(way):
        out += [""] if len(out[-1]) + len(one) > size else []
        out[-1] += f"{one}\n\n"
    return out


PERSON, EXCEPTION = together("person", 290), together("exception", 290)


class Model:
    """Calls all tools, and is told and tells secrets in every way that a model has."""

    def __init__(self) -> None:
        self.asked, self.times, self.failures = "", 0, together("service", 300)
        calls = [ToolCall("tell", {"texts": texts("argument")}), ToolCall("tell", together("malformed")[0])]
        calls.append(ToolCall("look", {"path": "book/a.txt"}))
        calls += [ToolCall("fail", {"n": n}) for n in range(max(len(PERSON), len(EXCEPTION)))]
        self.replies = [
            LLMOutput(together("said")[0], calls[at : at + 15]) for at in range(0, len(calls), 15)
        ]
        self.replies += [LLMOutput(final_answer=answer) for answer in ("done", together("answer")[0])]

    def __call__(self, asked: LLMInput) -> LLMOutput:
        self.asked, self.times = str([*asked.messages]), self.times + 1
        if self.failures and self.times % 20:
            raise TransientModelError(service_text=self.failures.pop())
        return self.replies.pop(0)

    async def ask(self, asked: LLMInput, told: Any) -> LLMOutput:
        for text in texts("streamed") if not self.times else ():
            told(text[:30])
            told(text[30:])
        return self(asked)


@tool
def tell(texts: list[AnyText]) -> dict[str, Any]:
    """Ask somebody else."""
    return {"list": together("result"), **dict.fromkeys(together("key", 300), 1)}


@tool(effect="read", idempotent=True)
def look(path: ReadPath, io: Any) -> str:
    """Look at a document."""
    return str(io.read(path))


@tool(effect="pure")
def fail(n: int) -> None:
    """Fail, once a person has allowed it."""
    raise ValueError(EXCEPTION[n % len(EXCEPTION)])


def change(about: dict[str, Any]) -> dict[str, Any] | None:
    """Give a call other arguments, and send an answer back."""
    if about["event"] == "on_stop":
        return {"send_back": together("sent back")[0]} if about["answer"] == "done" else None
    is_new = len(about["call"]["arguments"].get("texts", "")) > 1
    return {"arguments": {"texts": together("changed")}} if is_new else None


def agent_of(model: Model, folder: Path, kinds: list[str]) -> Agent:
    (folder / "a.txt").write_text(together("document")[0])
    rules = {
        **roomy(["tell", "look", "fail"], redact={"kinds": kinds}, on_deny="inform"),
        "sandbox": {"mounts": {"book": "read"}},
        "approval": {"required_for": ["fail"], "timeout_s": 60},
        "retry": {"max_retries": 20, "backoff_base_ms": 0, "backoff_cap_ms": 0},
        "on_failure": {"default": "inform", "max_failures": 200},
    }
    agent = Agent(model, [tell, look, fail], Policy.from_dict(rules), mounts={"book": folder})
    agent.instructions = together("instructions")[0]
    agent.hooks = [Hooks(before_call=change, on_stop=change)]
    agent.approve = lambda question: Answer("allow", why=PERSON[question.call.arguments["n"] % len(PERSON)])
    return agent


def shown_in(shown: str, ways: list[str], enough: Callable[[Any], bool]) -> list[tuple[str, str]]:
    """Return ways and shapes of which a text shows enough, `any` or `all` of the parts of 11 characters."""
    parts = {shown[at : at + 11] for at in range(len(shown))}

    def is_shown(value: str) -> bool:
        return enough(value[at : at + 11] in parts for at in range(len(value) - 10))

    return [(way, shape) for way in ways for shape in ORDERED if is_shown(draw(shape, way)[1])]


@pytest.mark.parametrize("kinds", [[*KEY_KINDS], []], ids=["redacted", "as it is"])
def test_each_sort_in_every_way(kinds: list[str], tmp_path: Path, capsys: Any, caplog: Any) -> None:
    def started(world: Any) -> None:
        world.on_piece = told.append

    model, out, page, told = Model(), tmp_path / "out", tmp_path / "page", list[Piece]()
    agent = agent_of(model, tmp_path, kinds)
    history = [{"role": "user", "content": together("history")[0]}]
    run = tachograph.arecord(agent, together("question")[0], out=out, history=history, started=started)
    assert (asyncio.run(run).ending, model.replies, model.failures) == ("final_answer", [], [])
    pieces = "".join(piece.text for piece in told)
    assert exit_code("show", str(out)) == exit_code("page", str(out), "--out", str(page)) == 0
    record = "\n".join(path.read_text() for path in (*out.iterdir(), page))
    everything = "\n".join([record, model.asked, capsys.readouterr().out, caplog.text, pieces])
    if kinds:
        assert shown_in(everything, [*RECORDED, "exception", "streamed"], any) == []
    else:
        assert len(shown_in(record, RECORDED, all)) == len(RECORDED) * len(SHAPES)
        assert len(shown_in(caplog.text, ["exception"], all)) == len(SHAPES)
        assert len(shown_in(pieces, ["streamed"], all)) == len(SHAPES)
        assert shown_in(record, ["exception"], any) == []
