"""A tool that sends mail, after a person's approval. `mail.yaml` names the agent.

Where a message goes is up to the program, not to the model: `smtp` hands it to a server, `outbox` writes it to a
folder, as the scenario does. The model gives one recipient, a subject and a text; headers cannot be slipped into them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from email.message import EmailMessage
from email.policy import SMTP
from pathlib import Path
from typing import Any

from tachograph import Agent, Policy, Stub, Tool

OUTBOX = Path(__file__).resolve().parents[2] / ".tachograph" / "examples" / "outbox"
SENDER = "desk@fleet.example"
WAIT_S = 20.0
Deliver = Callable[[EmailMessage], None]


def smtp(host: str, port: int, *, tls: bool = True) -> Deliver:
    """Return what hands a message to an SMTP server, by default over TLS with a certificate that is checked."""
    import smtplib  # here, since whoever only checks the record needs neither
    import ssl

    def deliver(message: EmailMessage) -> None:
        with smtplib.SMTP(host, port, timeout=WAIT_S) as server:
            if tls:
                server.starttls(context=ssl.create_default_context())
            # as bytes of ours: `send_message` puts a > before each line that begins with From
            server.sendmail(message["From"], [message["To"]], message.as_bytes(policy=SMTP))

    return deliver


def outbox(folder: Path) -> Deliver:
    """Return what writes a message to a folder, named by its id."""

    def deliver(message: EmailMessage) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        name = message["Message-ID"].strip("<>").partition("@")[0]
        (folder / f"{name}.eml").write_bytes(message.as_bytes(policy=SMTP))

    return deliver


def mail_tool(deliver: Deliver, sender: str = SENDER) -> Tool:
    """Return the tool."""

    def send(arguments: dict[str, Any], io: Any) -> dict[str, Any]:
        # a service that is sent the same message twice can tell by its id, which is that of the call
        number = hashlib.sha256(io.idempotency_key.encode()).hexdigest()[:16]
        message = EmailMessage(policy=SMTP)
        message["From"], message["To"], message["Subject"] = sender, arguments["to"], arguments["subject"]
        message["Message-ID"] = f"<{number}@{sender.partition('@')[2]}>"
        message.set_content(arguments["text"])
        deliver(message)
        return {"message": number}

    line = "^[^\\x00-\\x1f\\x7f]*$"
    return Tool(
        name="send_mail",
        description="Send a message to one address. Returns its number.",
        input_schema={
            "type": "object",
            "additionalProperties": False,
            "required": ["to", "subject", "text"],
            "properties": {
                "to": {
                    "type": "string",
                    "pattern": "^[A-Za-z0-9._+-]{1,64}@[A-Za-z0-9-]{1,63}([.][A-Za-z0-9-]{1,63}){1,8}$",
                    "maxLength": 254,
                },
                "subject": {"type": "string", "minLength": 1, "maxLength": 200, "pattern": line},
                "text": {"type": "string", "minLength": 1, "maxLength": 20000},
            },
        },
        output_schema={
            "type": "object",
            "additionalProperties": False,
            "required": ["message"],
            "properties": {"message": {"type": "string", "minLength": 16, "maxLength": 16}},
        },
        effect="external",
        idempotent=False,
        run=send,
    )


def agent() -> Agent:
    """Return an agent that tells a driver of an appointment."""
    model = Stub(
        [
            {
                "say": "I tell the driver.",
                "calls": [
                    {
                        "tool": "send_mail",
                        "arguments": {
                            "to": "driver@fleet.example",
                            "subject": "Recorder of OB-17",
                            "text": "Please bring OB-17 to the workshop on Monday at eight.",
                        },
                    }
                ],
                "usage": {"input_tokens": 160, "output_tokens": 40},
            },
            {
                "answer": {"$join": ["The driver has message ", {"$result": 0, "at": "/message"}, "."]},
                "usage": {"input_tokens": 210, "output_tokens": 12},
            },
        ]
    )
    return Agent(model, [mail_tool(outbox(OUTBOX))], Policy.load("policy/examples/mail.yaml"))
