"""Reports about requests: Debezium's notifications, from the state of requests and tasks (pure)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from producer.snapshot.snapshot_state import Chunk, Request, TableTask
from schemas.documents import Origin
from schemas.notifications import (
    INCREMENTAL,
    INITIAL,
    ChunkProgress,
    Notification,
    SnapshotNotifier,
    TableStatus,
)

if TYPE_CHECKING:
    from producer.snapshot.outbox import Outbox


class RequestReports:
    """Writes the notifications of requests into the outbox. `name` is the connector's."""

    def __init__(self, name: str, outbox: Outbox, now_ms: Callable[[], int]) -> None:
        self._name = name
        self._outbox = outbox
        self._now_ms = now_ms

    def started(self, request: Request) -> None:
        """Report that the first table of the request is being read."""
        self._outbox.notify(_notifier(self._name, request).started(self._now_ms(), request.tables))

    def paused(self, request: Request, unfinished: Sequence[str]) -> None:
        """Report that no window of the request is open any more."""
        self._outbox.notify(_notifier(self._name, request).paused(self._now_ms(), unfinished))

    def resumed(self, request: Request, unfinished: Sequence[str]) -> None:
        """Report that the request continues."""
        self._outbox.notify(_notifier(self._name, request).resumed(self._now_ms(), unfinished))

    def completed(self, request: Request) -> None:
        """Report that every table of the request has been read."""
        self._outbox.notify(_notifier(self._name, request).completed(self._now_ms()))

    def aborted(self, request: Request, reason: str) -> None:
        """Report that the request ended before it was complete."""
        aborted = _notifier(self._name, request).aborted(self._now_ms(), request.tables)
        self._outbox.notify(_with_reason(aborted, reason))

    def progress(self, request: Request, unfinished: Sequence[str], task: TableTask, chunk: Chunk | None) -> None:
        """Report how far a table has been read; `chunk` was read last."""
        progress = ChunkProgress(
            rows_done=task.rows,
            rows_estimated=task.estimate,
            eta_ms=self._eta_ms(task),
            maximum_key=task.plan.cap or (),
            last_processed_key=() if chunk is None else chunk.range.upper or (),
        )
        notifier = _notifier(self._name, request)
        self._outbox.notify(notifier.in_progress(self._now_ms(), unfinished, task.table, progress))

    def scanned(self, request: Request, tables: Iterable[str], task: TableTask, status: TableStatus) -> None:
        """Report how the reading of a table ended."""
        notifier = _notifier(self._name, request)
        scanned = notifier.table_scan_completed(self._now_ms(), tables, task.table, task.rows, status)
        self._outbox.notify(_with_reason(scanned, task.error) if task.error else scanned)

    def _eta_ms(self, task: TableTask) -> int | None:
        """Return milliseconds till all estimated rows are read, at the speed of this process so far."""
        read = task.rows - task.begun_rows
        if task.estimate is None or task.begun_ms is None or read <= 0:
            return None
        return (self._now_ms() - task.begun_ms) * max(0, task.estimate - task.rows) // read


def _notifier(name: str, request: Request) -> SnapshotNotifier:
    aggregate = INITIAL if request.origin is Origin.INITIAL or request.blocking else INCREMENTAL
    return SnapshotNotifier(name, request.id, aggregate)


def _with_reason(notification: Notification, reason: str) -> Notification:
    return replace(notification, additional_data={**notification.additional_data, "reason": reason})
