"""Paths of the outside corpus, decided by the gate and then performed by a run's `io`.

The corpus knows one sandbox folder and paths of the host; here the folder is the mount `box`. A path below
`{SBX}` is what a model would write as `box/...`, a relative one is relative to the mount, and everything else
stays as it is written. Run as a program, this file performs one row, for rows that may stand still.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tachograph.runtime.core.redaction import Redactor
from tachograph.runtime.models.types import read_call
from tachograph.runtime.policy.gate import ALLOW, Counters, Gate
from tachograph.runtime.policy.policy import Policy
from tachograph.runtime.tools.contract import USES
from tachograph.runtime.tools.loader import collect
from tachograph.runtime.workspace.mounts import Mount
from tachograph.runtime.workspace.workspace import Workspace

MOUNT = "box"
SECONDS = 20
GATE = Gate(
    Policy.from_dict(
        {
            "schema": "policy/v1",
            "tool_registry": {"allowed": ["read", "write"]},
            "sandbox": {"mounts": {MOUNT: "write"}},
            "loop_budget": {"max_tool_calls": 1, "max_result_bytes": 1},
            "cycle_detection": {"max_repeats": 1},
        }
    ),
    collect(["read", "write"]),
)
# a file has one spelling here, so that what is decided, recorded and opened is one text
ONE_SPELLING = "a part is empty, . or .."


def perform(
    workspace: Workspace, op: str, path: str, meanwhile: Callable[[], None] | None = None
) -> tuple[str, str]:
    """What comes of a path: (`denied`, `late`, `error` or `done`; what was read or why not)."""
    arguments = {"path": path} if op == "read" else {"path": path, "content": "x"}
    call = read_call("tc_1_0", op, json.dumps(arguments), Redactor([]))
    decision = GATE.decide(call, Counters())
    if decision.decision != ALLOW:
        assert decision.rule_id in ("sandbox_path", "arg_schema"), decision
        return "denied", decision.reason
    if meanwhile is not None:
        meanwhile()
    io = workspace.io(lambda check, _keep: GATE.decide_late(check), "key", USES["external"])
    try:
        text = io.read(path) if op == "read" else io.write(path, "x") or ""
    except OSError as error:
        return ("late" if io.denied else "error"), type(error).__name__
    assert not io.denied
    return "done", text


def adapted(text: str, sandbox: str) -> str:
    if text == sandbox:
        return MOUNT
    if text.startswith(sandbox + "/"):
        return f"{MOUNT}/{text[len(sandbox) + 1 :]}"
    return text if text.startswith("/") else f"{MOUNT}/{text}"


def _corpus() -> Path:
    root = os.environ.get("TACHOGRAPH_CORPORA")
    if not root:
        pytest.skip("TACHOGRAPH_CORPORA is not set: the outside corpus of paths is not at hand")
    return Path(root)


def _builder(root: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("fsbuild", root / "common" / "builders" / "fsbuild.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _outside(root: Path) -> dict[str, str]:
    """Everything of the tree but the sandbox: name -> content, link or kind."""
    found = {}
    for folder, folders, files in os.walk(root):
        if Path(folder) == root:
            folders.remove("sandbox")
        for name in (*folders, *files):
            path = Path(folder, name)
            found[str(path)] = (
                os.readlink(path) if path.is_symlink() else path.read_text() if path.is_file() else "folder"
            )
    return found


def _in_a_child(sandbox: str, op: str, path: str) -> tuple[str, str]:
    """The same, by a program that can be stopped."""
    done = subprocess.run(
        [sys.executable, __file__, sandbox, op, path],
        stdin=subprocess.PIPE, capture_output=True, encoding="utf-8", timeout=SECONDS, check=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])},
    )  # fmt: skip
    outcome, text = json.loads(done.stdout)
    return outcome, text


def test_shared_corpus(tmp_path: Path) -> None:
    corpus = _corpus()
    builder = _builder(corpus)
    still = tmp_path / "still"
    sandbox = builder.build(str(still))
    table: dict[str, Counter[str]] = {}
    misses, skipped = [], []
    before = _outside(still)

    def judge(row: dict[str, Any], outcome: str, text: str, path: str) -> None:
        count = table.setdefault(row["class"], Counter())
        count["rows"] += 1
        count[outcome] += 1
        if builder.SECRET in text:
            misses.append((row["id"], "the secret was read"))
            count["wrong allows"] += 1
        elif row["expect"] == "deny" and outcome == "done":
            misses.append((row["id"], f"allowed, severity {row['severity']}"))
            count["wrong allows"] += 1
        elif row["expect"] == "allow" and outcome != "done":
            count["wrong denies"] += 1
            if set(path.split("/")) & {"", ".", ".."}:
                skipped.append((row["id"], path, ONE_SPELLING))
            else:
                misses.append((row["id"], f"{outcome}: {text}"))

    text = (corpus / "2-path" / "path_cases.jsonl").read_text(encoding="utf-8")
    rows = [json.loads(line) for line in text.splitlines()]
    with Workspace({MOUNT: Mount(Path(sandbox))}) as shared:
        for row in rows:
            if row.get("setup") or row.get("toctou") or row["op"] == "write" or "hazard" in row:
                continue
            path = adapted(builder.expand(row, str(still)), sandbox)
            try:
                judge(row, *perform(shared, "read", path), path)
            except Exception as error:  # noqa: BLE001 - the corpus looks for whatever is raised
                table.setdefault(row["class"], Counter())["raises"] += 1
                misses.append((row["id"], repr(error)))
    assert _outside(still) == before

    here = os.getcwd()
    for number, row in enumerate(rows):
        if not (row.get("setup") or row.get("toctou") or row["op"] == "write" or "hazard" in row):
            continue
        root = tmp_path / f"t{number}"
        sandbox = builder.build(str(root))
        try:
            builder.apply(str(root), row.get("setup"))
        except PermissionError:
            skipped.append((row["id"], str(row["setup"]), "needs rights that this user lacks"))
            continue
        finally:
            os.chdir(here)
        path = adapted(builder.expand(row, str(root)), sandbox)
        before = _outside(root)
        changed: list[dict[str, str]] = []

        def meanwhile(row: dict[str, Any] = row, root: Path = root, changed: Any = changed) -> None:
            builder.apply(str(root), row.get("toctou"))
            changed.append(_outside(root))

        try:
            if "hazard" in row:
                found = _in_a_child(sandbox, row["op"], path)
            else:
                with Workspace({MOUNT: Mount(Path(sandbox))}) as own:
                    found = perform(own, row["op"], path, meanwhile)
            judge(row, *found, path)
        except Exception as error:  # noqa: BLE001
            table.setdefault(row["class"], Counter())["raises"] += 1
            misses.append((row["id"], repr(error)))
        if _outside(root) != (changed[0] if changed else before):
            misses.append((row["id"], "something outside was changed"))
        shutil.rmtree(root)

    columns = ("rows", "denied", "late", "error", "done", "wrong allows", "wrong denies", "raises")
    print("\n" + f"{'class':24}" + "".join(f"{column:>14}" for column in columns))
    for name, count in sorted(table.items()):
        print(f"{name:24}" + "".join(f"{count[column]:>14}" for column in columns))
    for row_id, what, why in skipped:
        print(f"not asked: {row_id} {what}: {why}")
    assert sum(count["rows"] for count in table.values()) + len(
        [s for s in skipped if s[2] != ONE_SPELLING]
    ) == len(rows)
    assert len(rows) > 2000
    assert not misses


if __name__ == "__main__":
    with Workspace({MOUNT: Mount(Path(sys.argv[1]))}) as alone:
        print(json.dumps(perform(alone, sys.argv[2], sys.argv[3])))
