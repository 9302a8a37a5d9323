"""The list of mutations is sound: each still hits exactly one place. `make sabotage` runs them."""

from __future__ import annotations

import importlib.util
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_spec = importlib.util.spec_from_file_location("sabotage_run", ROOT / "tests/sabotage/run.py")
assert _spec is not None and _spec.loader is not None
sabotage = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(sabotage)


def test_there_are_enough_mutations_and_each_hits_one_place() -> None:
    listed = sabotage.mutations()
    assert len(listed) >= 30
    assert len({mutation["id"] for mutation in listed}) == len(listed)
    for mutation in listed:
        text = (ROOT / mutation["file"]).read_text(encoding="utf-8")
        assert text.count(mutation["find"]) == 1, mutation["id"]
        assert mutation["find"] != mutation["put"], mutation["id"]
        for place in mutation["tests"]:
            assert (ROOT / place).exists(), (mutation["id"], place)


def test_an_unharmed_copy_is_green(tmp_path: Path) -> None:
    """Else every mutation would count as noticed."""
    sabotage.copy_project(tmp_path)
    assert sabotage.is_noticed(tmp_path, ["tests/runtime/test_retry.py"]) is None
