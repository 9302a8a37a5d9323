"""Parse the address that spans are sent to: `http[s]://host[:port][/path]` or `grpc[s]://host[:port]`."""

from __future__ import annotations

from typing import Final, NamedTuple
from urllib.parse import urlsplit

from ..fail.errors import InputError

GRPC: Final = "grpc"
HTTP: Final = "http/protobuf"
JSON: Final = "http/json"
_FORMS: Final = "write http://HOST:PORT, https://HOST:PORT, grpc://HOST:PORT or grpcs://HOST:PORT"


class Target(NamedTuple):
    """`grpc` says whether gRPC is spoken, `url` is for a client, `shown` for people: no query, no secret."""

    grpc: bool
    url: str
    shown: str


def target(
    endpoint: str,
    protocol: str | None,
    *,
    known: tuple[str, ...] = (GRPC, HTTP),
    credentials: str = "OTEL_EXPORTER_OTLP_HEADERS",
) -> Target:
    """Parse an endpoint; for an http(s) URL `protocol`, one of `known`, decides how it is spoken to.

    OTLP over HTTP goes to `/v1/traces` unless there is a path, gRPC to port 4317 unless there is one.
    `credentials` says where a name and a password belong. Raises InputError for anything else.
    """
    if protocol is not None and protocol not in known:
        raise InputError(
            f"the trace protocol {protocol[:40]!r} is unknown",
            remedy=f"use {', '.join(known[:-1])} or {known[-1]}",
        )
    try:
        parts = urlsplit(endpoint)
        port = parts.port
    except ValueError:
        raise InputError("the trace endpoint is no URL", remedy=_FORMS) from None
    scheme, place, path = parts.scheme, parts.netloc, parts.path.rstrip("/")
    grpc = scheme in ("grpc", "grpcs") or protocol == GRPC
    wrong = None
    if not endpoint.isprintable() or " " in endpoint or not parts.hostname or port == 0 or parts.fragment:
        wrong = "is no URL of a collector"
    elif scheme not in ("http", "https", "grpc", "grpcs"):
        wrong = f"has the unknown scheme {scheme[:40]!r}"
    elif "@" in place:
        wrong = f"holds a user name, which belongs in {credentials}"
    elif grpc and (path or parts.query):
        wrong = "has a path, which gRPC does not take"
    elif grpc and protocol not in (None, GRPC):
        wrong = f"cannot be used with {protocol}"
    if wrong is not None:
        raise InputError(f"the trace endpoint {wrong}", remedy=_FORMS)
    shown = f"{scheme}://{place}{parts.path}"
    if not grpc:
        return Target(False, parts._replace(path=parts.path if path else "/v1/traces").geturl(), shown)
    secure = "https" if scheme in ("https", "grpcs") else "http"
    url = f"{secure}://{place}" if port else f"{secure}://{place.rstrip(':')}:4317"
    return Target(True, url, shown)
