"""What proves the fields of a record: `check` derives a field again, or only the record states it.

`UNPROVEN` lists every field that a check takes from the record. Nothing but a seal vouches for them. Every other field
is derived again: whoever changes it, and all that follows from it, is found by `check`. A field that follows from an
unproven one, such as the final answer of a live run, is right only as far as that one is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from ...fail.errors import RecordError
from ...light_dataclasses import dataclass, field
from ...runtime.core.lines import Line
from ...runtime.formats.json_pointer import escape_pointer
from ...runtime.journal import ledger
from ...runtime.journal.ledger import Totals
from ...runtime.setup.run_inputs import paths_of
from ..files import manifest as manifests
from ..files.manifest import MANIFEST, STATE
from ..files.rebuild import run_files

# when a field is unproven -> in words; from the record are answered calls of external tools, and in a live run those of
# network tools and those that timed out
WHEN: Final = {
    "live": "run of a live model",
    "person": "run that a person answered",
    "outside": "call answered from the record",
    "always": "run of any kind",
}


@dataclass(frozen=True)
class Unproven:
    """Fields that only the record states.

    Attributes:
        line: The type of the ledger line, or `manifest`.
        pattern: JSON Pointer, in which `*` stands for one part and `**` at the end for any number of them.
        when: A key of `WHEN`.
        says: What stands there.
    """

    line: str
    pattern: str
    when: str
    says: str

    def covers(self, line: str, pointer: str) -> bool:
        """Return whether a field of a line is among these."""
        wanted, parts = self.pattern.split("/")[1:], pointer.split("/")[1:]
        if wanted[-1] == "**":
            wanted = wanted[:-1]
            parts = parts[: len(wanted)]
        same = all(want in ("*", part) for want, part in zip(wanted, parts, strict=False))
        return self.line == line and len(wanted) == len(parts) and same


UNPROVEN: Final = (
    Unproven("run", "/run_id", "live", "the drawn end of the run's name"),
    Unproven("run", "/clock/start", "live", "when the run began"),
    Unproven("run", "/model/**", "live", "which model answered, of those that the task names"),
    Unproven("run", "/request_parts/options/*/options/**", "live", "the options that its provider was given"),
    Unproven("run", "/deadline_ms", "live", "the time limit"),
    Unproven("run", "/rebased/**", "live", "inputs that the run began under"),
    Unproven("run", "/approvals", "person", "how a person was asked"),
    Unproven("run", "/nonce", "person", "what makes the questions to a person those of this run"),
    Unproven("step", "/llm_attempts/**", "live", "how often the model was asked, and what failed"),
    Unproven("step", "/llm_output/**", "live", "what the model said"),
    Unproven("step", "/intended_tool_calls/**", "live", "the calls that the model proposed"),
    Unproven("step", "/hooks/*/answer/**", "live", "what a hook answered"),
    Unproven("step", "/hooks/*/fault/**", "live", "what a hook raised"),
    Unproven("step", "/hooks/*/invalid", "live", "why a hook's answer is no JSON value"),
    Unproven("step", "/stamps/**", "live", "when it happened"),
    Unproven("step", "/stopped", "live", "what stopped the run"),
    Unproven("end", "/stamp", "live", "when the run ended"),
    Unproven(
        "step", "/policy_decisions/*/approval/**", "person", "what a person answered, who it was, and why"
    ),
    Unproven("step", "/tool_results/*/result/**", "outside", "what the tool returned"),
    Unproven(
        "step",
        "/tool_results/*/attempts/**",
        "outside",
        "what it did, and verdicts on hidden values",
    ),
    Unproven("manifest", "/inputs/*/sha256", "outside", "what was in a file that no other call read"),
    Unproven("manifest", "/timestamp", "always", "when it was recorded"),
    Unproven("manifest", "/wall_clock_seconds", "always", "how long that took"),
    Unproven("manifest", "/code/**", "always", "the code that made it"),
    Unproven("manifest", "/environment/**", "always", "where it was made"),
)


@dataclass
class Proof:
    """How the fields of one record, its ledger and its manifest, are proved.

    Attributes:
        total: Number of fields.
        unproven: Entry of `UNPROVEN` -> number of fields that only the record states.
        inputs: Path of each file that the run rests on -> the digest in the manifest, which only `check` derives.
    """

    total: int = 0
    unproven: Counter[Unproven] = field(default_factory=Counter)
    inputs: dict[str, str] = field(default_factory=dict)

    @property
    def derived(self) -> int:
        """The number of fields that `check` derives again."""
        return self.total - sum(self.unproven.values())

    def to_dict(self, *, is_sealed: bool) -> dict[str, Any]:
        """Return it as plain data."""
        unproven = [
            {"line": entry.line, "pointer": entry.pattern, "fields": number, "says": entry.says}
            for entry, number in self.unproven.items()
        ]
        proof = "sealed" if is_sealed else "unproven"
        inputs = [{"path": path, "sha256": sha, "proof": proof} for path, sha in self.inputs.items()]
        return {"total": self.total, "derived": self.derived, "unproven": unproven, "inputs": inputs}

    def in_words(self, name: str, *, is_sealed: bool) -> list[str]:
        """Return lines for a person: how many fields are proved in which way, those that are not derived, inputs."""
        word = "sealed" if is_sealed else "unproven"
        left = sum(self.unproven.values())
        counts = {"sealed": left * is_sealed, "unproven": left * (not is_sealed)}
        head = f"{name}: of {self.total} fields `check` derives {self.derived} again, "
        return [
            f"{head}{counts['sealed']} are only sealed, {counts['unproven']} are unproven",
            *(
                f"  {word:8}  {entry.line} {entry.pattern}  ({number}) {entry.says}"
                for entry, number in self.unproven.items()
            ),
            *(f"  {word:8}  input {path}  {sha[:12]}" for path, sha in self.inputs.items()),
        ]


def proof_of_run(folder: Path) -> Proof | None:
    """Return how the fields of the record in a folder are proved, or None if it cannot be read."""
    try:
        files = run_files(folder, folder.name)
        lines = list(ledger.read(files[STATE], folder.name))
        return proof_of(lines, manifests.read(files[MANIFEST]))
    except (RecordError, KeyError, TypeError, ValueError, AttributeError, IndexError):
        return None


def proof_of(lines: Sequence[Line], manifest: Line) -> Proof:
    """Return how the fields of a record are proved."""
    proof = Proof(inputs={str(item["path"]): str(item["sha256"]) for item in manifest["inputs"]})
    for line in (*lines, {**manifest, "type": "manifest"}):
        for pointer in pointers(line):
            proof.total += 1
            entry = unproven_field(lines, line, pointer)
            if entry is not None:
                proof.unproven[entry] += 1
    return proof


def unproven_field(lines: Sequence[Line], line: Line, pointer: str) -> Unproven | None:
    """Return the entry of `UNPROVEN` that a field belongs to, or None if `check` derives it again.

    Args:
        lines: The ledger.
        line: The line that the field stands in; a manifest with `type` set to `manifest`.
        pointer: JSON Pointer to the field.
    """
    for entry in UNPROVEN:
        if entry.covers(str(line["type"]), pointer) and _applies(entry.when, lines, line, pointer):
            return entry
    return None


def pointers(value: Any, pointer: str = "") -> Iterator[str]:
    """Yield the JSON Pointer of every leaf of a value; an empty object or array is a leaf."""
    if isinstance(value, dict | list) and value:
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in items:
            yield from pointers(item, f"{pointer}/{escape_pointer(str(key))}")
    else:
        yield pointer


def _applies(when: str, lines: Sequence[Line], line: Line, pointer: str) -> bool:
    run = lines[0]
    if when == "live":
        return _is_live(run)
    if when == "person":
        return "approvals" in run or "nonce" in run
    if when == "outside":
        number = int(pointer.split("/")[2])
        if line["type"] == "manifest":
            return line["inputs"][number]["path"] in _read_outside(lines)
        return _is_outside(run, line["tool_results"][number])
    return True


def _is_live(run: Line) -> bool:
    return bool(run["model"]["execution_path"] != "stub")


def _read_outside(lines: Sequence[Line]) -> set[str]:
    """Return the files that only calls answered from the record read: a check does not open them."""
    run, outside, others = lines[0], Totals(), Totals()
    for step in lines[1:-1]:
        for result in step["tool_results"]:
            totals = outside if _is_outside(run, result) else others
            totals.add({**step, "tool_results": [result]})
    return outside.documents - others.documents - paths_of(run, Totals())


def _is_outside(run: Line, result: Mapping[str, Any]) -> bool:
    """Return whether a check takes the result of a call from the record."""
    live = _is_live(run)
    effects = {tool["name"]: tool["effect"] for tool in run["tools"]}
    effect = effects.get(result["name"])
    late = any(attempt.get("fault", {}).get("kind") == "timeout" for attempt in result["attempts"])
    return bool(effect == "external" or (live and (effect == "network" or late)))
