"""Find the modules of a project that a tool or a function imports: they are inputs of its runs, as it is itself.

Nothing is imported for it: sources are parsed, and each name is looked up where an import would look.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
import inspect
import re
import sys
from contextlib import suppress
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any, Final
from warnings import catch_warnings

from ..formats.strict_json import digest

_INSTALLED: Final = frozenset(("site-packages", "dist-packages"))
_PLAIN: Final = re.compile(rb"from ([a-z_]\w*)[.\w]* import [\w, ]+|import ([a-z_]\w*)")
_OURS: Final = __name__.partition(".")[0]


def modules_behind(function: Any, root: Path) -> dict[str, str]:
    """Return the module that a function stands in, and the modules that it imports, as far as they are of a project.

    Args:
        function: A function, or an object that can be called.
        root: The project.

    Returns:
        As of `project_modules`; nothing for a function that is in no file of the project.
    """
    while isinstance(function, functools.partial):
        function = function.func
    function = inspect.unwrap(function)
    if not hasattr(function, "__globals__"):
        function = type(function).__call__
    module = getattr(function, "__globals__", {})
    path, root = Path(module.get("__file__") or "").resolve(), root.resolve()
    is_ours = str(module.get("__name__")).partition(".")[0] == _OURS
    if is_ours or not _is_of(path, root) or not path.is_file():
        return {}
    source = path.read_bytes()
    imported = project_modules(source, root, module.get("__package__") or "")
    return {_label(path, root): digest(source), **imported}


def project_modules(source: bytes, root: Path, package: str = "") -> dict[str, str]:
    """Return the modules of a project that a source imports, directly or through others.

    Args:
        source: The source of a module.
        root: The project.
        package: The package of the module.

    Returns:
        SHA-256 of the source of each, by its path relative to the project.
    """
    root = root.resolve()
    found: dict[str, str] = {}
    waiting = [*_names(source, package)]
    while waiting:
        name = waiting.pop()
        spec = _spec(name)
        path = Path((spec and spec.origin) or "").resolve()
        if spec is None or not _is_of(path, root) or (label := _label(path, root)) in found:
            continue
        text = path.read_bytes()
        found[label] = digest(text)
        waiting += _names(text, spec.parent or "")
    return found


def _label(path: Path, root: Path) -> str:
    """Return what records call a file of a project, in which a name that is not UTF-8 is escaped."""
    return path.relative_to(root).as_posix().encode("utf-8", "backslashreplace").decode()


def _is_of(path: Path, root: Path) -> bool:
    """Return whether a path is that of a module of a project."""
    return path.suffix == ".py" and path.is_relative_to(root) and not _INSTALLED.intersection(path.parts)


@functools.lru_cache(maxsize=128)  # every run of an agent asks, mostly of the same sources
def _names(source: bytes, package: str) -> tuple[str, ...]:
    """Return the dotted names that a source may import; `from a import b` may be of a or of a.b."""
    if _is_standard(source):
        return ()
    tree = ast.Module([], [])
    # its import says what is wrong with a source, and gives the warnings of it
    with suppress(SyntaxError, ValueError, RecursionError), catch_warnings(action="ignore"):
        tree = ast.parse(source)
    found: dict[str, None] = {}
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            with suppress(ImportError):  # it may name what is above the topmost package
                base = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
                names = [f"{base}.{alias.name}" for alias in node.names]
        for name in names:
            parts = name.split(".")
            if parts[0] != _OURS and parts[0] not in sys.stdlib_module_names:
                found |= dict.fromkeys(".".join(parts[:count]) for count in range(1, len(parts) + 1))
    return tuple(found)


def _is_standard(source: bytes) -> bool:
    """Return whether plain lines tell that only the standard library is imported; parsing a tool costs more."""
    lines = source.splitlines()
    if b"coding" in source[:200] or any(line.endswith(b"\\") for line in lines):
        return False
    found = [_PLAIN.fullmatch(line) for line in lines if b"import" in line]
    return all(match and (match[1] or match[2]).decode() in sys.stdlib_module_names for match in found)


def _spec(name: str) -> ModuleSpec | None:
    """Return where an import would find a module."""
    path: list[str] | None = None
    spec: ModuleSpec | None = None
    parts = name.split(".")
    for count in range(1, len(parts) + 1):
        spec = PathFinder.find_spec(".".join(parts[:count]), path)
        if spec is None:
            return None
        path = list(spec.submodule_search_locations or ())
    return spec
