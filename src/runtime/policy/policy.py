"""The policy: read strictly, and never defaulted to anything that allows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from ...fail.errors import InputError, PolicyError
from ..formats.documents import TypedDocument, path_of, read_document
from ..formats.json_pointer import get, join
from ..formats.strict_json import as_json, canonical
from ..formats.strict_yaml import Document
from ..log.values import Call
from ..redaction.redactor import Redactor
from ..resources.url import Malformed
from ..schema.validator import SchemaValidator
from .prices import Price, millionths
from .rules.approval import Unattended
from .rules.arg_schema import Enforcement
from .rules.arguments import Demanded, Judgeable, Unasked, bounds
from .rules.loop_budget import Limits
from .rules.redact import Revealed
from .rules.resources import Places
from .rules.sandbox_path import Mounts
from .rules.tool_registry import Names
from .rules.url_allowlist import Methods, Networks, Urls
from .sections import METHODS, SAFE_METHODS, Condition, OnFailure, PolicyFile, Retry, ToolRules

T = TypeVar("T")
_IN_CODE = "<policy>"


class ToolRuleSet(msgspec.Struct, frozen=True):
    """What a policy says of one tool: leaves, and its effect, which decides no call; "" where it says none."""

    arguments: Demanded
    ask_if: Unasked
    judgeable: Judgeable
    limits: Limits
    urls: Urls | None = None
    methods: Methods | None = None
    mounts: Mounts | None = None
    resources: Places = Places()
    effect: str = ""


_NOTHING: Final = Revealed()
_NO_RULES: Final = ToolRuleSet(Demanded(), Unasked(), Judgeable(), Limits({}))


class Policy:
    """A validated policy. Make one with `Policy.load` or `Policy.from_dict`.

    Attributes:
        file: What records call its file.
        data: Its data as written, without defaults.
        version: The first 12 hex digits of the SHA-256 of that data in canonical JSON.
        files: Name and digest of each file that it was merged from.
        paths: Where these files lie.
        names: `tool_registry`.
        urls: `url_allowlist`.
        networks: `private_networks`.
        mounts: `sandbox.mounts`.
        enforcement: `arg_schema_enforcement`.
        repeats: `cycle_detection`.
        agents: `agents`.
        retry: `retry`; nothing is tried again without it.
        unattended: `approval.required_for`.
        approval_timeout_s: Seconds that a person has to answer.
        on_deny: What follows a denial: `terminate` or `inform`.
        secret_names: `redact.env`.
        hides: What `redact` looks for: kinds, and variables of the environment as `$NAME`.
    """

    def __init__(self, document: TypedDocument[PolicyFile]) -> None:
        self._document, self._file = document, document.value
        self._folder = Path()  # that errors put before the names of its files
        said = document.value
        self.file, self.data, self.files = document.name, document.data, document.files
        self.paths = document.paths
        self.version = document.digest[:12]
        self.names = Names(said.tool_registry.allowed, said.tool_registry.denied)
        self.urls = self._leaf_at("/url_allowlist", lambda: Urls(_entries(said.url_allowlist)))
        self.networks = self._leaf_at("/private_networks", lambda: Networks(said.private_networks))
        self.mounts = Mounts(said.sandbox.mounts)
        self.enforcement = Enforcement(said.arg_schema_enforcement)
        self.repeats = Limits(msgspec.to_builtins(said.cycle_detection))
        self.agents = Limits(msgspec.to_builtins(said.agents))
        self.retry = said.retry or Retry(0, 0, 0)
        self.unattended = Unattended(said.approval.required_for)
        self.approval_timeout_s, self.on_deny = said.approval.timeout_s, said.on_deny
        failing = said.on_failure
        self._on_failure = failing if isinstance(failing, OnFailure) else OnFailure(failing)
        self.secret_names = said.redact.env
        self.hides = sorted({*said.redact.kinds, *(f"${name}" for name in said.redact.env)})
        self._tool_rules = {name: self._read_tool_rules(name, rules) for name, rules in said.tools.items()}
        self._check_kinds("/redact/kinds", said.redact.kinds)
        self._revealed = {tool: Revealed(kinds) for tool, kinds in said.redact.reveal_to.items()}
        for tool, kinds in said.redact.reveal_to.items():
            self._check_kinds(join(["redact", "reveal_to", tool]), kinds, with_known=True)
        for name, rules in said.tools.items():
            for n, mount in enumerate(rules.mounts or ()):
                if mount not in said.sandbox.mounts:
                    place = join(["tools", name, "mounts", str(n)])
                    what = f"mount {mount!r} is not declared"
                    raise self.error(place, what, "declare it in sandbox.mounts")
        if both := self.names.allowed.keys() & self.names.denied:
            what = f"{min(both)!r} is in allowed and in denied"
            raise self.error("/tool_registry/denied", what, "keep one of them")

    @classmethod
    def load(cls, path: str | Path, *, name: str = "") -> Policy:
        """Read a policy file.

        Args:
            path: The file.
            name: What records call it; the path unless given, of an absolute one the last two parts.

        Raises:
            PolicyError: The file is not exactly a policy; the error has file, line and column.
        """
        source = path_of(path, "the file of a policy")
        label = "/".join(source.parts[-2:]) if source.is_absolute() else source.as_posix()
        folder = source.parent.parent if source.is_absolute() and not name else Path()
        try:
            made = cls(read_document(source, name or label, PolicyFile, PolicyError))
        except InputError as error:
            error.file = str(folder / str(error.file))
            raise
        made._folder = folder
        return made

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Policy:
        """Make a policy from plain data.

        Args:
            data: What a policy file holds. It cannot have `extends`.

        Raises:
            PolicyError: The data is not exactly a policy.
        """
        try:
            plain = as_json(dict(data) if isinstance(data, Mapping) else data)
        except ValueError as error:
            raise PolicyError(str(error), file=_IN_CODE, remedy="use plain data") from None
        return cls(TypedDocument(_IN_CODE, Document(plain, {}), PolicyFile, PolicyError))

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy or another process is given: not the function that `place` keeps."""
        return {name: value for name, value in vars(self).items() if name != "place"}

    @cached_property
    def place(self) -> Callable[[str], str]:
        """How a record names what stands at a pointer: without a line, so that comments move none."""
        return lru_cache(maxsize=256)(lambda pointer: f"{self._document.file_of(pointer)}#{pointer}")

    def error(self, pointer: str, message: str, remedy: str) -> InputError:
        """Return an error at the place of a JSON Pointer into the policy."""
        error = self._document.error(pointer, message, remedy)
        error.file = str(self._folder / str(error.file))
        return error

    def _check_kinds(self, pointer: str, kinds: list[str], *, with_known: bool = False) -> None:
        for number, kind in enumerate(kinds):
            from ..redaction.kinds import KINDS, KNOWN  # slow to import, and most policies name none

            known = (*KINDS, KNOWN) if with_known else KINDS
            if kind not in known:
                remedy = f"choose of {', '.join(known)}"
                raise self.error(f"{pointer}/{number}", f"there is no kind of secrets {kind!r}", remedy)

    def _leaf_at(self, pointer: str, make: Callable[[], T]) -> T:
        """Return a leaf of entries that may be malformed, which stand at a pointer. Raises PolicyError."""
        try:
            return make()
        except Malformed as error:
            place = pointer if error.index is None else f"{pointer}/{error.index}"
            raise self.error(place, error.reason, "") from None

    @cached_property
    def in_force(self) -> dict[str, Any]:
        """Its data with defaults."""
        return {**msgspec.to_builtins(self._file), "on_failure": msgspec.to_builtins(self._on_failure)}

    @cached_property
    def limits(self) -> Limits:
        """`loop_budget`; the overdraft is a budget of its own, of as many tokens."""
        budget = self._file.loop_budget
        said = msgspec.structs.asdict(budget)
        numbers = {name: value for name, value in said.items() if type(value) is int}
        if not isinstance(budget.max_cost, msgspec.UnsetType):
            numbers["max_cost"] = millionths(budget.max_cost)
        return Limits(numbers | ({"overdraft": budget.max_tokens} if budget.overdraft == "deny" else {}))

    @cached_property
    def prices(self) -> dict[str, Price]:
        """`prices`, by `PROVIDER:MODEL`."""
        found = {}
        for name, price in self._file.prices.items():
            parts = (price.input, price.output, price.cached, price.cache_write)
            found[name] = Price(*(millionths(part or price.input) for part in parts))
        return found

    def tools_named(self) -> Iterator[tuple[str, str]]:
        """Yield each tool that the policy lets be called or says something of, with the JSON Pointer of its name."""
        lists = "/tool_registry/allowed", "/approval/required_for"
        for place in (*lists, "/tools", "/on_failure/tools", "/redact/reveal_to"):
            for number, name in enumerate(get(self.in_force, place)):
                yield f"{place}/{number if place in lists else name}", name

    def tool_rules(self, tool: str) -> ToolRuleSet:
        """`tools`: what holds for one tool."""
        return self._tool_rules.get(tool, _NO_RULES)

    def _read_tool_rules(self, name: str, rules: ToolRules) -> ToolRuleSet:
        demanded = self._conditions(name, "arguments", rules.arguments)
        asked = self._conditions(name, "ask_if", rules.ask_if)
        urls = methods = mounts = None
        if not isinstance(rules.urls, msgspec.UnsetType):
            entries = [(url, METHODS) for url in rules.urls]
            urls = self._leaf_at(join(["tools", name, "urls"]), lambda: Urls(entries, is_for_all=False))
        if not isinstance(rules.methods, msgspec.UnsetType):
            methods = Methods(rules.methods, self.urls)
        if not isinstance(rules.mounts, msgspec.UnsetType):
            mounts = Mounts(dict.fromkeys(rules.mounts, "write"), is_for_all=False)
        return ToolRuleSet(
            Demanded(demanded),
            Unasked(asked),
            Judgeable(asked),
            Limits(msgspec.to_builtins(rules.limits)),
            urls,
            methods,
            mounts,
            Places(rules.resources),
            rules.effect or "",
        )

    def _conditions(self, tool: str, section: str, given: Mapping[str, Condition]) -> dict[str, Any]:
        """Return conditions with lists in the place of the lists' names. Raises PolicyError."""
        found: dict[str, Any] = msgspec.to_builtins(given)
        for pointer, condition in found.items():
            place = join(["tools", tool, section, pointer])
            if not condition:
                raise self.error(place, "a condition without a keyword", "give one, such as maximum")
            least, most = bounds(condition)
            if least > most:
                raise self.error(place, "no number is within these limits", "change one of them")
            named = condition.get("in")
            if isinstance(named, str):
                if named not in self._file.lists:
                    raise self.error(f"{place}/in", f"there is no list {named!r}", "add it to lists")
                condition["in"] = self._file.lists[named]
            if "pattern" in condition:
                try:
                    SchemaValidator({"pattern": condition["pattern"]})
                except ValueError:
                    what = "is not a plain regular expression"
                    raise self.error(f"{place}/pattern", what, "use no look-around") from None
        return found

    def on_failure(self, tool: str, told: int) -> str:
        """Return `terminate` or `inform` for a failure of a tool, or of the model for "".

        Args:
            tool: The tool.
            told: Of how many failures the model was told before.
        """
        word = self._on_failure.tools.get(tool, self._on_failure.default)
        return word if told < self._on_failure.max_failures else "terminate"

    def reveals(self, tool: str) -> Revealed:
        """`redact.reveal_to`: the kinds that a tool is given."""
        return self._revealed.get(tool, _NOTHING)

    def redactor(self, known: Mapping[str, str], key: bytes) -> Redactor:
        """Return the redactor of one run, given the values of `secret_names` and a key. Raises InputError."""
        return Redactor(self._file.redact.kinds, known, key)

    def as_in_a_run(self, call: Call) -> Call:
        """Return a call as the gate of a run is asked about it: with placeholders, of which those in it stay."""
        redactor = self.redactor({}, b"")
        redactor.admit(canonical(call.arguments))
        return msgspec.structs.replace(call, arguments=redactor.data(call.arguments))


def _entries(entries: Iterable[Any]) -> list[tuple[str, tuple[str, ...]]]:
    return [(it, SAFE_METHODS) if isinstance(it, str) else (it.url, tuple(it.methods)) for it in entries]
