"""The README says what is: its example runs, its tables agree with the runs, the commands and the tree."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tachograph.cli.commands import COMMANDS

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    return README.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


def rows(text: str) -> list[list[str]]:
    table = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table[1:]]


def span_counts(run: Path) -> Counter[str]:
    document = json.loads((run / "trace.json").read_bytes())
    spans = document["resourceSpans"][0]["scopeSpans"][0]["spans"]
    return Counter(span["name"] for span in spans)


def test_the_piece_of_a_report_stands_in_the_report() -> None:
    path, piece = re.search(r"<!-- report: (\S+) -->\n(.*?)<!-- /report -->", README, re.S).groups()
    # without its links the table of the README is narrow enough
    report = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", (ROOT / path).read_text(encoding="utf-8")).splitlines()
    lines = [line.removeprefix("> ").removeprefix(">") for line in piece.splitlines()]
    assert len(lines) > 4
    for line in lines:
        assert line in report, line


def test_the_page_of_capabilities_agrees_with_the_runs() -> None:
    page = (ROOT / "docs/capabilities.md").read_text(encoding="utf-8")
    listed = set()
    for folder, signature in re.findall(r"\]\(\.\./(runs/[^)]+)\)\n  (.*)\n", page):
        listed.add(folder)
        wanted = Counter({name: int(count) for count, name in re.findall(r"(\d+) (\w+)", signature)})
        assert wanted == span_counts(ROOT / folder), folder
    there = {path.parent.relative_to(ROOT).as_posix() for path in (ROOT / "runs").glob("*/*/trace.json")}
    assert listed == there


# a model that answers at once, in the place of a hosted one
OFFLINE = """
import tachograph
from tachograph.runtime.models import providers


class Hosted:
    secrets = ()

    def __call__(self, asked):
        return tachograph.LLMOutput(final_answer="From six to ten.")


providers.open_model = lambda spec: Hosted()
"""
FIRST = README.split("\n## ", 1)[0]


@pytest.mark.parametrize(
    ("text", "before", "out", "said"),
    [
        (FIRST, OFFLINE, "my-runs/live", "From six to ten.\n"),
        (section("Use it in code"), "", "my-runs/first", "final_answer "),
    ],
    ids=["live", "code"],
)
def test_the_examples_run_as_they_stand(tmp_path: Path, text: str, before: str, out: str, said: str) -> None:
    code = before + re.search(r"```python\n(.*?)```", text, re.S).group(1)
    for name in ("policy", "data", "tools"):
        shutil.copytree(ROOT / name, tmp_path / name)
    (tmp_path / "example.py").write_text(code, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "example.py"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(said)
    names = sorted(path.name for path in (tmp_path / out).iterdir())
    assert names == ["manifest.json", "run_report.md", "state.jsonl", "trace.json"]


def test_the_first_example_is_short() -> None:
    """An own tool, a hosted model, a recorded run and a printed answer."""
    code = re.search(r"```python\n(.*?)```", FIRST, re.S).group(1)
    first, second = (README[: README.index(mark)].count("\n") for mark in ("```python", "<!-- report"))
    assert first < 12 and second < 36, "what it is, the example and a result stand on the first screen"
    assert "Agent(" in code and "@tool(" in code and "print(" in code and "record(" in code
    assert len([line for line in code.splitlines() if line.strip()]) <= 9


def test_every_command_is_listed_and_exists() -> None:
    listed = {
        re.match(r"`tachograph ([a-z ]+?)[ `]*[\[A-Z`]", row[0]).group(1) for row in rows(section("Commands"))
    }
    assert listed == COMMANDS.keys() - {"policy"}


@pytest.mark.parametrize("row", rows(section("Map")), ids=lambda row: row[0])
def test_the_map_names_what_exists(row: list[str]) -> None:
    for place in re.findall(r"`([^`]+)`", row[0]):
        assert (ROOT / place).is_dir(), place


def test_the_map_is_complete() -> None:
    named = {
        place.rstrip("/").split("/")[0]
        for row in rows(section("Map"))
        for place in re.findall(r"`([^`]+)`", row[0])
    }
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    if not listed:
        pytest.skip("not a git checkout")
    folders = {line.split("/")[0] for line in listed.splitlines() if "/" in line and not line.startswith(".")}
    assert folders <= named


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", README):
        assert (ROOT / target).exists(), target


def test_every_make_target_that_is_named_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))
    for document in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        named = set(re.findall(r"`?make ([a-z]+(?:-[a-z]+)*)`", document.read_text(encoding="utf-8")))
        assert named <= targets, document.name
