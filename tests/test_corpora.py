"""The outside corpora, through the public door: cases whose answers nobody on the project wrote by hand."""

from __future__ import annotations

import base64
import importlib.util
import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import pytest

from tachograph.runtime.io.tool_io import ToolIO
from tachograph.runtime.io.workspace import Mount, Workspace
from tachograph.runtime.log.values import Touch
from tachograph.runtime.policy.gate import Gate
from tachograph.runtime.policy.leaf import Question
from tachograph.runtime.policy.policy import Policy
from tachograph.runtime.tools.contract import Tool
from tachograph.testing import Refused, decide, parse
from tests.tables.rows import closed, roomy

TOOL = Tool("probe", "", closed(), closed(), "network", lambda arguments, io: {})
URL = closed(url={"type": "string", "x-resource": "url"})
GET = {"name": "get", "effect": "network", "input_schema": URL}


def corpus() -> Path:
    root = os.environ.get("TACHOGRAPH_CORPORA")
    if not root:
        pytest.skip("TACHOGRAPH_CORPORA is not set: the outside corpora are not at hand")
    return Path(root)


def rows(name: str) -> Iterator[dict[str, Any]]:
    with open(corpus() / f"{name}.jsonl", encoding="utf-8") as file:
        yield from map(json.loads, file)


def builder(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, corpus() / "common" / "builders" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def is_read(kind: str, text: str | bytes) -> bool:
    try:
        parse(kind, text)
    except Refused:
        return False
    return True


def test_urls() -> None:
    """The corpus allows a host on http and https at their default ports."""
    wrong, count = [], 0
    for row in rows("1-url/url_cases"):
        entries = [f"{scheme}://{host}" for host in row["allowlist"] for scheme in ("http", "https")]
        entries = [entry for entry in entries if is_read("url_entry", entry)]
        policy, count = roomy(["get"], url_allowlist=entries), count + 1
        found = decide(policy, [GET], [{"name": "get", "arguments": {"url": row["url"]}}])[0]
        is_other = row["expect"] in ("allow", "deny") and found.decision != row["expect"]
        # a text with a lone surrogate is not JSON, which is a matter of `arg_schema`
        if is_other or found.rule_id == "gate_error":
            wrong.append((row["id"], found))
    assert count > 1000
    assert wrong == []


def test_json_texts() -> None:
    # valid JSON that two programs could read differently
    narrower = {
        "y_object_duplicated_key.json", "y_object_duplicated_key_and_value.json", "y_number_real_capital_e.json",
        "y_number_real_exponent.json", "y_number_real_fraction_exponent.json", "y_object_extreme_numbers.json",
    }  # fmt: skip
    wrong, count = [], 0
    for row in rows("3-schema/json_text_cases"):
        data = base64.b64decode(row["bytes_b64"])
        try:
            found = is_read("json", data.decode())
        except UnicodeDecodeError:
            found = False
        count += 1
        is_wide = row["id"].removeprefix("jts-") not in narrower
        if found != {"accept": is_wide, "reject": False, "either": found}[row["expect"]]:
            wrong.append((row["id"], found))
    assert count > 200
    assert wrong == []


RESOURCES = {
    "fetch": {"url": "url"}, "read": {"path": "path:read"}, "write": {"path": "path:write"}, "search": {},
}  # fmt: skip


def test_arguments() -> None:
    schemas = json.loads((corpus() / "common" / "3-schema" / "args_tools.json").read_text(encoding="utf-8"))
    for name, places in RESOURCES.items():
        for key, kind in places.items():
            schemas[name]["properties"][key]["x-resource"] = kind
    tools = [{"name": name, "input_schema": schemas[name]} for name in RESOURCES]
    urls = ["http://fixtures.local", "https://fixtures.local"]
    policy = roomy(RESOURCES, url_allowlist=urls, sandbox={"mounts": {"box": "write"}})
    wrong, count = [], 0
    for row in rows("3-schema/args_cases"):
        made = row.get("gen")
        if made is None:
            text = row["args_text"]
        elif made["kind"] == "bigkey":
            text = '{"' + "k" * made["n"] + '": 1}'
        else:
            text = made["pre"] + "x" * made["n"] + made["post"]
        text = text.replace("{SBX}", "box") if isinstance(text, str) else text
        found = decide(policy, tools, [{"name": row["tool"], "arguments": text}])[0]
        count += 1
        if row["expect"] not in ("either", found.decision) or found.rule_id == "gate_error":
            wrong.append((row["id"], row["class"], found))
    assert count > 100
    assert wrong == []


def test_policies(tmp_path: Path) -> None:
    """What is refused may be refused by the reader or as a policy; invalid YAML, by the reader alone."""
    made, canary = builder("yamlgen"), tmp_path / "canary"
    wrong, count = [], 0
    for row in rows("4-yaml/yaml_cases"):
        if "gen" in row and row["gen"]["kind"] == "file":
            continue
        data = made.gen(row["gen"]) if "gen" in row else base64.b64decode(row["b64"])
        count += 1
        is_policy = False
        try:
            read = parse("yaml", data.replace(b"{CANARY}", str(canary).encode()))
            is_policy = is_read("policy", json.dumps(adapted(read)))
        except Refused:
            pass
        else:
            if row["class"] in ("yts-invalid", "pyyaml-error") or row.get("accept_as", read) != read:
                wrong.append((row["id"], "read"))
        if row["expect"] not in ("accept" if is_policy else "reject", "either"):
            wrong.append((row["id"], row["class"]))
    assert count > 300
    assert wrong == []
    assert not canary.exists()


def adapted(data: Any) -> Any:
    """Return a policy of the corpus in our words; whatever is odd in it stays."""
    if not isinstance(data, dict) or not data:
        return {}
    out = {"schema": "policy/v1", **data}
    if out.get("sandbox") == {"path_template": "/tmp/run/<run-id>/sandbox"}:
        out["sandbox"] = {}
    if isinstance(out.get("url_allowlist"), list):
        out["url_allowlist"] = [
            f"https://{entry}/" if isinstance(entry, str) and "/" not in entry else entry
            for entry in out["url_allowlist"]
        ]
    return out


# ---- paths -----------------------------------------------------------------------------------------------------------


def perform(sandbox: str, op: str, path: str, meanwhile: Callable[[], None]) -> tuple[str, str]:
    """Use a path, and return `denied`, `error` or `done`, and what was read.

    The sandbox of the corpus is the mount `box`; `meanwhile` happens between the first decision and the use.
    """
    judge = Gate(Policy.from_dict(roomy(["probe"], sandbox={"mounts": {"box": "write"}})), [TOOL])
    if path == sandbox or path.startswith(f"{sandbox}/"):
        path = f"box{path.removeprefix(sandbox)}"
    elif not path.startswith("/"):
        path = f"box/{path}"

    def decide(fact: Any) -> Any:
        verdict = judge.ask(Question(fact, "probe"))
        if isinstance(fact, Touch) and not fact.found:
            meanwhile()
        return verdict

    with Workspace({"box": Mount("write", Path(sandbox))}) as workspace:
        io = ToolIO(workspace, TOOL, decide, "key")
        try:
            text = io.read(path) if op == "read" else io.write(path, "x")
        except OSError as error:
            assert not io.denied or type(error) is PermissionError
            return ("denied" if io.denied else "error"), path
    assert not io.denied
    return "done", text or ""


def outside(root: Path) -> dict[str, str]:
    """Return everything of a tree but its sandbox."""
    found = {}
    for folder, folders, files in os.walk(root):
        if Path(folder) == root:
            folders.remove("sandbox")
        for path in (Path(folder, name) for name in (*folders, *files)):
            is_text = path.is_file() and not path.is_symlink()
            found[str(path)] = path.read_text() if is_text else os.readlink(path) if path.is_symlink() else ""
    return found


def test_paths(tmp_path: Path) -> None:
    trees = builder("fsbuild")
    plain = tmp_path / "plain"
    trees.build(str(plain))
    before = outside(plain)
    here, wrong, unmade = os.getcwd(), [], 0
    for number, row in enumerate(rows("2-path/path_cases")):
        changes = row["op"] == "write" or any(key in row for key in ("setup", "toctou", "hazard"))
        root = tmp_path / f"t{number}" if changes else plain
        if changes:
            trees.build(str(root))
            try:
                trees.apply(str(root), row.get("setup"))
            except PermissionError:  # making a device takes rights
                unmade += 1
                continue
            finally:
                os.chdir(here)
        untouched: list[dict[str, str]] = []

        def meanwhile(
            row: Any = row, root: Path = root, changes: bool = changes, untouched: Any = untouched
        ) -> None:
            trees.apply(str(root), row.get("toctou"))
            untouched.append(outside(root) if changes else {})

        with TimeLimit():
            found, text = perform(f"{root}/sandbox", row["op"], trees.expand(row, str(root)), meanwhile)
        if trees.SECRET in text:
            wrong.append((row["id"], "the secret was read"))
        if changes and untouched and outside(root) != untouched[0]:
            wrong.append((row["id"], "something outside was changed"))
        if row["expect"] == "deny" and found == "done":
            wrong.append((row["id"], row["severity"]))
        # a file has one spelling here, so that what is decided, recorded and opened is one text
        if row["expect"] == "allow" and found != "done" and not {"", ".", ".."} & set(text.split("/")):
            wrong.append((row["id"], found))
    assert wrong == [] and outside(plain) == before and unmade <= 5


class TimeLimit:
    """Break off what stands still: an opened FIFO, an endless device."""

    def __enter__(self) -> None:
        self._before = signal.signal(signal.SIGALRM, self._stop)
        signal.setitimer(signal.ITIMER_REAL, 20)

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self._before)

    def _stop(self, _signum: int, _frame: FrameType | None) -> None:
        raise AssertionError("a path stands still")
