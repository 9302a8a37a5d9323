"""Look through the source of a tool for imports that reach past its `io`.

A tool that is not external may import the listed modules of the standard library, what it names in `IMPORTS`, and
modules of its project, which are looked through in the same way. This finds accidents, such as a forgotten
`requests.get`. It stops nobody who means to get around it.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ...fail.errors import ToolError, system_reason
from ...light_dataclasses import dataclass
from ..formats import canonical_json
from ..formats.shipped_files import project_root
from .contract import EXTERNAL

if TYPE_CHECKING:
    import ast

# modules that open no file, no connection and no process by themselves, and read no clock that a tool would need
STANDARD: Final = frozenset(
    """__future__ abc array base64 binascii bisect calendar cmath collections colorsys contextlib copy csv dataclasses
    datetime decimal difflib enum errno fractions functools graphlib hashlib heapq hmac html ipaddress itertools json
    keyword math numbers operator pprint quopri re reprlib statistics string stringprep struct textwrap tomllib types
    typing unicodedata urllib.parse warnings weakref zlib""".split()
)
_REACHING: Final = frozenset({"open", "exec", "eval", "input", "breakpoint", "__import__"})
_MOST: Final = 500  # modules of a project that one tool may need
_INSTALLED: Final = frozenset({"site-packages", "dist-packages"})

# a line that imports from one module; most tools have no others
_PLAIN_IMPORT: Final = re.compile(rb"^(?:import|from) ([\w.]+)(?: import [\w, ]+)?$", re.MULTILINE)
_ANY_IMPORT: Final = re.compile(rb"\bimport\b")
_ANY_REACHING: Final = re.compile(rb"\b(?:%s)\b" % "|".join(sorted(_REACHING)).encode())
_IMPORTS: Final = re.compile(rb'^IMPORTS = \(((?:"[\w.]+"(?:, ?)?)+)\)', re.MULTILINE)
_QUOTED: Final = re.compile(r'"([\w.]+)"')

Import = tuple[str, int]


def scan(
    source: bytes, label: str, imports: Sequence[str], *, file: str | None, package: str | None
) -> tuple[tuple[str, str], ...]:
    """Look through a tool's module and the modules of its project that it needs.

    Args:
        source: The source of the tool's module.
        label: What messages call it.
        imports: The names in its `IMPORTS`.
        file: The path of its file, None if it has none; then nothing is taken for a module of its project.
        package: The package that its relative imports start from, if it has one.

    Returns:
        The project's modules that it needs: path from the project's root and SHA-256 of each, sorted.

    Raises:
        ToolError: It imports, or uses, what is not covered.
    """
    if _is_plain(source, imports):
        return ()
    found: dict[Path, tuple[str, str]] = {}
    waiting = [(label, _look(source, label, package or ""))]
    while waiting:
        place, looked = waiting.pop()
        for name, line in looked.reaches:
            raise ToolError(
                f"uses {name}, which reaches past io",
                file=place,
                line=line,
                remedy='use io, or write EFFECT = "external"',
            )
        for name, line in looked.needs:
            if _is_covered(name, imports):
                continue
            root = _root(file)
            modules = [] if root is None else list(_project_modules(name, root))
            if root is None or not modules:
                raise _not_covered(name, place, line)
            for path, inside in modules:
                if path in found:
                    continue
                shown = path.relative_to(root).as_posix()
                text = _read(path, shown)
                found[path] = shown, canonical_json.digest(text)
                if len(found) > _MOST:
                    raise ToolError(f"needs more than {_MOST} modules", file=label, remedy="import less")
                waiting.append((shown, _look(text, shown, inside)))
    return tuple(sorted(found.values()))


def scan_unloaded(source: bytes, label: str, *, file: str | None) -> None:
    """Look through a tool's module before anything of it is executed, as far as it writes its EFFECT out.

    Raises ToolError as `scan` does.
    """
    given = _IMPORTS.search(source)
    if _is_plain(source, _QUOTED.findall(given[1].decode()) if given else ()):
        return
    written = _look(source, label, "").written
    effect, imports = written.get("EFFECT"), written.get("IMPORTS", ())
    if isinstance(effect, str) and effect != EXTERNAL and isinstance(imports, tuple):
        scan(source, label, imports, file=file, package=None)


def _is_plain(source: bytes, imports: Sequence[str]) -> bool:
    """Return whether a module needs no closer look: a parser is slow to import, and most tools are plain.

    All that it imports is covered, and no word of it is that of a function that reaches past `io`.
    """
    named = plain_imports(source)
    return (
        named is not None
        and _ANY_REACHING.search(source) is None
        and all(_is_covered(name, imports) for name in named)
    )


def plain_imports(source: bytes) -> list[str] | None:
    """Return the modules that a source imports from; None where only a parser can tell.

    Every `import` in the source, even one in a text, is a line of its own that imports from one module.
    """
    named: list[bytes] = _PLAIN_IMPORT.findall(source)
    is_plain = source.isascii() and len(named) == len(_ANY_IMPORT.findall(source))
    return [name.decode() for name in named] if is_plain else None


def _root(file: str | None) -> Path | None:
    found = project_root(Path(file).resolve().parent) if file is not None else None
    return None if found is None else found.resolve()


def _not_covered(name: str, place: str, line: int) -> ToolError:
    first = name.partition(".")[0]
    return ToolError(
        f"imports {name!r}, which is neither a listed module nor named in IMPORTS",
        file=place,
        line=line,
        remedy=f'write IMPORTS = ({first!r},) in the tool, or EFFECT = "external" if it reaches past io',
    )


def _is_covered(name: str, imports: Sequence[str]) -> bool:
    """Return whether a module, or a package around it, is listed or named."""
    parts = name.split(".")
    around = {".".join(parts[:count]) for count in range(1, len(parts) + 1)}
    return bool(around & STANDARD) or bool(around & set(imports))


@dataclass(frozen=True, slots=True)
class _Look:
    """What one module imports and uses, with the lines, and what it writes out at its top level."""

    needs: tuple[Import, ...]
    reaches: tuple[Import, ...]
    written: Mapping[str, object]


@lru_cache(maxsize=256)
def _look(source: bytes, label: str, package: str) -> _Look:
    """Read one module. Raises ToolError for what is not Python source."""
    import ast  # slow to import, and rarely needed

    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError) as error:
        line = error.lineno if isinstance(error, SyntaxError) else None
        raise ToolError("is not Python source", file=label, line=line, remedy="fix the module") from None
    needs: dict[str, int] = {}
    used: dict[str, int] = {}
    bound = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            if not isinstance(node.ctx, ast.Load):
                bound.add(node.id)
            elif node.id in _REACHING:
                used.setdefault(node.id, node.lineno)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            bound.add(node.name)
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            for name in _imported(node, package):
                needs.setdefault(name, node.lineno)
    reaches = tuple((name, line) for name, line in used.items() if name not in bound)
    return _Look(tuple(needs.items()), reaches, dict(_written(tree)))


def _written(tree: ast.Module) -> Iterator[tuple[str, object]]:
    """Yield EFFECT and IMPORTS of the top level where their values are written out."""
    import ast

    for node in tree.body:
        if isinstance(node, ast.Assign):
            targets, value = node.targets, node.value
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            targets, value = [node.target], node.value
        else:
            continue
        for target in targets:
            if isinstance(target, ast.Name) and target.id in ("EFFECT", "IMPORTS"):
                with contextlib.suppress(ValueError):
                    yield target.id, ast.literal_eval(value)


def _imported(node: ast.Import | ast.ImportFrom, package: str) -> Iterator[str]:
    import ast

    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
        return
    base = node.module or ""
    if node.level:
        around = package.split(".")[: len(package.split(".")) - node.level + 1]
        base = ".".join(filter(None, [*around, base]))
    # a name may be a module of the package; where it is none, the package alone is needed
    yield from (f"{base}.{alias.name}" if alias.name != "*" else base for alias in node.names)


def _project_modules(name: str, root: Path) -> Iterator[tuple[Path, str]]:
    """Yield file and package of a module and of the packages around it, if they belong to the project.

    The last part of the name may be no module but a name in one.
    """
    from importlib.machinery import PathFinder

    search: list[str] | None = None
    parts = name.split(".")
    if parts[0] == "tachograph":
        return
    for count in range(1, len(parts) + 1):
        try:
            spec = PathFinder.find_spec(".".join(parts[:count]), search)
        except (ImportError, ValueError, OSError):
            return
        if spec is None:
            return
        search = None if spec.submodule_search_locations is None else list(spec.submodule_search_locations)
        if spec.origin is not None:
            path = Path(spec.origin).resolve()
            if not path.is_relative_to(root) or _INSTALLED & set(path.parts):
                return
            yield path, ".".join(parts[: count if search is not None else count - 1])
        if search is None:
            return


def _read(path: Path, shown: str) -> bytes:
    if path.suffix != ".py":
        raise ToolError(
            "is not Python source", file=shown, remedy='name it in IMPORTS, or EFFECT = "external"'
        )
    try:
        return path.read_bytes()
    except OSError as error:
        raise ToolError(
            f"cannot be read ({system_reason(error)})", file=shown, remedy="check its permission"
        ) from None
