"""The outbox: what becomes durable or public with the next checkpoint of the log reader (pure)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from schemas.markers import MarkerType
from schemas.notifications import Notification
from schemas.position import Position

Document = Mapping[str, Any]
DOCUMENTS_DELAY_S: Final = 0.25


@dataclass(frozen=True, slots=True)
class MarkerDraft:
    """A marker without what only the log reader knows; positions in `fields` are texts."""

    table: str
    type: MarkerType
    fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SnapshotWork:
    """What the log reader writes into the Kafka transaction that it is about to commit. `state`: None deletes."""

    state: Mapping[str, Document | None]
    markers: Sequence[MarkerDraft]
    notifications: Sequence[Notification]
    horizon: Position


class CheckpointOutbox:
    """Keys of changed documents, markers and notifications, in the order in which they arose.

    `notifications` are those that wait for the checkpoint. Documents are written as they are at the checkpoint, not as they were
    when they changed. Guarantee: `drain` returns each change once; its result is lost if the checkpoint is not committed, as
    is the process then.
    """

    def __init__(self) -> None:
        self._changed: dict[str, None] = {}
        self._markers: list[MarkerDraft] = []
        self.notifications: list[Notification] = []
        self._drained_at = float("-inf")

    @property
    def has_news(self) -> bool:
        """Whether anything is to be written."""
        return bool(self._changed or self._markers or self.notifications)

    def touch(self, key: str) -> None:
        """Write the document of that key with the next checkpoint, or delete it if nothing has that key then."""
        self._changed[key] = None

    def mark(self, table: str, kind: MarkerType, fields: Mapping[str, Any]) -> None:
        """Send a marker to the table's snapshot topic."""
        self._markers.append(MarkerDraft(table, kind, fields))

    def notify(self, notification: Notification) -> None:
        """Send a notification."""
        self.notifications.append(notification)

    def wants_checkpoint(self, now_s: float) -> bool:
        """Return whether somebody waits for the contents; documents alone wait a moment for others."""
        if self.notifications or self._markers:
            return True
        return bool(self._changed) and now_s >= self._drained_at + DOCUMENTS_DELAY_S

    def drain(self, document: Callable[[str], Document | None], horizon: Position, now_s: float) -> SnapshotWork:
        """Return everything, and be empty; `document` returns the present document of a key."""
        self._drained_at = now_s
        state = {key: document(key) for key in self._changed}
        work = SnapshotWork(state, self._markers, self.notifications, horizon)
        self._changed, self._markers, self.notifications = {}, [], []
        return work
