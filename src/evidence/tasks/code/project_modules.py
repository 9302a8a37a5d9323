"""Find the source files of a project that a module needs, by the imports in them.

They are found in the sources, not in what happens to be imported, so that the same sources give the same list in
any process.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from .agent import is_of_project

_OWN: Final = __name__.partition(".")[0]  # this package, whose digest each manifest has


def source_files(name: str, root: Path) -> list[Path]:
    """Return the source files of the project that a module needs, its own included, sorted.

    Args:
        name: The module; it and everything it imports may be imported already.
        root: The project.
    """
    todo = [name]
    found: dict[str, Path | None] = {}
    while todo:
        module = todo.pop()
        if module in found or module.partition(".")[0] == _OWN:
            continue
        file = found[module] = _source_of(module, root)
        if "." in module:
            todo.append(module.rpartition(".")[0])
        if file is not None:
            package = module if file.name == "__init__.py" else module.rpartition(".")[0]
            todo += _imports(file, package)
    return sorted({file for file in found.values() if file is not None})


def _source_of(module: str, root: Path) -> Path | None:
    """Return the source file of a module if it is one of the project's."""
    loaded = sys.modules.get(module)
    file = getattr(loaded, "__file__", None)
    if loaded is not None:
        places = [] if file is None else [Path(file)]
    else:
        place = root.joinpath(*module.split("."))
        places = [place / "__init__.py", place.with_name(f"{place.name}.py")]
    return next(
        (p.resolve() for p in places if p.suffix == ".py" and p.is_file() and is_of_project(p, root)), None
    )


def _imports(file: Path, package: str) -> Iterator[str]:
    """Yield the modules that a source file imports anywhere in it; names from a module may be modules too."""
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):
        return  # nothing can import it, and who tries is told
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = package.split(".")
                parts = parts[: len(parts) - node.level + 1]
                base = ".".join([*parts, *filter(None, [base])])
            if base:
                yield base
                yield from (f"{base}.{alias.name}" for alias in node.names if alias.name != "*")
