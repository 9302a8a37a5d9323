"""Receivers that answer by a script: one entry a request, the last one again and again."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import grpc

PATIENCE_S = 12
PROTO = "application/x-protobuf"


def reply(status=200, body=b"", kind=PROTO, delay_s=0.0, **headers):
    """An entry of a script: what an HTTP receiver answers; `_` in a header's name stands for `-`."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return {"status": status, "body": body, "kind": kind, "delay_s": delay_s, "headers": named}


def abort(code, words="not now", **trailing):
    """An entry of a script: how a gRPC receiver refuses, with what it sends behind."""

    def answer(context):
        context.set_trailing_metadata(
            tuple((key.replace("_", "-"), value) for key, value in trailing.items())
        )
        context.abort(code, words)

    return answer


class Http:
    """`bodies`, `headers`, `paths` and `kinds` of the requests in order; with `context` it speaks TLS."""

    def __init__(self, *script, context=None):
        self.bodies, self.headers, self.paths, self.kinds = [], [], [], []
        self._script = list(script) or [reply()]
        self._stop = threading.Event()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = PATIENCE_S

            def do_POST(self):
                receiver.bodies.append(self.rfile.read(int(self.headers["content-length"])))
                receiver.headers.append({key.lower(): value for key, value in self.headers.items()})
                receiver.paths.append(self.path)
                receiver.kinds.append(self.headers["content-type"])
                said = receiver._script[min(len(receiver.bodies), len(receiver._script)) - 1]
                receiver._stop.wait(said["delay_s"])
                with suppress(OSError):
                    self.send_response(said["status"])
                    for key, value in said["headers"].items():
                        self.send_header(key, value)
                    self.send_header("content-type", said["kind"])
                    self.send_header("content-length", str(len(said["body"])))
                    self.end_headers()
                    self.wfile.write(said["body"])

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if context is not None:
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._server.handle_error = lambda *_: None
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self.port = self._server.server_address[1]
        self.endpoint = f"http://127.0.0.1:{self.port}"

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(PATIENCE_S)


class Grpc:
    """`bodies` and `headers` of the requests. A script's entry is what is answered as bytes, or a function of
    the context, such as one that aborts."""

    def __init__(self, *script, credentials=None):
        self.bodies, self.headers = [], []
        self._script = list(script) or [b""]
        self._server = grpc.server(
            ThreadPoolExecutor(2)
        )  # takes messages of 4 MB, as receivers do by default
        method = grpc.unary_unary_rpc_method_handler(self._export)
        service = "opentelemetry.proto.collector.trace.v1.TraceService"
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(service, {"Export": method}),)
        )
        place = "127.0.0.1:0"
        if credentials is None:
            self.port = self._server.add_insecure_port(place)
        else:
            self.port = self._server.add_secure_port(place, credentials)
        self.endpoint = f"grpc://127.0.0.1:{self.port}"

    def _export(self, body, context):
        self.bodies.append(body)
        self.headers.append(dict(context.invocation_metadata()))
        said = self._script[min(len(self.bodies), len(self._script)) - 1]
        return said if isinstance(said, bytes) else said(context)

    def __enter__(self):
        self._server.start()
        return self

    def __exit__(self, *_):
        self._server.stop(0).wait(PATIENCE_S)
