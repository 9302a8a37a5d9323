"""What redaction by default costs: a governed step with and without it, and a text without secrets."""

from __future__ import annotations

import hashlib
import json
import tempfile
from pathlib import Path
from statistics import median

from measure import Case, Row, take_turns

from runs import Runs, corpus
from tachograph import Policy

SHORT, LONG = 20, 220
SIZE = 8000


def rows(*, quick: bool) -> list[Row]:
    shipped = Policy.shipped()
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder).resolve()
        mount = corpus(base / "corpus", LONG)
        runs = {
            "on": Runs(base / "on", "read", mount, shipped.data["redact"]),
            "off": Runs(base / "off", "read", mount),
        }
        cases = {
            f"{name} {steps}": Case(lambda _, made=made, steps=steps: made.record(steps), batch=1)
            for name, made in runs.items()
            for steps in (SHORT, LONG)
        }
        rounds = 3 if quick else 30
        times = take_turns(cases, rounds).times
    step = {
        name: [
            long - short
            for short, long in zip(times[f"{name} {SHORT}"], times[f"{name} {LONG}"], strict=True)
        ]
        for name in runs
    }
    redact = shipped.redactor()
    texts = take_turns(
        {
            "encode": Case(json.dumps, _prose),
            "prose": Case(redact, _prose),
            "digests": Case(redact, _digests),
            "lookalikes": Case(redact, _lookalikes),
        },
        5 if quick else 20,
    )
    return [
        Row(
            "governed step, shipped kinds of secrets redacted : none",
            median(on / off for on, off in zip(step["on"], step["off"], strict=True)),
            1.4,
        ),
        *(
            Row(
                f"redacting 8 kB of {name} : encoding 8 kB of prose as JSON",
                texts.ratio(case, "encode"),
                note=f"{texts.us(case):.0f} us : {texts.us('encode'):.0f} us",
            )
            for case, name in (
                ("prose", "prose"),
                ("digests", "digests and base64"),
                ("lookalikes", "words that secrets begin with"),
            )
        ),
    ]


def _filled(head: str, part: str) -> str:
    return (head + part * (SIZE // len(part) + 1))[:SIZE]


def _prose(n: int) -> str:
    return _filled(f"Page {n}. ", "The driver rests after four hours and a half, and writes it down. ")


def _digests(n: int) -> str:
    return _filled(f"{n}: ", hashlib.sha512(str(n).encode()).hexdigest() + "\n")


def _lookalikes(n: int) -> str:
    """Return text that holds what each kind is looked for by, and no secret."""
    return _filled(
        f"{n}: ", "task-1 hf_model npm_config bearer of news, xoxo pypi-simple eyJ passwords secret_key, "
    )
