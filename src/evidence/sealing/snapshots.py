"""The folder `seals/`: one file a snapshot, numbered from 1, each with the digest of the one before.

A file is a DSSE envelope (https://github.com/secure-systems-lab/dsse) around a statement, with one or more signatures.
As in TUF's snapshot role (https://theupdateframework.io), a signature is for the set of files as a whole, the number
shows an older snapshot, and a threshold of keys must have signed. A signature on the last snapshot covers those before
it, since it covers their digests. No clock is involved: a snapshot does not expire.
"""

from __future__ import annotations

import base64
import json
import os
import re
from pathlib import Path
from typing import Any, Final

from ...fail.errors import InputError, OutputError, system_reason
from ...light_dataclasses import dataclass
from ...runtime.formats import canonical_json
from ...runtime.formats.durable_write import sync
from ...runtime.formats.read_file import NotPlain, read_unlinked, why_unread
from ..files.folder import directory_lock
from .keys import TrustedKeys, library
from .statement import Tree, read_statement

SEALS: Final = "seals"
PAYLOAD: Final = "application/vnd.in-toto+json"
_NAME: Final = re.compile(r"([0-9]{6})\.json")
_ASIDE: Final = ("README.md",)
_TEMPORARY: Final = ".snapshot.tmp"


@dataclass(frozen=True)
class Snapshot:
    """A snapshot read back.

    Attributes:
        file: Its file, relative to the project.
        envelope: What the file holds.
        payload: The bytes of its statement.
        tree: The project as the statement gives it.
        sequence: Its number.
        previous: The digest of the statement before it.
    """

    file: str
    envelope: dict[str, Any]
    payload: bytes
    tree: Tree
    sequence: int
    previous: str | None

    @property
    def digest(self) -> str:
        """The digest of its statement. Signatures added later do not change it."""
        return canonical_json.digest(self.payload)


@dataclass(frozen=True)
class Signatures:
    """Who signed a snapshot, as far as the trusted keys tell.

    Attributes:
        names: The trusted keys whose signature is valid, sorted.
        others: The ids of keys that are not trusted, as the signatures state them.
        bad: The trusted keys whose signature is not valid.
    """

    names: tuple[str, ...]
    others: tuple[str, ...]
    bad: tuple[str, ...]


def file_of(sequence: int) -> str:
    """Return the file of the snapshot with a number, relative to the project."""
    return f"{SEALS}/{sequence:06}.json"


def read_snapshots(root: Path) -> tuple[list[Snapshot], list[str]]:
    """Return the snapshots of a project in their order, and one line for each thing wrong with their chain.

    Only those up to the first fault are returned: what follows it is not linked to the first snapshot. No signature is
    checked here.

    Raises:
        InputError: The folder cannot be read.
    """
    place = root / SEALS
    if not os.path.lexists(place):
        return [], []
    try:
        if os.path.islink(place):
            raise NotPlain("it is a link")
        names = sorted(os.listdir(place))
    except OSError as error:
        raise InputError(
            f"cannot be read ({system_reason(error)})",
            file=SEALS,
            remedy="it must be a folder that you may read",
        ) from None
    out: list[Snapshot] = []
    problems = [
        f"{SEALS}/{name}: is no snapshot; remove it"
        for name in names
        if not _NAME.fullmatch(name) and name not in (*_ASIDE, _TEMPORARY)
    ]
    for number in [int(name[:6]) for name in names if _NAME.fullmatch(name)]:
        expected = len(out) + 1
        if number != expected:
            problems.append(f"{file_of(expected)}: is missing, but {file_of(number)} is there; restore it")
            break
        fault = _link(out, root, number)
        if fault is not None:
            problems.append(fault)
            break
    return out, problems


def signatures(snapshot: Snapshot, keys: TrustedKeys) -> Signatures:
    """Return who signed a snapshot.

    Raises:
        InputError: The library that checks signatures is not installed.
    """
    dsse, _, _ = library()
    stated = [item["keyid"] for item in snapshot.envelope["signatures"]]
    names, bad = [], []
    for name, key in keys.by_name.items():
        if key.keyid not in stated:
            continue
        try:
            given = dsse.Envelope.from_dict(json.loads(json.dumps(snapshot.envelope))).signatures
            dsse.Envelope(snapshot.payload, PAYLOAD, given).verify([key], 1)  # the bytes that were read
        except Exception:  # noqa: BLE001 - whatever the library finds, it is not this key's signature
            bad.append(name)
        else:
            names.append(name)
    known = {key.keyid for key in keys.by_name.values()}
    others = tuple(keyid for keyid in stated if keyid not in known)
    return Signatures(tuple(sorted(names)), others, tuple(sorted(bad)))


def signature_problem(snapshot: Snapshot, keys: TrustedKeys) -> str | None:
    """Return why a snapshot does not count as signed by the trusted keys, or None if it does."""
    found = signatures(snapshot, keys)
    if len(found.names) >= keys.threshold:
        return None
    notes = [f"the signature of {name} is not valid" for name in found.bad]
    notes += [f"key {keyid[:16]} is not in {keys.file}" for keyid in found.others]
    because = f" ({'; '.join(notes)})" if notes else ""
    return (
        f"{snapshot.file}: has {len(found.names)} of {keys.threshold} signatures needed{because}; "
        "add one with `tachograph seal --all --add-signature --key FILE`, or restore the file"
    )


def sign(payload: bytes, signers: list[Any]) -> dict[str, Any]:
    """Return the envelope of a statement with a signature of each signer."""
    dsse, _, _ = library()
    envelope = dsse.Envelope(payload, PAYLOAD, {})
    for signer in signers:
        envelope.sign(signer)
    return envelope.to_dict()  # type: ignore[no-any-return]


def add_signatures(snapshot: Snapshot, signers: list[Any]) -> dict[str, Any]:
    """Return the envelope of a snapshot with further signatures; one of the same key is replaced."""
    dsse, _, _ = library()
    try:
        envelope = dsse.Envelope.from_dict(json.loads(json.dumps(snapshot.envelope)))
    except Exception as error:  # noqa: BLE001 - the library raises several types for a malformed signature
        raise InputError(
            f"holds a signature that is none ({type(error).__name__})",
            file=snapshot.file,
            remedy="restore it",
        ) from None
    for signer in signers:
        envelope.sign(signer)
    return envelope.to_dict()  # type: ignore[no-any-return]


def write(root: Path, sequence: int, envelope: dict[str, Any], *, replace: bool = False) -> None:
    """Write a snapshot whole or not at all, and on the disk when this returns.

    Args:
        root: The project.
        sequence: The number of the snapshot.
        envelope: What the file is to hold.
        replace: Replace the file that is there; without it, a file that is there is an error.

    Raises:
        OutputError: It cannot be written, or another process wrote this number first.
    """
    folder, path = root / SEALS, root / file_of(sequence)
    text = json.dumps(envelope, sort_keys=True, indent=2) + "\n"
    temporary = folder / _TEMPORARY
    try:
        folder.mkdir(exist_ok=True)
        with directory_lock(folder):
            try:
                temporary.unlink(missing_ok=True)
                with temporary.open("x", encoding="ascii") as stream:
                    stream.write(text)
                    stream.flush()
                    os.fsync(stream.fileno())
                if replace:
                    os.replace(temporary, path)
                else:
                    os.link(temporary, path)  # unlike a rename it replaces nothing
            finally:
                temporary.unlink(missing_ok=True)
            sync(folder)
    except FileExistsError:
        raise OutputError(f"{file_of(sequence)}: is there already; seal again") from None
    except OSError as error:
        raise OutputError(
            f"{file_of(sequence)}: cannot be written ({system_reason(error)}); make {SEALS}/ writable"
        ) from None


def _link(before: list[Snapshot], root: Path, number: int) -> str | None:
    """Read the next snapshot and append it to those before it; return what is wrong with it instead."""
    file = file_of(number)
    try:
        snapshot = _parse(file, read_unlinked(root / file))
    except OSError as error:
        return f"{file}: cannot be read ({why_unread(error)}); restore it"
    except ValueError:
        return f"{file}: is no snapshot; restore it"
    if snapshot.sequence != number:
        return f"{file}: states that it is snapshot {snapshot.sequence}; restore the one that belongs there"
    if snapshot.previous != (before[-1].digest if before else None):
        earlier = f"go on from {before[-1].file} as it stands" if before else "begin a chain"
        return f"{file}: does not {earlier}; restore both"
    before.append(snapshot)
    return None


def _parse(file: str, text: bytes) -> Snapshot:
    """Return a snapshot from the bytes of its file. Raises ValueError for anything else."""
    try:
        envelope = canonical_json.parse(text.decode("utf-8")).value()
        listed = envelope["signatures"]
        is_envelope = (
            set(envelope) == {"payload", "payloadType", "signatures"}
            and envelope["payloadType"] == PAYLOAD
            and isinstance(listed, list)
            and all(isinstance(item[key], str) for item in listed for key in ("keyid", "sig"))
        )
        payload = base64.b64decode(envelope["payload"], validate=True)
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise ValueError(f"no envelope ({type(error).__name__})") from None
    if not is_envelope:
        raise ValueError("no envelope")
    return Snapshot(file, envelope, payload, *read_statement(payload))
