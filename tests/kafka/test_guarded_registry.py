"""A registry behind TLS and a password: who registers schemas shows what the settings have at that moment."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from producer.kafka.registry import SchemaIdRegistry
from schemas.applied.registry_access import RegistryAccess
from schemas.errors import ConfigError, RegistryAccessError, RegistryUnavailableError
from tests.support.certificates import Authority
from tests.support.guarded_registry import GuardedRegistry


class GivesIds(BaseHTTPRequestHandler):
    """A registry that gives every schema the same id."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = b'{"id": 7}' if self.headers.get("Content-Type") == "application/vnd.schemaregistry.v1+json" else b"{}"
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Quiet."""


@pytest.fixture
def guarded(authority: Authority) -> Iterator[GuardedRegistry]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), GivesIds)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    identity = authority.identity("registry", hosts=("localhost",))
    with GuardedRegistry(f"http://127.0.0.1:{server.server_address[1]}", identity, "us", "secret") as running:
        yield running
    server.shutdown()
    server.server_close()


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "authority")


def test_schemas_are_registered_with_the_password_of_the_moment(guarded: GuardedRegistry, authority: Authority, tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("former", "utf-8")
    access = RegistryAccess("us", password_file=str(password), ca=str(authority.ca))
    registry = SchemaIdRegistry(guarded.url, access)
    with pytest.raises(RegistryAccessError, match=r"refuses the user \(HTTP 401\)"):
        registry.register("t-value", '"string"')
    password.write_text("secret", "utf-8")
    assert registry.register("t-value", '"string"') == 7


def test_a_registry_whose_certificate_is_not_trusted_is_not_asked(guarded: GuardedRegistry) -> None:
    with pytest.raises(RegistryUnavailableError, match=r"cannot be reached: .*CERTIFICATE_VERIFY_FAILED.*check format\.registry"):
        SchemaIdRegistry(guarded.url).register("t-value", '"string"')


@pytest.mark.parametrize("access", [{"ca": "/none.pem"}, {"user": "us", "password_file": "/none"}])
def test_files_that_cannot_be_read_are_an_error_of_the_start(access: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="registry_access"):
        SchemaIdRegistry("https://localhost:1", RegistryAccess(**access))
