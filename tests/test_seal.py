"""`tachograph seal` and `verify --signers`: what a seal holds, what breaks it, and what is not sealed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import chdir
from pathlib import Path

import pytest

from tachograph.cli.common import harmless
from tests.commands import Capsys, exit_code, output_of
from tests.deaths import deaths
from tests.project import ROWS, made_once, make_project

SUMS, SIGNATURE, LINK, NAME = "SHA256SUMS", "SHA256SUMS.sig", "a link", "zoë@test"
SEAL = [sys.executable, "-m", "tachograph", "seal", "--key"]


@pytest.fixture
def sealed(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A project, sealed with `key`, whose owner may sign; `locked` has a passphrase."""
    if shutil.which("ssh-keygen") is None:
        pytest.skip("ssh-keygen is not installed")
    monkeypatch.setattr(os, "isatty", lambda fd: False)
    shutil.copytree(made_once("sealed", tmp_path_factory, make_sealed), tmp_path / "a")
    capsys.readouterr()
    monkeypatch.chdir(tmp_path / "a/p")
    return tmp_path / "a/p"


def make_sealed(folder: Path) -> None:
    """Make a sealed project in a folder, and keys beside it."""
    with chdir(make_project(folder / "p", [ROWS["call"]])):
        assert exit_code("run") == 0
        for name, phrase in (("key", ""), ("other", ""), ("locked", "secret words")):
            subprocess.run(["ssh-keygen", "-qted25519", "-N", phrase, "-f", f"../{name}"], check=True)
        change("../signers", f"{NAME} KEY")
        change("tools/with space ä.txt", "a\n")
        assert exit_code("seal", "--key", "../key") == 0


def change(name: str, text: str | None) -> None:
    """Write a file, remove it where there is no text, or put a link to its like in its place."""
    path = Path(name)
    if text is None:
        path.unlink()
    elif text == LINK:
        path.symlink_to(path.rename(Path("../like").resolve()))
    else:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text.replace("KEY", Path("../key.pub").read_text()) if "KEY" in text else text)


def pair() -> list[bytes]:
    return [Path(name).read_bytes() for name in (SUMS, SIGNATURE) if Path(name).exists()]


def test_a_seal_holds_and_is_read_by_sha256sum(sealed: Path, capsys: Capsys) -> None:
    assert NAME in output_of(capsys, "verify", "--signers", "../signers").out
    subprocess.run(["sha256sum", "--check", "--strict", SUMS], check=True)
    names = [line[66:] for line in Path(SUMS).read_text().splitlines()]
    assert names == sorted(names)


BROKEN = [
    # a file, its text, and whether somebody who may has signed
    ("policy/call.yaml", "{}\n", True),
    ("tasks/s/call.yaml", None, True),
    ("runs/LIST", LINK, True),
    ("runs/s/call.partial/state.jsonl", "", True),
    ("tools/echo.py", "", True),
    ("profiles/helper.yaml", "{}\n", True),
    ("mcp.lock", "{}\n", True),
    (SUMS, "", False),
    (SUMS, None, False),
    (SIGNATURE, "junk\n", False),
    ("../signers", "", False),
    ("../signers", "!nobody@mail.test KEY", False),
    ("../signers", f'{NAME} valid-before="20200101" KEY', False),
    ("../signers", f'{NAME} namespaces="git" KEY', False),
]


@pytest.mark.parametrize(("name", "text", "signed"), BROKEN)
def test_changes_are_named(sealed: Path, capsys: Capsys, name: str, text: str | None, signed: bool) -> None:
    change(name, text)
    first, *others = output_of(capsys, "verify", "--signers", "../signers", code=1).out.splitlines()
    assert first.startswith(SUMS) and (NAME in first) is signed
    assert [line.partition(":")[0] for line in others] == [name] * signed


REFUSED = [
    # a file and its text, the key, the exit code
    ("policy/call.yaml", LINK, "key", 2),
    ("tools/a\nb", "", "key", 2),
    ("tools/__pycache__/a.pyc", "", "key", 2),
    ("runs/s/call.partial/state.jsonl", "", "key", 2),
    ("runs/s/call/run_report.md", "", "key", 1),
    ("../other", None, "other", 2),
    ("../other", None, "other.pub", 2),
    ("../like", "", "locked", 2),
]


@pytest.mark.parametrize(("name", "text", "key", "code"), REFUSED)
def test_refusals(sealed: Path, capsys: Capsys, name: str, text: str | None, key: str, code: int) -> None:
    before = pair()
    change("tasks/s/new.yaml", "new\n")
    change(name, text)
    said = output_of(capsys, "seal", "--key", f"../{key}", code=code)
    assert (harmless(name) if key == "key" else key) in (said.err if code == 2 else said.out)
    assert said.err.count("\n") == (code == 2) and pair() == before


def test_a_key_is_a_regular_file(sealed: Path, capsys: Capsys) -> None:
    os.mkfifo("../fifo")
    assert "regular" in output_of(capsys, "seal", "--key", "../fifo", code=2).err


def test_without_ssh_keygen(two_runs: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    change(SUMS, "")
    monkeypatch.setenv("PATH", str(two_runs))
    assert exit_code("verify", "--signers", SUMS) == exit_code("seal", "--key", SUMS) == 2
    assert ["ssh-keygen" in line for line in capsys.readouterr().err.splitlines()] == [True] * 2


def test_wherever_a_seal_dies_sums_lie_beside_their_own_signature(sealed: Path, capsys: Capsys) -> None:
    change("tools/new.py", "")
    folder, key, signers = (str(sealed.parent / name) for name in ("copy/p", "key", "signers"))
    for _ in deaths(Path(folder), lambda: (os.chdir(folder), exit_code("seal", "--key", key)), sealed):
        os.chdir(folder)
        assert (NAME in output_of(capsys, "verify", "--signers", signers, code=1).out) is Path(SUMS).exists()
    os.chdir(folder)
    assert exit_code("verify", "--signers", signers) == 0


@pytest.mark.parametrize(("typed", "signs"), [(b"secret words\n", True), (b"\x03", False)])
def test_at_a_terminal_the_passphrase_is_asked_for(sealed: Path, typed: bytes, signs: bool) -> None:
    before, (near, far) = pair(), os.openpty()
    change("tools/new.py", "")
    # a session takes the terminal that it opens first
    command = ["sh", "-c", 'exec "$@" <"$0"', os.ttyname(far), *SEAL, "../locked"]
    with subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=far) as process:
        os.close(far)
        os.read(near, 1)  # the question, or an error where none comes
        os.write(near, typed)
        assert (process.wait(60) == 0) is signs
    os.close(near)
    assert (pair() != before) is signs


def test_an_agent_signs_for_a_public_key(sealed: Path) -> None:
    change("tools/new.py", "")
    script = 'ssh-add ../key && rm ../key && exec "$@"'
    subprocess.run(["ssh-agent", "sh", "-c", script, "sh", *SEAL, "../key.pub"], check=True)
    assert exit_code("verify", "--signers", "../signers") == 0
