"""Seal a copy of this repository with keys that are thrown away, attack it, and show what `verify` says.

    python -m dev.seal_demo

Exit code 0 if every command ended as it should.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tachograph.evidence.recording import index
from tachograph.runtime.formats.shipped_files import shipped

FOLDERS = ("policy", "tools", "data", "tasks", "runs")
ONE = "runs/policy_gates/pg5_arg_schema"
OTHER = "runs/canonical/v1"


def make_key(place: Path) -> str:
    """Write a private key and return its public half as a file of trusted keys names it."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    private = Ed25519PrivateKey.generate()
    pem = serialization.Encoding.PEM
    place.touch(0o600)
    place.write_bytes(
        private.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    public = private.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo)
    return str(public.decode("ascii").splitlines()[1])


def swap(project: Path) -> None:
    """Let two runs change places, with their lines of the index."""
    (project / ONE).rename(project / "aside")
    (project / OTHER).rename(project / ONE)
    (project / "aside").rename(project / OTHER)
    index.update(project)


def delete(project: Path) -> None:
    """Delete a run with its task and its line of the index."""
    shutil.rmtree(project / ONE)
    (project / f"tasks{ONE.removeprefix('runs')}.yaml").unlink()
    index.update(project)


def strip(project: Path) -> None:
    """Take the signatures off the last snapshot."""
    path = sorted((project / "seals").glob("*.json"))[-1]
    envelope: dict[str, Any] = json.loads(path.read_bytes())
    path.write_text(json.dumps({**envelope, "signatures": []}), encoding="ascii")


def edit(project: Path) -> None:
    """Change the policy, as a pull request does."""
    with (project / "policy/v1.yaml").open("a", encoding="utf-8") as policy:
        policy.write("# a later change\n")


class Demo:
    """A copy of this repository, its keys, and how many commands ended otherwise than they should."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.project = place / "project"
        self.wrong = 0
        for folder in FOLDERS:
            skip = shutil.ignore_patterns("__pycache__", "*.partial")
            shutil.copytree(shipped(folder), self.project / folder, ignore=skip)
        names = ("ann", "bob")
        lines = "".join(f"  {name}: {make_key(place / name)}\n" for name in names)
        (place / "keys.yaml").write_text(f"threshold: {len(names)}\nkeys:\n{lines}", encoding="utf-8")

    def show(self, expected: int, *words: str, project: Path | None = None) -> None:
        """Perform a command, print it and what it printed, and note where its exit code is another."""
        print(f"$ tachograph {' '.join(words)}")
        done = subprocess.run(  # noqa: S603 - this very package
            [sys.executable, "-m", "tachograph", *words],
            cwd=project or self.project,
            capture_output=True,
            text=True,
            check=False,
        )
        said = (done.stdout + done.stderr).rstrip()
        print(f"{said}\n(exit code {done.returncode})\n")
        if done.returncode != expected:
            print(f"seal-demo: the exit code should have been {expected}\n")
            self.wrong += 1

    def attack(self, title: str, change: Callable[[Path], object], expected: int, *words: str) -> None:
        """Change a copy of the project, and verify it."""
        print(f"## {title}\n")
        copy = self.place / "attacked"
        shutil.copytree(self.project, copy)
        change(copy)
        self.show(expected, "verify", "--trust", "../keys.yaml", *words, project=copy)
        shutil.rmtree(copy)


def main() -> int:
    """Show it and return the exit code."""
    with tempfile.TemporaryDirectory() as folder:
        demo = Demo(Path(folder))
        print("## Two keys sign the project\n")
        demo.show(0, "seal", "--all", "--key", "../ann")
        demo.show(1, "verify", "--trust", "../keys.yaml")
        demo.show(0, "seal", "--all", "--add-signature", "--key", "../bob")
        demo.show(0, "verify", "--trust", "../keys.yaml", "--strict")
        demo.attack("A later change is listed", edit, 0)
        demo.attack("... and refused where a sealed state is expected", edit, 1, "--strict")
        demo.attack("Two runs change places", swap, 1)
        demo.attack("A run is deleted with its task", delete, 1)
        demo.attack("The signatures are taken off", strip, 1)
        demo.attack("Everything is rolled back", lambda project: None, 1, "--at-least", "2")
    print("seal-demo: " + ("all as it should be" if not demo.wrong else f"{demo.wrong} wrong"))
    return 1 if demo.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
