"""Key files and files of trusted keys: what is accepted, and what is refused with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from tachograph.evidence.sealing.keys import private_signer, public_key, trusted_keys
from tachograph.fail.errors import InputError
from tests.evidence.keys import base64_of, key_pair, needs_library, put_key, trust_file

pytestmark = needs_library


@pytest.mark.parametrize("mode", [0o604, 0o602, 0o601, 0o666])
def test_a_private_key_that_every_user_may_use_is_refused(tmp_path: Path, mode: int) -> None:
    private, public = key_pair(tmp_path, "ann")
    private.chmod(mode)
    public.chmod(0o644)
    for read in (private_signer, public_key, trusted_keys):
        with pytest.raises(InputError) as caught:
            read(private)
        assert str(caught.value).startswith(
            f"{private}: is a private key that every user of this machine may use (mode {mode:03o}); run: chmod 600"
        )
        if read is not private_signer:
            assert read(public)


@pytest.mark.parametrize("mode", [0o400, 0o600, 0o640])
def test_a_private_key_of_its_owner_or_group_is_read(tmp_path: Path, mode: int) -> None:
    private, public = key_pair(tmp_path, "ann")
    private.chmod(mode)
    assert private_signer(private).public_key.keyid == public_key(public).keyid


def test_a_file_of_trusted_keys_and_one_public_key(tmp_path: Path) -> None:
    publics = [key_pair(tmp_path, name)[1] for name in ("ann", "bob")]
    found = trusted_keys(trust_file(tmp_path / "keys.yaml", 2, *publics))
    assert found.threshold == 2 and list(found.by_name) == ["ann", "bob"]
    alone = trusted_keys(publics[0])
    assert alone.threshold == 1 and alone.by_name["ann"].keyid == found.by_name["ann"].keyid


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", ":1:1: "),
        ("- 1\n", ":1:1: is no file of trusted keys"),
        ("threshold: 1\n", ":1:1: is no file of trusted keys"),
        ("threshold: 1\nkeys:\n  ann: ANN\nexpires: never\n", ":1:1: is no file of trusted keys"),
        ("threshold: 1\nkeys: {}\n", ":2:1: `keys` must name public keys"),
        ("threshold: 1\nkeys: [ANN]\n", ":2:1: `keys` must name public keys"),
        ("threshold: 0\nkeys:\n  ann: ANN\n", ":1:1: `threshold` must be a number from 1 to 1"),
        ("threshold: 2\nkeys:\n  ann: ANN\n", ":1:1: `threshold` must be a number from 1 to 1"),
        ("threshold: true\nkeys:\n  ann: ANN\n", ":1:1: `threshold` must be a number"),
        ("threshold: 1\nkeys:\n  ann: AAAA\n", ":3:3: 'ann' is no public ed25519 key in base64"),
        ("threshold: 1\nkeys:\n  ann: 7\n", ":3:3: 'ann' is no public ed25519 key in base64"),
        ("threshold: 1\nkeys:\n  rsa: RSA\n", ":3:3: 'rsa' is no public ed25519 key in base64"),
        ("threshold: 2\nkeys:\n  ann: ANN\n  ann2: ANN\n", ":4:3: 'ann2' is the same key as 'ann'"),
        ("threshold: 1\nkeys:\n  ann: ANN\n  ann: ANN\n", ":4:3: "),
        ("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n", ": is no public ed25519 key in PEM"),
    ],
)
def test_what_is_no_file_of_trusted_keys_is_refused_with_its_place(
    tmp_path: Path, text: str, what: str
) -> None:
    from cryptography.hazmat.primitives.asymmetric import rsa

    _, ann = key_pair(tmp_path, "ann")
    _, other = key_pair(tmp_path, "rsa", rsa.generate_private_key(65537, 2048))
    inline = "".join(other.read_text().splitlines()[1:-1])
    file = tmp_path / "keys.yaml"
    put_key(file, text.replace("ANN", base64_of(ann)).replace("RSA", inline).encode())
    with pytest.raises(InputError) as caught:
        trusted_keys(file)
    assert str(caught.value).startswith(f"{file}{what}"), str(caught.value)


@pytest.mark.parametrize("kind", ["missing", "a folder", "another kind of key"])
def test_what_cannot_be_a_key_is_refused(tmp_path: Path, kind: str) -> None:
    from cryptography.hazmat.primitives.asymmetric import rsa

    file = tmp_path / "key"
    if kind == "a folder":
        file.mkdir()
    elif kind == "another kind of key":
        key_pair(tmp_path, "key", rsa.generate_private_key(65537, 2048))
        file = tmp_path / "key.pub"
    with pytest.raises(InputError, match="openssl genpkey -algorithm ed25519"):
        trusted_keys(file)


def test_only_an_ed25519_key_signs(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives.asymmetric import rsa

    key_pair(tmp_path, "ann")
    key_pair(tmp_path, "rsa", rsa.generate_private_key(65537, 2048))
    assert private_signer(tmp_path / "ann").public_key.keytype == "ed25519"
    for name in ("rsa", "ann.pub"):
        with pytest.raises(InputError, match="openssl genpkey -algorithm ed25519"):
            private_signer(tmp_path / name)
