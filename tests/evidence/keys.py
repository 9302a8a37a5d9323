"""Throw-away keys for the tests of seals, where the library that signs is installed."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

HAS_LIBRARY = all(find_spec(name) is not None for name in ("cryptography", "securesystemslib"))
needs_library = pytest.mark.skipif(not HAS_LIBRARY, reason="needs securesystemslib[crypto]")


def put_key(path: Path, data: bytes) -> None:
    """Write a key file that nobody else may read."""
    path.write_bytes(data)
    path.chmod(0o600)


def key_pair(folder: Path, name: str, private: Any = None) -> tuple[Path, Path]:
    """Write a private key in PEM as NAME and its public half as NAME.pub; an ed25519 key unless one is given."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ed25519

    private = private or ed25519.Ed25519PrivateKey.generate()
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    put_key(folder / name, private.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))
    public = private.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo)
    put_key(folder / f"{name}.pub", public)
    return folder / name, folder / f"{name}.pub"


def base64_of(public: Path) -> str:
    """The middle line of the PEM file of a public key."""
    return public.read_text(encoding="ascii").splitlines()[1]


def trust_file(path: Path, threshold: int, *publics: Path) -> Path:
    """Write a file of trusted keys."""
    keys = "".join(f"  {public.stem}: {base64_of(public)}\n" for public in publics)
    path.write_text(f"threshold: {threshold}\nkeys:\n{keys}", encoding="utf-8")
    return path
