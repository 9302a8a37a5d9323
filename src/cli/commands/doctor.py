"""The command that says what works on this machine: doctor."""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ...fail.errors import TachographError
from ...runtime.formats.escape import escape_terminal
from ..console import painter
from .common import Verb, near


@dataclass(frozen=True)
class Finding:
    """One line: `state` is "ok", "missing" (something optional) or "broken" (something needed)."""

    name: str
    state: str
    text: str
    remedy: str = ""


def add(commands: Any, verb: Verb) -> None:
    """Add the command doctor."""
    verb(commands, "doctor", doctor)


def doctor(options: argparse.Namespace) -> int:
    """Say what works here and what is missing; exit code 1 where something needed is broken."""
    root = None if options.root is None else Path(options.root)
    findings = [*_python(), *_packages(), _git(), *_project(root)]
    broken = any(finding.state == "broken" for finding in findings)
    if options.json:
        print(json.dumps({"ok": not broken, "findings": [asdict(one) for one in findings]}, sort_keys=True))
        return int(broken)
    paint = painter(sys.stdout, options.no_color)
    colours = {"ok": "green", "missing": "yellow", "broken": "red"}
    width = max(len(finding.name) for finding in findings)
    for one in findings:
        print(
            f"{paint(one.state.ljust(7), colours[one.state])}  {one.name:<{width}}  {escape_terminal(one.text, 300)}"
        )
        if one.remedy:
            print(f"{'':9}{'':<{width}}  fix: {escape_terminal(one.remedy, 300)}")
    return int(broken)


def _python() -> Iterator[Finding]:
    name = f"{platform.python_implementation()} {platform.python_version()}"
    known = sys.version_info >= (3, 11) and sys.implementation.name == "cpython"
    yield Finding(
        "python", "ok" if known else "broken", name, "" if known else "install CPython 3.11 or newer"
    )
    system = f"{platform.system()} {platform.machine()}"
    if sys.platform == "linux":
        yield Finding("platform", "ok", system)
    else:
        yield Finding("platform", "missing", f"{system}: only Linux is tested", "use Linux, or a container")


def _packages() -> Iterator[Finding]:
    """Check the dependencies, then each extra, against the metadata of the installed package."""
    from importlib import metadata

    try:
        requirements = metadata.requires("tachograph") or []
    except metadata.PackageNotFoundError:
        yield Finding("package", "missing", "tachograph is not installed here", "pip install tachograph")
        return
    extras: dict[str, list[str]] = {}
    for line in requirements:
        named = re.search(r"extra == ['\"](\w+)['\"]", line)
        extras.setdefault(named[1] if named else "", []).append(line.partition(";")[0].strip())
    for text in extras.pop("", []):
        version, problem = _installed(text)
        remedy = f"pip install '{text}'" if problem else ""
        yield Finding(text, "broken" if problem else "ok", problem or version, remedy)
    for extra, texts in sorted(extras.items()):
        installed = [_installed(text) for text in texts]
        problems = "; ".join(f"{text}: {why}" for text, (_, why) in zip(texts, installed, strict=True) if why)
        versions = ", ".join(
            f"{_name(text)} {version}" for text, (version, _) in zip(texts, installed, strict=True)
        )
        remedy = f"pip install 'tachograph[{extra}]'" if problems else ""
        yield Finding(f"extra {extra}", "missing" if problems else "ok", problems or versions, remedy)


def _name(requirement: str) -> str:
    match = re.match(r"[\w.-]+", requirement)
    return match[0] if match else requirement


def _installed(requirement: str) -> tuple[str, str]:
    """Return the installed version, and what is wrong with it or nothing."""
    from importlib import metadata

    try:
        version = metadata.version(_name(requirement))
    except metadata.PackageNotFoundError:
        return "", "not installed"
    minimum = re.search(r">=\s*([\d.]+)", requirement)
    if minimum and _numbers(version) < _numbers(minimum[1]):
        return version, f"{version} is older than {minimum[1]}"
    return version, ""


def _numbers(version: str) -> list[int]:
    match = re.match(r"\d+(?:\.\d+)*", version)
    numbers = [int(part) for part in match[0].split(".")] if match else []
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return numbers


def _git() -> Finding:
    place = shutil.which("git")
    if place is None:
        return Finding("git", "missing", "not found: records name no commit", "install git")
    return Finding("git", "ok", place)


def _project(given: Path | None) -> Iterator[Finding]:
    from ...runtime.formats.shipped_files import project_root
    from ...runtime.policy.policy import Policy

    root = given or project_root(Path.cwd())
    if root is None or not (root / "policy").is_dir():
        yield Finding("project", "missing", "no folder here or above holds policy/", "tachograph init DIR")
        return
    yield Finding("project", "ok", near(root))
    file = root / "policy" / "v1.yaml"
    try:
        yield Finding("policy", "ok", f"{near(file)}: version {Policy.load(file, root=root).version}")
    except (TachographError, ImportError) as error:
        yield Finding("policy", "broken", str(error), "tachograph policy check")
    yield from _tools(root)
    runs = root / "runs"
    if os.access(runs if runs.exists() else root, os.W_OK | os.X_OK):
        yield Finding("runs", "ok", f"{near(runs)} can be written")
    else:
        remedy = f"chmod u+wx '{near(runs)}', or `tachograph run TASK --out DIR`"
        yield Finding("runs", "broken", f"{near(runs)} cannot be written", remedy)


def _tools(root: Path) -> Iterator[Finding]:
    """Load each tool of the project, and hold its example calls against its schema."""
    from ...runtime.tools import examples
    from ...runtime.tools.loader import load_named, names_in

    try:
        names = names_in(root / "tools")
    except TachographError as error:
        yield Finding("tools", "broken", str(error), "check its permission")
        return
    for name in names:
        try:
            wrong = examples.problems(load_named(name, root / "tools"))
        except TachographError as error:
            yield Finding(f"tool {name}", "broken", str(error), "see tools/README.md")
            continue
        remedy = (
            'write EXAMPLES = {"good": {...}, "bad": {...}} in it, as tools/README.md says' if wrong else ""
        )
        yield Finding(
            f"tool {name}", "missing" if wrong else "ok", "; ".join(wrong) or "its examples fit", remedy
        )
