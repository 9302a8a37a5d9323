"""Runs are made in many environments, each a process of its own, and give the same bytes.

The canonical run is recorded through the command line, then all runs are derived in memory, all in one process.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tachograph.evidence.files import manifest as manifests
from tachograph.evidence.files.claims.package_digest import package_digest
from tachograph.evidence.recording.recorded import is_live
from tachograph.runtime.formats import canonical_json
from tests.evidence.project import acts_outside, all_runs
from tests.support import CANONICAL, FILES, ROOT, TASK, cli, copy_project, environment


@dataclass(frozen=True)
class Place:
    """An environment: where the project lies, what the process is told, how it is started."""

    name: str
    folder: str = "plain"
    env: dict[str, str] = field(default_factory=dict)
    flags: tuple[str, ...] = ()
    umask: int = -1
    cwd: str = "."


PLACES = [
    Place("a space and an umlaut", folder="with ä space"),
    Place("behind a link", folder="link"),
    Place("a very long path", folder="/".join(["long" * 10] * 12)),
    Place("inside a git repository", folder="repository"),
    Place("below the root", cwd="data/corpus"),
    Place("time zone east", env={"TZ": "Asia/Kathmandu"}),
    Place("time zone west", env={"TZ": "America/St_Johns"}),
    Place("no such time zone", env={"TZ": "Nowhere/City"}),
    Place("C locale", env={"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}),
    Place("POSIX locale with UTF-8", env={"LC_ALL": "POSIX", "PYTHONUTF8": "1"}),
    Place("German", env={"LC_ALL": "de_DE.UTF-8", "LANG": "de_DE.UTF-8"}),
    Place("ASCII streams", env={"PYTHONIOENCODING": "ascii"}),
    Place("hash seed 0", env={"PYTHONHASHSEED": "0"}),
    Place("hash seed 4294967295", env={"PYTHONHASHSEED": "4294967295"}),
    Place("closed umask", umask=0o077),
    Place("open umask", umask=0o000),
    Place("temporary folder elsewhere", env={"TMPDIR": "with ä space"}),
    Place("OpenTelemetry switched off", env={"OTEL_SDK_DISABLED": "true", "OTEL_TRACES_EXPORTER": "none"}),
    Place(
        "OpenTelemetry told otherwise",
        env={
            "OTEL_SERVICE_NAME": "other",
            "OTEL_RESOURCE_ATTRIBUTES": "a=b",
            "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1",
            "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT": "1",
            "OTEL_TRACES_SAMPLER": "always_off",
        },
    ),
    Place("optimised", flags=("-O",)),
    Place("optimised twice", flags=("-OO",)),
    Place("warnings are errors", flags=("-W", "error")),
    Place("development mode", flags=("-X", "dev")),
    Place("small int strings", env={"PYTHONINTMAXSTRDIGITS": "640"}),
    Place("no home, no user", env={"HOME": "/nonexistent", "USER": "", "LOGNAME": ""}),
    Place("column width 1", env={"COLUMNS": "1", "NO_COLOR": "1"}),
]


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder that holds a copy of the project for each folder name of the table."""
    base = tmp_path_factory.mktemp("places")
    for name in sorted({place.folder for place in PLACES} - {"link"}):
        copy_project(base / name)
    (base / "link").symlink_to("with ä space")
    if shutil.which("git"):
        settings = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
        who = ["-c", "user.name=x", "-c", "user.email=x@example.com", "-c", "init.defaultBranch=x"]
        for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "x"]):
            subprocess.run(
                ["git", *who, *command], cwd=base / "repository", env=settings, check=True, timeout=30
            )
    return base


def _same(made: Path) -> list[str]:
    """The files of a fresh run that differ from the committed ones."""
    committed = ROOT / CANONICAL
    differ = [file for file in FILES[:3] if (made / file).read_bytes() != (committed / file).read_bytes()]
    texts = [manifests.stable(json.loads((at / FILES[3]).read_bytes())) for at in (made, committed)]
    return differ + ([FILES[3]] if texts[0] != texts[1] else [])


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.name)
def test_the_same_bytes(place: Place, folders: Path, tmp_path: Path) -> None:
    project = folders / place.folder
    env = dict(place.env)
    if "TMPDIR" in env:
        env["TMPDIR"] = str(folders / env["TMPDIR"])
    out = tmp_path / "made"
    cwd = project / place.cwd
    up = os.path.relpath(project, cwd)
    env.setdefault("PYTHONPATH", str(project))
    done = cli(
        *("run", f"{up}/{TASK}", "--out", out),
        cwd=cwd,
        env=env,
        python=(sys.executable, *place.flags),
        umask=place.umask,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert _same(out) == []
    manifest = json.loads((out / "manifest.json").read_bytes())
    assert (manifest["code"]["git_sha"] is None) == (place.folder != "repository" or not shutil.which("git"))
    assert manifest["code"]["package"] == package_digest()


def test_the_check_itself_holds_elsewhere(folders: Path) -> None:
    for name in ("with ä space", "link"):
        done = cli("check", cwd=folders / name, env={"LC_ALL": "C", "TZ": "Asia/Kathmandu"})
        assert (done.returncode, done.stderr) == (0, "")


# ---- all runs ------------------------------------------------------------------------------------------

_DERIVE = """
import hashlib, json, sys
from pathlib import Path
from tachograph.evidence.tasks.task import build, load_task
from tachograph.evidence.files.writer import derive
found = {}
for path in sorted(Path("tasks").glob("*/*.yaml")):
    task = load_task(path)
    if not task.is_scripted or f"{path.parent.name}/{path.stem}" in sys.argv[1:]:
        continue
    files, _ = derive(*build(task))
    found[f"{path.parent.name}/{path.stem}"] = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
print(json.dumps(found))
"""


# runs whose effects happen once
_OUTSIDE = [run.relative_to(ROOT / "runs").as_posix() for run in all_runs() if acts_outside(run)]


def _derived(project: Path, place: Place, python: str = sys.executable, **options: Any) -> dict[str, Any]:
    """Run (KIND/NAME) -> file -> digest, as a process in `place` derives all runs of `project`."""
    env = {"PYTHONPATH": str(project), **place.env}
    done = subprocess.run(
        [python, *place.flags, "-c", _DERIVE, *_OUTSIDE],
        cwd=project,
        env=environment(env),
        umask=place.umask,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        **options,
    )
    assert (done.returncode, done.stderr) == (0, "")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="session")
def committed() -> dict[str, Any]:
    """The digests of the committed runs; of a manifest without its volatile keys."""
    found = {}
    for run in all_runs():
        if is_live(run) or acts_outside(run):
            continue
        files = {name: (run / name).read_bytes() for name in FILES[:3]}
        files[FILES[3]] = manifests.stable(json.loads((run / FILES[3]).read_bytes())).encode()
        name = run.relative_to(ROOT / "runs").as_posix()
        found[name] = {name: canonical_json.digest(data) for name, data in files.items()}
    return found


ALL = [place for place in PLACES if place.cwd == "."]


@pytest.mark.parametrize("place", ALL, ids=lambda place: place.name)
def test_all_runs_give_the_same_bytes(place: Place, folders: Path, committed: dict[str, Any]) -> None:
    env = dict(place.env)
    if "TMPDIR" in env:
        env["TMPDIR"] = str(folders / env["TMPDIR"])
    found = _derived(folders / place.folder, Place(place.name, env=env, flags=place.flags, umask=place.umask))
    assert found == committed


def test_a_change_would_be_seen(folders: Path, committed: dict[str, Any], tmp_path: Path) -> None:
    project = copy_project(tmp_path / "changed")
    page = project / "data/corpus/v1/op-a4.md"
    page.write_bytes(page.read_bytes().replace(b"20 minutes", b"21 minutes"))
    found = _derived(project, Place("changed"))
    assert found.keys() == committed.keys()
    changed = {name for name in found if found[name] != committed[name]}
    assert "canonical/v1" in changed and "policy_gates/pg5_arg_schema" not in changed


@pytest.fixture
def open_project() -> Iterator[Path]:
    """A copy of the project that every user may read; its external tool may write where it does."""
    with tempfile.TemporaryDirectory(prefix="tachograph-open-") as folder:
        os.chmod(folder, 0o755)
        project = copy_project(Path(folder) / "project")
        (project / ".tachograph").mkdir(exist_ok=True)
        os.chmod(project / ".tachograph", 0o777)
        yield project


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_gives_the_same_bytes(open_project: Path, committed: dict[str, Any]) -> None:
    def nobody() -> None:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)

    path = f"{open_project}{os.pathsep}{sysconfig.get_path('purelib')}"
    place = Place("another user", env={"PYTHONPATH": path, "HOME": "/nonexistent", "USER": "", "LOGNAME": ""})
    name = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    for python in (sys.executable, *(f"{folder}/{name}" for folder in ("/usr/local/bin", "/usr/bin"))):
        if _starts(python, place, nobody):
            assert _derived(open_project, place, python, preexec_fn=nobody) == committed
            return
    pytest.skip("another user may start no Python here that knows these packages")


def _starts(python: str, place: Place, preexec: Callable[[], None]) -> bool:
    try:
        done = subprocess.run(
            [python, "-c", "import yaml, jsonschema, rpds"],
            env={**os.environ, **place.env},
            cwd="/",
            capture_output=True,
            timeout=60,
            check=False,
            preexec_fn=preexec,
        )
    except OSError:
        return False
    return done.returncode == 0


# ---- other versions of Python --------------------------------------------------------------------------


@pytest.mark.parametrize("version", [(3, minor) for minor in range(11, 16)], ids=lambda v: f"{v[0]}.{v[1]}")
def test_every_python_at_hand_gives_the_same_bytes(
    version: tuple[int, int], folders: Path, committed: dict[str, Any], tmp_path: Path
) -> None:
    name = f"python{version[0]}.{version[1]}"
    python = sys.executable if version == sys.version_info[:2] else shutil.which(name)
    packages = os.pathsep + sysconfig.get_path("purelib")
    prepared = (
        ROOT / ".pythons" / f"{version[0]}.{version[1]}"
    )  # `make pythons` makes it, with its own packages
    if (prepared / ".ready").exists() and version != sys.version_info[:2]:
        python, packages = str(prepared / "bin/python"), ""
    if python is None:
        pytest.skip(f"there is no {name} here")
    env = {"PYTHONPATH": f"{folders / 'plain'}{packages}"}
    probe = subprocess.run(
        [python, "-c", "import yaml, jsonschema, rpds"],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if probe.returncode != 0:
        reason = (probe.stderr.strip().splitlines() or ["it does not start"])[-1]
        pytest.skip(f"{name} cannot use these packages ({reason[:100]}); `make pythons` prepares it")
    out = tmp_path / "made"
    done = cli("run", TASK, "--out", out, cwd=folders / "plain", env=env, python=(python,))
    assert done.returncode == 0, done.stderr
    assert _same(out) == []
    assert _derived(folders / "plain", Place(name, env=env), python) == committed
