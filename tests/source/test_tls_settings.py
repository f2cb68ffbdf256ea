"""An error of TLS names the settings of the server that it is about: a sink has them in its URL. No server is needed."""

from __future__ import annotations

import ssl
from types import TracebackType
from typing import Any, Self, cast

import pytest

from mysqlio.connection import Connection, _require_tls
from mysqlio.server_access import ServerAccess
from mysqlio.server_errors import source_errors
from schemas.errors import SourceError
from schemas.settings import SinkSettings, SourceSettings

ACCESSES = {
    "source": ServerAccess.of(SourceSettings(host="db", tables=("a",))),
    "sink": ServerAccess.of_sink(SinkSettings(name="house", type="mysql", url="mysql://db:3306?sslMode=REQUIRED", user="u")),
}


class Plain:
    """A connection without TLS, and its cursor."""

    def cursor(self) -> Self:
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None: ...

    def execute(self, _statement: str) -> None: ...

    def fetchone(self) -> tuple[Any, ...]:
        return "Ssl_cipher", ""


@pytest.mark.parametrize(("kind", "setting"), [("source", "source.tls.mode"), ("sink", "sinks.house.url (sslMode)")])
def test_a_server_without_tls_is_reported_with_the_setting_that_asks_for_it(kind: str, setting: str) -> None:
    with pytest.raises(SourceError, match="does not offer TLS") as refused:
        _require_tls(cast("Connection", Plain()), ACCESSES[kind])
    assert str(refused.value) == f"db:3306 does not offer TLS, and {setting} asks for it"


@pytest.mark.parametrize(("kind", "settings"), [("source", "source.tls (mode, ca, cert, key)"), ("sink", "sinks.house.url (sslMode)")])
def test_a_certificate_that_is_refused_is_reported_with_its_settings(kind: str, settings: str) -> None:
    access = ACCESSES[kind]
    with pytest.raises(SourceError) as refused, source_errors(access.address, access.section):
        raise ssl.SSLCertVerificationError("self-signed certificate")
    assert str(refused.value).endswith(f"Check {settings}")
