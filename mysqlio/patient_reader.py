"""The reading side of a connection: a wait for an answer is noted, and ends when the server is silent for good.

A statement may run for hours, or wait for a lock; a server that is stopped, or a proxy whose server is down, keeps the
connection open as well and sends nothing either. What distinguishes them is another connection: a server that works greets it.
"""

from __future__ import annotations

import errno
import io
import select
import ssl
import time
from typing import TYPE_CHECKING, Any, Final

from schemas.overriding import override
from schemas.waiting import ENDING, TURN_S, WAITS, waiting

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from mysqlio.server_access import ServerAccess

SILENT_S: Final = 10.0
"""After so much silence the server is asked whether it is there; a server that is, is asked again at growing intervals."""
_MOST_SILENT_S: Final = 120.0
_ATTEMPTS: Final = 2


class PatientReader(io.RawIOBase):
    """The bytes that a server sends, read as PyMySQL reads them.

    `answers` says whether the server answers a new connection now. A read raises `OSError` when it does not, twice, after
    silence; when the socket is closed by another thread; and when the process is ending.
    """

    def __init__(
        self, sock: socket.socket, access: ServerAccess, answers: Callable[[], bool], silent_s: float
    ) -> None:
        super().__init__()
        self._sock = sock
        self._access, self._answers, self._silent_s = access, answers, silent_s
        self._readable = select.poll()
        self._readable.register(sock, select.POLLIN)

    @override
    def readable(self) -> bool:
        """As the base class has it: True."""
        return True

    @override
    def readinto(self, buffer: Any) -> int:
        """Read the bytes that have come, at least one; 0 at the end of the stream."""
        if not self._has_decrypted() and not self._readable.poll(TURN_S * 1000):
            self._wait(time.monotonic() - TURN_S)
        return self._sock.recv_into(buffer)

    def _has_decrypted(self) -> bool:
        """Return whether TLS has bytes that the system's socket does not show any more."""
        return isinstance(self._sock, ssl.SSLSocket) and self._sock.pending() > 0

    def _wait(self, since_s: float) -> None:
        """Wait until there is something to read."""
        silent_s = self._silent_s
        look_s = since_s + silent_s
        with waiting(self._access.section, self._access.address, "the answer to a statement", since_s):
            while not self._readable.poll(TURN_S * 1000):
                if self._sock.fileno() < 0:
                    raise OSError(errno.EBADF, "the connection was closed meanwhile")
                if WAITS.is_ending:
                    raise OSError(errno.ECANCELED, ENDING)
                if time.monotonic() < look_s:
                    continue
                if not any(self._answers() for _ in range(_ATTEMPTS)):
                    seconds = time.monotonic() - since_s
                    message = f"nothing came for {seconds:.0f} s, and no new connection is answered: the server is taken for dead"
                    raise OSError(errno.ETIMEDOUT, message)
                silent_s = min(2 * silent_s, _MOST_SILENT_S)
                look_s = time.monotonic() + silent_s
