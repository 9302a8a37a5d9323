"""Policy files of the outside corpus against the whole loader.

The corpus's policies have no `schema` key and one sandbox with a `path_template`. Two things are adapted:

- a row is loaded as an overlay of a file that holds `schema: policy/v1` alone: it is read, merged and
  validated like any policy. Only an overlay may be empty, so a row without a section is loaded alone as well;
- the template that most rows share becomes the mount `sandbox`; any other template stays and is refused.
"""

from __future__ import annotations

import base64
import importlib.util
import json
import os
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tachograph.fail.errors import PolicyError
from tachograph.runtime.policy import policy as policies
from tachograph.runtime.policy.policy import Policy

TEMPLATE = re.compile(rb"""("?)path_template\1: "/tmp/run/<run-id>/sandbox\"""")


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


def _load(folder: Path, data: bytes) -> Policy:
    base, row = folder / "base.yaml", folder / "row.yaml"
    base.write_text("schema: policy/v1\n")
    row.write_bytes(TEMPLATE.sub(rb"\1mounts\1: {\1sandbox\1: \1write\1}", data))
    policy = Policy.load(base, [row], root=folder)
    return policy if len(policy.data) > 1 else Policy.load(row, root=folder)


def _adapted(data: dict[str, Any]) -> dict[str, Any]:
    sandbox = {"sandbox": {"mounts": {"sandbox": "write"}}} if "sandbox" in data else {}
    return {**data, "schema": "policy/v1", **sandbox}


def _file_row(how: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Policy:
    path = folder / "policy.yaml"
    good = "schema: policy/v1\ntool_registry: {allowed: [search]}\n"
    if how == "missing":
        return Policy.load(path)
    if how == "directory":
        return Policy.load(folder)
    if how == "symlink_loop":
        path.symlink_to(path.name)
        return Policy.load(path)
    if how == "changed_after_load":
        path.write_text(good)
        policy = Policy.load(path)
        before = policy.version, policy.files
        path.write_text(good.replace("search", "shell"))
        assert (policy.version, policy.files) == before and "search" in policy.allowed
        return policy
    if how == "symlinked_schema":
        (folder / "v1.schema.json").write_text("{}")
        path.write_text(good + "anything: at all\n")
        return Policy.load(path)
    assert how == "schema_missing"
    path.write_text(good)
    policies._validator.cache_clear()
    monkeypatch.setattr(policies, "shipped", lambda name: folder / name)
    try:
        return Policy.load(path)
    finally:
        policies._validator.cache_clear()


def test_shared_corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table: dict[str, Counter[str]] = {}
    misses = []
    canary = tmp_path / "canary"
    for number, (row, data) in enumerate(_rows()):
        count = table.setdefault(row["class"], Counter())
        count["rows"] += 1
        folder = tmp_path / str(number)
        folder.mkdir()
        try:
            if data is None:
                with monkeypatch.context() as patched:
                    policy = _file_row(row["gen"]["how"], folder, patched)
            else:
                policy = _load(folder, data.replace(b"{CANARY}", str(canary).encode()))
        except PolicyError as refused:
            count["refused"] += 1
            if "\n" in str(refused) or not refused.file:
                misses.append((row["id"], str(refused)))
            if data is not None and (refused.line is None or refused.column is None):
                misses.append((row["id"], f"no place: {refused}"))
            if row["expect"] == "accept":
                count["wrong refusals"] += 1
                misses.append((row["id"], str(refused)))
        except Exception as error:  # noqa: BLE001 - the corpus looks for whatever is raised
            count["raises"] += 1
            misses.append((row["id"], repr(error)))
        else:
            count["loaded"] += 1
            if row["expect"] == "reject":
                count["wrong loads"] += 1
                misses.append((row["id"], row["note"]))
            if "accept_as" in row and policy.data != _adapted(row["accept_as"]):
                count["wrong data"] += 1
                misses.append((row["id"], repr(policy.data)))
    columns = ["rows", "loaded", "refused", "wrong loads", "wrong refusals", "wrong data", "raises"]
    print("\n" + f"{'class':24}" + "".join(f"{column:>16}" for column in columns))
    for name, count in sorted(table.items()):
        print(f"{name:24}" + "".join(f"{count[column]:>16}" for column in columns))
    assert not canary.exists()
    assert sum(count["rows"] for count in table.values()) > 400
    assert not misses
