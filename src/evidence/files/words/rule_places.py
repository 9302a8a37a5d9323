"""Find the lines of the rules that a record names, in the policy files and tools of today.

A record names a rule by document and JSON Pointer (`policy/v1.yaml#/loop_budget/max_tokens`), entries of lists by
their value, so that a moved line changes no record. Lines are looked up when a rule is shown.
"""

from __future__ import annotations

import ast
from functools import lru_cache
from pathlib import Path
from typing import Final

from ....fail.errors import InputError
from ....light_dataclasses import dataclass
from ....runtime.core.lines import Line
from ....runtime.formats.json_pointer import by_index, parse
from ....runtime.formats.read_file import read_plain
from ....runtime.formats.strict_yaml import Document, YamlError
from ....runtime.formats.strict_yaml import load as load_yaml
from ....runtime.policy.built_in import built_in_of
from ....runtime.policy.policy import Policy

_MAX_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class RulePlace:
    """Where a rule stands today: its file, the number of its line from 1, and the line's text."""

    file: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class RulePlaces:
    """Looks rules up in the files below a project's root; each file is read once."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._texts: dict[str, bytes | None] = {}

    def find(self, rule: object) -> RulePlace | None:
        """Return where a rule stands, or what is next above it if it is absent; None without its document."""
        file, mark, pointer = rule.partition("#") if isinstance(rule, str) else ("", "", "")
        text = self.text(file) if mark and (not pointer or pointer.startswith("/")) else None
        if text is None:
            return None
        line = _line_in_schema(text, pointer) if file.endswith(".py") else _line_in_policy(text, pointer)
        lines = text.decode("utf-8", "replace").split("\n")
        return RulePlace(file, line, lines[line - 1]) if line is not None and line <= len(lines) else None

    def shown(self, rule: str) -> str:
        """Return `file:line` for a rule; the rule itself where it is not found."""
        place = self.find(rule)
        return rule if place is None else str(place)

    def text(self, file: str) -> bytes | None:
        """Return what a file of the project holds; None for one that is not at hand or lies outside."""
        if file not in self._texts:
            self._texts[file] = self._read(file)
        return self._texts[file]

    def _read(self, file: str) -> bytes | None:
        try:
            path = (self._root / file).resolve()
            if not path.is_relative_to(self._root.resolve()):
                return None
            text = read_plain(path, _MAX_BYTES)
        except (OSError, ValueError, RuntimeError):
            return None
        return text if len(text) <= _MAX_BYTES else None


def moved_on(run: Line, root: Path) -> str | None:
    """Return a remark if the policy of a run is another today or is not at hand; None if it is the same.

    A policy that was made in code has no lines, and there is nothing to remark.
    """
    then = str(run["policy"]["version"])
    files = [root / str(item["path"]) for item in run["policy"]["files"]]
    if not files:
        return None
    try:
        if (built_in := built_in_of(run)) is not None:
            return _moved(built_in.version, then)
        if not all(file.resolve().is_relative_to(root.resolve()) for file in files):
            return "a policy file of the run lies outside the project"
        now = Policy.load(files[0], files[1:], root=root).version
    except (InputError, OSError, ValueError, RuntimeError):
        return "the policy files of the run are not at hand"
    return _moved(now, then)


def _moved(now: str, then: str) -> str | None:
    if now == then:
        return None
    return f"the policy has moved on since the run: it is version {now} and was {then}"


def _line_in_policy(text: bytes, pointer: str) -> int | None:
    document = _document(text)
    place = None if document is None else by_index(document.data, pointer)
    return None if document is None or place is None else document.at(place)[0]


@lru_cache(maxsize=16)
def _document(text: bytes) -> Document | None:
    try:
        return load_yaml(text, "policy", max_bytes=_MAX_BYTES)
    except YamlError:
        return None


@lru_cache(maxsize=64)
def _line_in_schema(text: bytes, pointer: str) -> int | None:
    """Return the line of a keyword in a module's INPUT_SCHEMA; None where the schema is no literal that holds it."""
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError):
        return None
    node: ast.expr | None = None
    for statement in body:
        if isinstance(statement, ast.Assign | ast.AnnAssign):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            if any(isinstance(target, ast.Name) and target.id == "INPUT_SCHEMA" for target in targets):
                node = statement.value
    line = None if node is None else node.lineno
    for key in parse(pointer):
        if isinstance(node, ast.Dict):
            found = [
                (name.lineno, value)
                for name, value in zip(node.keys, node.values, strict=True)
                if isinstance(name, ast.Constant) and name.value == key
            ]
            if not found:
                return None
            line, node = found[-1]
        elif isinstance(node, ast.List) and key.isdecimal() and int(key) < len(node.elts):
            node = node.elts[int(key)]
            line = node.lineno
        else:
            return None
    return line
