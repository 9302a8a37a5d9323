"""Find the modules of a project that a tool imports: they are inputs of its runs, as the tool itself is.

Nothing is imported for it: sources are parsed, and each name is looked up where an import would look.
"""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Final

from ..formats.strict_json import digest

_INSTALLED: Final = frozenset(("site-packages", "dist-packages"))
_OURS: Final = __name__.partition(".")[0]


def project_modules(source: bytes, root: Path) -> dict[str, str]:
    """Return the modules of a project that a source imports, directly or through others.

    Args:
        source: The source of a module that is in no package.
        root: The project.

    Returns:
        SHA-256 of the source of each, by its path relative to the project.
    """
    root = root.resolve()
    found: dict[str, str] = {}
    searched = [Path(entry).resolve() for entry in sys.path]
    if not any(place.is_relative_to(root) or root.is_relative_to(place) for place in searched):
        return found  # no import would look into the project
    waiting = list(_names(source, ""))
    while waiting:
        name = waiting.pop()
        spec = _spec(name)
        path = Path((spec and spec.origin) or "").resolve()
        if spec is None or path.suffix != ".py" or not path.is_relative_to(root):
            continue
        label = path.relative_to(root).as_posix()
        if label in found or _INSTALLED.intersection(path.parts):
            continue
        text = path.read_bytes()
        found[label] = digest(text)
        is_package = spec.submodule_search_locations is not None
        waiting += _names(text, name if is_package else name.rpartition(".")[0])
    return found


def _names(source: bytes, package: str) -> Iterator[str]:
    """Yield the dotted names that a source may import; `from a import b` may be of a or of a.b."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return  # its import fails, and says so
    for node in _statements(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                try:
                    base = importlib.util.resolve_name("." * node.level + base, package)
                except ImportError:
                    continue
            names = [f"{base}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            parts = name.split(".")
            if parts[0] != _OURS and parts[0] not in sys.stdlib_module_names:
                yield from (".".join(parts[:count]) for count in range(1, len(parts) + 1))


def _statements(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield every statement of a source, however deep; an import stands in no expression."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        for inner in ("body", "orelse", "finalbody", "handlers", "cases"):
            waiting += getattr(node, inner, ())


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
