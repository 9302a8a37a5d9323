"""The table of paths: decided by the gate, then performed by a run's `io` on a real tree."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tachograph.runtime.core.redaction import Redactor
from tachograph.runtime.models.types import read_call
from tachograph.runtime.policy.gate import ALLOW, Counters, Gate
from tachograph.runtime.policy.policy import Policy
from tachograph.runtime.tools.contract import USES
from tachograph.runtime.workspace.mounts import Mount
from tachograph.runtime.workspace.workspace import Workspace
from tests.support import policy_data, tool, tree
from tests.tables import paths
from tests.tables.paths import DENIED, DONE, MISSING, Case
from tests.tables.table import rows

SECRET = "the secret of the house"
WRITTEN = "written by a call"
GATE = Gate(Policy.from_dict(policy_data(sandbox={"mounts": paths.MOUNTS})), {"probe": tool()})


class World:
    """The mounts with their files, each of which holds its own path, and a folder outside of them."""

    def __init__(self, root: Path, files: tuple[str, ...] = paths.FILES) -> None:
        self.root = root
        for name in files:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(name)
        for name in (*paths.MOUNTS, "outside"):
            (root / name).mkdir(exist_ok=True)
        (root / "outside" / "secret.md").write_text(SECRET)
        self.workspace = Workspace({name: Mount(root / name) for name in paths.MOUNTS})

    def perform(self, access: str, path: str) -> str:
        """`denied` with the rule's consent, `missing`, or what was read or written."""
        call = read_call("tc_1_0", "probe", {"path" if access == "read" else "target": path}, Redactor([]))
        decision = GATE.decide(call, Counters())
        io = self.workspace.io(lambda check, _keep: GATE.decide_late(check), "key", USES["external"])
        try:
            done = io.read(path) if access == "read" else io.write(path, WRITTEN)
        except PermissionError:
            # what the gate lets pass is not refused by `io`, and the other way round
            assert io.denied and decision.rule_id == "sandbox_path" and decision.decision != ALLOW
            return DENIED
        except FileNotFoundError:
            done = MISSING
        assert decision.decision == ALLOW and not io.denied
        return WRITTEN if done is None else done


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    with made.workspace:
        yield made


def wanted(case: Case, access: str) -> str:
    if case.expect == DENIED or (access == "write" and paths.MOUNTS[case.path.partition("/")[0]] == "read"):
        return DENIED
    if access == "write":
        return WRITTEN
    return case.path if case.expect == DONE else MISSING


def untouched(world: World) -> dict[str, tuple[bytes, int] | None]:
    """Everything that no call may change: all but the mount for writing, and the files that are there."""
    every = tree(world.root)
    return {name: every[name] for name in every if not name.startswith("box/") or name in paths.FILES}


def held(world: World, cases: list[Case]) -> list[tuple[str, str, str]]:
    """Reads all, then writes all; what came out otherwise than it had to."""
    found = []
    for access in ("read", "write"):
        for case in cases:
            got = world.perform(access, case.path)
            if got != wanted(case, access):
                found.append((access, case.path, got))
            elif got == WRITTEN and (world.root / case.path).read_text() != WRITTEN:
                found.append((access, case.path, "written somewhere else"))
    return found


@pytest.mark.parametrize("name", paths.SPELLINGS)
def test_a_file_has_one_spelling(name: str, world: World) -> None:
    cases = rows(paths.SPELLINGS[name]())
    before = untouched(world)
    assert held(world, cases) == []
    assert untouched(world) == before
    written = {case.path for case in cases if wanted(case, "write") == WRITTEN}
    files = {
        path.relative_to(world.root).as_posix() for path in (world.root / "box").rglob("*") if path.is_file()
    }
    assert files == written | {name for name in paths.FILES if name.startswith("box/")}


def test_odd_names_are_plain_files(tmp_path: Path) -> None:
    cases = rows(paths.plain_names())
    world = World(tmp_path, tuple(case.path for case in cases))
    with world.workspace:
        assert held(world, cases) == []
    assert (tmp_path / "outside" / "secret.md").read_text() == SECRET
