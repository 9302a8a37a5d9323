"""Key files, the keys that a verifier trusts, and the optional library that signs.

Every key is an ed25519 key. A private one is a PEM file that nobody else may read. A file of trusted keys is YAML:

    threshold: 2
    keys:
      ann: MCowBQYDK2VwAyEA...
      ci: MCowBQYDK2VwAyEA...

A key there is the base64 of its public half: the middle line of the PEM file that `openssl pkey -pubout` writes. A PEM
file with one public key serves as well: that key alone is trusted.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any, Final

from ...fail.errors import InputError, system_reason
from ...light_dataclasses import dataclass
from ...runtime.formats import strict_yaml
from ...runtime.formats.read_file import read_plain

_MOST: Final = 1 << 20  # bytes of a key file
_NEEDS: Final = "pip install 'tachograph[seal]'"
_MAKE: Final = "make one: openssl genpkey -algorithm ed25519 -out FILE"
_SHAPE: Final = "write `threshold: 1` and `keys: {NAME: PUBLIC_KEY}`, see docs/sealing.md"


@dataclass(frozen=True)
class TrustedKeys:
    """The public keys that a verifier trusts.

    Attributes:
        threshold: How many of them must have signed.
        by_name: Name -> public key of the library.
        file: The file that they come from, for messages.
    """

    threshold: int
    by_name: dict[str, Any]
    file: str


def library() -> tuple[Any, Any, Any]:
    """Return securesystemslib's envelope and signers, and the key loader below them.

    Raises:
        InputError: They are not installed. A signature that is to be checked is never taken for checked without them.
    """
    try:
        from cryptography.hazmat.primitives import serialization
        from securesystemslib import dsse, signer
    except ImportError:
        raise InputError("sealing needs the package securesystemslib", remedy=f"run: {_NEEDS}") from None
    return dsse, signer, serialization


def private_signer(file: Path) -> Any:
    """Return the signer of the private ed25519 key in a PEM file.

    Raises:
        InputError: The file holds no such key, or others may read it.
    """
    _, signers, loading = library()
    pem = read_pem(file)
    try:
        signer = signers.CryptoSigner(loading.load_pem_private_key(pem, None))
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise _no_key(file, "private", type(error).__name__) from None
    if signer.public_key.keytype != "ed25519":
        raise _no_key(file, "private", signer.public_key.keytype)
    return signer


def public_key(file: Path) -> Any:
    """Return the public key of a PEM file that holds a key, public or private.

    Raises:
        InputError: The file holds no key, or holds a private key that others may read.
    """
    pem = read_pem(file)
    _, signers, loading = library()
    try:
        if b"PRIVATE KEY" in pem:
            public = loading.load_pem_private_key(pem, None).public_key()
        else:
            public = loading.load_pem_public_key(pem)
        return signers.SSlibKey.from_crypto(public)
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise _no_key(file, "public", type(error).__name__) from None


def read_pem(file: Path) -> bytes:
    """Return the bytes of a key file.

    Raises:
        InputError: It cannot be read, or holds a private key that everybody may read.
    """
    try:
        pem = read_plain(file, _MOST)
        mode = os.stat(file).st_mode
    except OSError as error:
        why = system_reason(error)
        what = "no such key file" if isinstance(error, FileNotFoundError) else f"cannot be read ({why})"
        raise InputError(what, file=str(file), remedy=_MAKE) from None
    if b"PRIVATE KEY" in pem and mode & stat.S_IRWXO:
        raise InputError(
            f"is a private key that every user of this machine may use (mode {stat.S_IMODE(mode):03o})",
            file=str(file),
            remedy=f"run: chmod 600 {file}; make a new key if others use this machine",
        )
    return pem


def trusted_keys(file: Path) -> TrustedKeys:
    """Return the keys in a file of trusted keys, or the one key in a PEM file.

    Raises:
        InputError: The file cannot be read or has another form, or the library is not installed.
    """
    text = read_pem(file)
    if text.lstrip().startswith(b"-----BEGIN "):
        key = public_key(file)
        if key.keytype != "ed25519":
            raise _no_key(file, "public", key.keytype)
        return TrustedKeys(1, {file.stem: key}, str(file))
    library()
    try:
        document = strict_yaml.load(text, str(file))
    except strict_yaml.YamlError as error:
        raise InputError(
            error.message, file=str(file), line=error.line, column=error.column, remedy=_SHAPE
        ) from None

    def refuse(pointer: str, what: str) -> InputError:
        line, column = document.at(pointer)
        return InputError(what, file=str(file), line=line, column=column, remedy=_SHAPE)

    data = document.data
    if not isinstance(data, dict) or set(data) != {"threshold", "keys"}:
        raise refuse("", "is no file of trusted keys: it holds `threshold` and `keys`, and nothing else")
    keys, threshold = data["keys"], data["threshold"]
    if not isinstance(keys, dict) or not keys:
        raise refuse("/keys", "`keys` must name public keys")
    if type(threshold) is not int or not 1 <= threshold <= len(keys):
        raise refuse("/threshold", f"`threshold` must be a number from 1 to {len(keys)}, the number of keys")
    by_name: dict[str, Any] = {}
    for name, value in keys.items():
        key = _from_base64(value)
        if key is None:
            raise refuse(f"/keys/{name}", f"{name[:80]!r} is no public ed25519 key in base64")
        twin = next((other for other, known in by_name.items() if known.keyid == key.keyid), None)
        if twin is not None:
            raise refuse(
                f"/keys/{name}", f"{name[:80]!r} is the same key as {twin[:80]!r}, and would count twice"
            )
        by_name[name] = key
    return TrustedKeys(threshold, by_name, str(file))


def _from_base64(value: object) -> Any:
    """Return the key behind the middle line of a PEM file, or None if it is no public ed25519 key."""
    if not isinstance(value, str):
        return None
    _, signers, loading = library()
    pem = f"-----BEGIN PUBLIC KEY-----\n{value.strip()}\n-----END PUBLIC KEY-----\n"
    try:
        key = signers.SSlibKey.from_crypto(loading.load_pem_public_key(pem.encode("ascii")))
    except (ValueError, TypeError, AttributeError, KeyError):
        return None
    return key if key.keytype == "ed25519" else None


def _no_key(file: Path, kind: str, why: str) -> InputError:
    return InputError(f"is no {kind} ed25519 key in PEM ({why})", file=str(file), remedy=_MAKE)
