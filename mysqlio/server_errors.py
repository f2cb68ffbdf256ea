"""Errors of the client as ours: those that a person must mend, and those that another attempt may pass."""

from __future__ import annotations

import re
import ssl
from contextlib import contextmanager
from enum import IntEnum
from typing import TYPE_CHECKING, Final, TypeAlias

import pymysql
from pymysql.constants import CR

from schemas.errors import AccessDeniedError, HandshakeError, RetriableSourceError, SourceError

if TYPE_CHECKING:
    from collections.abc import Iterator

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

ServerError: TypeAlias = pymysql.MySQLError
"""What the client raises for a statement that the server refuses, and for a connection that broke."""


class ServerCode(IntEnum):
    """Numbers of refusals that callers distinguish."""

    RECORD_CHANGED = 1020
    DATABASE_ACCESS_DENIED = 1044
    UNKNOWN_DATABASE = 1049
    UNKNOWN_COLUMN = 1054
    DUPLICATE_ENTRY = 1062
    TABLE_ACCESS_DENIED = 1142
    NO_SUCH_TABLE = 1146
    LOCK_WAIT_TIMEOUT = 1205
    DEADLOCK = 1213
    OPTION_PREVENTS_STATEMENT = 1290
    TABLE_CHANGED = 1412
    READ_ONLY_MODE = 1836


def server_code(error: BaseException | None) -> int:
    """Return the server's number of an error, or of the error from which it was made; 0 without one."""
    while error is not None and not isinstance(error, ServerError):
        error = error.__cause__
    code = error.args[0] if error is not None and error.args else 0
    return code if isinstance(code, int) else 0


def is_lost(error: ServerError) -> bool:
    """Return whether the connection is lost, or the server is ending or unreachable."""
    code = server_code(error)
    return code in GONE or (code == 0 and isinstance(error, pymysql.err.InterfaceError))


@contextmanager
def source_errors(where: str, section: str = "source") -> Iterator[None]:
    """Turn errors of the client, TLS and the socket into ours; `where` names the server, `section` its settings."""
    try:
        yield
    except ServerError as error:
        raise source_error(error, where, section) from error
    except ssl.SSLError as error:
        raise _tls_error(error, str(error), where, section) from error
    except OSError as error:
        message = f"the connection to {where} broke: {error}"
        raise RetriableSourceError(message) from error


def tls_setting(section: str) -> str:
    """Return the settings of TLS with a server: a sink has them in its URL."""
    return "source.tls (mode, ca, cert, key)" if section == "source" else f"{section}.url (sslMode)"


def _tls_error(error: ssl.SSLError, text: str, where: str, section: str) -> SourceError:
    """Return the error of a failed handshake; a server that stops, or a lost connection, also breaks handshakes off."""
    if isinstance(error, _BROKEN_OFF):
        return RetriableSourceError(f"the connection to {where} broke in the TLS handshake: {text}")
    return HandshakeError(f"TLS with {where} failed: {text}. Check {tls_setting(section)}")


def source_error(error: ServerError, where: str, section: str = "source") -> SourceError:
    """Return one of our errors for one of the client's."""
    code = server_code(error)
    text = str(error.args[1]) if len(error.args) > 1 else str(error)
    below = getattr(error, "original_exception", None)
    if isinstance(below, ssl.SSLError):
        return _tls_error(below, text, where, section)
    if code == CR.CR_SSL_CONNECTION_ERROR:
        setting = "source.tls.mode" if section == "source" else tls_setting(section)
        return HandshakeError(f"{where} does not offer TLS, and {setting} asks for it")
    if code in _ACCESS_DENIED:
        return AccessDeniedError(
            f"{where} refuses the user: {text} ({code}). Check {section}.user, {section}.password or "
            f"password_file, and the host part of the account"
        )
    if is_lost(error):
        return RetriableSourceError(f"the connection to {where} is gone: {text} ({code})")
    if code in _SHORT_OF or code in _OF_FILES:
        return RetriableSourceError(f"{where} cannot answer now: {text} ({code})")
    return SourceError(f"{where} answers: {text} ({code}){missing_grant(text, section)}")


def missing_grant(text: str, section: str = "source") -> str:
    """Return the statement that grants the missing right, as a sentence; "" if the text of the server names none."""
    user = f"<the user of {section}.user>"
    denied = _COMMAND_DENIED.search(text)
    if denied is not None:
        table = denied["table"]
        return f". Run: GRANT {denied['what']} ON {table if '.' in table else f'<database>.{table}'} TO {user}"
    needed = _PRIVILEGE_NEEDED.search(text)
    return "" if needed is None else f". Run: GRANT {needed['what']} ON *.* TO {user}"


def described(error: BaseException) -> str:
    """Return an error as status and notifications show it."""
    if isinstance(error, ServerError) and len(error.args) > 1:
        return f"the source answers: {error.args[1]} ({error.args[0]}){missing_grant(str(error.args[1]))}"
    return str(error) or type(error).__name__
