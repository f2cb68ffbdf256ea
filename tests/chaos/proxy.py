"""A TCP proxy on loopback that breaks, stalls and slows what goes through it."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from typing import Self

_CHUNK = 16_384
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER with no time: close sends RST


class Proxy:
    """Listens on a port of its own and passes bytes to `port`; a context manager."""

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self._target = (host, port)
        self._listener = socket.create_server((host, 0))
        self.port = int(self._listener.getsockname()[1])
        self._lock = threading.Lock()
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        self._disconnections = 0
        self._open = threading.Event()
        self._open.set()
        self._pause_s = 0.0
        self.refusing = False
        threading.Thread(target=self._accept, name="proxy", daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        self.heal()
        self.disconnect()

    def lead_to(self, port: int) -> None:
        """Another server behind the same address, for new connections."""
        self._target = (self._target[0], port)

    def disconnect(self) -> None:
        """Break every connection: those in use in the middle of what they carry next, the idle at once."""
        with self._lock:
            self._disconnections += 1
            pairs = list(self._pairs)
        time.sleep(0.3)
        for pair in pairs:
            self._break(pair)

    def stall(self) -> None:
        """Let nothing through until `heal`; connections stay."""
        self._open.clear()

    def slow(self, pause_s: float) -> None:
        """Pause after every 16 KiB or less."""
        self._pause_s = pause_s

    def heal(self) -> None:
        """Let everything through again."""
        self._pause_s, self.refusing = 0.0, False
        self._open.set()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            try:
                if self.refusing:
                    raise ConnectionRefusedError
                far = socket.create_connection(self._target, timeout=5)
                far.settimeout(None)
                for one in (near, far):  # before anything can break the pair
                    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            except OSError:
                near.close()
                continue
            pair = (near, far)
            with self._lock:
                self._pairs.add(pair)
                disconnections = self._disconnections
            for source, sink in (pair, pair[::-1]):
                threading.Thread(target=self._pump, args=(source, sink, pair, disconnections), daemon=True).start()

    def _pump(
        self,
        source: socket.socket,
        sink: socket.socket,
        pair: tuple[socket.socket, socket.socket],
        disconnections: int,
    ) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(_CHUNK):
                self._open.wait()
                if self._pause_s:
                    time.sleep(self._pause_s)
                if self._disconnections != disconnections:
                    sink.sendall(data[: len(data) // 2])
                    break
                sink.sendall(data)
        self._break(pair)

    def _break(self, pair: tuple[socket.socket, socket.socket]) -> None:
        with self._lock:
            if pair not in self._pairs:
                return
            self._pairs.discard(pair)
        for one in pair:
            with contextlib.suppress(OSError):
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                one.shutdown(socket.SHUT_RDWR)
            one.close()
