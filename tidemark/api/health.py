"""Liveness and readiness over HTTP, of the producer and of the merge job: `GET /livez` and `GET /readyz`; metrics of the latter.

A client that does not finish its request makes room for the next one. Answers are JSON, `error` says what is wrong.
"""

from __future__ import annotations

import contextlib
import json
import sys
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import AI_PASSIVE, SHUT_RDWR, SOCK_STREAM, getaddrinfo, socket
from typing import Any, Final, Self

import structlog

from schemas.errors import ConfigError
from schemas.overriding import override

log = structlog.get_logger(__name__)

_REQUEST_S: Final = 10.0
"""Until the whole request has come."""
_ANSWER_S: Final = 60.0
"""Until the whole answer is taken."""
_MOST_REQUESTS: Final = 16


class _Client:
    """A connection that is served: when it must be done, and whether its request has come."""

    def __init__(self, request: socket) -> None:
        self.request = request
        self.is_asking = True
        self.until_s = time.monotonic() + _REQUEST_S

    def answered(self) -> None:
        """Its request is there; the answer has its own time."""
        self.is_asking = False
        self.until_s = time.monotonic() + _ANSWER_S

    def hang_up(self) -> None:
        """End the connection under its thread."""
        with contextlib.suppress(OSError):
            self.request.shutdown(SHUT_RDWR)


class HealthServer(ThreadingHTTPServer):
    """A server for few and small requests: one thread each, bounded in number and time. It answers while it is entered.

    `not_ready` says why it is not ready. Raises `ConfigError` with the key of the setting if the port is taken.
    """

    daemon_threads = True
    block_on_close = False
    request_queue_size = 1024
    """Connections that wait for the thread that takes them: 200 at once while two cores are busy were more than 128."""

    def __init__(
        self, key: str, host: str, port: int, not_ready: Callable[[], str | None], handler: type[HealthHandler] | None = None
    ) -> None:
        self.not_ready = not_ready
        self._clients: dict[int, _Client] = {}
        self._lock = threading.Lock()
        try:
            self.address_family = getaddrinfo(host, port, type=SOCK_STREAM, flags=AI_PASSIVE)[0][0]
            super().__init__((host, port), handler or HealthHandler)
        except OSError as error:
            raise ConfigError(f"{key}: cannot listen on {host}:{port}: {error.strerror}") from error
        self.port = int(self.server_address[1])
        self._thread = threading.Thread(target=self.serve_forever, name="http", daemon=True)

    @override
    def __enter__(self) -> Self:
        self._thread.start()
        log.info("service.listening", port=self.port)
        return self

    @override
    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()

    @override
    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a client that gets a place, hang up on any other."""
        if self._admit(_Client(request)):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)  # as many as there may be are being answered

    def _admit(self, client: _Client) -> bool:
        """Give a new client a place: that of the one whose request has been coming for the longest time, where none is free."""
        with self._lock:
            if len(self._clients) >= _MOST_REQUESTS:
                slowest = next((number for number, known in self._clients.items() if known.is_asking), None)
                if slowest is None:
                    return False
                self._clients.pop(slowest).hang_up()
            self._clients[id(client.request)] = client
        return True

    @override
    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a client, then free its place."""
        with self._lock:
            client = self._clients.get(id(request))
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._lock:
                if client is not None and self._clients.get(id(request)) is client:
                    del self._clients[id(request)]

    def answered(self, request: Any) -> None:
        """Note that the whole request of this connection has arrived."""
        with self._lock:
            client = self._clients.get(id(request))
            if client is not None:
                client.answered()

    @override
    def service_actions(self) -> None:
        """Hang up on clients that take too long, a drop at a time for instance; called twice a second."""
        now = time.monotonic()
        with self._lock:
            for client in self._clients.values():
                if now > client.until_s:
                    client.hang_up()

    @override
    def handle_error(self, _request: object, client_address: Any) -> None:
        """Log a connection that broke off."""
        log.debug("service.connection_broke", client=str(client_address[0]), error=repr(sys.exception()))


class HealthHandler(BaseHTTPRequestHandler):
    """Answers `/livez` and `/readyz`; a subclass adds other paths."""

    server: HealthServer
    timeout = _REQUEST_S
    server_version = "tidemark"
    sys_version = ""
    paths = "/livez, /readyz"

    def do_GET(self) -> None:
        """Answer a question."""
        self.server.answered(self.request)
        path = self.path.partition("?")[0]
        if path == "/livez":
            self._answer(HTTPStatus.OK, {"status": "alive"})
        elif path == "/readyz":
            reason = self.server.not_ready()
            status = HTTPStatus.OK if reason is None else HTTPStatus.SERVICE_UNAVAILABLE
            self._answer(status, {"status": "ready"} if reason is None else {"error": reason})
        else:
            self._answer_at(path)

    def _answer_at(self, path: str) -> None:
        self._no_such_path(path)

    @override
    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer a request that the base class refuses (a method, a request that is none) like every other error."""
        status = HTTPStatus(code)
        self._answer(status, {"error": message or status.phrase})

    def _no_such_path(self, path: str) -> None:
        self._answer(HTTPStatus.NOT_FOUND, {"error": f"nothing is at {path[:80]!r}; there are {self.paths}"})

    def _answer(self, status: HTTPStatus, document: object) -> None:
        self._json(status, json.dumps(document))

    def _json(self, status: HTTPStatus, text: str) -> None:
        self._send(status, text.encode() + b"\n", "application/json")

    def _send(self, status: HTTPStatus, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    @override
    def log_message(self, format: str, *args: object) -> None:
        """Log a request, for who debugs."""
        log.debug("service.request", client=self.client_address[0], what=format % args)
