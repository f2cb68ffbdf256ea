"""The address of a database that is merged into: a URL enters, its parts leave."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote_plus

from schemas.errors import ConfigError
from schemas.settings.url_options import url_options

DATABASES: Final = ("postgresql", "mysql", "mariadb")
"""The types of sink that are a database."""
_PORTS: Final = {"postgresql": 5432, "mysql": 3306, "mariadb": 3306}
_URL: Final = re.compile(
    r"(?:jdbc:)?(?P<kind>postgresql|mysql|mariadb)://(?P<host>\[[0-9A-Fa-f:]+\]|[^/:?\[\]@,]+)(?::(?P<port>\d{1,5}))?"
    r"(?:/(?P<database>[^/?]*))?(?:\?(?P<options>.*))?"
)
_SECRETS: Final = re.compile(r"(?:^|&)(user|password)=", re.IGNORECASE)
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1", "[::1]")


@dataclass(frozen=True, slots=True)
class DatabaseUrl:
    """A server, a database on it ("" for none), and the options of its client (`url_options`)."""

    kind: str
    host: str
    port: int
    database: str
    options: Mapping[str, str]

    @property
    def address(self) -> str:
        """The host, without the brackets of an IPv6 address."""
        return self.host.strip("[]")

    @property
    def server(self) -> str:
        """Host and port, for messages."""
        return f"{self.host}:{self.port}"

    def is_server(self, host: str, port: int) -> bool:
        """Return whether host and port name this server (addresses are not looked up)."""
        hosts = {name.lower().strip("[]") for name in (self.host, host)}
        is_same_host = len(hosts) == 1 or hosts <= {name.strip("[]") for name in _LOOPBACK}
        return is_same_host and self.port == port


def parse_url(url: str, kind: str, key: str) -> DatabaseUrl:
    """Return the parts of a URL for a sink of this type; `ConfigError` with the key where it is none.

    The message never has what follows the database: there may be a password.
    """
    found = _URL.fullmatch(url.strip())
    shown = url.partition("?")[0]
    if found is None or "@" in shown:
        message = f"{key}: {shown.rpartition('@')[2]!r} is not of the form {kind}://<host>:<port>/<database>, with one host"
        raise ConfigError(message)
    given = found["kind"]
    if (given == "postgresql") != (kind == "postgresql"):
        raise ConfigError(f"{key}: a sink of type {kind} has no address {given}://...: change the type or the address")
    secret = _SECRETS.search(found["options"] or "")
    if secret is not None:
        raise ConfigError(f"{key}: {secret[1]} is given in the address: give `user`, and `password_file` for the password")
    port = int(found["port"] or _PORTS[kind])
    database = unquote_plus(found["database"] or "")
    if kind == "postgresql" and not database:
        raise ConfigError(f"{key}: names no database: write {kind}://{found['host']}:{port}/<database>")
    options = url_options(kind, found["options"] or "", key)
    return DatabaseUrl(given, found["host"], port, database, options)
