"""JSON texts of the outside corpus against the strict parser and the ledger's reader."""

from __future__ import annotations

import base64
import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tachograph.fail.errors import RecordError
from tachograph.runtime.formats.canonical_json import NotJson, parse
from tachograph.runtime.journal import ledger

# Valid JSON that has no canonical form: two programs could read it differently.
NO_CANONICAL_FORM = {
    "duplicate key": ("y_object_duplicated_key.json", "y_object_duplicated_key_and_value.json"),
    "integer beyond 2^53": (
        "y_number_real_capital_e.json",
        "y_number_real_exponent.json",
        "y_number_real_fraction_exponent.json",
        "y_object_extreme_numbers.json",
    ),
}


def _rows() -> list[dict[str, Any]]:
    root = os.environ.get("TACHOGRAPH_CORPORA")
    if not root:
        pytest.skip("TACHOGRAPH_CORPORA is not set: the outside corpus of JSON texts is not at hand")
    text = (Path(root) / "3-schema" / "json_text_cases.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def test_shared_corpus() -> None:
    table: dict[str, Counter[str]] = {}
    misses, narrower = [], []
    for row in _rows():
        count = table.setdefault(
            {"y": "valid", "n": "invalid", "i": "up to the reader"}[row["class"]], Counter()
        )
        count["rows"] += 1
        data = base64.b64decode(row["bytes_b64"])
        try:
            frozen = parse(data.decode("utf-8"))
        except UnicodeDecodeError:
            count["refused"] += 1
            if row["expect"] == "accept":
                misses.append((row["id"], "no UTF-8"))
        except NotJson as refused:
            count["refused"] += 1
            if row["expect"] == "accept":
                if row["id"].removeprefix("jts-") in NO_CANONICAL_FORM.get(refused.reason, ()):
                    narrower.append((row["id"], refused.reason))
                else:
                    count["wrong refusals"] += 1
                    misses.append((row["id"], refused.reason))
        except Exception as error:  # noqa: BLE001 - the corpus looks for whatever is raised
            count["raises"] += 1
            misses.append((row["id"], repr(error)))
        else:
            count["read"] += 1
            if row["expect"] == "reject":
                count["wrong reads"] += 1
                misses.append((row["id"], frozen.text[:40]))
            elif frozen.value() != json.loads(data):
                misses.append((row["id"], "the meaning was changed"))
    columns = ("rows", "read", "refused", "wrong reads", "wrong refusals", "raises")
    print("\n" + f"{'class':24}" + "".join(f"{column:>16}" for column in columns))
    for name, count in sorted(table.items()):
        print(f"{name:24}" + "".join(f"{count[column]:>16}" for column in columns))
    for row_id, why in narrower:
        print(f"refused on purpose: {row_id}: {why}")
    assert sum(count["rows"] for count in table.values()) > 200
    assert not misses


def test_no_text_of_the_corpus_is_a_ledger() -> None:
    for row in _rows():
        with pytest.raises(RecordError):
            list(ledger.read(base64.b64decode(row["bytes_b64"]) + b"\n", "state.jsonl"))
