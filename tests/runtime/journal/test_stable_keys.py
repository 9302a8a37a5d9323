"""Keys of `ledger/v2` are promised: one that is there stays, and one that is added is absent where it is unused."""

from __future__ import annotations

import pytest

from tests.support import LINES, ROOT

PROMISED = tuple((ROOT / "tests/data/v2/keys.txt").read_text(encoding="utf-8").split())


def missing_and_demanded(keys: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """Return promised keys that the schema has no more, and keys that it demands without having promised them."""
    entries = LINES["$defs"]
    present = {f"{name}.{key}" for name, entry in entries.items() for key in entry.get("properties", ())}
    demanded = {f"{name}.{key}" for name, entry in entries.items() for key in entry.get("required", ())}
    promised = {key.removesuffix("?") for key in keys}
    always = {key for key in keys if not key.endswith("?")}
    known = {key.partition(".")[0] for key in keys}
    return sorted(promised - present), sorted(
        key for key in demanded - always if key.partition(".")[0] in known
    )


def test_no_promised_key_is_gone_and_no_other_is_demanded() -> None:
    assert len(PROMISED) > 120
    assert missing_and_demanded(PROMISED) == ([], [])


@pytest.mark.parametrize(
    ("keys", "found"),
    [
        ((*PROMISED, "RunLine.colour?"), (["RunLine.colour"], [])),
        (tuple(key for key in PROMISED if key != "RunLine.seed"), ([], ["RunLine.seed"])),
    ],
    ids=["renamed", "demanded"],
)
def test_a_broken_promise_is_found(keys: tuple[str, ...], found: tuple[list[str], list[str]]) -> None:
    assert missing_and_demanded(keys) == found
