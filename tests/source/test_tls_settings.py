"""An error of TLS names the settings of the server that it is about: a sink has them in its URL. No server is needed."""

from __future__ import annotations

import ssl
from dataclasses import replace
from typing import Any

import pymysql
import pytest

from mysqlio import connection
from mysqlio.server_access import ServerAccess
from mysqlio.server_errors import source_errors
from schemas.errors import SourceError
from schemas.settings import SinkSettings, SourceSettings, TlsSettings

ACCESSES = {
    "source": ServerAccess.of(SourceSettings(host="db", tables=("a",))),
    "sink": ServerAccess.of_sink(SinkSettings(name="house", type="mysql", url="mysql://db:3306?sslMode=REQUIRED", user="u")),
}


@pytest.mark.parametrize(("kind", "setting"), [("source", "source.tls.mode"), ("sink", "sinks.house.url (sslMode)")])
def test_a_server_without_tls_is_reported_with_the_setting_that_asks_for_it(kind: str, setting: str) -> None:
    access = ACCESSES[kind]
    with pytest.raises(SourceError, match="does not offer TLS") as refused, source_errors(access.address, access.section):
        raise pymysql.err.OperationalError(2026, "SSL is required but the server doesn't support it")
    assert str(refused.value) == f"db:3306 does not offer TLS, and {setting} asks for it"


@pytest.mark.parametrize(("kind", "settings"), [("source", "source.tls (mode, ca, cert, key)"), ("sink", "sinks.house.url (sslMode)")])
def test_a_certificate_that_is_refused_is_reported_with_its_settings(kind: str, settings: str) -> None:
    access = ACCESSES[kind]
    with pytest.raises(SourceError) as refused, source_errors(access.address, access.section):
        raise ssl.SSLCertVerificationError("self-signed certificate")
    assert str(refused.value).endswith(f"Check {settings}")


@pytest.mark.parametrize(("mode", "is_required"), [("preferred", False), ("required", True)])
def test_certificates_alone_demand_no_tls(mode: Any, is_required: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    with_authorities, found = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), []
    with_authorities.check_hostname = False
    monkeypatch.setattr(connection, "_context", {"/ca.pem": with_authorities}.__getitem__)
    monkeypatch.setattr(pymysql.connections.Connection, "connect", lambda self: found.append((self._ssl_required, self.ctx)))
    connection._greeted(replace(ACCESSES["source"], tls=TlsSettings(mode=mode, ca="/ca.pem")), {})
    assert found == [(is_required, with_authorities)]
