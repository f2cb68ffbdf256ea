"""What the process waits for: calls to other servers are noted while they last, so that they can be reported and ended.

What enters: `with waiting("source", "db:3306", "a connection"):` around a call that a silent peer can block. What
leaves: `WAITS.current()` for the thread that reports waits, and `WAITS.is_ending` for loops that wait in short turns.
One registry per process: the code that ends the process must know of every thread's wait. Nothing here knows a client.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

TURN_S: Final = 0.5
"""How long a wait in turns lasts before it looks whether the process is ending."""


@dataclass(frozen=True, slots=True)
class Wait:
    """One call that has not come back yet. `since_s` is on the monotonic clock."""

    peer: str
    address: str
    what: str
    since_s: float
    thread: str


class Waits:
    """The waits of all threads. Safe for several threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._numbers = itertools.count()
        self._open: dict[int, Wait] = {}
        self._ending = threading.Event()

    @contextmanager
    def waiting(self, peer: str, address: str, what: str, since_s: float | None = None) -> Iterator[None]:
        """Note a wait for the duration of the block; `since_s` where it began before the block."""
        number = next(self._numbers)
        begun = self._clock() if since_s is None else since_s
        self._open[number] = Wait(peer, address, what, begun, threading.current_thread().name)
        try:
            yield
        finally:
            del self._open[number]

    def current(self) -> dict[int, Wait]:
        """Return the waits of this moment, each by its number, the oldest call first."""
        return dict(sorted(self._open.copy().items()))

    def reason(self, peer: str) -> str:
        """Return the reason of the oldest wait for that peer; "" without one."""
        return next((one.what for one in self.current().values() if one.peer == peer), "")

    @property
    def is_ending(self) -> bool:
        """Whether waits in turns should give up: the process was asked to end a while ago."""
        return self._ending.is_set()

    def end(self) -> None:
        """Have all waits in turns give up; the process ends next."""
        self._ending.set()


WAITS: Final = Waits()
waiting: Final = WAITS.waiting
ENDING: Final = "the process is asked to end"
