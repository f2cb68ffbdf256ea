"""Who may read the page, and who may act by it.

On loopback everybody on this machine may read. Elsewhere, and to act, one signs in with the token of the settings (`service.token`,
`service.token_file`), or with one that is made at the start and printed where there is none. A browser then keeps a cookie that no
page of another origin can use; a script shows the token as `Authorization: Bearer …`.
"""

from __future__ import annotations

import hmac
import secrets
import threading
import time
from http import HTTPStatus
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from tidemark.api.access import foreign_name, is_loopback, token_of

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
        self._host = service.host
        self._is_loopback = is_loopback(service.host)
        self._sessions: dict[str, float] = {}
        self._lock = threading.Lock()

    def refusal_to_read(self, request: Request) -> Refusal | None:
        """Return why this request is not answered; None where it may read."""
        if "host" not in request.headers:
            return HTTPStatus.BAD_REQUEST, "the header Host is missing"
        if request.headers.get("sec-fetch-site") == "cross-site" and request.headers.get("sec-fetch-mode") != "navigate":
            return HTTPStatus.FORBIDDEN, "the request comes from a page of another origin"
        if self._is_loopback:
            reason = foreign_name(self._host, request.headers.get("host"), request.headers.get("origin"))
            return (HTTPStatus.FORBIDDEN, reason) if reason else None
        if self.is_known(request):
            return None
        return HTTPStatus.UNAUTHORIZED, "sign in, or show the header Authorization: Bearer <service.token>"

    def refusal_to_act(self, request: Request) -> Refusal | None:
        """Return why this request may change nothing; None where it may."""
        if self._shows_token(request):
            return None
        if not self._has_session(request):
            return HTTPStatus.UNAUTHORIZED, "sign in to act, or show the header Authorization: Bearer <service.token>"
        origin = request.headers.get("origin")
        site = request.headers.get("sec-fetch-site", "same-origin")
        if origin is None or urlsplit(origin).netloc != request.headers.get("host") or site != "same-origin":
            return HTTPStatus.FORBIDDEN, "the request comes from a page of another origin"
        return None

    def is_known(self, request: Request) -> bool:
        """Return whether the request has the token, or is of a browser that has signed in."""
        return self._shows_token(request) or self._has_session(request)

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

    def _has_session(self, request: Request) -> bool:
        with self._lock:
            return self._sessions.get(request.cookies.get(self.cookie, ""), 0.0) > time.monotonic()

    def _shows_token(self, request: Request) -> bool:
        header = request.headers.get("authorization", "")
        return header.startswith(_BEARER) and hmac.compare_digest(header.removeprefix(_BEARER).encode(), self.token.encode())
