"""Connections to one server, also if its address leads to another one meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mysqlio.connection import close_quietly
from mysqlio.server_facts import identity_of
from schemas.errors import RetriableSourceError

if TYPE_CHECKING:
    from collections.abc import Callable

    from mysqlio.connection import Connection


class ServerConnector:
    """Connections to the server whose log is read, and to no other one behind the same address."""

    def __init__(self, source: Callable[[], Connection], server: str) -> None:
        self._source = source
        self._server = server

    def __call__(self) -> Connection:
        """Return a connection; `RetriableSourceError` if it leads to another server."""
        connection = self._source()
        try:
            identity = identity_of(connection)
        except BaseException:
            close_quietly(connection)
            raise
        if self._server and identity != self._server:
            connection.close()
            message = (
                f"a connection for chunks reached another server than {self._server}, whose log is read; "
                f"source.host must lead to one server"
            )
            raise RetriableSourceError(message)
        return connection
