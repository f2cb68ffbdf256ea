"""Probes of a service while other clients keep it busy: how long each answer took, without the time in which this process stood still."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPException

from tests.support.page_client import PageClient

_SLEEP_S = 0.01
_LATE_S = 0.05


@dataclass
class Probes:
    """Questions for `/livez`, one after the other.

    A thread beside them sleeps 10 ms at a time. Where it woke more than 50 ms late, this process had no processor: the machine
    stood still, or all threads waited for the garbage collector. The service has a process of its own, so that is not its fault.
    """

    asked: list[tuple[float, float]] = field(default_factory=list)
    """When each question was asked and answered, in seconds of the monotonic clock; `inf` without an answer of 200."""
    stood_still: list[tuple[float, float]] = field(default_factory=list)

    def waits_s(self) -> list[float]:
        """Return how long each answer took, without the time in which this process stood still."""
        return [
            answered - asked - sum(max(0.0, min(answered, end) - max(asked, begin)) for begin, end in self.stood_still)
            for asked, answered in self.asked
        ]

    def ask(self, port: int) -> None:
        """Ask once."""
        began = time.monotonic()
        try:
            is_well = PageClient(port).get("/livez").status == 200
        except (OSError, HTTPException):
            is_well = False
        self.asked.append((began, time.monotonic() if is_well else float("inf")))

    def watch(self) -> None:
        """Sleep once, and note whether it took too long."""
        began = time.monotonic()
        time.sleep(_SLEEP_S)
        ended = time.monotonic()
        if ended - began > _SLEEP_S + _LATE_S:
            self.stood_still.append((began + _SLEEP_S, ended))


@contextmanager
def probed(port: int) -> Iterator[Probes]:
    """Ask for `/livez` 20 times a second while it is entered."""
    probes, ended = Probes(), threading.Event()

    def ask() -> None:
        while not ended.is_set():
            probes.ask(port)
            ended.wait(0.05)

    def watch() -> None:
        while not ended.is_set():
            probes.watch()

    threads = [threading.Thread(target=ask), threading.Thread(target=watch)]
    for thread in threads:
        thread.start()
    try:
        yield probes
    finally:
        ended.set()
        for thread in threads:
            thread.join(60)
