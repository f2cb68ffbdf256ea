"""Encrypted connections and every way of showing a password, against real servers with certificates of their own."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from devservers import Database, start_database
from devservers.packages import one_package
from mysqlio.connection import connect
from mysqlio.server_access import ServerAccess
from schemas.errors import AccessDeniedError, ConfigError, RetriableSourceError, SourceError
from schemas.settings import SourceSettings, TlsSettings
from tests.support.certificates import Authority
from tests.support.servers import database

PASSWORD = "p'ass\"word-äß"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module", params=["mysql80", "mariadb114", pytest.param("mysql97", marks=pytest.mark.slow)])
def server(
    request: pytest.FixtureRequest, authority: Authority, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Database]:
    """A server whose certificate is for `localhost`, not for its address."""
    identity = authority.identity(request.param, hosts=("localhost",))
    options = {"ssl_ca": str(authority.ca), "ssl_cert": str(identity.cert), "ssl_key": str(identity.key)}
    if request.param.startswith("mariadb"):
        options["ssl"] = "ON"
    with start_database(request.param, tmp_path_factory.mktemp(request.param), options) as running:
        yield running


def settings_of(server: Database, **more: object) -> SourceSettings:
    base = SourceSettings(
        host="localhost", port=server.port, user=server.user, password=server.password, tables=(".*",)
    )
    return replace(base, **more)


def execute(server: Database, *statements: str) -> None:
    with server.connect() as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def cipher(settings: SourceSettings) -> str:
    with connect(ServerAccess.of(settings)) as connection, connection.cursor() as cursor:
        cursor.execute("SHOW SESSION STATUS LIKE 'Ssl_cipher'")
        return str(cursor.fetchone()[1])


def test_a_server_is_trusted_by_its_authority_and_its_name(
    server: Database, authority: Authority, tmp_path: Path
) -> None:
    by_name = TlsSettings(mode="verify_identity", ca=str(authority.ca))
    by_authority = TlsSettings(mode="verify_ca", ca=str(authority.ca))
    assert cipher(settings_of(server, tls=by_name))
    assert cipher(settings_of(server, tls=by_authority, host="127.0.0.1"))
    stranger = Authority(tmp_path / "stranger", "another")
    for wrong in (
        settings_of(server, tls=by_name, host="127.0.0.1"),
        settings_of(server, tls=TlsSettings(mode="verify_ca", ca=str(stranger.ca))),
        settings_of(server, tls=TlsSettings(mode="verify_identity")),
    ):
        with pytest.raises(SourceError, match=r"TLS with .* failed.*certificate.*Check source\.tls") as caught:
            connect(ServerAccess.of(wrong))
        assert not isinstance(caught.value, RetriableSourceError)


def test_a_server_that_is_short_of_something_may_be_asked_once_more(server: Database) -> None:
    """As of disk, memory, threads, locks; here an account that may have one connection at a time."""
    execute(server, "CREATE USER one IDENTIFIED BY 'p' WITH MAX_USER_CONNECTIONS 1")
    settings = settings_of(server, user="one", password="p")
    with connect(ServerAccess.of(settings)), pytest.raises(RetriableSourceError, match=r"cannot answer now: .*max_user_connections"):
        connect(ServerAccess.of(settings))


def test_a_handshake_that_breaks_off_may_be_retried(server: Database, authority: Authority) -> None:
    """As when the server stops, or a proxy cuts the connection: nobody has refused anything."""
    tls = TlsSettings(mode="verify_ca", ca=str(authority.ca))
    with socket.create_server(("127.0.0.1", 0)) as front:

        def close_after_the_request() -> None:
            client, _ = front.accept()
            with client, socket.create_connection(("127.0.0.1", server.port)) as behind:
                client.sendall(behind.recv(4096))
                client.recv(36)  # SSLRequest
                client.recv(1)  # ClientHello begins
                client.shutdown(socket.SHUT_WR)
                client.recv(1 << 16)

        cutter = threading.Thread(target=close_after_the_request, daemon=True)
        cutter.start()
        with pytest.raises(RetriableSourceError, match="broke in the TLS handshake"):
            connect(ServerAccess.of(settings_of(server, tls=tls, host="127.0.0.1", port=front.getsockname()[1])))
        cutter.join(10)


def test_a_user_may_be_asked_for_a_certificate(server: Database, authority: Authority) -> None:
    client = authority.identity("client")
    execute(server, f"CREATE USER certified IDENTIFIED BY '{server.password}' REQUIRE X509")
    tls = TlsSettings(mode="verify_identity", ca=str(authority.ca))
    with pytest.raises(AccessDeniedError, match="refuses the user"):
        connect(ServerAccess.of(settings_of(server, user="certified", tls=tls)))
    shown = replace(tls, cert=str(client.cert), key=str(client.key))
    assert cipher(settings_of(server, user="certified", tls=shown))


def test_files_that_are_not_there_are_named_and_no_reason_to_wait(server: Database) -> None:
    with pytest.raises(ConfigError, match=r"source\.tls: ca \(/none\.pem\).*No such file"):
        connect(ServerAccess.of(settings_of(server, tls=TlsSettings(mode="verify_ca", ca="/none.pem"))))


def test_tls_that_is_asked_for_is_never_left_out() -> None:
    server = database("mysql57")  # this build has no TLS
    assert cipher(settings_of(server, host=server.host)) == ""
    with pytest.raises(SourceError, match=r"TLS|SSL"):
        connect(ServerAccess.of(settings_of(server, host=server.host, tls=TlsSettings(mode="required"))))


@pytest.mark.parametrize("mode", ["disabled", "preferred"])
def test_passwords_are_shown_with_and_without_tls(server: Database, mode: str) -> None:
    plugin = "" if server.flavour == "mariadb" else "WITH caching_sha2_password "  # MariaDB 11.4 has none
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE USER sha2_{mode} IDENTIFIED {plugin}BY %s", (PASSWORD,))
    settings = settings_of(server, user=f"sha2_{mode}", password=PASSWORD, tls=TlsSettings(mode=mode))
    # The first connection shows the whole password, by TLS or the server's RSA key; the second a hash.
    assert [bool(cipher(settings)) for _ in range(2)] == [mode == "preferred"] * 2
    with pytest.raises(AccessDeniedError):
        connect(ServerAccess.of(replace(settings, password="wrong")))


@pytest.mark.slow
def test_mariadb_s_ed25519_is_spoken(tmp_path: Path) -> None:
    """The plugin is in another package than the server."""
    plugins = one_package("mariadb118-plugins", "trixie", "mariadb-server", print) / "usr/lib/mysql/plugin"
    with start_database("mariadb118", tmp_path, {"plugin_dir": str(plugins)}) as server:
        execute(
            server,
            "INSTALL SONAME 'auth_ed25519'",
            "CREATE USER ed IDENTIFIED VIA ed25519 USING PASSWORD('right')",
        )
        connect(ServerAccess.of(settings_of(server, host=server.host, user="ed", password="right"))).close()
        with pytest.raises(AccessDeniedError):
            connect(ServerAccess.of(settings_of(server, host=server.host, user="ed", password="wrong")))
