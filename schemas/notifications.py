"""Notifications: how snapshots go, and the answer to every signal (topic `<prefix>.notifications`).

Names, fields and values are Debezium 3.6's. Ours are added, never changed: `rows_done`, `rows_estimated`,
`percent` and `eta_ms` in progress, the aggregate type `Signal` with ACCEPTED or REJECTED, whose `additional_data` has
`signal_type` and `reason`, and the aggregate type `Table` with SET_ASIDE (`table`, `reason`, `position`) or TAKEN_UP. The id of a
snapshot's notifications is that of the signal that asked for it, the id of a table's is its name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from schemas.connect_types import ConnectField, ConnectSchema, ConnectType

INITIAL: Final = "Initial Snapshot"
INCREMENTAL: Final = "Incremental Snapshot"
SIGNAL: Final = "Signal"
TABLE: Final = "Table"
NULL_KEY_PART: Final = "<null>"

_STRING: Final = ConnectSchema(ConnectType.STRING)

NOTIFICATION_KEY: Final = ConnectSchema(
    ConnectType.STRUCT,
    name="io.debezium.connector.common.NotificationKey",
    version=1,
    fields=(ConnectField("id", _STRING),),
)

NOTIFICATION_VALUE: Final = ConnectSchema(
    ConnectType.STRUCT,
    name="io.debezium.connector.common.Notification",
    version=1,
    fields=(
        ConnectField("id", _STRING),
        ConnectField("type", _STRING),
        ConnectField("aggregate_type", _STRING),
        ConnectField(
            "additional_data",
            ConnectSchema(ConnectType.MAP, optional=True, keys=_STRING, values=_STRING),
        ),
        ConnectField("timestamp", ConnectSchema(ConnectType.INT64)),
    ),
)


class ScanStatus(StrEnum):
    """How the scan of a table ended."""

    SUCCEEDED = "SUCCEEDED"
    EMPTY = "EMPTY"
    NO_PRIMARY_KEY = "NO_PRIMARY_KEY"
    SKIPPED = "SKIPPED"
    SQL_EXCEPTION = "SQL_EXCEPTION"
    UNKNOWN_SCHEMA = "UNKNOWN_SCHEMA"


@dataclass(frozen=True, slots=True)
class Notification:
    """One notification; every value of `additional_data` is text."""

    id: str
    aggregate_type: str
    type: str
    timestamp_ms: int
    additional_data: Mapping[str, str] = field(default_factory=dict)

    def key(self) -> dict[str, Any]:
        """Return the key's payload."""
        return {"id": self.id}

    def value(self) -> dict[str, Any]:
        """Return the value's payload, fields in schema order."""
        return {
            "id": self.id,
            "type": self.type,
            "aggregate_type": self.aggregate_type,
            "additional_data": dict(self.additional_data),
            "timestamp": self.timestamp_ms,
        }


@dataclass(frozen=True, slots=True)
class SnapshotNotifier:
    """Builds the notifications of one snapshot; `id` is the signal's, or a random UUID initially."""

    connector_name: str
    id: str
    aggregate_type: str = INCREMENTAL

    def started(self, now_ms: int, collections: Iterable[str]) -> Notification:
        """Return the notification that the snapshot of these tables begins."""
        return self._overall("STARTED", now_ms, collections)

    def paused(self, now_ms: int, collections: Iterable[str]) -> Notification:
        """Return the notification of a snapshot that is paused."""
        return self._overall("PAUSED", now_ms, collections)

    def resumed(self, now_ms: int, collections: Iterable[str]) -> Notification:
        """Return the notification of a snapshot that resumes."""
        return self._overall("RESUMED", now_ms, collections)

    def aborted(self, now_ms: int, collections: Iterable[str]) -> Notification:
        """Return the notification that the snapshot ends before it is complete."""
        return self._overall("ABORTED", now_ms, collections)

    def completed(self, now_ms: int) -> Notification:
        """Every table of the snapshot is done."""
        return self._notification("COMPLETED", now_ms, {})

    def in_progress(
        self,
        now_ms: int,
        collections: Iterable[str],
        current: str,
        progress: ChunkProgress,
    ) -> Notification:
        """Return the notification that a chunk of the table `current` is done."""
        data = {"current_collection_in_progress": current, "data_collections": ",".join(collections)}
        return self._notification("IN_PROGRESS", now_ms, data | progress.as_data())

    def table_scan_completed(
        self, now_ms: int, collections: Iterable[str], table: str, rows: int, status: ScanStatus
    ) -> Notification:
        """Return the notification that the scan of one table ended, well or not."""
        data = {
            "scanned_collection": table,
            "data_collections": ",".join(collections),
            "total_rows_scanned": str(rows),
            "status": str(status),
        }
        return self._notification("TABLE_SCAN_COMPLETED", now_ms, data)

    def _overall(self, kind: str, now_ms: int, collections: Iterable[str]) -> Notification:
        if self.aggregate_type == INITIAL:
            return self._notification(kind, now_ms, {})
        return self._notification(kind, now_ms, {"data_collections": ",".join(collections)})

    def _notification(self, kind: str, now_ms: int, data: Mapping[str, str]) -> Notification:
        data = {"connector_name": self.connector_name, **data}
        return Notification(self.id, self.aggregate_type, kind, now_ms, data)


@dataclass(frozen=True, slots=True)
class ChunkProgress:
    """How far the scan of a table is; keys have one text per key column, None for NULL, () when not known."""

    rows_done: int
    rows_estimated: int | None = None
    maximum_key: tuple[str | None, ...] = ()
    last_processed_key: tuple[str | None, ...] = ()
    eta_ms: int | None = None

    def as_data(self) -> dict[str, str]:
        """Return the entries of `additional_data`; unknown ones are left out."""
        data = {"rows_done": str(self.rows_done)}
        if self.rows_estimated is not None:
            data["rows_estimated"] = str(self.rows_estimated)
            # An estimate is one: more rows than that are not more than all, and not yet all.
            total = max(self.rows_estimated, self.rows_done, 1)
            data["percent"] = str(min(99, 100 * self.rows_done // total))
        if self.eta_ms is not None:
            data["eta_ms"] = str(self.eta_ms)
        for name, key in (("maximum_key", self.maximum_key), ("last_processed_key", self.last_processed_key)):
            if key:
                data[name] = ",".join(NULL_KEY_PART if part is None else part for part in key)
        return data


def signal_accepted(connector_name: str, signal_id: str, signal_type: str, now_ms: int) -> Notification:
    """Return the answer to a signal that will be carried out."""
    data = {"connector_name": connector_name, "signal_type": signal_type}
    return Notification(signal_id, SIGNAL, "ACCEPTED", now_ms, data)


def signal_rejected(
    connector_name: str, signal_id: str, signal_type: str, now_ms: int, reason: str
) -> Notification:
    """Return the answer to a signal that can't be carried out; `reason` is the text of its `SignalError`."""
    data = {"connector_name": connector_name, "signal_type": signal_type, "reason": reason}
    return Notification(signal_id, SIGNAL, "REJECTED", now_ms, data)


def table_set_aside(connector_name: str, table: str, reason: str, position: str, now_ms: int) -> Notification:
    """Return the notification that the table is not published from this position of the log on, until it is taken up."""
    data = {"connector_name": connector_name, "table": table, "reason": reason, "position": position}
    return Notification(table, TABLE, "SET_ASIDE", now_ms, data)


def table_taken_up(connector_name: str, table: str, now_ms: int) -> Notification:
    """Return the notification that the table is published again, and read again."""
    return Notification(table, TABLE, "TAKEN_UP", now_ms, {"connector_name": connector_name, "table": table})
