"""Checkpoints, the Kafka transactions of the log reader: the only code that makes anything durable.

A checkpoint is at a transaction boundary of the log (one inside a transaction, of a part, has only rows and the offset)::

    1. every record of whole source transactions is produced
    2. each participant is asked what it has to write: rows of chunks, markers, records, documents
    3. the rows are produced, then flush: all records are acknowledged, so the end offsets of change topics are final
    4. markers (one per partition of the snapshot topic, with change_offsets), records, documents and the offset are
       produced, last in the same Kafka transaction
    5. commit; then the participants are notified, and threads that wait for durability continue

Guarantee: after a crash anywhere, reading resumes at the committed offset, and what was produced after it was
never visible to `read_committed` readers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from producer.stream.ports import CheckpointTrigger, PartParticipant

if TYPE_CHECKING:
    from producer.codec import Records
    from producer.stream.offset import LogOffset
    from producer.stream.ports import (
        CheckpointParticipant,
        CheckpointWork,
        DocumentStore,
        MarkerWriter,
        RecordPublisher,
        State,
    )
    from producer.stream.reader_progress import LogProgress
    from schemas.position import Position

INTERVAL_S: Final = 0.25
URGENT_INTERVAL_S: Final = 0.01
RECORDS_AT_MOST: Final = 200_000
IDLE_READ_S: Final = 0.1
_URGENT_READ_S: Final = 0.02
OFFSET_KEY: Final = "offset"  # as `producer.kafka.state_topic` names it


class Checkpoints:
    """Commits what was read up to a boundary, with everything that has to be durable together with it.

    `has_committed` says whether this start has committed anything. `interval_s` is the time between two commits while little
    waits in the log; with `is_behind`, which the log reader sets, it is `INTERVAL_S` at least. Owned by the log reader's thread.
    """

    def __init__(
        self,
        offset: LogOffset,
        publisher: RecordPublisher,
        state: DocumentStore,
        markers: MarkerWriter,
        participants: Sequence[CheckpointParticipant],
        progress: LogProgress,
        clock: Callable[[], float] = time.monotonic,
        interval_s: float = INTERVAL_S,
    ) -> None:
        self._publisher = publisher
        self._state = state
        self._markers = markers
        self._participants = participants
        self._triggers = [one for one in participants if isinstance(one, CheckpointTrigger)]
        self._in_parts = [one for one in participants if isinstance(one, PartParticipant)]
        self._clock = clock
        self._is_dirty = False
        self._at = clock()
        self._interval_s = interval_s
        self.is_behind = False
        self.committed = offset
        self.has_committed = False
        self.progress = progress

    def restore(self, state: State) -> None:
        """Give the participants the documents of an earlier process, in the reverse order."""
        for participant in reversed(self._participants):
            participant.restore(state)

    def note_transaction(self) -> None:
        """Note that a transaction began: the boundary will move."""
        self._is_dirty = True

    # ---- when

    def read_timeout(self) -> float:
        """Return how long to wait for the log, in seconds."""
        now = self._clock()
        if self._is_dirty or self._publisher.in_transaction:
            return max(0.0, min(IDLE_READ_S, self._at + self._pause_s - now))
        return _URGENT_READ_S if any(one.is_due(None, now) for one in self._triggers) else IDLE_READ_S

    def is_due(self, boundary: Callable[[], Position]) -> bool:
        """Return whether it is time to commit at that boundary."""
        publisher = self._publisher
        if publisher.uncommitted >= RECORDS_AT_MOST:
            return True
        now = self._clock()
        since = now - self._at
        if since >= self._pause_s and (self._is_dirty or publisher.in_transaction):
            return True
        if since < URGENT_INTERVAL_S:
            return False
        return any(one.is_due(boundary, now) for one in self._triggers) or self._markers.is_due(boundary)

    @property
    def _pause_s(self) -> float:
        return INTERVAL_S if self.is_behind else min(self._interval_s, INTERVAL_S)

    # ---- commit

    def commit(self, boundary: LogOffset) -> None:
        """Make durable what is before `boundary`, and that reading resumes there."""
        position, publisher, now = boundary.position, self._publisher, self._clock()
        works = [participant.prepare(position, now) for participant in self._participants]
        for work in works:
            self.write_rows(work.rows)
        if publisher.in_transaction:
            publisher.flush()
        self._markers.write([draft for work in works for draft in work.markers], position, _horizon(works, position))
        for work in works:
            for record in work.records:
                publisher.produce(record.topic, record.value, record.key)
        for work in works:
            for key, document in (work.documents or {}).items():
                self._state.put(publisher, key, document)
        now_ms = time.time_ns() // 1_000_000
        if boundary != self.committed or publisher.in_transaction:
            self._state.put(publisher, OFFSET_KEY, boundary.document(now_ms))
        publisher.commit()
        self.progress.delays.committed(time.time_ns() // 1000)
        self._markers.committed()
        self.committed = boundary
        self.has_committed = True
        self._is_dirty = False
        self._at = self._clock()
        self.progress.position = position
        self.progress.committed_ms = now_ms
        self.progress.checkpoints += 1
        for participant in self._participants:
            participant.committed(position)

    def commit_part(self, offset: LogOffset) -> None:
        """Make durable what is published of the transaction after the committed boundary, which does not move."""
        publisher, now = self._publisher, self._clock()
        publisher.flush()
        for participant in self._in_parts:
            for key, document in participant.prepare_part(now).items():
                self._state.put(publisher, key, document)
        now_ms = time.time_ns() // 1_000_000
        self._state.put(publisher, OFFSET_KEY, offset.document(now_ms))
        publisher.commit()
        self.progress.delays.committed(time.time_ns() // 1000)
        self.committed = offset
        self.progress.committed_ms = now_ms
        self.progress.checkpoints += 1

    def write_rows(self, rows: Iterable[tuple[str, Records]]) -> None:
        """Write rows of snapshots into their topics."""
        for topic, records in rows:
            self._publisher.write(topic, records)
            self.progress.records += records.count

    def abort(self) -> None:
        """Drop what was produced since the last commit."""
        self._publisher.abort()
        self.progress.delays.aborted()


def _horizon(works: Iterable[CheckpointWork], boundary: Position) -> Position:
    """Return the horizon of the participant that knows it; without snapshots it is the boundary."""
    return next((work.horizon for work in works if work.horizon is not None), boundary)
