"""Why the producer does not publish: one condition from the first attempt that failed until one succeeds."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from producer.app import Producer
    from producer.stream.offset import LogOffset
    from schemas.position import Position


class Standstill:
    """The failure that the present attempt has not overcome yet. Attempts begin and fail again meanwhile, which changes nothing.

    An attempt succeeds when it has committed what the failed one could not: a transaction after the last whole one that was read
    then, a part of one, or everything that the source had at that time.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reason = ""
        self._at: Position | None = None
        self._committed: LogOffset | None = None
        self._failed_ms = 0
        self.since_ms = 0
        """When the first attempt failed; 0 if none has."""

    def note(self, reason: str, producer: Producer | None) -> None:
        """Note that an attempt has failed, and which one."""
        now_ms = time.time_ns() // 1_000_000
        with self._lock:
            self._reason, self._failed_ms, self.since_ms = reason, now_ms, self.since_ms or now_ms
            reader = None if producer is None else producer.reader
            if reader is not None:
                self._at, self._committed = reader.boundary, reader.committed

    def end(self) -> None:
        """Forget it."""
        with self._lock:
            self._end()

    def reason(self, producer: Producer | None) -> str:
        """Return the last reason; "" if there is none, or this attempt has succeeded."""
        with self._lock:
            if self._reason and producer is not None and self._is_over(producer):
                self._end()
            return self._reason

    def _end(self) -> None:
        self._reason, self._at, self._committed, self.since_ms = "", None, None, 0

    def _is_over(self, producer: Producer) -> bool:
        reader = producer.reader
        if reader is None:
            return False
        if reader.progress.times.in_kafka_ms > self._failed_ms:
            return True
        committed = reader.committed
        if self._at is None or self._committed is None:
            return reader.progress.checkpoints > 0
        return committed.position > self._at or (committed.part is not None and committed.part != self._committed.part)
