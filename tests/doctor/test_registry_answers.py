"""What an answer of a registry, or of a proxy before it, means: what retries outlast ends no merge job. No real server is needed."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

import pytest

from schemas.findings import Finding
from schemas.settings import from_mapping
from tidemark.doctor.area_findings import UncheckedError
from tidemark.doctor.merge_start import keeps_from_running
from tidemark.doctor.registry_checks import registry_findings

PATH: Final = "/registry"
HTML: Final = b"<html><body>no upstream is healthy</body></html>"
OF_A_REGISTRY: Final = b'{"error_code": 40401, "message": "Subject not found."}'
OF_ANOTHER_API: Final = b'{"error_code": 404, "message": "Could not find resource for full path"}'


@contextmanager
def answering(of: Mapping[str, tuple[int, bytes]]) -> Iterator[int]:
    """Give the port of a server that answers like this; paths that are not named have an HTML page (404)."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = of.get(self.path, (404, HTML))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        try:
            yield server.server_port
        finally:
            server.shutdown()


def found_at(port: int) -> Finding:
    """The one finding of the registry there, which is asked no further."""
    document = {"name": "shop", "source": {"tables": ["a"]}, "format": {"registry": f"http://127.0.0.1:{port}{PATH}"}}
    with pytest.raises(UncheckedError) as unchecked:
        list(registry_findings(from_mapping(document), subjects=False))
    (found,) = unchecked.value.findings
    return found


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (500, b'{"error_code": 50001, "message": "the store does not answer"}'),
        (502, HTML),
        (503, HTML),
        (408, b""),
        (429, b"slow down"),
        (200, HTML),
        (200, b'{"status": "starting"}'),
        (404, HTML),
        (404, OF_A_REGISTRY),
    ],
)
def test_what_retries_may_outlast_is_unreachable_and_ends_no_merge_job(status: int, body: bytes) -> None:
    with answering({f"{PATH}/subjects": (status, body)}) as port:
        found = found_at(port)
    assert (found.code, found.is_error) == ("registry.unreachable", True)
    assert not keeps_from_running(found)
    assert f"HTTP {status}" in found.evidence


def test_another_api_is_a_wrong_path() -> None:
    with answering({f"{PATH}/subjects": (404, OF_ANOTHER_API)}) as port:
        found = found_at(port)
    assert (found.code, keeps_from_running(found)) == ("registry.path", True)
    assert "Could not find resource" in found.evidence


@pytest.mark.parametrize("there", [(404, HTML), (404, OF_ANOTHER_API), (200, HTML), (405, b"")])
def test_a_usual_path_that_has_the_api_is_named(there: tuple[int, bytes]) -> None:
    usual = "/apis/ccompat/v7"
    with answering({f"{PATH}/subjects": there, f"{usual}/subjects": (200, json.dumps([]).encode())}) as port:
        found = found_at(port)
    assert (found.code, keeps_from_running(found)) == ("registry.path", True)
    assert found.fix == f"export TIDEMARK_FORMAT__REGISTRY=http://127.0.0.1:{port}{usual}"


def test_a_peer_that_speaks_no_http_is_unreachable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        found = found_at(listener.getsockname()[1])
        thread.join(10)
    assert found.code == "registry.unreachable"
