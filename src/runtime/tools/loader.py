"""Load tool modules and check them against the contract."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from ...fail.errors import ToolError, system_reason
from ..formats import canonical_json
from ..formats.shipped_files import shipped
from ..schema.schema_errors import did_you_mean
from . import source_scan
from .contract import EFFECTS, EXTERNAL, Origin, Tool
from .source_module import module_of


def load_module(path: str | Path, *, file: str | None = None) -> Tool:
    """Return the tool in a module file; its name is the file's stem.

    Args:
        path: The module to load.
        file: What messages and the tool call the file; the path if not given.

    Raises:
        ToolError: The file cannot be read or imported, or breaks the contract.
    """
    source = Path(path)
    label = file or str(path)
    remedy = "name an existing tool module"
    module, text = module_of(source, label, "tachograph_tool", ToolError, remedy)
    return from_module(module, name=source.stem, file=label, source=text)


def from_module(
    module: ModuleType, *, name: str | None = None, file: str | None = None, source: bytes | None = None
) -> Tool:
    """Return the tool in an imported module.

    Args:
        module: A module that has what the contract asks for.
        name: The tool's name; the last part of the module's name if not given.
        file: What messages call the module; its name if not given.
        source: The bytes that the module was made from; read from its file if not given.

    Raises:
        ToolError: The module lacks something, or breaks the contract.
    """
    label = file or module.__name__
    values: dict[str, Any] = {}
    for attribute, kind in (
        ("DESCRIPTION", str),
        ("INPUT_SCHEMA", dict),
        ("OUTPUT_SCHEMA", dict),
        ("EFFECT", str),
        ("IDEMPOTENT", bool),
        ("TRANSIENT", tuple),
    ):
        value = getattr(module, attribute, None)
        if not isinstance(value, kind):
            raise ToolError(
                f"needs {attribute} of type {kind.__name__}", file=label, remedy="see tools/README.md"
            )
        values[attribute] = value
    run = getattr(module, "run", None)
    if not callable(run):
        raise ToolError("needs a function run(args, io)", file=label, remedy="see tools/README.md")
    if source is None:
        import inspect  # slow to import, and a tool from a file has its source

        with contextlib.suppress(OSError, TypeError):
            source = inspect.getsource(module).encode("utf-8")
    imports = _names(getattr(module, "IMPORTS", None), label)
    origin = modules = None
    if source is not None:
        place = getattr(module, "__file__", None)
        origin = Origin(source, module.__name__, label, place, module.__package__, run)
        if values["EFFECT"] != EXTERNAL:
            modules = source_scan.scan(source, label, imports, file=place, package=module.__package__)
    return Tool(
        name=name or module.__name__.rpartition(".")[2],
        description=values["DESCRIPTION"],
        input_schema=values["INPUT_SCHEMA"],
        output_schema=values["OUTPUT_SCHEMA"],
        effect=values["EFFECT"],
        idempotent=values["IDEMPOTENT"],
        run=run,
        transient=values["TRANSIENT"],
        digest=None if source is None else canonical_json.digest(source),
        origin=origin,
        file=label,
        timeout_s=getattr(module, "TIMEOUT_S", None),
        isolate=getattr(module, "ISOLATE", False),
        probe=getattr(module, "probe", None),
        parallel=getattr(module, "PARALLEL", None),
        imports=imports,
        modules=modules,
        examples=_examples(getattr(module, "EXAMPLES", None), label),
    )


def _names(imports: object, label: str) -> tuple[str, ...]:
    """Return a module's IMPORTS. Raises ToolError for anything but a tuple of names of modules."""
    if imports is None:
        return ()
    names = imports if isinstance(imports, tuple) else (None,)
    for name in names:
        if not isinstance(name, str) or not all(part.isidentifier() for part in name.split(".")):
            raise ToolError(
                "IMPORTS must be a tuple of names of modules",
                file=label,
                remedy='write IMPORTS = ("sqlite3",)',
            )
    return names


def _examples(examples: object, label: str) -> dict[str, dict[str, Any]] | None:
    """Return a module's EXAMPLES. Raises ToolError for anything but arguments under `good` and `bad`."""
    if examples is None:
        return None
    if (
        not isinstance(examples, dict)
        or examples.keys() != {"good", "bad"}
        or not all(isinstance(arguments, dict) for arguments in examples.values())
    ):
        raise ToolError(
            "EXAMPLES must hold the arguments of two calls",
            file=label,
            remedy='write EXAMPLES = {"good": {...}, "bad": {...}}',
        )
    return examples


def load_named(name: str, folder: Path | None = None, *, label: str = "tools") -> Tool:
    """Return the tool `name` from `folder`, by default the shipped one. Raises ToolError."""
    where = folder or shipped("tools")
    known = names_in(where, label=label)
    if name not in known:
        remedy = did_you_mean(name, known) or f"known tools: {', '.join(known)}"
        raise ToolError(f"there is no tool {name!r}", file=label, remedy=remedy)
    return load_module(where / f"{name}.py", file=f"{label}/{name}.py")


def names_in(folder: Path, *, label: str | None = None) -> list[str]:
    """Return the names of the tool modules in a folder, sorted; none if there is no such folder.

    `label` is what messages call the folder, its path if not given. Raises ToolError if it cannot be read:
    an unreadable folder must not pass for an empty one.
    """
    try:
        return sorted(name[:-3] for name in os.listdir(folder) if name.endswith(".py"))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise ToolError(
            f"cannot be read ({system_reason(error)})",
            file=label or str(folder),
            remedy="check the permission of the folder",
        ) from None


def collect(tools: Iterable[Tool | ModuleType | str]) -> dict[str, Tool]:
    """Return tools by name, from `Tool`s, imported modules and names of shipped tools. Raises ToolError."""
    out: dict[str, Tool] = {}
    for item in tools:
        if isinstance(item, Tool):
            tool = item
        elif isinstance(item, str):
            tool = load_named(item)
        elif isinstance(item, ModuleType):
            tool = from_module(item)
        else:
            raise _no_tool(item)
        if tool.name in out:
            raise ToolError(f"two tools are named {tool.name!r}", file=tool.file, remedy="rename one")
        out[tool.name] = tool
    return out


def _no_tool(item: object) -> ToolError:
    """Return the error for something that is given as a tool and is none; for a function, with the line to write."""
    if not isinstance(item, FunctionType):
        return ToolError(f"{type(item).__name__} is not a tool", remedy="give a Tool, a module or a name")
    return ToolError(
        f"the function {item.__name__} does not say what effect it has",
        remedy=f'write @tool(effect="read") above it, the effect one of {", ".join(EFFECTS)}',
    )
