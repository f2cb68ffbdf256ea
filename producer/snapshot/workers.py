"""The threads of the snapshot side, and what their workers share: a connection, attempts at windows, and what their errors mean."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

import structlog

from mysqlio.connection import close_quietly
from mysqlio.server_errors import described
from producer.snapshot.reader import AbandonedError, Assignment, KeyChangedError, TableGoneError
from producer.snapshot.scope import scope_of
from producer.snapshot.shared_ledger import POLL_S, SharedLedger
from producer.snapshot.table_access import heals_by_itself
from schemas.documents import Origin
from schemas.errors import PreparedXaError
from schemas.overriding import override

if TYPE_CHECKING:
    from mysqlio.connection import Connection
    from producer.snapshot.snapshot_state import Window
    from producer.snapshot.table_access import TableAccess, TopicNames

log = structlog.get_logger(__name__)

STOP_TIMEOUT_S: Final = 10.0


class SnapshotWorker(Protocol):
    """What a thread of the coordinator runs: the workers here, and those that poll channels (`producer.control`)."""

    def run(self) -> None:
        """Work until the process stops."""

    def break_off(self) -> None:
        """Give up whatever the thread waits for; called by another thread."""


class WorkerThreads:
    """One thread per worker, started together, stopped together. An error that ends a worker is in `SharedLedger.fatal` then."""

    def __init__(self, shared: SharedLedger) -> None:
        self._shared = shared
        self._running: list[tuple[SnapshotWorker, threading.Thread]] = []

    def start(self, name: str, worker: SnapshotWorker) -> None:
        """Run a worker in a thread of that name."""

        def guarded() -> None:
            try:
                worker.run()
            except BaseException as error:
                log.exception("snapshot.thread_died", thread=name)
                with self._shared.changing():
                    self._shared.fatal = self._shared.fatal or error

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


class ConnectedWorker(ABC):
    """A worker with one connection to the source, made when it is needed; owned by one thread."""

    def __init__(self, shared: SharedLedger, access: TableAccess) -> None:
        self._shared = shared
        self._access = access
        self._connection: Connection | None = None

    def run(self) -> None:
        """Work until the process stops."""
        try:
            self._work()
        finally:
            self.break_off()

    def break_off(self) -> None:
        """Close the connection, also under a statement that waits for it."""
        connection, self._connection = self._connection, None
        if connection is not None:
            close_quietly(connection)

    @abstractmethod
    def _work(self) -> None:
        """Work until the process stops; the connection is closed then."""

    def _connected(self) -> Connection:
        connection = self._connection = self._connection or self._access.connect()
        return connection


class WindowWorker(ConnectedWorker):
    """A worker that makes one attempt after the other, each at the chunk of a window, within the limit on rows per second.

    `start` starts a registered window for it; it is called under the lock.
    """

    def __init__(
        self, shared: SharedLedger, access: TableAccess, names: TopicNames, start: Callable[[], Window | None]
    ) -> None:
        super().__init__(shared, access)
        self._names = names
        self._start = start
        self._reserved = 0

    @override
    def _work(self) -> None:
        shared = self._shared
        while (window := self._next_window()) is not None:
            rows = self._attempt(window)
            if shared.rate is not None:
                with shared.changing():
                    shared.rate.settle(shared.clock(), self._reserved, rows)

    @abstractmethod
    def _attempt(self, window: Window) -> int:
        """Make one attempt at one chunk, and note its outcome; return the rows that were read, whatever became of them."""

    def _other_outcome(self, window: Window, error: BaseException) -> Callable[[], None] | None:  # noqa: ARG002 - for subclasses
        """Return the reaction to an error that is special to this worker; None for all others. It may ask the source."""
        return None

    def _next_window(self) -> Window | None:
        """Return the next window, when there is one and the rate allows it; None when the process stops."""
        shared = self._shared
        with shared.changed:
            while not shared.stopping:
                delay_s = 0.0 if shared.rate is None else shared.rate.wait_s(shared.clock())
                window = None if shared.unfenced or delay_s else self._start()
                if window is not None:
                    if shared.rate is not None:
                        self._reserved = shared.ledger.tasks.expected_rows(window)
                        shared.rate.reserve(shared.clock(), self._reserved)
                    return window
                shared.changed.wait(min(POLL_S, delay_s or POLL_S))
        return None

    def _assignment(self, window: Window) -> Assignment:
        """Return the assignment of a window; `AbandonedError` when nobody needs the window any more."""
        shared = self._shared
        with shared.changed:
            task = shared.ledger.tasks.task_of(window)
            if task is None or window.chunk not in task.chunks:
                message = f"window {window.id} is not needed any more"
                raise AbandonedError(message)
            table = shared.table_id(window.table)
            request = shared.ledger.requests.get(window.request)
            initial = request is not None and request.origin is Origin.INITIAL
            return Assignment(
                window=window.id,
                request=window.request,
                table=table,
                topic=self._names.of(table, task.merge),
                chunk=window.chunk,
                bounds=task.chunks[window.chunk].range,
                scope=scope_of(task),
                bound=window.bound,
                key=task.plan.key,
                snapshot="true" if initial else "incremental",
                merge="producer" if task.merge == "producer" else "spark",
            )

    def _give_up(self, window: Window, error: BaseException) -> None:
        """Release the window of an attempt that failed, and note the effect of the error on its chunk and its table."""
        other = self._other_outcome(window, error)
        with self._shared.changing() as ledger:
            tasks = ledger.tasks
            task = tasks.task_of(window)
            if isinstance(error, TableGoneError):
                tasks.dropped(window)
            elif isinstance(error, KeyChangedError) and task is not None:
                tasks.release(window)
                tasks.replan(task)
            elif isinstance(error, AbandonedError):
                tasks.release(window)
            elif other is not None:
                other()
            else:
                words = described(error)
                log.warning("snapshot.chunk_failed", table=window.table, chunk=window.chunk, error=words)
                heals, waits = heals_by_itself(error), isinstance(error, PreparedXaError)
                tasks.fail(window, words, self._shared.clock(), heals=heals, waits=waits)
