"""What a placeholder stood for is stored nowhere: a resumed run cannot put back what only the dead process knew."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tachograph import Agent, Policy
from tachograph.evidence.recording.record import record_run
from tachograph.evidence.recording.resume import Resumption
from tachograph.runtime.core.clock import VirtualClock
from tachograph.runtime.driver.stopping.interrupts import ForceQuit
from tachograph.runtime.models.scripted import Stub
from tachograph.runtime.setup.run_config import RunConfig
from tachograph.runtime.tools.contract import Tool
from tests.support import INPUT, OUTPUT, policy_data

MAIL = "someone@mail.test"
TEXT = {
    "type": "object",
    "additionalProperties": False,
    "properties": {"text": {"type": "string", "x-resource": "none"}},
}


class Letters:
    """A run that reads a mail address and sends it, and whose process dies before the first letter is sent."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.sent: list[str] = []
        self.dies = True

    def agent(self) -> Agent:
        def send(args: dict[str, Any], io: Any) -> dict[str, str]:
            if self.dies:
                self.dies = False
                raise ForceQuit
            self.sent.append(args["text"])
            return {"said": "sent"}

        look = Tool("look", "looks", INPUT, OUTPUT, "pure", True, lambda args, io: {"said": MAIL})
        mail = Tool("mail", "sends", TEXT, OUTPUT, "write", False, send)
        turns = [
            {"calls": [{"tool": "look", "arguments": {"n": 1}}]},
            {"calls": [{"tool": "mail", "arguments": {"text": "to <secret:email:1>"}}]},
            {"answer": "done"},
        ]
        policy = policy_data(
            tool_registry={"allowed": ["look", "mail"]},
            redact={"kinds": ["email"], "reveal_to": {"mail": ["email"]}},
            on_deny="inform",
        )
        return Agent(Stub(turns), [look, mail], Policy.from_dict(policy))

    def config(self, agent: Agent) -> RunConfig:
        return agent.configure_run("Write.", run_id="letters", clock=VirtualClock())

    def begin(self) -> None:
        agent = self.agent()
        record_run(agent, self.config(agent), self.out, durability="effect")

    def go_on(self) -> list[dict[str, Any]]:
        """Resume it, with the letter not sent; return the lines of its ledger."""
        agent = self.agent()
        Resumption(self.out, {"tc_2_0": "not_done"}, False).go(lambda _run: (agent, self.config(agent)))
        return [json.loads(line) for line in (self.out / "state.jsonl").read_text().splitlines()]


def test_a_secret_that_only_the_dead_process_knew_is_not_sent_as_its_placeholder(tmp_path: Path) -> None:
    letters = Letters(tmp_path / "run")
    with pytest.raises((KeyboardInterrupt, ForceQuit)):
        letters.begin()
    lines = letters.go_on()
    denied = lines[2]["policy_decisions"][-1]
    assert letters.sent == [] and (denied["decision"], denied["rule_id"]) == ("deny", "redact")
    assert (
        denied["facts"] == {"kind": "email", "number": 1} and "not known in this process" in denied["reason"]
    )
    assert lines[-1]["terminal_reason"] == "final_answer"


def test_in_the_process_that_knows_it_it_is_sent(tmp_path: Path) -> None:
    letters = Letters(tmp_path / "run")
    letters.dies = False
    letters.begin()
    assert letters.sent == [f"to {MAIL}"]
    assert MAIL.encode() not in (letters.out / "state.jsonl").read_bytes()
