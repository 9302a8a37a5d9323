"""Answers of people that count only with a signature: `approval: {signers: FILE}`.

FILE stands beside or below the policy's file and names ed25519 public keys as YAML, `NAME: KEY`. A key is the base64 of
its public half: the middle line of the PEM file that `openssl pkey -pubout` writes. The keys are part of the policy's
version, which is part of each question, so a signature under other keys is one of another question.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ...fail.errors import InputError
from ..core.effects import Answer
from ..formats.canonical_json import encode
from ..formats.lazy_pattern import lazy_pattern

_SIGNATURE: Final = lazy_pattern("[0-9a-f]{128}")  # one spelling of each, as the record has it


def signed_text(answer: str, digest: str) -> bytes:
    """Return what whoever answers signs: canonical JSON of the answer and the digest of the question."""
    return encode({"answer": answer, "digest": digest, "type": "tachograph/answer/v1"}).encode("ascii")


def is_signature(text: object) -> bool:
    """Return whether something has the form of a signature: 64 bytes in hexadecimal digits."""
    return isinstance(text, str) and _SIGNATURE.fullmatch(text) is not None


def signer_of(answer: Answer, digest: str, signers: Mapping[str, str]) -> str | None:
    """Return the name of the signer whose signature an answer to a question has, None if it has none of theirs.

    Args:
        answer: The answer, with its signature in hexadecimal digits.
        digest: The question's.
        signers: Public keys by name, as a policy has them.

    Raises:
        InputError: There is a signature, and the library that verifies it is not installed.
    """
    if not is_signature(answer.signature):
        return None
    signature = bytes.fromhex(answer.signature or "")
    check_library()
    import base64

    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    for name, key in signers.items():
        try:
            public = Ed25519PublicKey.from_public_bytes(base64.b64decode(key, validate=True)[-32:])
            public.verify(signature, signed_text(str(answer.answer), digest))
        except (InvalidSignature, ValueError):
            continue
        return name
    return None


def check_library() -> None:
    """Raise InputError where signatures cannot be verified; an answer that is to be verified never counts so."""
    try:
        import cryptography.hazmat.primitives.asymmetric.ed25519  # noqa: F401
    except ImportError:
        raise InputError(
            "the policy wants signed answers, and nothing here verifies signatures",
            remedy="run: pip install 'tachograph[seal]'",
        ) from None
