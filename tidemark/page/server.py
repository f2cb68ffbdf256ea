"""The HTTP server of the page: Uvicorn, on a thread, with limits that it does not have by itself.

A client that does not finish its request, or does not take its answer, is hung up on after a time. Where there are too many, the
one that has been there for the longest time makes room. So clients that hang on keep nobody from an answer.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from typing import TYPE_CHECKING, Any, Final, Self

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from schemas.errors import ConfigError
from schemas.overriding import override

if TYPE_CHECKING:
    from collections.abc import Callable

REQUEST_S: Final = 10.0
"""Until the whole head of a request has come; also how long a connection may be idle."""
ANSWER_S: Final = 60.0
"""Until the whole answer is taken."""
MOST_CONNECTIONS: Final = 256
_LARGEST_HEAD: Final = 16 * 1024
_SWEEP_S: Final = 0.5
_START_S: Final = 10.0
_END_S: Final = 2.0


class _Timed(H11Protocol):
    """A connection that knows since when it asks or is answered."""

    asking_since_s = 0.0
    answered_since_s: float | None = None

    @override
    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.asking_since_s = time.monotonic()
        if len(self.connections) > MOST_CONNECTIONS:
            others = [one for one in self.connections if isinstance(one, _Timed) and one is not self]
            min(others, key=lambda one: one.since_s, default=self).transport.abort()

    @property
    def since_s(self) -> float:
        """Since when it asks or is answered: a client that does not finish its body is the one or the other."""
        return self.asking_since_s if self.answered_since_s is None else self.answered_since_s

    def check(self, now_s: float) -> None:
        """Hang up if it has taken too long."""
        cycle: RequestResponseCycle | None = self.cycle  # None before the first request
        is_answered = cycle is not None and not cycle.response_complete
        if is_answered and self.answered_since_s is None:
            self.answered_since_s = now_s
        elif not is_answered and self.answered_since_s is not None:
            self.answered_since_s, self.asking_since_s = None, now_s
        limit_s = REQUEST_S if self.answered_since_s is None else ANSWER_S
        if now_s - self.since_s > limit_s:
            self.transport.abort()

    @override
    def on_response_complete(self) -> None:
        self.answered_since_s, self.asking_since_s = None, time.monotonic()
        super().on_response_complete()


class PageServer:
    """Serves an ASGI application while it is entered; `port` is the port. Raises `ConfigError` where it is taken."""

    def __init__(self, application: Callable[..., Any], host: str, port: int) -> None:
        try:
            self._socket = socket.create_server((host, port), family=_family(host, port), backlog=1024)
        except OSError as error:
            raise ConfigError(f"service.page_port: cannot listen on {host}:{port}: {error.strerror or error}") from error
        self.port = int(self._socket.getsockname()[1])
        config = uvicorn.Config(
            application, http=_Timed, ws="none", lifespan="off", log_config=None, access_log=False, server_header=False,
            proxy_headers=False, timeout_keep_alive=int(REQUEST_S), h11_max_incomplete_event_size=_LARGEST_HEAD,
            timeout_graceful_shutdown=1,
        )  # fmt: skip
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # a request that is none is no news
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._run, name="page", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        deadline = time.monotonic() + _START_S
        while not self._server.started and self._thread.is_alive() and time.monotonic() < deadline:
            time.sleep(0.01)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join(_END_S)
        self._socket.close()

    def _run(self) -> None:
        import asyncio

        async def serve() -> None:
            sweeper = asyncio.create_task(self._sweep())
            try:
                await self._server.serve(sockets=[self._socket])
            finally:
                sweeper.cancel()

        asyncio.run(serve())

    async def _sweep(self) -> None:
        import asyncio

        while True:
            await asyncio.sleep(_SWEEP_S)
            now_s = time.monotonic()
            for one in list(self._server.server_state.connections):
                if isinstance(one, _Timed):
                    one.check(now_s)


def _family(host: str, port: int) -> int:
    return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
