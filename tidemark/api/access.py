"""Who may ask an HTTP endpoint: the token of the settings, and the names under which loopback is reached."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from schemas.errors import ConfigError

if TYPE_CHECKING:
    from schemas.settings import ServiceSettings


def token_of(settings: ServiceSettings) -> str | None:
    """Return what a signal must show, None where nothing is; `ConfigError` for a file that has none."""
    if settings.token_file is None:
        return settings.token or None
    try:
        token = Path(settings.token_file).read_text(encoding="utf-8").split("\n", 1)[0].strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"service.token_file: {settings.token_file} cannot be read: {error}") from error
    if not token:
        raise ConfigError(f"service.token_file: the first line of {settings.token_file} is empty")
    return token


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine, by its address or as `localhost`."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


_OF_PROXIES: Final = frozenset({"forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip", "via"})


def is_through_proxy(headers: Iterable[str]) -> bool:
    """Return whether a proxy has passed a request on, by the names of its headers: loopback says nothing of who asks then."""
    return any(name.lower() in _OF_PROXIES for name in headers)


def foreign_name(own_host: str, host: str | None, origin: str | None) -> str:
    """Return why a request must not be answered by what it calls this endpoint; "" where it may.

    A browser can be led to loopback by a name of a page of another origin (DNS rebinding): `Host` is that name then, and `Origin`
    the page's.
    """
    for header, value in (("Host", host), ("Origin", origin)):
        if value is not None and not _is_own(own_host, value if header == "Origin" else f"//{value}"):
            return (
                f"the header {header} is {value[:80]!r}: without service.token this endpoint answers to localhost, 127.0.0.1, "
                "[::1] and service.host only"
            )
    return ""


def _is_own(own_host: str, url: str) -> bool:
    try:
        name = urlsplit(url).hostname or ""
    except ValueError:  # brackets that are none
        return False
    return is_loopback(name) or name == own_host.lower()
