"""Policy files of the outside corpus, as far as the YAML reader alone can decide them.

The reader's own generated classes stand in tests/runtime/formats/test_strict_yaml.py and need no corpus.
"""

from __future__ import annotations

import base64
import importlib.util
import json
import os
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tachograph.runtime.formats.strict_yaml import YamlError, load

SECONDS = 2
# Rows of these classes must still end in time and raise YamlError only; a refusal is not asked for.
NOT_THE_READERS = {
    "yts-valid-not-a-policy": "valid YAML; that it is no policy is for the meta-schema to say",
    "structure": "sections, types and names are for the meta-schema to say",
}
# Forms libyaml reads though the YAML specification forbids them; neither hides or changes a value.
LENIENT_PARSER = {
    "9C9N": "a flow sequence that goes on in the first column",
    "S98Z": "an empty block scalar over lines of spaces",
}
FILES = "needs a file system: for the tests of the policy's loader"


def _corpus() -> Path:
    root = os.environ.get("TACHOGRAPH_CORPORA")
    if not root:
        pytest.skip("TACHOGRAPH_CORPORA is not set: the outside corpus of YAML is not at hand")
    return Path(root)


def _rows() -> list[tuple[dict[str, Any], bytes | None]]:
    """Every row with its bytes; None for rows about files."""
    root = _corpus()
    spec = importlib.util.spec_from_file_location("yamlgen", root / "common" / "builders" / "yamlgen.py")
    assert spec is not None and spec.loader is not None
    builder = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(builder)
    rows: list[tuple[dict[str, Any], bytes | None]] = []
    for line in (root / "4-yaml" / "yaml_cases.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if "gen" not in row:
            rows.append((row, base64.b64decode(row["b64"])))
        else:
            rows.append((row, None if row["gen"]["kind"] == "file" else builder.gen(row["gen"])))
    return rows


def _seen_by_a_schema(data: Any) -> bool:
    """Whether any meta-schema sees what is wrong: a section of an unknown name, or a value of the wrong type.

    The reader hands over typed data, so `false` in a list of names is for the schema to refuse.
    """
    texts = {"allowed", "denied", "url_allowlist"}
    sections = {"tool_registry", "url_allowlist", "sandbox", "arg_schema_enforcement"}
    sections |= {"loop_budget", "cycle_detection", "retry"}
    if not isinstance(data, dict) or not set(data) <= sections:
        return True
    leaves = [(key, value) for key, value in data.items() if not isinstance(value, dict)]
    leaves += [leaf for value in data.values() if isinstance(value, dict) for leaf in value.items()]
    for key, value in leaves:
        if key in texts:
            if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
                return True
        elif key.startswith(("max_", "backoff_")):
            if type(value) is not int:
                return True
        elif not isinstance(value, str):
            return True
    return False


def _verdict(row: dict[str, Any], data: bytes, elapsed: list[float]) -> str:
    """A column of the table; every "wrong" one is a failure."""
    started = time.process_time()
    try:
        document = load(data, "row")
    except YamlError:
        return "wrong refusals" if row["expect"] == "accept" else "refused"
    finally:
        elapsed.append(time.process_time() - started)
    if row["expect"] == "accept":
        return "read" if document.data == row.get("accept_as", document.data) else "wrong data"
    if row["expect"] == "either" or row["class"] in NOT_THE_READERS:
        return "read"
    if row["note"][:4] in LENIENT_PARSER:
        return "lenient parser"
    return "left to schema" if _seen_by_a_schema(document.data) else "wrong reads"


def test_shared_corpus(tmp_path: Path) -> None:
    table: dict[str, Counter[str]] = {}
    misses = []
    canary = tmp_path / "canary"
    for row, data in _rows():
        count = table.setdefault(row["class"], Counter())
        count["rows"] += 1
        if data is None:
            count["skipped"] += 1
            continue
        elapsed: list[float] = []
        try:
            column = _verdict(row, data.replace(b"{CANARY}", str(canary).encode()), elapsed)
        except Exception as error:  # noqa: BLE001 - the corpus looks for whatever is raised
            column = "raises"
            misses.append((row["id"], repr(error)))
        count[column] += 1
        if column.startswith("wrong"):
            misses.append((row["id"], column))
        if elapsed and elapsed[0] > SECONDS:
            misses.append((row["id"], f"{elapsed[0]:.1f} s of CPU"))
    columns = ["rows", "refused", "read", "left to schema", "lenient parser", "skipped"]
    columns += ["wrong reads", "wrong refusals", "wrong data", "raises"]
    print("\n" + f"{'class':24}" + "".join(f"{column:>16}" for column in columns))
    for name, count in sorted(table.items()):
        print(f"{name:24}" + "".join(f"{count[column]:>16}" for column in columns))
    for name, why in [*NOT_THE_READERS.items(), ("file", FILES), *LENIENT_PARSER.items()]:
        print(f"not asked of the reader: {name}: {why}")
    assert not canary.exists()
    assert sum(count["rows"] for count in table.values()) > 400
    assert not misses


@pytest.mark.parametrize("name", ["tags", "duplicate-keys", "merge", "encoding"])
def test_classes_the_reader_decides_alone(name: str) -> None:
    """Nothing of these may be left for a schema to catch."""
    rows = [(row, data) for row, data in _rows() if row["class"] == name and row["expect"] == "reject"]
    assert rows
    for row, data in rows:
        assert data is not None
        with pytest.raises(YamlError):
            load(data, row["id"])
