"""Who may read the page, and who may act by it.

On loopback everybody on this machine may read. Elsewhere, through a proxy, and to act, one signs in with the token of the settings
(`service.token`, `service.token_file`), or with one that is made at the start and printed where there is none. A browser then keeps
a cookie that no page of another origin can use; a script shows the token as `Authorization: Bearer …`.

The page answers to its own names only, so that no name of another origin leads a browser here (DNS rebinding): `localhost`,
addresses, `service.host`, `service.page_names`.
"""

from __future__ import annotations

import hmac
import ipaddress
import secrets
import threading
import time
from http import HTTPStatus
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from tidemark.api.access import is_loopback, is_through_proxy, token_of

if TYPE_CHECKING:
    from starlette.requests import Request

    from schemas.settings import ServiceSettings

SESSION_S: Final = 12 * 3600
_MOST_SESSIONS: Final = 100
_BEARER: Final = "Bearer "

Refusal = tuple[HTTPStatus, str]


class Access:
    """The token, and the browsers that have signed in. `port` is in the cookie's name: the ports of a host share cookies."""

    def __init__(self, service: ServiceSettings, port: int) -> None:
        given = token_of(service)
        self.token = given or secrets.token_urlsafe(18)
        self.is_made_here = given is None
        self.cookie = f"tidemark_page_{port}"
        self._host = service.host.lower()
        self._is_loopback = is_loopback(service.host)
        self._names = frozenset(name.lower() for name in service.page_names)
        self._sessions: dict[str, float] = {}
        self._lock = threading.Lock()

    def refusal_to_read(self, request: Request) -> Refusal | None:
        """Return why this request is not answered; None where it may read."""
        if (refusal := self._foreign(request)) is not None:
            return refusal
        if self.is_known(request) or (self._is_loopback and not self._is_through_proxy(request)):
            return None
        return HTTPStatus.UNAUTHORIZED, "sign in, or show the header Authorization: Bearer <service.token>"

    def refusal_to_act(self, request: Request) -> Refusal | None:
        """Return why this request may change nothing; None where it may."""
        if (refusal := self._foreign(request)) is not None:
            return refusal
        if self._shows_token(request):
            return None
        if not self._has_session(request):
            return HTTPStatus.UNAUTHORIZED, "sign in to act, or show the header Authorization: Bearer <service.token>"
        origin = request.headers.get("origin")
        site = request.headers.get("sec-fetch-site", "same-origin")
        if origin is None or not self._is_same(origin, request.headers.get("host", "")) or site != "same-origin":
            return HTTPStatus.FORBIDDEN, "the request comes from a page of another origin"
        return None

    def is_known(self, request: Request) -> bool:
        """Return whether the request has the token, or is of a browser that has signed in."""
        return self._shows_token(request) or self._has_session(request)

    def is_secure(self, request: Request) -> bool:
        """Return whether the browser speaks HTTPS, to us or to a proxy: its cookie then never goes over HTTP."""
        return request.url.scheme == "https" or request.headers.get("x-forwarded-proto", "").lower() == "https"

    def sign_in(self, token: str) -> str | None:
        """Return the cookie's value for somebody who knows the token; None for somebody who does not."""
        if not hmac.compare_digest(token.strip().encode(), self.token.encode()):
            return None
        session, now = secrets.token_urlsafe(24), time.monotonic()
        with self._lock:
            live = [(one, until) for one, until in self._sessions.items() if until > now]
            self._sessions = dict([*live, (session, now + SESSION_S)][-_MOST_SESSIONS:])
        return session

    def sign_out(self, request: Request) -> None:
        """Forget the browser."""
        with self._lock:
            self._sessions.pop(request.cookies.get(self.cookie, ""), None)

    def _foreign(self, request: Request) -> Refusal | None:
        """Return why a request is refused by what it calls this page, or by where it comes from."""
        host = request.headers.get("host")
        if host is None:
            return HTTPStatus.BAD_REQUEST, "the header Host is missing"
        origin = request.headers.get("origin")
        for header, value in (("Host", f"//{host}"), ("Origin", origin)):
            if value is not None and not self._is_own(value):
                reason = (
                    f"the header {header} is {value.removeprefix('//')[:80]!r}, which is no name of this page: service.page_names "
                    "lists names besides those of this machine"
                )
                return HTTPStatus.FORBIDDEN, reason
        if request.headers.get("sec-fetch-site") == "cross-site" and request.headers.get("sec-fetch-mode") != "navigate":
            return HTTPStatus.FORBIDDEN, "the request comes from a page of another origin"
        return None

    def _is_own(self, url: str) -> bool:
        try:
            name = (urlsplit(url).hostname or "").lower()
        except ValueError:  # brackets that are none
            return False
        if name in self._names or name == self._host or is_loopback(name):
            return True
        return not self._is_loopback and _is_address(name)  # no name of another origin leads to an address

    def _is_same(self, origin: str, host: str) -> bool:
        """Return whether a request comes from a page of ours; a proxy may have changed `Host`, then the listed names count."""
        parts = urlsplit(origin)
        return parts.netloc == host or (parts.hostname or "").lower() in self._names

    def _is_through_proxy(self, request: Request) -> bool:
        """Return whether somebody else than a program on this machine asks, or may: loopback is then the proxy's way only."""
        host = urlsplit(f"//{request.headers.get('host', '')}").hostname or ""
        return host.lower() in self._names or is_through_proxy(request.headers.keys())

    def _has_session(self, request: Request) -> bool:
        with self._lock:
            return self._sessions.get(request.cookies.get(self.cookie, ""), 0.0) > time.monotonic()

    def _shows_token(self, request: Request) -> bool:
        header = request.headers.get("authorization", "")
        return header.startswith(_BEARER) and hmac.compare_digest(header.removeprefix(_BEARER).encode(), self.token.encode())


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
