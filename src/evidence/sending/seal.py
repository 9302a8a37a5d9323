"""A seal: who made a record signs the digests of its four files.

`seal.json` beside them is a DSSE envelope (https://github.com/secure-systems-lab/dsse) around an in-toto
statement (https://in-toto.io/Statement/v1) with the SHA-256 of each file, signed with an ed25519 key. It says
that whoever holds the key vouches for these bytes; it does not say that the code gives them.
"""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import Final

from ...fail.errors import OutputError, RecordError
from ...runtime.core.lines import Line
from ...runtime.formats import canonical_json
from ...runtime.formats.read_file import read_unlinked, why_unread
from ..checking.verify import verify
from ..files.manifest import FILES, SEAL
from ..files.rebuild import run_files
from ..recording.recorded import relative_name
from ..sealing.keys import library, private_signer, public_key
from ..sealing.snapshots import PAYLOAD
from ..sealing.statement import STATEMENT

PREDICATE: Final = "urn:tachograph:run:v1"


def seal(folder: Path, key: Path, root: Path) -> str:
    """Sign the record in `folder` with the private key in `key` (PEM, ed25519), and return the key's id.

    Raises RecordError for a record that fails `verify`, InputError for anything but such a key.
    """
    dsse, _, _ = library()
    name = relative_name(folder, root)
    wrong = verify(folder, root)
    if wrong:
        raise RecordError(f"does not hold: {wrong[0]}", file=name, remedy="a seal is for a whole record")
    signer = private_signer(key)
    envelope = dsse.Envelope(_statement(run_files(folder, name)), PAYLOAD, {})
    envelope.sign(signer)
    text = json.dumps(envelope.to_dict(), sort_keys=True, indent=2) + "\n"
    temporary = folder.with_name(f".{folder.name}.{SEAL}.tmp")
    try:
        temporary.write_text(text, encoding="ascii")
        os.replace(temporary, folder / SEAL)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise OutputError(f"{name}/{SEAL}: cannot be written ({error.strerror}); make it writable") from None
    return str(signer.public_key.keyid)


def check_key(key: Path) -> None:
    """Raise InputError unless `key` holds an ed25519 key in PEM, public or private."""
    public_key(key)


def check_seal(folder: Path, key: Path | None, root: Path) -> list[str]:
    """Return one line for each thing wrong with the seal of a record; none if it is valid.

    Without a key only the digests in the seal are compared with the files; with one (PEM, public or private)
    the seal must be there and its signature must be that key's.
    """
    name = relative_name(folder, root)
    try:
        text = read_unlinked(folder / SEAL)
    except FileNotFoundError:
        return (
            [] if key is None else [f"{name}: has no seal; make one with `tachograph seal {name} --key FILE`"]
        )
    except OSError as error:
        return [f"{name}/{SEAL}: cannot be read ({why_unread(error)})"]
    try:
        data = json.loads(text)
        payload = base64.b64decode(data["payload"], validate=True)
        statement = json.loads(payload)
        subjects = {item["name"]: item["digest"]["sha256"] for item in statement["subject"]}
        valid = data["payloadType"] == PAYLOAD and statement["_type"] == STATEMENT
        valid = valid and statement["predicateType"] == PREDICATE and sorted(subjects) == sorted(FILES)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        valid, subjects = False, {}
    if not valid:
        return [f"{name}/{SEAL}: is no seal of a run"]
    try:
        files = run_files(folder, name)
    except RecordError as error:
        return [str(error)]
    problems = [
        f"{name}/{file}: is not the file that was sealed"
        for file in FILES
        if canonical_json.digest(files[file]) != subjects[file]
    ]
    return problems + ([] if key is None else _signature(data, key, name))


def _signature(data: Line, key: Path, name: str) -> list[str]:
    dsse, _, _ = library()
    known = public_key(key)
    try:
        dsse.Envelope.from_dict(data).verify([known], 1)
    except Exception as error:  # noqa: BLE001 - whatever the library finds, it is not this key's signature
        return [f"{name}/{SEAL}: is not signed with that key ({type(error).__name__})"]
    return []


def _statement(files: dict[str, bytes]) -> bytes:
    """Return the in-toto statement over the four files, in canonical JSON."""
    manifest = json.loads(files["manifest.json"])
    return canonical_json.encode(
        {
            "_type": STATEMENT,
            "subject": [
                {"name": file, "digest": {"sha256": canonical_json.digest(files[file])}} for file in FILES
            ],
            "predicateType": PREDICATE,
            "predicate": {
                "run_id": manifest["run_id"],
                "ledger_head": manifest["ledger_head"],
                "policy_version": manifest["policy_version"],
            },
        }
    ).encode("utf-8")
