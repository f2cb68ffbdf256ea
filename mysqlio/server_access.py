"""The access to a server of MySQL or MariaDB, from which connections are made."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Final

from schemas.errors import AccessDeniedError, SecretError
from schemas.secrets import secret_of
from schemas.settings import SinkSettings, SourceSettings, TlsSettings
from schemas.settings.database_url import DatabaseUrl, parse_url
from schemas.settings.task_section import TaskTarget

_CONNECT_TIMEOUT_S: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerAccess:
    """Address and account of a server. `section` names the settings in errors, and the peer in waits."""

    host: str
    port: int
    user: str
    password: str = field(default="", repr=False)
    password_file: str | None = None
    tls: TlsSettings = field(default_factory=TlsSettings)
    connect_timeout_s: int = _CONNECT_TIMEOUT_S
    section: str = "source"

    @classmethod
    def of(cls, server: SourceSettings | TaskTarget) -> ServerAccess:
        """Return the access of the server that is read, or of the target of a task."""
        return cls(
            host=server.host,
            port=server.port,
            user=server.user,
            password=server.password,
            password_file=server.password_file,
            tls=server.tls,
            connect_timeout_s=server.connect_timeout_s,
            section="target" if isinstance(server, TaskTarget) else "source",
        )

    @classmethod
    def of_sink(cls, sink: SinkSettings) -> ServerAccess:
        """Return the access of the server of a sink of type `mysql` or `mariadb`; options in its URL choose how TLS is used."""
        url = parse_url(sink.url, sink.type, f"sinks: {sink.name}: url")
        return cls.of_url(url, sink.user, sink.password, sink.password_file, f"sinks.{sink.name}")

    @classmethod
    def of_url(cls, url: DatabaseUrl, user: str, password: str, password_file: str | None, section: str) -> ServerAccess:
        """Return the access of the server of an address; `section` names it in errors."""
        tls: dict[str, Any] = dict(url.options)
        connect_timeout_s = int(tls.pop("connect_timeout_s", _CONNECT_TIMEOUT_S))
        return cls(
            host=url.address,
            port=url.port,
            user=user,
            password=password,
            password_file=password_file,
            tls=TlsSettings(**tls),
            connect_timeout_s=connect_timeout_s,
            section=section,
        )

    @property
    def address(self) -> str:
        """Host and port, as messages name the server."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def with_secret(self) -> ServerAccess:
        """Return the access with its password, for a process that cannot read the file. Errors as `secret`."""
        return replace(self, password=self.secret(), password_file=None)

    def secret(self) -> str:
        """Return the password, from the first line of its file if one is named. `AccessDeniedError`: it cannot be read."""
        try:
            return secret_of(self.password, self.password_file, f"{self.section}.password_file")
        except SecretError as error:
            raise AccessDeniedError(str(error)) from error
