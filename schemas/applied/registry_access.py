"""How the schema registry is reached: its certificate authority, and who asks.

What enters: `FormatSettings`. What leaves: answers of the registry. Nothing here shows a password.
"""

from __future__ import annotations

import base64
import json
import ssl
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from schemas.errors import ConfigError
from schemas.overriding import override
from schemas.secrets import secret_of

if TYPE_CHECKING:
    from schemas.settings import FormatSettings, RegistrySettings


MEDIA: Final = "application/vnd.schemaregistry.v1+json"


def not_the_api(url: str, answer: str) -> str:
    """Return what to say of an address where something answers (HTTP 404) that does not have Confluent's API."""
    return (
        f"this is not a Confluent-compatible registry API at {url}: {answer}; check the path of format.registry (Apicurio "
        "has the API at http://<host>:8080/apis/ccompat/v7, Confluent's registry at http://<host>:8081)"
    )


def code_of_registry(answer: bytes) -> int | None:
    """Return the code of error of a registry's answer; None where it is not a registry's: that of a proxy, for one."""
    try:
        return int(json.loads(answer)["error_code"])
    except (ValueError, TypeError, KeyError):
        return None


@dataclass(frozen=True, slots=True)
class RegistryAccess:
    """Who asks a registry, and whom that one trusts; the default asks without a name."""

    user: str | None = None
    password: str = ""
    password_file: str | None = None
    ca: str | None = None
    cert: str | None = None
    key: str | None = None

    @override
    def __repr__(self) -> str:
        return f"RegistryAccess(user={self.user!r})"

    @classmethod
    def of(cls, wire: FormatSettings) -> RegistryAccess:
        """Return the access that the settings give."""
        auth: RegistrySettings = wire.registry_access
        return cls(auth.user, auth.password, auth.password_file, auth.ca, auth.cert, auth.key)

    def secret(self) -> str:
        """Return the password as it is now. `SecretError` when its file cannot be read."""
        return secret_of(self.password, self.password_file, "format.registry_access.password_file")

    def headers(self) -> dict[str, str]:
        """Return what a request shows."""
        if self.user is None:
            return {}
        token = base64.b64encode(f"{self.user}:{self.secret()}".encode()).decode()
        return {"Authorization": f"Basic {token}"}

    def open(self, url: str, timeout_s: float, document: object = None, context: ssl.SSLContext | None = None) -> Any:
        """Return the answer to a GET, as `urllib.request.urlopen` gives it and with its errors; to a POST of a document, if given.

        `context` is an earlier result of `tls`: certificates take several milliseconds.
        """
        request = urllib.request.Request(url)  # noqa: S310 - configured
        if document is not None:
            request.data = json.dumps(document).encode()
            request.add_header("Content-Type", MEDIA)
        for name, value in self.headers().items():
            request.add_unredirected_header(name, value)
        return urllib.request.urlopen(request, timeout=timeout_s, context=context or self.tls(url))  # noqa: S310 - configured

    def tls(self, url: str) -> ssl.SSLContext | None:
        """Return whom we trust at this address, and our certificate; None without TLS. `ConfigError` if a file cannot be read."""
        if not url.startswith("https:"):
            return None
        try:
            context = ssl.create_default_context(cafile=self.ca)
            if self.cert is not None:
                context.load_cert_chain(self.cert, self.key)
        except OSError as error:
            message = f"format.registry_access: ca, cert or key cannot be read: {error}"
            raise ConfigError(message) from error
        return context
