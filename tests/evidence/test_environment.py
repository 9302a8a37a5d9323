"""The canonical run is made in many environments, each a process of its own, and gives the same bytes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tachograph.evidence import manifest as manifests
from tests.support import CANONICAL, FILES, ROOT, TASK, cli, copy_project


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
        for command in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "x"]):
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


def test_the_check_itself_holds_elsewhere(folders: Path) -> None:
    for name in ("with ä space", "link"):
        done = cli("check", cwd=folders / name, env={"LC_ALL": "C", "TZ": "Asia/Kathmandu"})
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("version", [(3, minor) for minor in range(11, 16)], ids=lambda v: f"{v[0]}.{v[1]}")
def test_every_python_at_hand_gives_the_same_bytes(
    version: tuple[int, int], folders: Path, tmp_path: Path
) -> None:
    name = f"python{version[0]}.{version[1]}"
    python = sys.executable if version == sys.version_info[:2] else shutil.which(name)
    if python is None:
        pytest.skip(f"there is no {name} here")
    env = {"PYTHONPATH": f"{folders / 'plain'}{os.pathsep}{sysconfig.get_path('purelib')}"}
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
        pytest.skip(f"{name} cannot use these packages: {reason[:100]}")
    out = tmp_path / "made"
    done = cli("run", TASK, "--out", out, cwd=folders / "plain", env=env, python=(python,))
    assert done.returncode == 0, done.stderr
    assert _same(out) == []
