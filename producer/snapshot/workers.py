"""The threads of the snapshot side: started together, stopped together; an unforeseen error ends the producer."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final

import structlog

if TYPE_CHECKING:
    from producer.snapshot.collaborators import Worker
    from producer.snapshot.shared_ledger import SharedLedger

log = structlog.get_logger(__name__)

STOP_TIMEOUT_S: Final = 10.0


class WorkerThreads:
    """One thread per worker. An error that ends a worker is in `SharedLedger.fatal` then."""

    def __init__(self, shared: SharedLedger) -> None:
        self._shared = shared
        self._running: list[tuple[Worker, threading.Thread]] = []

    def start(self, name: str, worker: Worker) -> None:
        """Run a worker in a thread of that name."""

        def guarded() -> None:
            try:
                worker.run()
            except BaseException as error:
                log.exception("snapshot.thread_died", thread=name)
                with self._shared.changed:
                    self._shared.fatal = self._shared.fatal or error
                    self._shared.changed.notify_all()

        thread = threading.Thread(target=guarded, name=name, daemon=True)
        self._running.append((worker, thread))
        thread.start()

    def stop(self) -> None:
        """Wait for all threads to end; those that do not are broken off after half of the time."""
        deadline = time.monotonic() + STOP_TIMEOUT_S
        for _, thread in self._running:
            thread.join(max(0.0, deadline - STOP_TIMEOUT_S / 2 - time.monotonic()))
        for worker, thread in self._running:
            if thread.is_alive():
                worker.break_off()
        for _, thread in self._running:
            thread.join(max(0.1, deadline - time.monotonic()))
        self._running.clear()
