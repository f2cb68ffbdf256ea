"""A schema registry behind TLS and basic authentication: a proxy in front of the real one."""

from __future__ import annotations

import base64
import http.client
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self
from urllib.parse import urlsplit

from tests.support.certificates import Identity


class GuardedRegistry:
    """`url` answers who shows user and password as the registry behind does, and others with 401."""

    def __init__(self, url: str, identity: Identity, user: str, password: str) -> None:
        behind = urlsplit(url)
        expected = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
        self.refused = 0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def _pass_on(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                if self.headers.get("Authorization") != expected:
                    outer.refused += 1
                    self.send_response(401)
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                connection = http.client.HTTPConnection(behind.hostname or "", behind.port, timeout=30)
                kinds = {key: self.headers[key] for key in ("Content-Type", "Accept") if key in self.headers}
                connection.request(self.command, self.path, body or None, kinds)
                answer = connection.getresponse()
                data = answer.read()
                connection.close()
                self.send_response(answer.status)
                self.send_header("Content-Type", answer.headers.get("Content-Type", "application/json"))
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_PUT = _pass_on  # noqa: N815 - names of the base class

            def log_message(self, *_: object) -> None:
                """Quiet."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(identity.cert, identity.key)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = f"https://localhost:{self._server.server_address[1]}{behind.path}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
