"""Load the agent that a task names in code: `agent: package.module:name`.

The module is imported from the project's root: what stands in it is executed. Modules of the project are compiled
from their sources, never from cached bytecode, so that what runs is what the record holds the digest of.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Callable, Iterator
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Final

from ....fail.errors import InputError, asks_to_end
from ....light_dataclasses import dataclass, replace
from ....runtime.agent import Agent
from ....runtime.formats import canonical_json
from ....runtime.formats.escape import escape_terminal, quote_literal
from ....runtime.formats.shipped_files import relative_to_root
from ....runtime.models.types import Model
from ....runtime.policy.policy import Policy
from ....runtime.schema.schema_errors import did_you_mean

# makes the error of a task from (message, remedy)
MakeError = Callable[[str, str], InputError]
_MAX_TEXT: Final = 200  # characters of an exception's message


@dataclass(frozen=True)
class CodeAgent:
    """An agent from code.

    Attributes:
        agent: The agent, its relative folders resolved against the project.
        modules: Path and SHA-256 of each source file of the project that its module needs.
    """

    agent: Agent
    modules: tuple[dict[str, str], ...]

    def with_parts(self, root: Path, model: Model | None, policy: Policy | None) -> Agent:
        """Return the agent with another model or policy, if one is given."""
        if model is None and policy is None:
            return self.agent
        return _rebuilt(self.agent, root, model, policy)


def load_code_agent(name: str, root: Path, error: MakeError) -> CodeAgent:
    """Import the module of an agent and return the agent.

    Args:
        name: `package.module:name`; the name is that of an `Agent`, or of a function without arguments that
            returns one.
        root: The project, from which the module is imported and which is the working directory meanwhile.
        error: Makes the error for a name that leads to no agent.

    Raises:
        InputError: There is no such module or name, it is no agent, or the module raises.
    """
    module_name, _, attribute = name.partition(":")
    root = root.resolve()
    if _importing:
        raise InputError(
            "an agent is loaded while the module of an agent is imported",
            remedy='put calls such as record(...) under `if __name__ == "__main__":`',
        )
    with _importing_from(root):
        module = _module(module_name, root, error)
        if attribute not in vars(module):
            known = [key for key, value in vars(module).items() if isinstance(value, Agent)]
            remedy = did_you_mean(attribute, known) or (
                f"agents there: {', '.join(sorted(known))}" if known else "name an Agent of the module"
            )
            raise error(f"the module {module_name} has no {quote_literal(attribute)}", remedy)
        found: Any = vars(module)[attribute]
        if callable(found) and not isinstance(found, Agent | type):
            found = _called(found, f"{module_name}:{attribute}", root, error)
        if not isinstance(found, Agent):
            raise error(
                f"{escape_terminal(name)} is of type {type(found).__name__}, and not an Agent",
                "name an Agent, or a function without arguments that returns one",
            )
        agent = _rebuilt(found, root, None, None)
    from .project_modules import source_files  # imported here, as is `traceback`, since few tasks need it

    files = source_files(module_name, root)
    return CodeAgent(
        agent,
        tuple(
            {"path": relative_to_root(file, root), "sha256": canonical_json.digest(file.read_bytes())}
            for file in files
        ),
    )


def is_of_project(file: Path, root: Path) -> bool:
    """Return whether a source file or folder is part of a project, and of no environment or cache in it."""
    try:
        parts = file.resolve().relative_to(root.resolve()).parts
    except (ValueError, OSError, RuntimeError):
        return False
    return not any(part.startswith(".") or part in ("site-packages", "node_modules") for part in parts)


def is_importing() -> bool:
    """Return whether the module of an agent is being imported."""
    return bool(_importing)


def _rebuilt(agent: Agent, root: Path, model: Model | None, policy: Policy | None) -> Agent:
    folder = root / "tools"
    own = agent.policy
    known = {*own.allowed, *own.denied, *own.approval_for, *(path.stem for path in folder.glob("*.py"))}
    return Agent(
        model or agent.llm,
        agent.gate.tools.values(),
        policy or own,
        instructions=agent.instructions,
        mounts={
            name: replace(
                mount, source=root / mount.source, label=_label(mount.label, name, root / mount.source, root)
            )
            for name, mount in agent.mounts.items()
            if mount.source is not None
        },
        hosts={
            name: replace(
                host, folder=root / host.folder, label=_label(host.label, name, root / host.folder, root)
            )
            for name, host in agent.hosts.items()
        },
        output_type=agent.output,
        known_tools=known,
        max_parallel=agent.max_parallel,
        hooks=agent.hooks,
    )


def _label(label: str | None, name: str, folder: Path, root: Path) -> str:
    """Return what records call a folder: its path in the project, unless the agent calls it otherwise."""
    inside = folder.resolve().is_relative_to(root)
    return relative_to_root(folder, root) if inside and label in (None, name) else label or name


# ---- importing ---------------------------------------------------------------------------------------------

_importing: list[Path] = []
# modules that were imported for agents: name -> (root of their project, their source, its digest)
_imported: dict[str, tuple[Path, Path | None, str | None]] = {}


class _SourceOnly(SourceFileLoader):
    """Compiles a module from its source.

    Cached bytecode is told from newer sources by second and size, so that it can be of another source.
    """

    def get_code(self, fullname: str) -> CodeType | None:
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


class _ProjectFinder:
    """Finds modules of a project, to be imported from their sources alone."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target)
        if spec is None or spec.origin is None or type(spec.loader) is not SourceFileLoader:
            return None
        if not is_of_project(Path(spec.origin), self._root):
            return None
        spec.loader = _SourceOnly(name, spec.origin)
        spec.cached = None
        return spec


@contextlib.contextmanager
def _importing_from(root: Path) -> Iterator[None]:
    """Import from a project in the body, whose root is the working directory meanwhile.

    The root stays on `sys.path`, since functions import too. Modules of another project, and those whose source has
    changed, are imported again.
    """
    _forget_others(root)
    finder = _ProjectFinder(root)
    before = set(sys.modules)
    here = os.getcwd()
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
        _added.append(str(root))
    sys.meta_path.insert(0, finder)
    importlib.invalidate_caches()
    _importing.append(root)
    try:
        os.chdir(root)
        yield
    finally:
        _importing.pop()
        sys.meta_path.remove(finder)
        os.chdir(here)
        _note(set(sys.modules) - before, root)


_added: list[str] = []  # what was added to sys.path


def _note(names: set[str], root: Path) -> None:
    """Keep which modules were imported from a project."""
    for name in names:
        module = sys.modules.get(name)
        file = getattr(module, "__file__", None)
        if file is not None:
            if is_of_project(Path(file), root):
                _imported[name] = (root, Path(file), _digest(Path(file)))
        elif any(is_of_project(Path(place), root) for place in getattr(module, "__path__", ())):
            _imported[name] = (root, None, None)


def _forget_others(root: Path) -> None:
    """Forget modules that were imported from another project; all of them, if a source has changed since."""
    changed = any(file is not None and _digest(file) != digest for _, file, digest in _imported.values())
    for name, (owner, _, _) in list(_imported.items()):
        if changed or owner != root:
            del _imported[name]
            sys.modules.pop(name, None)
    for place in [place for place in _added if place != str(root)]:
        _added.remove(place)
        with contextlib.suppress(ValueError):  # somebody else took it off
            sys.path.remove(place)


def _digest(file: Path) -> str | None:
    try:
        return canonical_json.digest(file.read_bytes())
    except OSError:
        return None


def _module(name: str, root: Path, error: MakeError) -> ModuleType:
    """Import a module and return it."""
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as missing:
        lacking = missing.name or ""
        if name == lacking or name.startswith(f"{lacking}."):
            top = name.partition(".")[0]
            if (root / f"{name.replace('.', '/')}.py").is_file():
                raise error(
                    f"an installed package is also called {quote_literal(top)}, and hides the folder of the project",
                    f"add {top}/__init__.py, or rename the folder",
                ) from None
            raise error(
                f"there is no module {quote_literal(lacking)} in the project",
                f"make {lacking.replace('.', '/')}.py, or correct the name",
            ) from None
        raise _raised(missing, name, root, error) from missing
    except BaseException as raised:
        if asks_to_end(raised):
            raise
        raise _raised(raised, name, root, error) from raised
    file = getattr(module, "__file__", None)
    if file is None or not is_of_project(Path(file), root):
        raise error(
            f"the module {name} is not one of the project's"
            + ("" if file is None else f", but {escape_terminal(Path(file).name)} of an installed package"),
            "give the module in the project a name of its own",
        )
    return module


def _called(function: Callable[[], Any], name: str, root: Path, error: MakeError) -> Any:
    """Return what a function that makes an agent returns."""
    try:
        return function()
    except BaseException as raised:
        if asks_to_end(raised):
            raise
        raise _raised(raised, name, root, error, "when it was called") from raised


def _raised(
    raised: BaseException, name: str, root: Path, error: MakeError, when: str = "while it was imported"
) -> InputError:
    """Return the error for code of the project that raised, with its file and line where it has one."""
    if isinstance(raised, InputError) and raised.file is not None:
        return raised  # it says where
    import traceback

    text = escape_terminal(str(raised), _MAX_TEXT)
    remedy = "correct it"
    if isinstance(raised, InputError):
        text, remedy = escape_terminal(raised.message, _MAX_TEXT), raised.remedy or remedy
    elif isinstance(raised, ModuleNotFoundError):
        remedy = "install what it imports, or correct the import"
    what = f"{name} raised {type(raised).__name__} {when}" + (f": {text}" if text else "")
    frames = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(raised.__traceback__)]
    if isinstance(raised, SyntaxError) and raised.filename is not None:
        frames.append((raised.filename, raised.lineno))
    for file, line in reversed(frames):
        if is_of_project(Path(file), root):
            return InputError(what, file=relative_to_root(Path(file), root), line=line, remedy=remedy)
    return error(what, remedy)
