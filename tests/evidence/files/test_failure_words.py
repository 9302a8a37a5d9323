"""What went wrong, as a report says it."""

from __future__ import annotations

from typing import Any

import pytest

from tachograph.evidence.files.words.failure_words import failure_in_words


@pytest.mark.parametrize(
    ("error", "words"),
    [
        ({"problem": "an empty answer"}, "an empty answer"),
        ({"exception": "ConnectionError", "kind": "transient"}, "ConnectionError (transient)"),
        (
            {"exception": "ModelError", "kind": "other", "status": 401, "text": "no <key>"},
            "ModelError (other), status 401, text no &#60;key&#62;",
        ),
        (
            {"keyword": "required", "limit": "text,url", "pointer": ""},
            "the value violates required (text,url)",
        ),
        (
            {
                "keyword": "enum",
                "limit": "a,b",
                "pointer": "/x_y",
                "problem": "the answer does not fit the schema",
            },
            "the answer does not fit the schema: `/x_y` violates enum (a,b)",
        ),
        ({"keyword": "type", "limit": None, "pointer": "/a"}, "`/a` violates type"),
    ],
)
def test_each_failure_is_said_in_words(error: dict[str, Any], words: str) -> None:
    assert failure_in_words({"position": "m.1", **error}) == words  # type: ignore[arg-type]


def test_every_key_of_an_entry_is_said() -> None:
    """No fact of a failure is lost, whatever keys come later."""
    entry = {
        "position": "m.1",
        "exception": "E1",
        "kind": "k2",
        "problem": "p3",
        "keyword": "w4",
        "limit": "l5",
    }
    entry |= {"pointer": "/p6", "status": 7, "undeclared": "io.u8", "later": "n9"}
    said = failure_in_words(entry)  # type: ignore[arg-type]
    assert all(str(value) in said for key, value in entry.items() if key != "position")
