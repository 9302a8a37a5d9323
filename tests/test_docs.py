"""The documents name what is there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ARCHITECTURE = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")


def test_the_rooms_are_listed_completely() -> None:
    listed: set[str] = set()
    for row in re.findall(r"^\| (`[^|]+`) \|", ARCHITECTURE, re.M):
        folder = ""
        for name in re.findall(r"`([^`]+\.py)`", row):
            folder = name.rpartition("/")[0] or folder
            listed.add(f"{folder}/{name.rpartition('/')[2]}")
    there = {
        path.relative_to(ROOT / "src").as_posix()
        for path in (ROOT / "src").glob("*/*.py")
        if path.name != "__init__.py"
    }
    assert listed == there


def test_every_decision_on_file_is_linked_and_numbered() -> None:
    files = sorted(path.name for path in (ROOT / "docs/adr").glob("*.md"))
    assert [int(name[:4]) for name in files] == list(range(1, len(files) + 1))
    for name in files:
        text = (ROOT / "docs/adr" / name).read_text(encoding="utf-8")
        assert text.startswith(f"# {int(name[:4])}. ")
        assert "**Decision.**" in text and "**Rejected.**" in text
        assert f"(adr/{name})" in ARCHITECTURE


def test_links_of_the_documents_lead_somewhere() -> None:
    for path in [*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*/README.md"), ROOT / "data/corpus/README.md"]:
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", path.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (path.parent / target).exists(), (path.name, target)
