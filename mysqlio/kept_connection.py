"""A connection for questions that come one by one, or thousands at once.

A connection costs some ten milliseconds, most of them for TLS: as much as the question itself. One that was used a
moment ago is used again; an older one is replaced, since its server may have been left meanwhile.
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from mysqlio.connection import close_quietly

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mysqlio.connection import Connection

KEPT_S: Final = 2.0


class KeptConnection:
    """Hands its connection to one user at a time: `with kept.session() as connection`."""

    def __init__(self, connect: Callable[[], Connection], clock: Callable[[], float] = time.monotonic) -> None:
        self._connect = connect
        self._clock = clock
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self._used_at = 0.0

    @contextmanager
    def session(self) -> Iterator[Connection]:
        """Provide the connection; whatever is raised inside ends it, since nobody knows in what state it is then."""
        with self._lock:
            connection = self._check_out()
            try:
                yield connection
            except BaseException:
                close_quietly(connection)
                raise
            self._connection, self._used_at = connection, self._clock()

    def close(self) -> None:
        """End it, if there is one."""
        with self._lock:
            if self._connection is not None:
                close_quietly(self._connection)
                self._connection = None

    def _check_out(self) -> Connection:
        connection, self._connection = self._connection, None
        if connection is not None and self._clock() - self._used_at < KEPT_S:
            return connection
        if connection is not None:
            close_quietly(connection)
        return self._connect()
