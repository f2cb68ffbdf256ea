"""Connections to the source with a pinned session: the server's defaults change nothing that is read.

What enters: `SourceSettings`. What leaves: a PyMySQL connection. Connection errors become `SourceError` (a
person must act) or `RetriableSourceError` (retrying may help).
"""

# ruff: noqa: SLF001 - PyMySQL has no public way to its socket, and to how it reads
from __future__ import annotations

import codecs
import io
import re
import socket
import ssl
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pymysql
import pymysql.connections
import pymysql.cursors
from pymysql.constants import CLIENT, CR

from producer.source.patient_reader import SILENT_S, PatientReader
from schemas.errors import AccessDeniedError, ConfigError, RetriableSourceError, SecretError, SourceError
from schemas.secrets import secret_of
from schemas.waiting import waiting

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from schemas.settings import SourceSettings, TlsSettings

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

_BROKEN_OFF: Final = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)
_ACCESS_DENIED: Final = frozenset({1045, 1044, 1130, 1698, 1524, 2059, 2061, 3118})
GONE: Final = frozenset(
    {1040, 1053, 1077, 1078, 1079, 1152, 1158, 1159, 1160, 1161, 1317, 1927, 2002, 2003,
     2005, 2006, 2013, 2055, 4031}
)  # fmt: skip
"""Error codes of a server that is ending, a connection that broke, and a server that cannot be reached."""
_SHORT_OF: Final = frozenset(
    {1015, 1021, 1030, 1037, 1038, 1041, 1129, 1135, 1180, 1203, 1205, 1206, 1213, 1226, 1969, 3024}
)
"""A server without disk, memory, threads, connections, or time: locks, limits of an account and of a statement."""
_OF_FILES: Final = range(1, 100)
"""Errors of files below the server (`mysys_err.h`): its folder for temporary tables, for one."""
_COMMAND_DENIED: Final = re.compile(
    r"(?P<what>[A-Z ]+) command denied to user .+? for (?:table|column .+? in table) '?(?P<table>[^']+)'?"
)
_PRIVILEGE_NEEDED: Final = re.compile(r"you need \(at least one of\) the (?P<what>[A-Z_ ]+?)(?:,.*)? privilege")
_OUR_USER: Final = "<the user of source.user>"
SERVER_TEXT: Final = "tidemark_server_text"
"""How texts of the server are decoded: as UTF-8, with `\\xff` for a byte that is none.

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
"""Seconds of silence before the first question, between questions, how many; ms for what was sent to be received."""


def _find_codec(name: str) -> codecs.CodecInfo | None:
    if name != SERVER_TEXT:
        return None
    return codecs.CodecInfo(codecs.utf_8_encode, lambda data, _errors="": codecs.utf_8_decode(data, "backslashreplace", True))


codecs.register(_find_codec)


def server_version(connection: Connection) -> str:
    """Return the version text of the handshake."""
    return str(connection.get_server_info())  # type: ignore[no-untyped-call]


def password_of(settings: SourceSettings) -> str:
    """Return the password, from the first line of its file where one is named. `AccessDeniedError`: it cannot be read."""
    try:
        return secret_of(settings.password, settings.password_file, "source.password_file")
    except SecretError as error:
        raise AccessDeniedError(str(error)) from error


def connect(settings: SourceSettings, **options: Any) -> Connection:
    """Open a connection with a pinned session; `options` go to PyMySQL (for example `cursorclass`).

    Until the session is set up, each answer of the server must come within `connect_timeout_s`. From then on a statement
    may take as long as it needs, while the server answers new connections (`PatientReader`).

    Raises `SourceError` for wrong credentials and settings, `RetriableSourceError` when the server cannot be
    reached.
    """
    where = f"{settings.host}:{settings.port}"
    with source_errors(where), waiting("source", where, "a connection"):
        connection = _greeted(settings, options)
        try:
            connection.encoding = SERVER_TEXT
            _notice_a_dead_peer(connection)
            if settings.tls.mode in ("required", "verify_ca", "verify_identity"):
                _require_tls(connection, where)
            with connection.cursor() as cursor:
                for statement in PINNED_SESSION:
                    cursor.execute(statement)
            _read_patiently(connection, settings, where)
        except BaseException:
            close_quietly(connection)
            raise
    return connection


def _greeted(settings: SourceSettings, options: Mapping[str, Any]) -> Connection:
    """Return a connection of an authenticated user. Raises as PyMySQL, and `RetriableSourceError` for a peer that says nothing."""
    try:
        return _Connection(
            host=settings.host,
            port=settings.port,
            user=settings.user,
            password=password_of(settings).encode(),  # text it would take for Latin-1
            charset="utf8mb4",
            autocommit=True,
            connect_timeout=settings.connect_timeout_s,
            read_timeout=settings.connect_timeout_s,
            write_timeout=settings.connect_timeout_s,
            client_flag=CLIENT.MULTI_STATEMENTS,
            **tls_options(settings.tls),
            **options,
        )
    except pymysql.MySQLError as error:
        if error.args[:1] != (CR.CR_SERVER_LOST,) or not isinstance(error.__context__, TimeoutError):
            raise
        message = (
            f"{settings.host}:{settings.port} accepts the connection, but nothing came from a server for "
            f"{settings.connect_timeout_s} s: is it a proxy whose database is down? (A server that looks names up slowly "
            "needs a larger source.connect_timeout_s)"
        )
        raise RetriableSourceError(message) from error


def _read_patiently(connection: Connection, settings: SourceSettings, where: str) -> None:
    """From here on an answer is waited for as long as the server is there."""

    def answers() -> bool:
        try:
            close_quietly(_greeted(settings, {}))
        except pymysql.MySQLError as error:
            return error.args[:1] not in _NO_ANSWER
        except OSError:
            return False
        except SourceError as error:
            return not isinstance(error, RetriableSourceError)
        return True

    inside: Any = connection
    inside._rfile.close()
    inside._rfile = io.BufferedReader(PatientReader(inside._sock, where, answers, SILENT_S))
    inside._read_timeout = inside._write_timeout = _STATEMENT_S  # for what is sent, and within a record of TLS


def close_quietly(connection: Connection) -> None:
    """Close a connection that may be broken."""
    with suppress(pymysql.MySQLError, OSError):
        connection.close()


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
    """A connection that loads no certificates of authorities where it verifies none.

    PyMySQL loads those of the system for each connection, which takes longer than all else of it.
    """

    def _create_ssl_ctx(self, sslp: ssl.SSLContext | Mapping[str, Any]) -> ssl.SSLContext:
        """Return the context of `tls_options`; for TLS that is used only where the server has it, one that verifies nothing."""
        return sslp if isinstance(sslp, ssl.SSLContext) else _context(None)


def _context(ca: str | None) -> ssl.SSLContext:
    """Return a context that knows the authorities of a file, or none, and verifies no certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if ca:
        context.load_verify_locations(cafile=ca)
    return context


def tls_options(tls: TlsSettings) -> dict[str, Any]:
    """PyMySQL's arguments for a TLS mode of the MySQL clients."""
    if tls.mode == "disabled":
        return {"ssl_disabled": True}
    if tls.mode == "preferred" and not (tls.ca or tls.cert):
        return {}
    try:
        context = ssl.create_default_context(cafile=tls.ca) if tls.mode.startswith("verify") else _context(tls.ca)
        if tls.cert:
            context.load_cert_chain(tls.cert, tls.key)
    except OSError as error:
        message = f"source.tls: ca ({tls.ca}), cert ({tls.cert}) or key ({tls.key}) cannot be read: {error}"
        raise ConfigError(message) from error
    # The certificates that MySQL makes for itself lack what Python 3.13 asks for.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.check_hostname = tls.mode == "verify_identity"
    context.verify_mode = ssl.CERT_REQUIRED if tls.mode.startswith("verify") else ssl.CERT_NONE
    return {"ssl": context}


def _require_tls(connection: Connection, where: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SHOW SESSION STATUS LIKE 'Ssl_cipher'")
        row = cursor.fetchone()
    if row is None or not row[1]:
        message = f"{where} does not offer TLS, and source.tls.mode asks for it"
        raise SourceError(message)


@contextmanager
def source_errors(where: str) -> Iterator[None]:
    """Turn errors of PyMySQL, TLS and the socket into ours; `where` names the server."""
    try:
        yield
    except pymysql.MySQLError as error:
        raise source_error(error, where) from error
    except ssl.SSLError as error:
        raise _tls_error(error, str(error), where) from error
    except OSError as error:
        message = f"the connection to {where} broke: {error}"
        raise RetriableSourceError(message) from error


def _tls_error(error: ssl.SSLError, text: str, where: str) -> SourceError:
    """Return whether the failure is final: a server that stops, or a lost connection, also breaks handshakes off."""
    if isinstance(error, _BROKEN_OFF):
        return RetriableSourceError(f"the connection to {where} broke in the TLS handshake: {text}")
    return SourceError(f"TLS with {where} failed: {text}. Check source.tls (mode, ca, cert, key)")


def source_error(error: pymysql.MySQLError, where: str) -> SourceError:
    """Return one of our errors for one of PyMySQL's."""
    code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
    text = str(error.args[1]) if len(error.args) > 1 else str(error)
    below = getattr(error, "original_exception", None)
    if isinstance(below, ssl.SSLError):
        return _tls_error(below, text, where)
    if code in _ACCESS_DENIED:
        return AccessDeniedError(
            f"{where} refuses the user: {text} ({code}). Check source.user, source.password or "
            f"password_file, and the host part of the account"
        )
    if code in GONE or (code == 0 and isinstance(error, pymysql.err.InterfaceError)):
        return RetriableSourceError(f"the connection to {where} is gone: {text} ({code})")
    if code in _SHORT_OF or code in _OF_FILES:
        return RetriableSourceError(f"{where} cannot answer now: {text} ({code})")
    return SourceError(f"{where} answers: {text} ({code}){missing_grant(text)}")


def missing_grant(text: str) -> str:
    """Return the statement that grants what a server says is missing, as a sentence; "" where it says nothing of the kind."""
    denied = _COMMAND_DENIED.search(text)
    if denied is not None:
        table = denied["table"]
        return f". Run: GRANT {denied['what']} ON {table if '.' in table else f'<database>.{table}'} TO {_OUR_USER}"
    needed = _PRIVILEGE_NEEDED.search(text)
    return "" if needed is None else f". Run: GRANT {needed['what']} ON *.* TO {_OUR_USER}"
