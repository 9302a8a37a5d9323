"""Tools over an SQLite file: one looks up, one changes, after a person's approval. `database.yaml` names the agent.

The file is beside the mounts, and no statement comes from the model: it gives values, which are bound. So the gate's
approval of `change_count` covers all that can be written.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from tachograph import Agent, Policy, Stub, Tool

FILE = Path(__file__).resolve().parents[2] / ".tachograph" / "examples" / "stock.sqlite"
WAIT_S = 5.0  # for another program that writes
ITEM = {"type": "string", "minLength": 1, "maxLength": 80}
COUNT = {"type": "integer", "minimum": 0, "maximum": 1_000_000}
START = (("ink ribbon", 4), ("tachograph roll", 12))


def tools_of(file: Path, *, starts_over: bool = False) -> list[Tool]:
    """Return the two tools over a database file, which is made where it is missing.

    With `starts_over`, a run that begins with a look finds in it what it held at first, as a scenario needs it. A run
    that is resumed goes on with what is there: that first call is not made again.
    """

    def look_up(arguments: dict[str, Any], io: Any) -> dict[str, Any]:
        if starts_over and io.idempotency_key.endswith("/1/0"):  # the first call of the first step
            with closing(_opened(file)) as database, database:
                database.execute("DELETE FROM stock")  # opened next, it is filled again
        with closing(_opened(file)) as database:
            database.execute("PRAGMA query_only = ON")
            found = database.execute(
                "SELECT count FROM stock WHERE item = ?", (arguments["item"],)
            ).fetchone()
        return {"count": found[0]} if found is not None else {}

    def change_count(arguments: dict[str, Any], io: Any) -> dict[str, Any]:
        values = (arguments["count"], arguments["item"], arguments["expected"])
        with closing(_opened(file)) as database, database:  # the inner one commits, or takes everything back
            done = database.execute("UPDATE stock SET count = ? WHERE item = ? AND count = ?", values)
        return {"changed": done.rowcount == 1}

    def was_changed(arguments: dict[str, Any], io: Any) -> str:
        """Tell whether a change took place whose outcome was lost."""
        count = look_up(arguments, io).get("count")
        if count == arguments["expected"] != arguments["count"]:
            return "not_done"
        return "unknown"  # another program may have written the same number

    return [
        Tool(
            name="look_up",
            description="Return how many of an item are in stock; nothing for an item that is not known.",
            input_schema=_object(["item"], item=ITEM),
            output_schema=_object([], count=COUNT),
            effect="external",
            idempotent=True,
            run=look_up,
        ),
        Tool(
            name="change_count",
            description="Write how many of an item are in stock, if that is `expected` now.",
            input_schema=_object(["item", "expected", "count"], item=ITEM, expected=COUNT, count=COUNT),
            output_schema=_object(["changed"], changed={"type": "boolean"}),
            effect="external",
            idempotent=False,
            run=change_count,
            probe=was_changed,
        ),
    ]


def _object(required: list[str], **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "required": required,
        "properties": properties,
    }


def _opened(file: Path) -> sqlite3.Connection:
    file.parent.mkdir(parents=True, exist_ok=True)
    database = sqlite3.connect(file, timeout=WAIT_S)
    with database:
        database.execute(
            "CREATE TABLE IF NOT EXISTS stock (item TEXT PRIMARY KEY, count INTEGER NOT NULL CHECK (count >= 0))"
        )
        if database.execute("SELECT count(*) FROM stock").fetchone() == (0,):
            database.executemany("INSERT OR IGNORE INTO stock VALUES (?, ?)", START)
    return database


def agent() -> Agent:
    """Return an agent that looks an item up and takes three of it."""
    model = Stub(
        [
            {
                "say": "I look the rolls up.",
                "calls": [{"tool": "look_up", "arguments": {"item": "tachograph roll"}}],
                "usage": {"input_tokens": 150, "output_tokens": 15},
            },
            {
                "say": "I write down that three are taken.",
                "calls": [
                    {
                        "tool": "change_count",
                        "arguments": {"item": "tachograph roll", "expected": 12, "count": 9},
                    }
                ],
                "usage": {"input_tokens": 180, "output_tokens": 25},
            },
            {
                "answer": {
                    "$join": ["There were ", {"$result": 0, "at": "/count"}, " rolls; nine are left."]
                },
                "usage": {"input_tokens": 210, "output_tokens": 12},
            },
        ]
    )
    return Agent(model, tools_of(FILE, starts_over=True), Policy.load("policy/examples/stock.yaml"))
