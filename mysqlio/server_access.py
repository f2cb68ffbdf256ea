"""The access to a server of MySQL or MariaDB, from which connections are made."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qsl

from schemas.errors import AccessDeniedError, SecretError
from schemas.secrets import secret_of
from schemas.settings import SinkSettings, SourceSettings, TlsSettings
from schemas.settings.database_url import parse_url

_MODES: Final = frozenset({"disabled", "preferred", "required", "verify_ca", "verify_identity"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerAccess:
    """Address and account of a server. `section` names the settings in errors, and the peer in waits."""

    host: str
    port: int
    user: str
    password: str = field(default="", repr=False)
    password_file: str | None = None
    tls: TlsSettings = field(default_factory=TlsSettings)
    connect_timeout_s: int = 10
    section: str = "source"

    @classmethod
    def of(cls, source: SourceSettings) -> ServerAccess:
        """Return the access of the server that is read."""
        return cls(
            host=source.host,
            port=source.port,
            user=source.user,
            password=source.password,
            password_file=source.password_file,
            tls=source.tls,
            connect_timeout_s=source.connect_timeout_s,
        )

    @classmethod
    def of_sink(cls, sink: SinkSettings) -> ServerAccess:
        """Return the access of the server of a sink of type `mysql` or `mariadb`; `sslMode` in its URL chooses how TLS is used.

        Certificates are checked by the authorities of this machine; a mode that is not of the MySQL clients counts as VERIFY_CA.
        """
        url = parse_url(sink.url, sink.type, f"sinks: {sink.name}: url")
        mode: Any = dict(parse_qsl(url.options)).get("sslMode", "preferred").lower()
        return cls(
            host=url.host.strip("[]"),
            port=url.port,
            user=sink.user,
            password=sink.password,
            password_file=sink.password_file,
            tls=TlsSettings(mode=mode if mode in _MODES else "verify_ca"),
            section=f"sinks.{sink.name}",
        )

    @property
    def address(self) -> str:
        """Host and port, as messages name the server."""
        return f"{self.host}:{self.port}"

    def secret(self) -> str:
        """Return the password, from the first line of its file if one is named. `AccessDeniedError`: it cannot be read."""
        try:
            return secret_of(self.password, self.password_file, f"{self.section}.password_file")
        except SecretError as error:
            raise AccessDeniedError(str(error)) from error
