"""The example tools against a real SQLite file and a real SMTP server, and what their recorded runs show."""

from __future__ import annotations

import email
import importlib.util
import shutil
import socket
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tachograph.evidence.tasks.task import build, load_task
from tachograph.runtime.core.clock import VirtualClock
from tachograph.runtime.tools.contract import Tool
from tests.evidence.project import copy_inputs
from tests.support import FILES, ROOT


def example(name: str) -> Any:
    """Load an example under a name of its own: other tests import copies of it in projects of theirs."""
    spec = importlib.util.spec_from_file_location(
        f"example_{name}", ROOT / "tasks" / "examples" / f"{name}.py"
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


mail, orders_api, stock = map(example, ("mail", "orders_api", "stock"))
IO = SimpleNamespace(idempotency_key="key-1")
TOKEN = "tok-0815-abcdefghijkl"


# ---- the JSON API ------------------------------------------------------------------------------------------


def test_the_run_says_that_a_credential_was_added_and_holds_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    committed = [(ROOT / "runs/examples/json_api" / name).read_bytes() for name in FILES]
    ledger = committed[0].decode()
    assert ledger.count('"credential":"authorization"') == 2 and "ORDERS_TOKEN" not in ledger
    made = []
    for value in (None, TOKEN):
        if value is not None:
            monkeypatch.setenv("ORDERS_TOKEN", value)
        agent, config = build(load_task(ROOT / "tasks/examples/json_api.yaml", root=ROOT))
        lines: list[str] = []
        agent.execute(config, on_line=lambda _line, text, lines=lines: lines.append(text))
        made.append("".join(lines))
    assert made[0] == made[1] and TOKEN not in made[1] and '"credential":"authorization"' in made[1]


def test_what_the_service_refuses_is_a_result() -> None:
    def request(method: str, url: str, headers: Any, body: str | None = None) -> Any:
        asked.append((method, url, dict(headers), body))
        return SimpleNamespace(status=409, text="<html>")

    asked: list[Any] = []
    io = SimpleNamespace(idempotency_key="key-1", request=request)
    assert orders_api.call({"action": "place"}, io) == {"status": 409, "orders": []}
    [(method, url, headers, body)] = asked
    assert (method, url, body) == ("POST", orders_api.URL, '{"item": "tachograph roll", "count": 1}')
    assert headers["Idempotency-Key"] == "key-1" and "Authorization" not in headers


# ---- SQLite ------------------------------------------------------------------------------------------------


@pytest.fixture
def tools(tmp_path: Path) -> dict[str, Tool]:
    return {tool.name: tool for tool in stock.tools_of(tmp_path / "db" / "stock.sqlite")}


def rows(tmp_path: Path) -> dict[str, int]:
    with sqlite3.connect(tmp_path / "db" / "stock.sqlite") as database:
        return dict(database.execute("SELECT item, count FROM stock"))


def test_a_row_is_looked_up_and_changed(tools: dict[str, Tool], tmp_path: Path) -> None:
    look_up, change = tools["look_up"], tools["change_count"]
    assert look_up.run({"item": "tachograph roll"}, IO) == {"count": 12}
    assert look_up.run({"item": "none"}, IO) == {}
    wanted = {"item": "tachograph roll", "expected": 12, "count": 9}
    assert change.probe is not None and change.probe(wanted, IO) == "not_done"
    assert change.run(wanted, IO) == {"changed": True}
    assert change.probe(wanted, IO) == "unknown"
    assert change.run(wanted, IO) == {"changed": False}  # it is nine now, so the same change is none
    assert rows(tmp_path) == {"ink ribbon": 4, "tachograph roll": 9}


def test_text_of_the_model_is_a_value_and_no_statement(tools: dict[str, Tool], tmp_path: Path) -> None:
    for text in ("' OR 1=1 --", "x'; DROP TABLE stock; --", '"stock"'):
        assert tools["look_up"].run({"item": text}, IO) == {}
        assert tools["change_count"].run({"item": text, "expected": 4, "count": 0}, IO) == {"changed": False}
    assert rows(tmp_path) == {"ink ribbon": 4, "tachograph roll": 12}


def test_a_change_that_breaks_a_rule_of_the_table_changes_nothing(
    tools: dict[str, Tool], tmp_path: Path
) -> None:
    with pytest.raises(sqlite3.IntegrityError):
        tools["change_count"].run({"item": "ink ribbon", "expected": 4, "count": -1}, IO)
    assert rows(tmp_path)["ink ribbon"] == 4


def test_a_database_that_another_program_writes_is_an_error_that_changes_nothing(
    tools: dict[str, Tool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stock, "WAIT_S", 0.01)
    tools["look_up"].run({"item": "ink ribbon"}, IO)
    other = sqlite3.connect(tmp_path / "db" / "stock.sqlite")
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        tools["change_count"].run({"item": "ink ribbon", "expected": 4, "count": 3}, IO)
    other.rollback()
    other.close()
    assert rows(tmp_path)["ink ribbon"] == 4


def test_performed_again_the_scenario_finds_the_database_as_it_was_at_first(tmp_path: Path) -> None:
    project = copy_inputs(tmp_path, keep=["examples/database"])
    ledger = project / "runs/examples/database/state.jsonl"
    committed = ledger.read_bytes()
    command = ["-m", "tachograph", "run", "tasks/examples/database.yaml", "--perform-effects"]
    environment = {"PYTHONPATH": str(ROOT), "PATH": ""}
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, *command], cwd=project, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert ledger.read_bytes() == committed
    with sqlite3.connect(project / ".tachograph/examples/stock.sqlite") as database:
        assert dict(database.execute("SELECT item, count FROM stock"))["tachograph roll"] == 9


def test_only_the_first_call_of_a_run_starts_over(tmp_path: Path) -> None:
    file = tmp_path / "stock.sqlite"
    look_up, change = stock.tools_of(file, starts_over=True)
    first, later = (SimpleNamespace(idempotency_key=f"run/{place}") for place in ("1/0", "2/0"))
    assert change.run({"item": "tachograph roll", "expected": 12, "count": 9}, later) == {"changed": True}
    assert look_up.run({"item": "tachograph roll"}, later) == {"count": 9}
    assert look_up.run({"item": "tachograph roll"}, first) == {"count": 12}


# ---- mail --------------------------------------------------------------------------------------------------


class MailServer:
    """As much of SMTP as a message takes; refuses recipients at refused.example."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, list[str], bytes]] = []
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listening.getsockname()[1]
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def _serve(self) -> None:
        while True:
            try:
                peer, _ = self.listening.accept()
            except OSError:
                return
            with peer, peer.makefile("rwb") as stream:
                peer.settimeout(5)
                self._talk(stream)

    def _talk(self, stream: Any) -> None:
        def say(text: str) -> None:
            stream.write(text.encode() + b"\r\n")
            stream.flush()

        sender, recipients = "", list[str]()
        say("220 mail.example")
        while line := stream.readline():
            word, rest = line[:4].upper().strip(), line.decode().strip()
            if word == b"MAIL":
                sender = rest.partition("<")[2].partition(">")[0]
            if word == b"RCPT":
                if "@refused.example" in rest:
                    say("550 no such user")
                    continue
                recipients.append(rest.partition("<")[2].partition(">")[0])
            if word == b"DATA":
                say("354 go on")
                data = b""
                while (piece := stream.readline()) != b".\r\n":
                    data += piece.removeprefix(b".") if piece.startswith(b"..") else piece
                self.messages.append((sender, recipients, data))
            say("221 bye" if word == b"QUIT" else "250 ok")
            if word == b"QUIT":
                return

    def stop(self) -> None:
        self.listening.shutdown(socket.SHUT_RDWR)
        self.listening.close()
        self.thread.join(5)


@pytest.fixture
def server() -> Iterator[MailServer]:
    made = MailServer()
    yield made
    made.stop()


MESSAGE = {"to": "driver@fleet.example", "subject": "Ölwechsel", "text": "Hello.\n.\nFrom here: 8 o'clock é"}


def test_a_message_reaches_the_server_as_it_was_given(server: MailServer) -> None:
    tool = mail.mail_tool(mail.smtp("127.0.0.1", server.port, tls=False))
    number = tool.run(MESSAGE, IO)["message"]
    [(sender, recipients, data)] = server.messages
    assert (sender, recipients) == (mail.SENDER, ["driver@fleet.example"])
    found = email.message_from_bytes(data, policy=mail.SMTP)
    assert found["To"] == MESSAGE["to"] and found["Subject"] == MESSAGE["subject"]
    assert found["Message-ID"] == f"<{number}@fleet.example>"
    assert found.get_content().replace("\r\n", "\n").rstrip("\n") == MESSAGE["text"]
    assert tool.run(MESSAGE, IO)["message"] == number  # the same call has the same number
    other = SimpleNamespace(idempotency_key="key-2")
    assert tool.run(MESSAGE, other)["message"] != number


def test_a_recipient_that_the_server_refuses_is_a_failure(server: MailServer) -> None:
    tool = mail.mail_tool(mail.smtp("127.0.0.1", server.port, tls=False))
    with pytest.raises(OSError, match="refused"):
        tool.run({**MESSAGE, "to": "x@refused.example"}, IO)
    assert server.messages == []


def test_no_message_goes_out_in_the_clear_unless_told_so(server: MailServer) -> None:
    tool = mail.mail_tool(mail.smtp("127.0.0.1", server.port))
    with pytest.raises(OSError):
        tool.run(MESSAGE, IO)  # the server has no TLS
    assert server.messages == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"to": "a@b.example, c@d.example"}, {"to": "a@b.example\nBcc: c@d.example"}, {"to": "a@b.example\n"},
        {"to": "A <a@b.example>"}, {"to": "a@b"}, {"subject": "x\nBcc: c@d.example"}, {"subject": "x\r"},
        {"subject": ""}, {"text": ""},
    ],
)  # fmt: skip
def test_what_could_be_more_than_one_message_does_not_fit_the_schema(wrong: dict[str, str]) -> None:
    tool = mail.mail_tool(lambda _message: None)
    assert tool.input_validator.accepts(MESSAGE) and not tool.input_validator.accepts({**MESSAGE, **wrong})


def test_a_refused_person_sends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mail, "OUTBOX", tmp_path)
    monkeypatch.chdir(ROOT)
    result = mail.agent().run("?", run_id="r", approve=lambda _asked: False, clock=VirtualClock())
    assert result.ending == "approval_refused" and list(tmp_path.iterdir()) == []
    assert mail.agent().run("?", run_id="r", approve=lambda _asked: True, clock=VirtualClock()).ok
    assert [path.suffix for path in tmp_path.iterdir()] == [".eml"]
    shutil.rmtree(tmp_path)
