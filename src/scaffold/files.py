"""The files that a new project begins with: where each goes, and what it is for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ..runtime.formats.shipped_files import shipped

_TEMPLATE: Final = Path(__file__).resolve().parent / "template"


@dataclass(frozen=True, slots=True)
class Item:
    """One file, from a template of ours, or as it ships where none is named.

    `at_top` says that it belongs to the top of the repository. Where one may be there already, `instead` is
    what to do then; `@ROOT@` in it names the project to a command.
    """

    template: str
    place: str
    words: str
    at_top: bool = False
    instead: str = ""

    def text(self, **values: str) -> bytes:
        """Return the text of the file, with `@NAME@` replaced."""
        path = _TEMPLATE / self.template if self.template else shipped(self.place)
        data = path.read_text(encoding="utf-8")
        for name, value in values.items():
            data = data.replace(f"@{name}@", value)
        return data.encode("utf-8")


ITEMS: Final = (
    Item("policy/v1.yaml", "policy/v1.yaml", "what the agent may do: tools, mounts, budgets"),
    Item(
        "policy/tests/v1.yaml", "policy/tests/v1.yaml", "tests of the policy: calls and what it says to them"
    ),
    Item("tools/count_words.py", "tools/count_words.py", "a tool of your own: one plain module"),
    Item("", "tools/README.md", "what a tool must be: the contract, effect kinds, what it may import"),
    Item("", "tools/read.py", "a tool that comes with tachograph; yours from here on"),
    Item("data/notes/welcome.md", "data/notes/welcome.md", "a note that the tool reads"),
    Item("data/notes/depots.md", "data/notes/depots.md", "another one"),
    Item(
        "tasks/first/welcome.yaml", "tasks/first/welcome.yaml", "a scenario: a question and a scripted model"
    ),
    Item("tasks/first/outside.yaml", "tasks/first/outside.yaml", "a scenario that the policy must refuse"),
    Item("tasks/first/rewritten.yaml", "tasks/first/rewritten.yaml", "a scenario that a hook must refuse"),
    Item(
        "tasks/first/rewritten.py",
        "tasks/first/rewritten.py",
        "the hook: it may refuse what the policy allows",
    ),
    Item(
        "gitattributes",
        ".gitattributes",
        "which files git leaves as they are, and how it merges and shows records",
        instead="add `* -text` and `runs/ACCEPTED.jsonl merge=union`",
    ),
    Item(
        "gitignore",
        ".gitignore",
        "what is not committed",
        at_top=True,
        instead="add the lines `.tachograph/` and `*.partial/`",
    ),
    Item(
        "github-workflow.yml",
        ".github/workflows/tachograph.yml",
        "the checks of every pull request",
        at_top=True,
        instead="add a step that runs `tachograph check --github@ROOT@`",
    ),
    Item(
        "pre-commit-config.yaml",
        ".pre-commit-config.yaml",
        "the check before every commit",
        at_top=True,
        instead="add a local hook that runs `tachograph check@ROOT@`",
    ),
)
# folders whose files the commands read, all of them: what else is in there would be taken for ours
OWN: Final = ("policy", "tools", "tasks", "runs", "data/notes")
