"""Credentials that a policy adds to requests: for which host, in which header, from which environment variable.

The value is not part of a policy. Whoever performs a run reads it from the environment (`workspace/credentials.py`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from ...light_dataclasses import dataclass, replace
from ..core.effects import Decision, DecisionKind
from ..formats.escape import quote_literal, quote_untrusted
from ..formats.json_pointer import escape_pointer
from ..resources.url import Malformed, Target, parse_url

if TYPE_CHECKING:
    from .policy import Policy

# headers that are part of the connection or name what is decided
_NO_CREDENTIAL: Final = re.compile(
    r"host|connection|content-length|transfer-encoding|te|trailer|upgrade|expect|accept-encoding|proxy-.*",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Credential:
    """What a policy says of one credential.

    Attributes:
        key: How the policy names the host.
        header: The header, in lower case.
        variable: The environment variable with the value.
        scheme: What stands before the value in the header, such as `Bearer`; None for the value alone.
    """

    key: str
    header: str
    variable: str
    scheme: str | None = None


Credentials = Mapping[tuple[str, int], Credential]


def read_credentials(section: Mapping[str, Any]) -> Credentials:
    """Return the credentials of a policy by host and port. Raises Malformed for a host that is none."""
    out: dict[tuple[str, int], Credential] = {}
    for key, item in section.items():
        target = parse_url(f"https://{key}")
        if target.origin != f"https://{key}" or (target.host, target.port) in out:
            raise Malformed(f"not a host as URLs name it: {quote_literal(key)}")
        credential = Credential(key, item["header"].lower(), item["from_env"], item.get("scheme"))
        out[target.host, target.port] = credential
    return out


def credential_of(credentials: Credentials, target: Target) -> Credential | None:
    """Return the credential for a target: over https, to exactly its host and port."""
    return credentials.get((target.host, target.port)) if target.scheme == "https" else None


def check_credentials(policy: Policy) -> None:
    """Refuse credentials for what is no host, and such as no request gets. Raises PolicyError."""
    for key in policy.section("credentials"):
        place = f"/credentials/{escape_pointer(key)}"
        item = policy.section("credentials")[key]
        try:
            [(host, port)] = read_credentials({key: item})
        except Malformed:
            remedy = "write host or host:port in lower case, without scheme and path, and no :443"
            raise policy.error(place, "this is not a host as URLs name it", remedy) from None
        if _NO_CREDENTIAL.fullmatch(item["header"]):
            raise policy.error(
                f"{place}/header",
                f"{item['header']} is not a header for a credential",
                "name the service's header",
            )
        if not policy.allowlist.knows(Target("https", host, port, "/", None)):
            raise policy.error(
                place,
                f"this credential never applies, since no entry of url_allowlist is for https://{key}",
                "allow a URL of the host, or remove the credential",
            )


def with_credential(policy: Policy, check: Mapping[str, Any], match: Decision) -> Decision:
    """Return the decision on a request, given that its URL is allowed: with the credential that it gets.

    A tool that sets the same header itself is denied. The first request alone gets the credential, never a redirect.
    """
    if match.decision != DecisionKind.ALLOW or "method" not in check or check.get("hop") != 0:
        return match
    credential = credential_of(policy.credentials, parse_url(check["target"]))
    if credential is None or "address" in check:
        return match
    place = policy.rule(f"/credentials/{credential.key}")
    if check.get("header") == credential.header:
        reason = f"the policy adds the header {quote_untrusted(credential.header)}, which the tool sets too"
        return replace(
            match,
            decision=DecisionKind.DENY,
            reason=reason,
            at=place,
            facts={**match.facts, "header": credential.header},
        )
    return replace(match, facts={**match.facts, "credential": credential.header})
