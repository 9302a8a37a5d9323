"""The table of things on the way of a path, on a real tree: they stand there, or are put there meanwhile."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tachograph.runtime.policy.gate import Decision, Gate
from tachograph.runtime.policy.policy import Policy
from tachograph.runtime.tools.contract import USES
from tachograph.runtime.workspace.mounts import Mount
from tachograph.runtime.workspace.workspace import Workspace
from tests.support import policy_data
from tests.tables import trees
from tests.tables.table import rows
from tests.tables.trees import KINDS, Case

GATE = Gate(Policy.from_dict(policy_data(sandbox={"mounts": {"box": "write"}})), {})


def perform(workspace: Workspace, case: Case, path: str, meanwhile: Callable[[], None]) -> str:
    """What came of a case in the words of `trees.wanted`; `meanwhile` happens between decision and use."""

    def late(check: dict[str, Any], _keep: bool) -> Decision:
        decision = GATE.decide_late(check)
        if "found" not in check:
            meanwhile()
        return decision

    io = workspace.io(late, "key", USES["external"])
    try:
        if case.access == "read":
            return io.read(path)
        io.write(path, "written by a call")
    except PermissionError:
        (check,) = io.checks
        assert io.denied and GATE.decide_late(check).rule_id == "sandbox_path"
        return str(check["found"])
    except OSError as error:
        assert not io.denied
        return type(error).__name__
    return "written"


def _may_make_devices(folder: Path) -> bool:
    try:
        os.mknod(folder / "try", stat.S_IFCHR | 0o600, os.makedev(1, 3))
    except PermissionError:
        return False
    return True


CLASSES = {"links": trees.LINKS, "other things": trees.OTHERS}


@pytest.mark.parametrize("swapped", [False, True], ids=["standing", "swapped"])
@pytest.mark.parametrize("name", CLASSES)
def test_nothing_outside_is_read_or_changed(name: str, swapped: bool, tmp_path: Path) -> None:
    cases = rows(trees.cases(CLASSES[name]))
    if name == "other things" and _may_make_devices(tmp_path):
        cases += trees.cases(trees.DEVICES)
    root = tmp_path / "root"
    trees.build(root)
    things = []
    for number, case in enumerate(cases):
        path, thing = trees.path_of(case, number)
        (root / thing).parent.mkdir()
        if swapped:
            ordinary = root / path
            ordinary.parent.mkdir(exist_ok=True, parents=True)
            ordinary.write_text(trees.OWN)
        else:
            KINDS[case.kind].make(root / thing, root)
        things.append((case, path, root / thing))

    found = []
    with Workspace({"box": Mount(root / "box")}) as workspace:
        for case, path, thing in things:
            before: list[dict[str, str]] = []

            def meanwhile(case: Case = case, thing: Path = thing, before: Any = before) -> None:
                if swapped:
                    thing.rename(thing.with_name("put aside"))
                    KINDS[case.kind].make(thing, root)
                before.append(trees.outside(root))

            got = perform(workspace, case, path, meanwhile)
            if got != trees.wanted(case):
                found.append((case, got))
            if trees.outside(root) != before[0]:
                found.append((case, "something outside was changed"))
    assert found == []
    for file in (root / "box" / "target" / "file.md", root / "box" / "target" / "sub" / "file.md"):
        assert file.read_text() == trees.OWN


def test_a_listing_holds_the_plain_files_alone(tmp_path: Path) -> None:
    root = tmp_path / "root"
    trees.build(root)
    kinds = {**trees.LINKS, **trees.OTHERS}
    plain = ["box/target/file.md", "box/target/sub/file.md"]
    linked = []  # what the mount's own files or others have as a second name
    for number, (name, kind) in enumerate(kinds.items()):
        for place in ("", "/sub"):
            folder = root / f"box/case {number}{place}"
            folder.mkdir()
            kind.make(folder / "thing", root)
            if kind.last in (trees.OWN, "hard link"):
                (plain if kind.last == trees.OWN else linked).append(f"box/case {number}{place}/thing")
            if name == "hard link to a twin":
                linked.append(f"box/case {number}{place}/thing.twin")
    linked += [f"box/{path.name}" for path in (root / "box").glob("*.md")]
    linked += [f"box/target/sub/{path.name}" for path in (root / "box/target/sub").glob("[!f]*.md")]
    for mode, expected in (("write", plain), ("read", plain + linked)):
        with Workspace({"box": Mount(root / "box", mode=mode)}) as workspace:
            io = workspace.io(lambda check, _keep: GATE.decide_late(check), "key", USES["external"])
            assert io.list("box") == sorted(expected)
            for path in expected:
                assert io.read(path) in (trees.OWN, trees.SECRET)
            assert not io.denied
