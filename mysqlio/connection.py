"""Connections with a pinned session: the server's defaults change nothing that is read.

What enters: a `ServerAccess`. What leaves: a connection, on which an answer is awaited while the server is there. Errors are
`SourceError` (a person must act) or `RetriableSourceError` (retrying may help).
"""

# ruff: noqa: SLF001 - PyMySQL has no public way to its socket, and to how it reads
from __future__ import annotations

import codecs
import io
import socket
import ssl
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pymysql
import pymysql.connections
import pymysql.cursors
from pymysql.constants import CLIENT, CR

from mysqlio.patient_reader import SILENT_S, PatientReader
from mysqlio.server_errors import GONE, ServerError, source_errors
from schemas.errors import ConfigError, RetriableSourceError, SourceError
from schemas.waiting import waiting

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mysqlio.server_access import ServerAccess

Connection: TypeAlias = "pymysql.connections.Connection[pymysql.cursors.Cursor]"

PINNED_SESSION: Final = (
    "SET SESSION autocommit = 1",
    "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
    "SET SESSION sql_mode = ''",
    "SET SESSION time_zone = '+00:00'",
    "SET SESSION net_read_timeout = 600",
    "SET SESSION net_write_timeout = 600",
    "SET SESSION wait_timeout = 28800",
    "SET SESSION sql_select_limit = 18446744073709551615",
    (
        "SET SESSION sql_big_selects = 1 /*!50708 , max_execution_time = 0 */ /*M!100101 , max_statement_time = 0 */ "
        "/*!80003 , information_schema_stats_expiry = 0 */"
    ),
    "SET SESSION sql_quote_show_create = 1 /*!80030 , show_gipk_in_create_table_and_information_schema = ON */",
)
"""What every connection of ours runs first; `sql_mode` without PAD_CHAR_TO_FULL_LENGTH, times in UTC.

No limit on rows or time: a server's `sql_select_limit` leaves rows of a chunk, or tables, out without a word.
No cache of statistics: MySQL 8 writes it at SHOW INDEX, which then waits for a global read lock (a backup's, our own view's).
"""

SERVER_TEXT: Final = "tidemark_server_text"
"""How texts of the server are decoded: as UTF-8, with `\\xff` for any other byte.

MariaDB puts a binary default into a definition as it is, and both take halves of surrogate pairs for characters. Nothing
that a server says of one table may keep the rest of an answer, or the connection, from being read.
"""
_NO_ANSWER: Final = frozenset((code,) for code in GONE if CR.CR_ERROR_FIRST <= code < 3000)
"""What PyMySQL says by itself of a server that does not answer; the server's own refusals are answers."""
_STATEMENT_S: Final = 60.0
_KEEPALIVE: Final = {
    socket.TCP_KEEPIDLE: 60,
    socket.TCP_KEEPINTVL: 10,
    socket.TCP_KEEPCNT: 6,
    socket.TCP_USER_TIMEOUT: 120_000,
}
"""Seconds of silence before the first question, between questions, how many; ms until sent bytes must be received."""


def _find_codec(name: str) -> codecs.CodecInfo | None:
    if name != SERVER_TEXT:
        return None
    return codecs.CodecInfo(codecs.utf_8_encode, lambda data, _errors="": codecs.utf_8_decode(data, "backslashreplace", True))


codecs.register(_find_codec)


def server_version(connection: Connection) -> str:
    """Return the version text of the handshake."""
    return str(connection.get_server_info())  # type: ignore[no-untyped-call]


def connect(access: ServerAccess, session: Iterable[str] = PINNED_SESSION, **options: Any) -> Connection:
    """Open a connection and run the statements of `session`; `options` go to PyMySQL (for example `cursorclass`).

    Until the session is set up, each answer of the server must come within `connect_timeout_s`. From then on a statement
    may take as long as it needs, while the server answers new connections (`PatientReader`).

    Raises `SourceError` for wrong credentials and settings, `RetriableSourceError` when the server cannot be
    reached.
    """
    with source_errors(access.address, access.section), waiting(access.section, access.address, "a connection"):
        connection = _greeted(access, options)
        try:
            connection.encoding = SERVER_TEXT
            _notice_a_dead_peer(connection)
            with connection.cursor() as cursor:
                for statement in session:
                    cursor.execute(statement)
            _read_patiently(connection, access)
        except BaseException:
            close_quietly(connection)
            raise
    return connection


def connect_plainly(**options: Any) -> Connection:
    """Open a connection with the options of PyMySQL and the session that the server gives, as its other clients have it."""
    return pymysql.connect(**options)


def _greeted(access: ServerAccess, options: Mapping[str, Any]) -> Connection:
    """Return a connection of an authenticated user. Raises as PyMySQL, and `RetriableSourceError` for a peer that says nothing."""
    try:
        return _Connection(
            host=access.host,
            port=access.port,
            user=access.user,
            password=access.secret().encode(),  # text it would take for Latin-1
            charset="utf8mb4",
            autocommit=True,
            connect_timeout=access.connect_timeout_s,
            read_timeout=access.connect_timeout_s,
            write_timeout=access.connect_timeout_s,
            **{**_tls_options(access), **options, "client_flag": CLIENT.MULTI_STATEMENTS | options.get("client_flag", 0)},
        )
    except ServerError as error:
        if error.args[:1] != (CR.CR_SERVER_LOST,) or not isinstance(error.__context__, TimeoutError):
            raise
        message = (
            f"{access.address} accepts the connection, but nothing came from a server for "
            f"{access.connect_timeout_s} s: is it a proxy whose database is down?"
        )
        if access.section == "source":
            message += " (A server that looks names up slowly needs a larger source.connect_timeout_s)"
        raise RetriableSourceError(message) from error.__context__


def _read_patiently(connection: Connection, access: ServerAccess) -> None:
    """From here on an answer is waited for as long as the server is there."""

    def answers() -> bool:
        try:
            close_quietly(_greeted(access, {}))
        except ServerError as error:
            return error.args[:1] not in _NO_ANSWER
        except OSError:
            return False
        except SourceError as error:
            return not isinstance(error, RetriableSourceError)
        return True

    inside: Any = connection
    inside._rfile.close()
    inside._rfile = io.BufferedReader(PatientReader(inside._sock, access, answers, SILENT_S))
    inside._read_timeout = inside._write_timeout = _STATEMENT_S  # of sending, and within a record of TLS


def close_quietly(connection: Connection) -> None:
    """Close a connection that may be broken."""
    with suppress(ServerError, OSError):
        connection.close()


def abandon(connection: Connection) -> None:
    """Close a connection in the middle of a result, without a word to the server."""
    if connection.open:
        connection._force_close()  # type: ignore[attr-defined]


def _notice_a_dead_peer(connection: Connection) -> None:
    """Have the kernel ask whether a silent server's machine is still there, two minutes long.

    The system's own default is two hours; a read timeout would end slow statements, too.
    """
    sock: socket.socket | None = connection._sock  # type: ignore[attr-defined]
    if sock is not None and sock.family != socket.AF_UNIX:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _KEEPALIVE.items():
            sock.setsockopt(socket.IPPROTO_TCP, option, value)


class _Connection(pymysql.connections.Connection):
    """A connection that loads the certificates of authorities only if it verifies a certificate.

    PyMySQL loads the certificates of the system for each connection, which takes longer than all else of it. It demands TLS if
    it is given a context; with `preferred_tls` a server may do without.
    """

    def __init__(self, *, preferred_tls: ssl.SSLContext | None = None, **options: Any) -> None:
        self._preferred_tls = preferred_tls
        super().__init__(**options)

    def _create_ssl_ctx(self, sslp: ssl.SSLContext | Mapping[str, Any]) -> ssl.SSLContext:
        """Return the context of `_tls_options`; for TLS that is used if the server has it, one that verifies nothing."""
        return sslp if isinstance(sslp, ssl.SSLContext) else self._preferred_tls or _context(None)


def _context(ca: str | None) -> ssl.SSLContext:
    """Return a context that knows the authorities of a file, or none, and verifies no certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if ca:
        context.load_verify_locations(cafile=ca)
    return context


def _tls_options(access: ServerAccess) -> dict[str, Any]:
    """Return PyMySQL's arguments for a TLS mode of the MySQL clients."""
    tls = access.tls
    if tls.mode == "disabled":
        return {"ssl_disabled": True}
    if tls.mode == "preferred" and not (tls.ca or tls.cert):
        return {}
    try:
        context = ssl.create_default_context(cafile=tls.ca) if tls.mode.startswith("verify") else _context(tls.ca)
        if tls.cert:
            context.load_cert_chain(tls.cert, tls.key)
    except OSError as error:
        message = f"{access.section}.tls: ca ({tls.ca}), cert ({tls.cert}) or key ({tls.key}) cannot be read: {error}"
        raise ConfigError(message) from error
    # The certificates that MySQL makes for itself lack what Python 3.13 asks for.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.check_hostname = tls.mode == "verify_identity"
    context.verify_mode = ssl.CERT_REQUIRED if tls.mode.startswith("verify") else ssl.CERT_NONE
    return {"preferred_tls" if tls.mode == "preferred" else "ssl": context}
