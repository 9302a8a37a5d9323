"""Cases of the outside corpora, read where they lie: URLs, paths, JSON texts and policy files.

Their labels are computed or come from the origin. A row that may be decided either way only must not raise.
"""

from __future__ import annotations

import base64
import importlib.util
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from tachograph.fail.errors import InputError
from tachograph.runtime.formats import strict_json
from tachograph.runtime.formats.strict_json import NotJson
from tachograph.runtime.formats.strict_yaml import YamlError, load
from tachograph.runtime.io.workspace import Mount, Workspace
from tachograph.runtime.log.events import Reach, Touch
from tachograph.runtime.policy.gate import Gate
from tachograph.runtime.policy.leaf import Question
from tachograph.runtime.policy.policy import Policy
from tachograph.runtime.tools.contract import Tool

PLACE = os.environ.get("TACHOGRAPH_CORPORA", "")
CORPORA = Path(PLACE)
pytestmark = pytest.mark.skipif(
    not PLACE or not CORPORA.is_dir(),
    reason="the outside corpora are not at hand: TACHOGRAPH_CORPORA names no folder",
)
SECONDS = 2.0
CLOSED = {"type": "object", "additionalProperties": False}
TOOL = Tool("probe", "", CLOSED, CLOSED, "network", lambda arguments, io: {})


def rows(file: str, least: int) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in (CORPORA / file).read_text(encoding="utf-8").split("\n") if line]
    assert len(found) > least
    return found


def builder(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, CORPORA / "common" / "builders" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def gate(**sections: Any) -> Gate:
    return Gate(
        Policy.from_dict({"schema": "policy/v1", "tool_registry": {"allowed": ["probe"]}, **sections}), [TOOL]
    )


# ---- URLs ------------------------------------------------------------------------------------------------------------


def test_urls() -> None:
    """The corpus allows a host with http and https at their own ports; what is no host allows nothing."""
    gates: dict[str, Gate] = {}
    wrong = []
    for row in rows("1-url/url_cases.jsonl", 1000):
        key = json.dumps(row["allowlist"])
        if key not in gates:
            gates[key] = gate(url_allowlist=list(_entries(row["allowlist"])))
        verdict = gates[key].ask(Question(Reach(row["url"]), "probe"))
        if verdict.rule != "url_allowlist" or row["expect"] not in (verdict.decision, "either"):
            wrong.append((row["id"], row["severity"], verdict))
    assert wrong == []


def _entries(hosts: list[str]) -> Iterator[str]:
    for entry in (f"{scheme}://{host}/" for host in hosts for scheme in ("http", "https")):
        try:
            gate(url_allowlist=[entry])
        except InputError:
            continue
        yield entry


# ---- paths -----------------------------------------------------------------------------------------------------------


def perform(sandbox: str, op: str, path: str, meanwhile: Callable[[], None]) -> tuple[str, str]:
    """Use a path, and return `denied`, `error` or `done`, and what was read.

    The sandbox of the corpus is the mount `box`; `meanwhile` happens between the first decision and the use.
    """
    judge = gate(sandbox={"mounts": {"box": "write"}})
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
        io = workspace.io(TOOL, decide, "key")
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
    for number, row in enumerate(rows("2-path/path_cases.jsonl", 2000)):
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


# ---- texts -----------------------------------------------------------------------------------------------------------

# valid JSON that two programs could read differently
NO_ONE_MEANING = {
    "duplicate key": {"y_object_duplicated_key.json", "y_object_duplicated_key_and_value.json"},
    strict_json.TOO_BIG: {
        "y_number_real_capital_e.json", "y_number_real_exponent.json", "y_number_real_fraction_exponent.json",
        "y_object_extreme_numbers.json",
    },
}  # fmt: skip


def test_json_texts() -> None:
    wrong = []
    for row in rows("3-schema/json_text_cases.jsonl", 200):
        data = base64.b64decode(row["bytes_b64"])
        try:
            value = strict_json.parse(data.decode())
        except UnicodeDecodeError:
            why: str | None = "no UTF-8"
        except NotJson as error:
            why = error.reason
        else:
            why = None
            if row["expect"] == "reject" or value != json.loads(data):
                wrong.append((row["id"], "read"))
        known = NO_ONE_MEANING.get(why or "", ())
        if why is not None and row["expect"] == "accept" and row["id"].removeprefix("jts-") not in known:
            wrong.append((row["id"], why))
    assert wrong == []


def test_policy_files(tmp_path: Path) -> None:
    """What is refused may be refused by the reader or as a policy; invalid YAML, by the reader alone."""
    make, canary = builder("yamlgen"), tmp_path / "canary"
    wrong = []
    for row in rows("4-yaml/yaml_cases.jsonl", 400):
        if "gen" in row and row["gen"]["kind"] == "file":
            continue
        data = make.gen(row["gen"]) if "gen" in row else base64.b64decode(row["b64"])
        began = time.process_time()
        read, is_policy = None, False
        try:
            read = load(data.replace(b"{CANARY}", str(canary).encode()), "row")
            Policy.from_dict(_adapted(read.data))
            is_policy = True
        except (YamlError, InputError):
            pass
        if time.process_time() - began > SECONDS:
            wrong.append((row["id"], "slow"))
        if row["expect"] not in ("accept" if is_policy else "reject", "either"):
            wrong.append((row["id"], row["class"]))
        if read is not None and (
            row["class"] in ("yts-invalid", "pyyaml-error") or row.get("accept_as", read.data) != read.data
        ):
            wrong.append((row["id"], "read"))
    assert wrong == [] and not canary.exists()


def _adapted(data: Any) -> Any:
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
