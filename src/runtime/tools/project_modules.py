"""Find what a tool's module imports: modules of the project, and distributions that are installed.

Nothing is imported for it: the source is parsed, and each name is looked up where an import would look.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable, Iterator
from functools import lru_cache
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ..formats.canonical_json import digest
from ..formats.shipped_files import relative_to_root
from .contract import Tool
from .source_scan import plain_imports

if TYPE_CHECKING:
    import ast

_INSTALLED: Final = ("site-packages", "dist-packages")
_OURS: Final = "tachograph"


def project_modules(tool: Tool) -> dict[str, str]:
    """Return the modules of the project that a tool imports, directly or through others: path -> SHA-256.

    Paths are relative to the project where the tool's own file is, else a module's dotted name stands for it.
    """
    return {label: digest(source) for label, _, source in _followed(tool)}


def imported_names(tool: Tool) -> set[str]:
    """Return the dotted names that a tool and the project's modules behind it import."""
    if tool.origin is None:
        return set()
    names = set(_names(tool.origin.source, tool.origin.package))
    for _, package, source in _followed(tool):
        names |= set(_names(source, package))
    return names


def versions_of_packages(tools: Iterable[Tool]) -> dict[str, str]:
    """Return the versions of the installed packages that tools import or name in IMPORTS, by the name of the module."""
    tops = {name.partition(".")[0] for tool in tools for name in {*imported_names(tool), *tool.imports}}
    found = {}
    for top in sorted(tops - {_OURS}):
        spec = _spec(top)
        if spec is not None and _is_installed(spec):
            found[top] = _version(top)
    return found


def _version(top: str) -> str:
    from importlib import metadata  # slow to import, and only tools that import packages need it

    try:
        return metadata.version(top)
    except metadata.PackageNotFoundError:
        named = metadata.packages_distributions().get(top, ())
        return metadata.version(named[0]) if named else "unknown"


def _followed(tool: Tool) -> Iterator[tuple[str, str | None, bytes]]:
    """Yield (path, package, source) of each module of the project behind a tool, each once."""
    origin = tool.origin
    if origin is None:
        return
    root = _root(origin.file, origin.label)
    seen: set[str] = set()
    waiting = list(_names(origin.source, origin.package))
    while waiting:
        name = waiting.pop(0)
        if name in seen:
            continue
        seen.add(name)
        spec = _spec(name)
        if spec is None or spec.origin is None or _is_installed(spec) or not spec.origin.endswith(".py"):
            continue
        path = Path(spec.origin)
        source = path.read_bytes()
        package = name if spec.submodule_search_locations is not None else name.rpartition(".")[0]
        inside = root is not None and path.resolve().is_relative_to(root.resolve())
        yield relative_to_root(path, root) if inside and root is not None else name, package, source
        waiting += _names(source, package)


def _root(file: str | None, label: str) -> Path | None:
    """Return the project's root, given a module's file and how records name it."""
    if file is None or not label.endswith(".py"):
        return None
    path = Path(file).resolve()
    parts = Path(label).parts
    if len(parts) >= len(path.parts):
        return None  # the label is an absolute path
    return path.parents[len(parts) - 1] if path.parts[-len(parts) :] == parts else None


@lru_cache(maxsize=256)
def _names(source: bytes, package: str | None) -> tuple[str, ...]:
    """Return the dotted names that a module's source may import; `from a import b` may be of a or of a.b."""
    plain = plain_imports(source)
    if plain is not None and all(_is_standard(name) for name in plain):
        return ()
    import ast  # slow to import, and most tools are plain

    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return ()
    names: dict[str, None] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                parts = alias.name.split(".")
                names |= dict.fromkeys(".".join(parts[: i + 1]) for i in range(len(parts)))
        elif isinstance(node, ast.ImportFrom):
            base = _base(node, package)
            if base is not None:
                parts = base.split(".")
                names |= dict.fromkeys(".".join(parts[: i + 1]) for i in range(len(parts)))
                names |= dict.fromkeys(f"{base}.{alias.name}" for alias in node.names if alias.name != "*")
    return tuple(name for name in names if not _is_standard(name))


def _is_standard(name: str) -> bool:
    return name.partition(".")[0] in sys.stdlib_module_names


def _base(node: ast.ImportFrom, package: str | None) -> str | None:
    if not node.level:
        return node.module
    try:
        return importlib.util.resolve_name("." * node.level + (node.module or ""), package or "")
    except ImportError:
        return None


def _spec(name: str) -> ModuleSpec | None:
    """Return where an import would find a module, without importing any."""
    if name.partition(".")[0] == _OURS:
        return None
    path: list[str] | None = None
    spec: ModuleSpec | None = None
    parts = name.split(".")
    for i in range(len(parts)):
        try:
            spec = PathFinder.find_spec(".".join(parts[: i + 1]), path)
        except (ImportError, OSError, ValueError):
            return None
        if spec is None:
            return None
        path = None if spec.submodule_search_locations is None else list(spec.submodule_search_locations)
        if path is None and i < len(parts) - 1:
            return None
    return spec


def _is_installed(spec: ModuleSpec) -> bool:
    places = [spec.origin or "", *(spec.submodule_search_locations or ())]
    return any(part in Path(place).parts for place in places for part in _INSTALLED)
