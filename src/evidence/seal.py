"""The seal of a project: `SHA256SUMS` over its runs, policies, profiles, tasks and tools, signed with `ssh-keygen -Y`.

`sha256sum -c` reads the sums, and who may sign stands in a file such as the `allowed_signers` of git. Documents and
hooks are not among the files: the manifests of the runs hold their digests, and `check` compares them.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

from ..fail.errors import InputError
from ..runtime.formats.documents import read_plain
from ..runtime.formats.durable_write import sync, write_durably
from ..runtime.formats.strict_json import digest
from .record_files import MOST_BYTES

SUMS: Final = "SHA256SUMS"
_SEALED: Final = ("mcp.lock", "policy", "profiles", "runs", "tasks", "tools")
_NAMESPACE: Final = "-ntachograph"  # a signature of anything else, such as a commit, is none of a seal
_PATIENCE_S: Final = 60
_MOST: Final = 1_000_000  # bytes of a key, or of those who may sign


def seal(root: Path, key: Path) -> int:
    """Write the sums of a project and their signature.

    Args:
        root: The folder of the project.
        key: The file of a private key, or of a public one whose private one ssh-agent has.

    Returns:
        The number of files.

    Raises:
        InputError: A file cannot be sealed, or the key does not sign; an earlier seal stays.
        OSError: A file cannot be read or written.
    """
    digests = _digests(root)
    for name, sha256 in digests.items():
        if not sha256:
            raise InputError("is a link, or not a regular file", file=name, remedy="put a file in its place")
        if {*name} & {*"\n\r\\"}:
            raise InputError("has a name that sha256sum cannot list", file=name, remedy="rename it")
        if re.search(r"(?:\.partial|\.old|/__pycache__)/", name):  # git keeps none of them
            remedy = "resume the run, or remove the folder"
            raise InputError("is of a run that has not ended", file=name, remedy=remedy)
    sums = b"".join(os.fsencode(f"{digests[name]}  {name}\n") for name in sorted(digests, key=os.fsencode))
    try:
        signature = _ssh_keygen("sign", "-q", _NAMESPACE, "-f", _small_file(key), data=sums)
    except OSError as problem:
        remedy = "name a key of yours; one with a passphrase needs a terminal, or ssh-agent"
        raise InputError(f"does not sign ({problem.strerror})", file=str(key), remedy=remedy) from None
    _put_in_place(root, {f"{SUMS}.sig": signature, SUMS: sums})
    return len(digests)


def verify_seal(root: Path, signers: Path) -> tuple[str, list[str]]:
    """Return who sealed a project, "" where nobody did who may, and what is wrong, one line each.

    Args:
        root: The folder of the project.
        signers: The file that says who may, as ssh-keygen reads it.

    Raises:
        InputError: There is no ssh-keygen.
        OSError: A file cannot be read.
    """
    remedy = "restore what was sealed, or seal anew"
    try:
        sums = read_plain(root / SUMS, MOST_BYTES)
        who = _signer(root, signers, sums)
    except OSError as problem:
        return "", [f"{SUMS}: is not signed by anybody in {signers} ({problem.strerror}); {remedy}"]
    sealed = {line[66:]: line[:64] for line in os.fsdecode(sums).split("\n") if line}
    digests, problems = _digests(root), []
    for name in sorted({*sealed, *digests}):
        was, now = sealed.get(name), digests.get(name)
        if was != now:
            what = "is missing" if now is None else "has changed" if was else f"is not in {SUMS}"
            problems.append(f"{name}: {what}; {remedy}")
    return who, problems


def _digests(root: Path) -> dict[str, str]:
    """Return the SHA-256 of each file that a seal is over, "" for what is not a plain file, by path. Raises OSError."""
    digests = {}
    left = [name for name in _SEALED if os.path.lexists(root / name)]
    while left:
        path = root / (name := left.pop())
        is_link = path.is_symlink()
        if path.is_dir() and not is_link:
            left += [f"{name}/{inside}" for inside in os.listdir(path)]
        else:
            digests[name] = digest(path.read_bytes()) if path.is_file() and not is_link else ""
    return digests


def _put_in_place(root: Path, files: dict[str, bytes]) -> None:
    """Write the signature and the sums; at no moment do sums lie beside the signature of others. Raises OSError."""
    for name, data in files.items():
        write_durably(root / f".{name}.new", data)
    (root / SUMS).unlink(missing_ok=True)
    for name in files:
        sync(root)
        os.replace(root / f".{name}.new", root / name)
    sync(root)


def _signer(root: Path, signers: Path, sums: bytes) -> str:
    """Return who signed the sums, and with which key. Raises OSError where that is nobody who may."""
    about = ("-f", _small_file(signers), "-s", str(root / f"{SUMS}.sig"))
    names = os.fsdecode(_ssh_keygen("find-principals", *about)).split("\n")
    name = next((it for it in names if it and it[0] != "!"), "")  # such a pattern names who may not
    if not name:
        raise OSError(0, "nobody there has this key")
    said = _ssh_keygen("verify", _NAMESPACE, *about, f"-I{name}", data=sums)
    return os.fsdecode(said).partition(" signature for ")[2].strip() or name


def _small_file(path: Path) -> str:
    """Return the absolute path of a small regular file. Raises OSError for others, which ssh-keygen waits for."""
    if len(read_plain(path, _MOST)) > _MOST:
        raise OSError(0, "too large")
    return os.path.abspath(path)


def _ssh_keygen(*words: str, data: bytes = b"") -> bytes:
    """Return what `ssh-keygen -Y WORDS` makes of data. Raises OSError with its reason, InputError where there is none.

    No word that a person or a file chose begins with a dash.
    """
    program = shutil.which("ssh-keygen")
    if program is None:
        raise InputError("ssh-keygen is not installed", remedy="install OpenSSH 8.2 or newer")
    env = {name: os.environ.get(name, "") for name in ("HOME", "PATH", "SSH_AUTH_SOCK")}
    # somebody at a terminal may be asked for a passphrase; a session of its own has no terminal
    bound: Any = {} if os.isatty(0) else {"timeout": _PATIENCE_S, "start_new_session": True}
    command = [program, "-Y", *words]
    try:
        done = subprocess.run(command, input=data, env=env, capture_output=True, check=True, **bound)
        return bytes(done.stdout)
    except subprocess.SubprocessError as problem:
        text = os.fsdecode(getattr(problem, "stderr", None) or b"")
        said = re.findall(r"(?m)^[^@\r\n][^\r\n]*", text)  # the lines that are not framed by @
        raise OSError(0, "; ".join(said) or f"no answer in {_PATIENCE_S} s") from None
