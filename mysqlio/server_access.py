"""The access to a server of MySQL or MariaDB, from which connections are made."""

from __future__ import annotations

from dataclasses import dataclass, field

from schemas.errors import AccessDeniedError, SecretError
from schemas.secrets import secret_of
from schemas.settings import SourceSettings, TlsSettings


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
