"""Texts that try to be more than words, and a run that holds one wherever a text can stand."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from tachograph.runtime.formats.strict_json import canonical
from tachograph.runtime.log import events as log_events
from tachograph.runtime.log import values as log_values
from tachograph.runtime.log.lines import LineWriter
from tests.logs import LIMITS, Log, call

HOSTILE = [
    "<script>alert(1)</script>",
    "</pre></details></main><h1>Forged",
    "'\" onmouseover=alert(1) x='",
    "--><!--<![CDATA[",
    "&lt;b&gt;&#60;i&#62;&amp",
    "<a href='javascript:alert(1)'>x</a><img src=//evil.test/x.png><base href=//evil.test>",
    "</title></style><style>*{display:none}</style><meta http-equiv=refresh content=0>",
    "[red]x[/red] [link=https://evil.test]y[/link]",
    "\x1b[31mred\x1b]8;;https://evil.test\x1b\\\x9b2J\x07\x00",
    "a\r\x1b[2K\x0b\x0c\x85b",
    "\u202eright to left\u2066\u200b\ufeff\U000e0041\ue000",
    "##[error]x\t::error::y",
]


def scene(text: str) -> list[log_events.Event]:
    """Return a run that holds a text in every place where one can stand."""
    head: dict[str, Any] = dict.fromkeys(("run_id", "question", "instructions", "task"), text)
    head["model"] = log_values.ModelName(text, text)
    head["policy"] = log_values.PolicyHead(text, text, "inform", LIMITS)
    log = Log(**head).replied(call(text, **{text: text}), call("echo", x=text), call(), text=text)
    log.decided("c0.d", "deny", text, reason=text, place=f"{text}#/{text}")
    log.decided("c1.d", "escalate", reason=text)
    log.events.append(log_events.Answered(at=log.at("c1.p"), answer="allow", by=text, why=text))
    log.events.append(log_events.HookAnswered(at=log.at("c1.k1"), answer={text: text}))
    log.events.append(log_events.ToolReturned(at=log.at("c1.i1"), result={text: [text]}, size=9))
    place = {"rule": text, "place": text, "reason": text}
    log.events += [log_events.Decided(at=text.replace(".", "-") + n, decision="deny", **place) for n in "ab"]
    log.decided("c2.d").failed("c2.i1", text, "other", said=text, place=text).stepped(text)
    log.replied(problem=text).stepped("llm_invalid_output")
    return log.replied(answer=text).stepped().ended(text, text, text)


def log_of(events: list[log_events.Event]) -> bytes:
    """Return events as the bytes of a log."""
    writer, lines = LineWriter(), []
    for event in events:
        if isinstance(event, log_events.RunEnded):
            event = msgspec.structs.replace(event, sha256=sha256(b"".join(lines)).hexdigest())
        lines.append(writer.line(canonical(event)))
    return b"".join(lines)


def run_at(folder: Path, events: list[log_events.Event]) -> Path:
    """Write the log of a run, which need not have ended, into a folder."""
    folder.mkdir(parents=True)
    (folder / "state.jsonl").write_bytes(log_of(events))
    return folder
