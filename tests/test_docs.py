"""The documents name what is there."""

from __future__ import annotations

import json
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
        if path.name != "__init__.py" and path.parent.name != "verbs"  # one module a kind of command
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


def test_the_code_on_the_page_runs() -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs/code.md").read_text(encoding="utf-8"), re.S)
    assert len(blocks) == 3
    exec(compile("\n".join(blocks), "docs/code.md", "exec"), {"__name__": "page"})


def test_every_key_of_a_task_is_described() -> None:
    schema = json.loads((ROOT / "src/evidence/task.v1.schema.json").read_text(encoding="utf-8"))
    page = (ROOT / "docs/tasks.md").read_text(encoding="utf-8")
    for key in schema["properties"]:
        assert f"`{key}" in page, key


def test_every_section_of_a_policy_is_described() -> None:
    schema = json.loads((ROOT / "policy/v1.schema.json").read_text(encoding="utf-8"))
    page = (ROOT / "docs/policy.md").read_text(encoding="utf-8")
    for key, section in schema["properties"].items():
        assert f"| `{key}` |" in page, key
        for inner in section.get("properties", {}):
            assert f"`{inner}`" in page, (key, inner)
