"""The network of `io`: one request with its redirects, each decided before it is made."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote

from ...light_dataclasses import dataclass, replace
from ..policy.credentials import credential_of
from ..resources.http_methods import SAFE_METHODS
from ..resources.mount_path import parse_path
from ..resources.redirects import REDIRECTS, redirected
from ..resources.url import Malformed, Target, parse_url
from .attempt_io import HTTP_S, AttemptIO, Check
from .decoding import text_of_body, text_of_file
from .request_parts import RequestParts, request_parts
from .safe_open import MAX_FILE_BYTES, Refused, read_file

MAX_HOPS: Final = 5


@dataclass(frozen=True, slots=True)
class HttpResult:
    """What `io.get` and `io.request` return.

    Attributes:
        status: The status code.
        headers: Names in lower case -> values.
        text: The body.
        url: The URL that answered, after redirects.
    """

    status: int
    headers: dict[str, str]
    text: str
    url: str


class WebIO(AttemptIO):
    """The methods of `io` that reach hosts."""

    def get(self, url: str) -> HttpResult:
        """Return the answer to a GET, following at most 5 redirects; each target is decided before it is contacted.

        All hops together have 30 seconds. A redirect without a Location is an answer.
        """
        with self._serving("get"):
            return self._followed(url, None)

    def request(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str] | None = None,
        body: str | None = None,
    ) -> HttpResult:
        """Return the answer to a request; the policy must allow its URL with its method.

        Redirects of a GET or HEAD are followed as by `get`; `headers` stay behind where one leads to another host,
        port or scheme. A redirect of another method is an answer. 429 and 5xx raise ConnectionError, but after a POST
        or PATCH, which may have had its effect: its answer is returned, whatever its status.

        Args:
            method: GET, HEAD, OPTIONS, POST, PUT, PATCH or DELETE. Those but GET and HEAD need a tool that is external.
            url: An absolute URL.
            headers: Names and values: printable ASCII, at most 50, 16,384 characters together.
            body: Sent as UTF-8, at most 8,000,000 bytes; not with GET or HEAD.
        """
        parts = request_parts(method, headers, body)
        with self._serving(f"request:{method}"):
            return self._followed(url, parts)

    def _followed(self, url: str, asked: RequestParts | None) -> HttpResult:
        """Send a request and follow its redirects. None is the request of `get`, whose facts name no method."""
        until = None
        parts = asked or RequestParts()
        for hop in range(MAX_HOPS + 1):
            fact: Check = {"hop": hop} if asked is None else {"hop": hop, "method": parts.method}
            if hop == 0 and asked is not None:
                fact |= self._doubled_credential(url, asked) | self._broken_rule(asked)
            target = self._allowed_target(url, fact, keep_allow=hop > 0 or asked is not None)
            with self._acting(is_safe=parts.is_safe):
                if target.host in self._folders.hosts:
                    status, headers, text = self._from_folder(target, parts.method)
                else:
                    until = until or self._deadline()
                    is_first = hop == 0 and asked is not None
                    added = self._folders.credentials.header_for(target) if is_first else ()
                    sent = replace(parts, headers=(*parts.headers, *added))
                    status, headers, text = self._from_network(target, sent, fact, until)
            location = headers.get("location")
            if status not in REDIRECTS or location is None or not parts.is_safe:
                if (status == 429 or status >= 500) and parts.may_be_repeated:
                    raise ConnectionError("the server answered with a transient error")
                return HttpResult(status, headers, text, target.url)
            url = redirected(target, location)
            if not url.startswith(f"{target.origin}/"):  # what was meant for one host is not for another
                parts = RequestParts(parts.method)
        raise OSError("too many redirects")

    def _doubled_credential(self, url: str, asked: RequestParts) -> Check:
        """Return the fact that a request sets the very header that the policy adds to it, if it does."""
        with contextlib.suppress(Malformed):  # which is denied
            credential = credential_of(self._folders.credentials.known, parse_url(url))
            if credential is not None and credential.header in {name.lower() for name, _ in asked.headers}:
                return {"header": credential.header}
        return {}

    def _broken_rule(self, asked: RequestParts) -> Check:
        """Return the fact that a request breaks a rule on its headers or body, if it does."""
        rules = self._folders.request_rules
        refused = (
            None if rules is None else rules.refusal(self._tool, asked.method, asked.headers, asked.body)
        )
        return {} if refused is None else {"refused": refused}

    def _allowed_target(self, url: str, fact: Check, *, keep_allow: bool) -> Target:
        if not isinstance(url, str):
            raise TypeError("a URL is a string")
        self._ask({"rule": "url_allowlist", "target": url, **fact}, keep_allow=keep_allow)
        return parse_url(url)

    def _address_allowed(self, target: Target, fact: Check, address: str) -> bool:
        try:
            self._ask({"rule": "url_allowlist", "target": target.url, **fact, "address": address})
        except PermissionError:
            return False
        return True

    # ---- the world -------------------------------------------------------------------------------------

    def _deadline(self) -> float:
        if self._folders.offline:
            raise ConnectionRefusedError("this run reaches no host")
        from . import http  # late, as few runs need it

        return http.later(HTTP_S)

    def _from_network(
        self, target: Target, parts: RequestParts, fact: Check, until: float
    ) -> tuple[int, dict[str, str], str]:
        from . import http

        try:
            response = http.request(
                parts,
                target.scheme,
                target.host,
                target.port,
                target.path + ("" if target.query is None else f"?{target.query}"),
                allowed=lambda address: self._address_allowed(target, fact, address),
                max_bytes=MAX_FILE_BYTES,
                until=until,
                opened=self._note_connection,
            )
        except http.AddressRefused as refused:
            if not self.denied:  # no plain address, or another peer: refused before a rule was asked
                self._address_allowed(target, fact, refused.address)
            raise PermissionError("denied by url_allowlist") from None
        without = (
            self._folders.credentials.without
        )  # before a redirect is followed: it may lead to another host
        headers = {name: without(value) for name, value in response.headers.items()}
        return response.status, headers, without(text_of_body(response.body, response.headers))

    def _from_folder(self, target: Target, method: str) -> tuple[int, dict[str, str], str]:
        """Answer from a file. That of a method other than GET and HEAD has the method at the end of its name."""
        host = self._folders.hosts[target.host]
        if target.path in host.redirects:
            octets = host.redirects[target.path].encode("utf-8", "surrogatepass")
            return 302, {"location": octets.decode("latin-1")}, ""  # as it would come over the wire
        try:
            ending = "" if method in SAFE_METHODS else f".{method}"
            parts = parse_path("folder" + unquote(target.path, errors="strict") + ending).parts
            with self._at_work():
                data = read_file(self._folders.host_roots[target.host], parts)
            text = text_of_file(data)
        except (Malformed, FileNotFoundError, NotADirectoryError, IsADirectoryError, UnicodeError, Refused):
            return 404, {"content-type": "text/plain"}, "not found"
        self._note_read(host.label, parts, data)
        kind = "text/markdown" if parts[-1].endswith(".md") else "text/plain"
        return 200, {"content-type": f"{kind}; charset=utf-8"}, "" if method == "HEAD" else text
