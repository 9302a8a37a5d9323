"""The values of a policy's credentials in one run: read from the environment, added to requests, kept from all else."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Final
from urllib.parse import quote

from ...fail.errors import InputError
from ...light_dataclasses import dataclass, field
from ..core.known_secrets import from_environment
from ..core.secret_kinds import SHORTEST
from ..policy.credentials import Credentials, credential_of
from ..policy.policy import Policy
from ..resources.url import Target

CREDENTIAL_KIND: Final = "credential"
_VALUE: Final = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]{0,8190}[\x21-\x7e])?")


@dataclass(frozen=True, slots=True)
class OpenCredentials:
    """The credentials of a run.

    Attributes:
        known: All that the policy names.
        values: What a request to a real host gets, by environment variable.
    """

    known: Credentials = field(default_factory=dict)
    values: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def secrets(self) -> list[tuple[str, str]]:
        """Kind and text of each secret among the values: the whole one, and what stands behind a scheme in it."""
        texts = [text for value in self.values.values() for text in _parts(value)]
        return [(CREDENTIAL_KIND, text) for text in dict.fromkeys(texts)]

    def without(self, text: str) -> str:
        """Return what a service said, for a tool: with a mark in the place of each value, also of an escaped one."""
        found = {
            written: f"<credential:{variable}>"
            for variable, value in self.values.items()
            for secret in _parts(value)
            for written in _spellings(secret)
        }
        for written in sorted(found, key=len, reverse=True):  # one may be a part of another
            text = text.replace(written, found[written])
        return text

    def header_for(self, target: Target) -> tuple[tuple[str, str], ...]:
        """Return the header that a request to a target gets, none where the policy has no credential for it.

        Raises:
            ConnectionRefusedError: The credential has no value here; nothing was sent.
        """
        credential = credential_of(self.known, target)
        if credential is None:
            return ()
        value = self.values.get(credential.variable)
        if value is None:
            raise ConnectionRefusedError("this run has no value for the credential of the host")
        return ((credential.header, value if credential.scheme is None else f"{credential.scheme} {value}"),)


def _parts(value: str) -> Iterator[str]:
    """Yield a value, and what stands behind a scheme in it, unless that is too short to be a secret."""
    yield value
    _, blank, behind = value.rpartition(" ")
    if blank and len(behind) >= SHORTEST:
        yield behind


def _spellings(secret: str) -> set[str]:
    """Return a secret as it stands, in JSON and in a URL; some programs escape slashes in JSON too."""
    in_json = json.dumps(secret)[1:-1]
    return {secret, in_json, in_json.replace("/", "\\/"), quote(secret, safe=""), quote(secret)}


def open_credentials(policy: Policy, answered: Collection[str], *, is_needed: bool) -> OpenCredentials:
    """Read the values of a policy's credentials.

    Args:
        policy: The policy.
        answered: Hosts that folders answer for; their credentials are not read.
        is_needed: Whether the run performs requests. Otherwise a value that is not set is left out.

    Raises:
        InputError: A value is missing, too short, or has characters that no header has.
    """
    wanted = {key: item for key, item in policy.credentials.items() if key[0] not in answered}
    values = from_environment((item.variable for item in wanted.values()), skips_short=True)
    for item in wanted.values() if is_needed else ():
        value, name = values.get(item.variable), item.variable
        place = policy.at(f"/credentials/{item.key}/from_env")
        if value is None:
            raise InputError(
                f"the environment variable {name} is not set, or has fewer than {SHORTEST} characters",
                file=place,
                remedy=f"set {name} to the credential for {item.key}",
            )
        if not _VALUE.fullmatch(value):
            raise InputError(
                f"the value of the environment variable {name} cannot stand in a header",
                file=place,
                remedy="give printable ASCII without a line break or a blank at its ends",
            )
    return OpenCredentials(
        policy.credentials, {name: text for name, text in values.items() if _VALUE.fullmatch(text)}
    )
