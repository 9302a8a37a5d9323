"""Recorded runs that somebody changed: reader of ledgers, rebuild and `verify` must refuse, not break."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

from fuzz.oracle import ROOT, need
from tachograph.evidence.checking.verify import verify
from tachograph.evidence.files.manifest import FILES, STATE
from tachograph.evidence.files.rebuild import rebuild
from tachograph.fail.errors import RecordError
from tachograph.runtime.formats import canonical_json
from tachograph.runtime.formats.canonical_json import NotJson
from tachograph.runtime.journal import ledger

# runs that between them hold every kind of line, attempt and decision
RUNS = (
    *("policy_gates/one_of_several_denied", "policy_gates/pg1_redirect_off_allowlist"),
    *("policy_gates/approval_given", "failure_modes/tool_call_failure", "failure_modes/llm_failure"),
)
TOKENS = ("null", "[]", "{}", '""', "-1", "1.5", "true", "9007199254740991", "/0/", "/-", "delete", '"\\n"')


@lru_cache(maxsize=8)
def _files(run: int) -> dict[str, bytes]:
    folder = ROOT / "runs" / RUNS[run % len(RUNS)]
    return {name: (folder / name).read_bytes() for name in FILES}


@lru_cache(maxsize=8)
def _lines(run: int) -> tuple[str, ...]:
    return tuple(_files(run)[STATE].decode("utf-8").splitlines())


def pointers(value: Any, prefix: str = "") -> Iterable[str]:
    """Every place in a line, by JSON Pointer; keys of ours hold neither ~ nor /."""
    yield prefix
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from pointers(item, f"{prefix}/{key}")


def _put(value: Any, tokens: list[str], new: Any, *, delete: bool) -> Any:
    """`value` with what stands at a place changed or gone; a place that is not there changes nothing."""
    if not tokens:
        return new
    if not isinstance(value, dict | list):
        return value
    head, rest = tokens[0], tokens[1:]
    key: Any = int(head) if isinstance(value, list) and head.isdecimal() and len(head) < 6 else head
    there = (type(key) is int and key < len(value)) if isinstance(value, list) else key in value
    if there:
        if rest or not delete:
            value[key] = _put(value[key], rest, new, delete=delete)
        else:
            del value[key]
    elif isinstance(value, dict) and not rest and not delete:
        value[key] = new
    return value


def changed(data: bytes) -> bytes | None:
    """A ledger with whole chain: each line of `data` is "LINE POINTER JSON" or "LINE POINTER delete"."""
    first, *changes = data.decode("utf-8", "replace").split("\n")
    lines: list[Any] = [json.loads(line) for line in _lines(int(first) if first in set("01234") else 0)]
    for change in changes[:8]:
        words = change.split(" ", 2)
        if len(words) != 3 or not words[0].isdecimal() or len(words[0]) > 3:
            continue
        number = int(words[0]) % len(lines)
        tokens = words[1].split("/")[1:]
        try:
            new = None if words[2] == "delete" else canonical_json.parse(words[2]).value()
        except NotJson:
            continue
        lines[number] = _put(lines[number], tokens, new, delete=words[2] == "delete")
    book = ledger.Ledger()
    try:
        texts = [book.append(line) if isinstance(line, dict) else json.dumps(line) for line in lines]
    except NotJson:
        return None
    return "".join(f"{text}\n" for text in texts).encode()


def change_ledger(data: bytes) -> None:
    """A ledger of another shape, its chain made whole again, is refused by name or gives the other files."""
    state = changed(data)
    if state is None:
        return
    files = dict(_files(0))
    try:
        files.update(rebuild(state, STATE, files))
    except RecordError as error:
        need(str(error).isprintable(), f"not one plain line: {error}")
    _verified({**files, STATE: state})


def change_files(data: bytes) -> None:
    """A run with a file spliced: "RUN FILE OFFSET LENGTH", then what is put there. `verify` says so."""
    head, _, put = data.partition(b"\n")
    words = [int(word) for word in head.split()[:4] if word.isdigit() and len(word) < 8]
    run, file, offset, length = [*words, 0, 0, 0, 0][:4]
    files = dict(_files(run))
    name = FILES[file % len(FILES)]
    text = files[name]
    offset %= len(text) + 1
    files[name] = text[:offset] + put + text[offset + length :]
    said = _verified(files)
    need(said or files == _files(run) or _volatile(files, run), f"{name} was changed, and nobody says so")


def _volatile(files: dict[str, bytes], run: int) -> bool:
    """Whether the manifest says the same but for what only `check` or a seal proves, in the form it is written in.

    That is its volatile keys and the digests of its inputs.
    """
    from tachograph.evidence.files import manifest

    (changed_name,) = [name for name in FILES if files[name] != _files(run)[name]]
    if changed_name != manifest.MANIFEST:
        return False
    read = [manifest.read(each[changed_name]) for each in (files, _files(run))]
    for one in read:
        for item in one["inputs"]:
            item["sha256"] = len(item["sha256"])
    return manifest.stable(read[0]) == manifest.stable(read[1])


def _verified(files: dict[str, bytes]) -> list[str]:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place, "run")
        folder.mkdir()
        for name, data in files.items():
            (folder / name).write_bytes(data)
        said = verify(folder, Path(place))
    need(all(line.isprintable() for line in said), f"not plain lines: {said!r}")
    return said


def ledger_seeds() -> Iterable[bytes]:
    """A change at every place that some run has, once."""
    seen = set()
    for run in range(len(RUNS)):
        for number, text in enumerate(_lines(run)):
            line = json.loads(text)
            for place in pointers(line):
                kind = (line["type"], "".join(c for c in place if not c.isdecimal()))
                if kind not in seen:
                    seen.add(kind)
                    yield f"{run}\n{number} {place} null".encode()


def file_seeds() -> Iterable[bytes]:
    """A byte more in each file, and each file cut off."""
    for file, name in enumerate(FILES):
        yield f"0 {file} 100 0\n ".encode()
        yield f"1 {file} {len(_files(1)[name]) // 2} 9999999\n".encode()
        yield f"2 {file} 0 9999999\n{{}}\n".encode()
