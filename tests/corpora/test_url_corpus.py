"""URLs of the outside corpus against an allowlist. The generated classes stand in tests/tables/urls.py."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tachograph.runtime.resources.url import Allowlist, Malformed, parse_entry, parse_url


def allowed(text: str, allowlist: Allowlist) -> bool:
    try:
        return allowlist.match(parse_url(text)) is not None
    except Malformed:
        return False


def _rows() -> list[dict[str, Any]]:
    root = os.environ.get("TACHOGRAPH_CORPORA")
    if not root:
        pytest.skip("TACHOGRAPH_CORPORA is not set: the outside corpus of URLs is not at hand")
    text = (Path(root) / "1-url" / "url_cases.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def _adapted(hosts: Iterable[str]) -> Allowlist:
    """The corpus allows a host on http and https at their default ports; other text allows nothing."""
    entries = []
    for entry in (f"{scheme}://{host}" for host in hosts for scheme in ("http", "https")):
        try:
            parse_entry(entry)
        except Malformed:
            continue
        entries.append(entry)
    return Allowlist(entries)


def test_shared_corpus() -> None:
    table: dict[str, Counter[str]] = {}
    misses = []
    for row in _rows():
        count = table.setdefault(row["class"], Counter())
        count["rows"] += 1
        try:
            got = allowed(row["url"], _adapted(row["allowlist"]))
        except Exception as error:  # noqa: BLE001 - the corpus looks for whatever is raised
            count["raises"] += 1
            misses.append((row["id"], repr(error)))
            continue
        if got and row["expect"] == "deny":
            count["wrong allows"] += 1
            misses.append((row["id"], f"allowed, severity {row['severity']}"))
        elif not got and row["expect"] == "allow":
            count["wrong denies"] += 1
            misses.append((row["id"], "denied"))
        elif row["expect"] == "either":
            count["either, allowed" if got else "either, denied"] += 1
    columns = ("rows", "wrong allows", "wrong denies", "raises", "either, allowed", "either, denied")
    print("\n" + f"{'class':24}" + "".join(f"{column:>16}" for column in columns))
    for name, count in sorted(table.items()):
        print(f"{name:24}" + "".join(f"{count[column]:>16}" for column in columns))
    assert sum(count["rows"] for count in table.values()) > 1000
    assert not misses
