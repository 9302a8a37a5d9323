"""The documentation: its examples run, its tables are those of the code, and nothing public is left out."""

from __future__ import annotations

import inspect
import re
import shutil
from pathlib import Path
from types import ModuleType
from typing import get_args

import msgspec
import pytest
from click import Context

import tachograph
from tachograph import testing
from tachograph.cli.main import commands
from tachograph.cli.mcp import mcp
from tachograph.cli.policy import policy
from tachograph.fail.catalog import ENDINGS, MODES, Happening, classify, happenings
from tachograph.runtime.log import events
from tachograph.runtime.loop import calls, loop
from tachograph.runtime.policy import gate, sections
from tachograph.runtime.policy.rules import RULES

ROOT = Path(__file__).parent.parent
PATHS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PAGES = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in PATHS}
LINKS = [
    (page, link)
    for page, text in PAGES.items()
    for link in re.findall(r"(?m)(?:\]\(|^\[\w+\]: )([^)\s]+)", text)
]


@pytest.mark.parametrize("page", PAGES)
def test_examples_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("policy", "tools", "data"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__main__"}
    for kind, block in re.findall(r"(?ms)^```(yaml|python run)\n(.*?)^```$", PAGES[page]):
        if kind == "python run":
            exec(compile(block, page, "exec", dont_inherit=True), names)
        elif file := re.match(r"# (\S+\.yaml)", block):  # a whole file, which examples below it use
            Path(file[1]).parent.mkdir(parents=True, exist_ok=True)
            Path(file[1]).write_text(block, encoding="utf-8")
            command = ["run"] if file[1].startswith("tasks/") else ["policy", "show"]
            assert not commands.main([*command, file[1]], standalone_mode=False)


def named(happening: Happening) -> str:
    """Return a happening as the table of what follows names it."""
    what = [key if it is True else str(it) for key, it in msgspec.structs.asdict(happening).items() if it]
    return type(happening).__name__ + (f"({what[-1]})" if what else "")


def table(heading: str) -> list[list[str]]:
    """Return the cells of the table under a heading of the page on failure modes, without its head."""
    section = PAGES["docs/failure-modes.md"].partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    rows = [row[1:-1].split("|") for row in section.splitlines() if row[:1] == "|"]
    return [[cell.strip().strip("`") for cell in row] for row in rows[2:]]


def test_the_tables_of_failure_modes_are_those_of_the_catalogue() -> None:
    assert [table("Endings"), table("Modes")] == [[[*row] for row in it.items()] for it in (ENDINGS, MODES)]
    wanted = set()
    for it in happenings():
        ends, informed = classify(it, "terminate"), classify(it, "inform", "inform")
        same = "same" if informed == ends else informed.ending or "goes on"
        wanted.add((named(it), ends.mode or "", ends.ending or "goes on", same))
    assert {(name, *cells) for name, _, *cells in table("What follows")} == wanted


@pytest.mark.parametrize(("page", "link"), [pair for pair in LINKS if "://" not in pair[1]])
def test_relative_links_resolve(page: str, link: str) -> None:
    path, _, anchor = link.partition("#")
    target = (ROOT / page).parent / path if path else ROOT / page
    headings = re.findall(r"(?m)^#+ (.*)$", target.read_text(encoding="utf-8")) if anchor else [""]
    assert target.exists()
    assert anchor in [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings]


def outline(module: ModuleType) -> list[str]:
    """Return the names on the left of the outline in the docstring of a module."""
    return re.findall(r"(?m)^ {4,}(\S+)", module.__doc__ or "")


def test_outlines_name_what_is_there() -> None:
    assert outline(gate) == [rule.id for rule in RULES]
    for module in (loop, calls):
        code = inspect.getsource(module).partition("from __future__")[2]
        assert [name for name in outline(module) if f"{name}(" not in code] == []


def test_nothing_public_is_left_out() -> None:
    coded = " ".join(re.findall(r"`([^`\n]+)`", PAGES["docs/policy-gates.md"]))
    keys = {key for it in sections.Section.__subclasses__() for key in it.__struct_encode_fields__}
    tested = {name for name, it in vars(testing).items() if getattr(it, "__module__", "") == testing.__name__}
    public = {*tachograph.__all__, *(name for name in tested if name[0] != "_")}
    below = {f"tachograph {name}" for name in commands.list_commands(Context(commands)) if name != "policy"}
    below |= {f"tachograph policy {name}" for name in policy.commands}
    assert {*" ".join(tachograph._PLACES.values()).split()} == {*tachograph.__all__} <= {*dir(tachograph)}
    # or every name would be one to whoever checks types
    wanted = [(coded, keys), ("".join(PAGES.values()), public), (PAGES["docs/start.md"], below)]
    wanted.append((PAGES["docs/evidence.md"], {it.__struct_config__.tag for it in get_args(events.AnyEvent)}))
    assert [name for place, it in wanted for name in it if not re.search(rf"\b{name}\b", place)] == []


def test_lists_of_commands_have_whole_sentences() -> None:
    shown = [group.get_help(Context(group, terminal_width=80)) for group in (commands, policy, mcp)]
    assert [line for text in shown for line in text.splitlines()[1:] if line.endswith("...")] == []
