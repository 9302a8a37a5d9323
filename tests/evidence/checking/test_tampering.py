"""Whatever is changed in a record or its inputs, the check fails, names it, and says how to accept it."""

from __future__ import annotations

import contextlib
import json
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tachograph.evidence.checking.check import examine, runs_below
from tachograph.evidence.checking.differences.compare import Findings
from tachograph.evidence.checking.verify import verify
from tachograph.evidence.files import manifest
from tachograph.evidence.files.claims.volatile import misshapen_claims
from tachograph.runtime.formats import canonical_json
from tests.support import CANONICAL, FILES, ROOT, TASK, cli, copy_project

AGAIN = f"run {TASK} --out {CANONICAL}".split()
ACCEPT = f'tachograph accept {CANONICAL} --reason "..."'
BYTES = {file: (ROOT / CANONICAL / file).read_bytes() for file in FILES}
MANIFEST = json.loads(BYTES["manifest.json"])


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_project(tmp_path_factory.mktemp("tampering") / "project")


@pytest.fixture
def run(project: Path) -> Any:
    """The committed run in the copy; whatever a test does to it is undone."""
    folder = project / CANONICAL
    yield folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for file, data in BYTES.items():
        (folder / file).write_bytes(data)
    assert _check(folder).ok


def _check(folder: Path) -> Findings:
    return examine(folder, root=folder.parent.parent.parent)


def _drifted(folder: Path, *names: str) -> None:
    found = _check(folder)
    assert not found.ok
    text = "\n".join(found.lines)
    assert [name for name in names if name not in text] == [], text
    # what was changed by hand, or cannot be made again, is never offered
    assert found.accept == (None if found.broken else ACCEPT)
    assert "Traceback" not in text and str(folder) not in text


def test_the_copy_holds_as_it_is(run: Path) -> None:
    assert _check(run).lines == []


# ---- the four files ------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", FILES[:3])
@pytest.mark.parametrize("place", [0, 100, -200, -1], ids=str)
def test_a_changed_byte_of_a_file_is_named(run: Path, file: str, place: int) -> None:
    data = bytearray(BYTES[file])
    data[place] ^= 1
    (run / file).write_bytes(data)
    _drifted(run, file)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_no_byte_of_the_four_files_is_free(tmp_path_factory: pytest.TempPathFactory, data: Any) -> None:
    """Any byte may change to any other: the check fails, but for what stands in a volatile key."""
    project = _shared(tmp_path_factory)
    file = data.draw(st.sampled_from(FILES))
    changed = bytearray(BYTES[file])
    place = data.draw(st.integers(0, len(changed) - 1))
    changed[place] ^= data.draw(st.integers(1, 255))
    run = project / CANONICAL
    (run / file).write_bytes(changed)
    try:
        found = _check(run)
    finally:
        (run / file).write_bytes(BYTES[file])
    if file == "manifest.json" and _volatile_only(bytes(changed)):
        assert found.ok
    else:
        assert not found.ok and any(file in line or "task" in line for line in found.lines)


_PROJECTS: list[Path] = []


def _shared(factory: pytest.TempPathFactory) -> Path:
    if not _PROJECTS:
        _PROJECTS.append(copy_project(factory.mktemp("bytes") / "project"))
    return _PROJECTS[0]


def _volatile_only(text: bytes) -> bool:
    """Whether a manifest is still one, and differs in volatile values only."""
    try:
        there = json.loads(text)
        return (
            there.keys() == MANIFEST.keys()
            and manifest.render(there) == text
            and manifest.stable(there) == manifest.stable(MANIFEST)
            and misshapen_claims(there) == []
        )
    except (ValueError, AttributeError):
        return False


def _leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if isinstance(value, dict):
        return [leaf for key in value for leaf in _leaves(value[key], (*path, key))]
    if isinstance(value, list):
        return [leaf for i, item in enumerate(value) for leaf in _leaves(item, (*path, i))]
    return [path]


STABLE = [path for path in _leaves(MANIFEST) if path[0] not in manifest.VOLATILE]
VOLATILE = [path for path in _leaves(MANIFEST) if path[0] in manifest.VOLATILE]


def _with(path: tuple[Any, ...], change: Callable[[Any], Any]) -> bytes:
    copy = json.loads(BYTES["manifest.json"])
    here = copy
    for key in path[:-1]:
        here = here[key]
    here[path[-1]] = change(here.get(path[-1]))
    return manifest.render(copy)


def _other(value: Any) -> Any:
    return value + 1 if isinstance(value, int | float) else f"{value}x" if value is not None else "x"


@pytest.mark.parametrize("path", STABLE, ids=lambda path: "/".join(map(str, path)))
def test_every_stable_value_of_the_manifest_is_compared(run: Path, path: tuple[Any, ...]) -> None:
    (run / "manifest.json").write_bytes(_with(path, _other))
    _drifted(run, "manifest.json", str(path[0]))


# another value of the shape that each volatile key has
CLAIMED = {
    "timestamp": "2000-01-01T00:00:00Z",
    "wall_clock_seconds": 1,
    "git_sha": None,
    "package": "0" * 64,
    "durability": "step",
}


@pytest.mark.parametrize("path", VOLATILE, ids=lambda path: "/".join(map(str, path)))
def test_volatile_values_may_differ_within_their_shape(run: Path, path: tuple[Any, ...]) -> None:
    (run / "manifest.json").write_bytes(_with(path, lambda old: CLAIMED.get(path[-1], f"{old}x")))
    assert _check(run).lines == []
    for odd in (["x"], {"x": 3}, True, "", "\n", -1, float("1e400")):
        with contextlib.suppress(ValueError):  # no manifest can hold an infinite number
            (run / "manifest.json").write_bytes(_with(path, lambda _, odd=odd: odd))
            _drifted(run, f"manifest.json: /{'/'.join(path)} is n")


@pytest.mark.parametrize(
    ("path", "values"),
    [
        (("timestamp",), ["2000-01-01", "2000-13-01T00:00:00Z", "2000-01-01T00:00:00+00:00", "x"]),
        (("code", "git_sha"), ["0" * 39, "G" * 40, "HEAD"]),
        (("code", "package"), ["0" * 40, None]),
        (("environment", "durability"), ["on", None]),
        (("environment", "python"), [None, "x" * 201]),
        (("environment", "packages"), [{"pyyaml": 6}, 3, None]),
        (("environment", "another"), [3, "", ["x"], {"x": 3}]),
        (("environment",), [{}, None, []]),
    ],
    ids=lambda value: "/".join(value) if isinstance(value, tuple) else "",
)
def test_what_a_volatile_key_may_not_hold(run: Path, path: tuple[str, ...], values: list[Any]) -> None:
    for value in values:
        (run / "manifest.json").write_bytes(_with(path, lambda _, value=value: value))
        _drifted(run, f"manifest.json: /{'/'.join(path)}")
        assert any(f"/{'/'.join(path)}" in line for line in verify(run, run.parent.parent.parent))


@pytest.mark.parametrize("key", sorted(MANIFEST))
def test_no_key_of_the_manifest_may_be_missing(run: Path, key: str) -> None:
    less = {name: value for name, value in MANIFEST.items() if name != key}
    (run / "manifest.json").write_bytes(manifest.render(less))
    _drifted(run, "manifest.json")


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"null",
        b"[]\n",
        b"{}\n",
        b"{",
        b"\xff\xfe",
        b'{"inputs": 3}',
        b"[" * 100_000,
        manifest.render({**MANIFEST, "seed": 10**20}),
        manifest.render({**MANIFEST, "inputs": 3}),
        manifest.render({**MANIFEST, "inputs": ["x"]}),
        manifest.render({**MANIFEST, "more": 1}),
        BYTES["manifest.json"].replace(b"\n", b"\r\n"),
        BYTES["manifest.json"] + b"\n",
        json.dumps(MANIFEST).encode(),
    ],
    ids=lambda text: repr(text[:20]),
)
def test_a_manifest_that_is_none_is_named(run: Path, text: bytes) -> None:
    (run / "manifest.json").write_bytes(text)
    _drifted(run, "manifest.json")


def _lines(change: Callable[[list[bytes]], list[bytes]]) -> bytes:
    return b"".join(change(BYTES["state.jsonl"].splitlines(keepends=True)))


@pytest.mark.parametrize(
    "text",
    [
        _lines(lambda lines: [lines[0], lines[2], lines[1], *lines[3:]]),
        _lines(lambda lines: [*lines[:2], lines[1], *lines[2:]]),
        _lines(lambda lines: [*lines[:2], *lines[3:]]),
        _lines(lambda lines: lines[:-1]),
        _lines(lambda lines: lines[:1]),
        _lines(lambda lines: lines[1:]),
        _lines(lambda lines: [*lines[:-1], lines[-1][:-1]]),
        _lines(lambda lines: [*lines, b"\n"]),
        _lines(lambda lines: [*lines, lines[-1]]),
        _lines(lambda lines: [b"\xef\xbb\xbf" + lines[0], *lines[1:]]),
        _lines(lambda lines: [line.replace(b"\n", b"\r\n") for line in lines]),
        _lines(lambda lines: [lines[0].replace(b'"seed":7', b'"seed":7.0'), *lines[1:]]),
        _lines(lambda lines: [lines[0].replace(b":7,", b": 7,"), *lines[1:]]),
        b"",
        b"null\n",
        b"[" * 50_000,
    ],
    ids=[
        *("swapped", "doubled", "lost", "without end", "one line", "without run", "no last LF", "empty line"),
        *("two ends", "BOM", "CRLF", "float", "space", "empty", "null", "nested"),
    ],
)
def test_lines_swapped_doubled_cut_or_reshaped_are_named(run: Path, text: bytes) -> None:
    assert text != BYTES["state.jsonl"]
    (run / "state.jsonl").write_bytes(text)
    _drifted(run, "state.jsonl")


def test_a_ledger_that_was_chained_anew_does_not_pass(run: Path) -> None:
    """Whoever rewrites the record as a whole still cannot make the run give it."""
    head, texts = None, []
    for text in BYTES["state.jsonl"].splitlines():
        line = json.loads(text)
        if line["type"] == "end":
            line["final_answer"] = "All is well."
        line["prev"] = head
        texts.append(canonical_json.encode(line))
        head = canonical_json.digest(texts[-1])
    (run / "state.jsonl").write_text("".join(f"{text}\n" for text in texts))
    _drifted(run, "state.jsonl", "/final_answer", "All is well.")


@pytest.mark.parametrize("file", FILES)
def test_a_missing_file_is_named(run: Path, file: str) -> None:
    (run / file).unlink()
    assert run in runs_below(run.parent.parent.parent)
    _drifted(run, file)


@pytest.mark.parametrize("name", ["notes.txt", ".lock", "trace.json.orig", "a\x1b[31m\nb"])
def test_an_extra_file_is_named(run: Path, name: str) -> None:
    (run / name).write_text("x")
    _drifted(run, CANONICAL)
    assert not any("\x1b" in line or "\n" in line for line in _check(run).lines)


def test_a_folder_in_the_place_of_a_file_is_named(run: Path) -> None:
    (run / "trace.json").unlink()
    (run / "trace.json").mkdir()
    _drifted(run, "trace.json")


def test_a_stale_folder_is_found(project: Path) -> None:
    stale = project / "runs" / "canonical" / "gone"
    shutil.copytree(ROOT / CANONICAL, stale)
    try:
        assert stale in runs_below(project)
        moved = json.loads(BYTES["state.jsonl"].splitlines()[0])
        moved["task"]["path"] = "tasks/canonical/gone.yaml"
        rest = BYTES["state.jsonl"].split(b"\n", 1)[1]
        (stale / "state.jsonl").write_bytes(canonical_json.encode(moved).encode() + b"\n" + rest)
        (stale / "manifest.json").unlink()
        found = _check(stale)
        assert not found.ok and "tasks/canonical/gone.yaml" in found.lines[0]
    finally:
        shutil.rmtree(stale)


def test_an_empty_folder_is_no_run(project: Path) -> None:
    empty = project / "runs" / "canonical" / "empty"
    empty.mkdir()
    try:
        assert empty in runs_below(project) and not _check(empty).ok
    finally:
        empty.rmdir()


def test_a_task_outside_the_project_is_not_followed(run: Path, tmp_path: Path) -> None:
    shutil.copy(ROOT / TASK, tmp_path / "other.yaml")
    first, rest = BYTES["state.jsonl"].split(b"\n", 1)
    line = json.loads(first)
    line["task"]["path"] = str(tmp_path / "other.yaml")
    (run / "state.jsonl").write_bytes(canonical_json.encode(line).encode() + b"\n" + rest)
    _drifted(run, CANONICAL, "is a run of /", f"here belongs one of {TASK}")


# ---- the inputs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "change", "named"),
    [
        ("policy/v1.yaml", (b"max_iterations: 10", b"max_iterations: 11"), "policy_version"),
        ("policy/v1.yaml", (b"private_networks: []", b"private_networks: [10.9.0.0/16]"), "policy/v1.yaml"),
        ("data/corpus/v1/op-a4.md", (b"20 minutes", b"21 minutes"), "data/corpus/v1/op-a4.md"),
        ("data/corpus/v1/op-e5.md", (b".", b"!"), "data/corpus/v1/op-e5.md"),
        ("tools/read.py", (b'"""Read', b'"""Reads'), "tools/read.py"),
        ("tools/search.py", (b"DEFAULT_TOP_K = 5", b"DEFAULT_TOP_K = 6"), "tools/search.py"),
        (TASK, (b"top_k: 3", b"top_k: 4"), TASK),
        (TASK, (b"seed: 7", b"seed: 8"), "/seed: 7 -> 8"),
        (TASK, (b"title: ", b"title: On "), TASK),
    ],
    ids=lambda value: value if isinstance(value, str) and value.startswith(("p", "d", "t")) else "",
)
def test_a_moved_input_is_named(
    run: Path, project: Path, file: str, change: tuple[bytes, bytes], named: str
) -> None:
    before = (project / file).read_bytes()
    after = before.replace(*change, 1)
    assert after != before
    (project / file).write_bytes(after)
    try:
        _drifted(run, named)
        assert any(line.startswith(f"input moved: {file}") for line in _check(run).lines)
    finally:
        (project / file).write_bytes(before)


@pytest.mark.parametrize("file", ["policy/v1.yaml", "tools/fetch.py", "data/corpus/v1/op-a4.md"])
def test_a_missing_input_is_named(run: Path, project: Path, file: str) -> None:
    before = (project / file).read_bytes()
    (project / file).unlink()
    try:
        found = _check(run)
        assert not found.ok and any(Path(file).stem in line for line in found.lines)
    finally:
        (project / file).write_bytes(before)


def test_a_missing_task_is_named(run: Path, project: Path) -> None:
    (project / TASK).rename(project / "aside")
    try:
        found = _check(run)
        assert not found.ok and TASK in found.lines[0] and found.accept is None
    finally:
        (project / "aside").rename(project / TASK)


def test_the_command_prints_what_moved_and_accepting_mends_it(tmp_path: Path) -> None:
    project = copy_project(tmp_path / "project")
    file = project / "data/corpus/v1/op-a4.md"
    file.write_bytes(file.read_bytes().replace(b"20 minutes", b"25 minutes"))
    done = cli("check", CANONICAL, cwd=project)
    assert done.returncode == 1
    assert "data/corpus/v1/op-a4.md" in done.stdout and ACCEPT in done.stdout
    report = json.loads(cli("check", CANONICAL, "--json", cwd=project).stdout)
    assert report["runs"] == 1 and list(report["drifted"]) == [CANONICAL]
    accepted = cli(*shlex.split(ACCEPT)[1:], cwd=project, env={"CI": ""})
    assert accepted.returncode == 0, accepted.stderr
    assert cli("check", CANONICAL, cwd=project).returncode == 0


def test_recording_again_mends_a_manifest_that_was_edited_by_hand(tmp_path: Path) -> None:
    project = copy_project(tmp_path / "project")
    (project / CANONICAL / "manifest.json").write_bytes(json.dumps(MANIFEST).encode())
    assert cli("check", cwd=project).returncode == 1
    assert cli(*AGAIN, cwd=project).returncode == 0
    assert cli("check", cwd=project).returncode == 0
