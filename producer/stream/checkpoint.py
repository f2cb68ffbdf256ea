"""Checkpoints, the Kafka transactions of the log reader: the only code that makes anything durable.

A checkpoint is at a transaction boundary of the log (one inside a transaction, of a part, has only rows and the offset)::

    1. every record of whole source transactions is produced
    2. each participant is asked what it has to write: rows of chunks, markers, records, documents
    3. the rows are produced; where there are markers (one per partition of the snapshot topic, with change_offsets), all records
       are acknowledged before them, so the end offsets of change topics are final
    4. markers, records, documents and the offset are produced, last in the same Kafka transaction; with a seal (`ports.Seal`) all
       records are acknowledged before the offset, and the records of the seal precede it
    5. commit; then the participants are notified, and threads that wait for durability continue

Most have nothing but rows of the log and the offset. Such a one can be begun (`commit_later`): the log is read on while Kafka
commits it. It is durable, and everything here says so, from `settle` on, which comes before anything of the next checkpoint.

Guarantee: after a crash anywhere, reading resumes at the committed offset, and what was produced after it was
never visible to `read_committed` readers.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from producer.stream.ports import CheckpointTrigger, PartParticipant, Seal

if TYPE_CHECKING:
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
    from rowcodec import Records
    from schemas.position import Position

INTERVAL_S: Final = 0.25
URGENT_INTERVAL_S: Final = 0.01
RECORDS_AT_MOST: Final = 200_000
BYTES_AT_MOST: Final = 64 << 20
IDLE_READ_S: Final = 0.1
_URGENT_READ_S: Final = 0.02
_ANSWER_READ_S: Final = 0.001
OFFSET_KEY: Final = "offset"  # as `producer.kafka.state_topic` names it


class Checkpoints:
    """Commits what was read up to a boundary, with everything that has to be durable together with it.

    `has_committed` says whether this start has committed anything. `interval_s` is the time between two commits while little
    waits in the log; with `is_behind`, which the log reader sets, it is `INTERVAL_S` at least. One participant may be a seal.
    Owned by the log reader's thread.
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
        self._seal = next((one for one in participants if isinstance(one, Seal)), None)
        self._in_parts = [one for one in participants if isinstance(one, PartParticipant)]
        self._clock = clock
        self._is_dirty = False
        self._begun: tuple[LogOffset, int] | None = None  # the offset that is being committed, and the time in its document
        self._at = -math.inf  # the first rows of a start are committed at once
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

    @property
    def has_everything(self) -> bool:
        """Whether everything that was published is committed, and no transaction began since."""
        return self._begun is None and not self._is_dirty and not self._publisher.in_transaction

    def read_timeout(self) -> float:
        """Return how long to wait for the log, in seconds."""
        now = self._clock()
        if self._begun is not None:  # a slow Kafka is asked less often
            return min(_URGENT_READ_S, max(_ANSWER_READ_S, (now - self._at) / 4))
        if self._is_dirty or self._publisher.in_transaction:
            return max(0.0, min(IDLE_READ_S, self._at + self._pause_s - now))
        return _URGENT_READ_S if any(one.is_due(None, now) for one in self._triggers) else IDLE_READ_S

    def is_due(self, boundary: Callable[[], Position]) -> bool:
        """Return whether it is time to commit at that boundary."""
        publisher = self._publisher
        if self.is_full:
            return True
        if not self.note_answer():
            return False
        now = self._clock()
        since = now - self._at
        if since >= self._pause_s and (self._is_dirty or publisher.in_transaction):
            return True
        if since < URGENT_INTERVAL_S:
            return False
        return any(one.is_due(boundary, now) for one in self._triggers) or self._markers.is_due(boundary)

    @property
    def is_full(self) -> bool:
        """Whether the open transaction has so many records, or bytes, that it is to be committed whatever the time is."""
        return self._publisher.uncommitted >= RECORDS_AT_MOST or self._publisher.uncommitted_bytes >= BYTES_AT_MOST

    @property
    def _pause_s(self) -> float:
        return INTERVAL_S if self.is_behind else min(self._interval_s, INTERVAL_S)

    # ---- commit

    def commit(self, boundary: LogOffset) -> None:
        """Make everything before `boundary` durable, and that reading resumes there."""
        self.settle()
        self._commit(boundary, self._prepared(boundary.position))

    def commit_later(self, boundary: LogOffset) -> None:
        """Do what `commit` does, and leave the end of it to `settle` where a checkpoint has only rows of the log and the offset."""
        self.settle()
        works = self._prepared(boundary.position)
        is_plain = not any(work.rows or work.markers or work.records or work.documents for work in works)
        is_needed = self._publisher.in_transaction or self._is_seal_wanted(boundary.position)
        if is_plain and is_needed and not self._markers.is_due(lambda: boundary.position):
            self._begin(boundary)
        else:
            self._commit(boundary, works)

    def note_answer(self) -> bool:
        """Settle a commit that is answered; return whether none is on its way any more."""
        if self._begun is not None and self._publisher.is_answered:
            self.settle()
        return self._begun is None

    def settle(self) -> None:
        """Wait for the commit that was begun, if there is one, and note that it is done."""
        if self._begun is not None:
            self._publisher.settle()
            boundary, now_ms = self._begun
            self._begun = None
            self._note(boundary, now_ms)

    def _prepared(self, position: Position) -> list[CheckpointWork]:
        now = self._clock()
        return [participant.prepare(position, now) for participant in self._participants]

    def _begin(self, boundary: LogOffset) -> None:
        """Begin to commit a checkpoint for which participants and markers have nothing to write."""
        now_ms = time.time_ns() // 1_000_000
        if self._seal is None:
            self._state.put(self._publisher, OFFSET_KEY, boundary.document(now_ms))
            self._publisher.commit_later()
        else:  # what follows the flush goes into topics into which only the next checkpoint writes, behind `settle`
            boundary = self._put_offset(boundary, now_ms)
            self._publisher.commit_flushed()
        self._begun = boundary, now_ms
        self.progress.delays.commit_begun()
        self.progress.times.commit_begun()
        self._is_dirty = False
        self._at = self._clock()

    def _commit(self, boundary: LogOffset, works: Sequence[CheckpointWork]) -> None:
        position, publisher = boundary.position, self._publisher
        for work in works:
            self.write_rows(work.rows)
        self._markers.write([draft for work in works for draft in work.markers], position, _horizon(works, position))
        for work in works:
            for record in work.records:
                publisher.produce(record.topic, record.value, record.key)
        for work in works:
            for key, document in (work.documents or {}).items():
                self._state.put(publisher, key, document)
        now_ms = time.time_ns() // 1_000_000
        if boundary != self.committed or publisher.in_transaction or self._is_seal_wanted(position):
            boundary = self._put_offset(boundary, now_ms, works)
        publisher.commit()
        self._is_dirty = False
        self._at = self._clock()
        self._note(boundary, now_ms)

    def _is_seal_wanted(self, boundary: Position) -> bool:
        return self._seal is not None and self._seal.is_wanted(boundary)

    def _put_offset(self, offset: LogOffset, now_ms: int, works: Sequence[CheckpointWork] = ()) -> LogOffset:
        """Write the records of the seal, if there is one, and the offset behind them; return the offset that was written."""
        if self._seal is not None:
            self._publisher.flush()
            offset, records = self._seal.seal(offset, works)
            for record in records:
                self._publisher.produce(record.topic, record.value, record.key)
        self._state.put(self._publisher, OFFSET_KEY, offset.document(now_ms))
        return offset

    def _note(self, boundary: LogOffset, now_ms: int) -> None:
        """Note that the checkpoint is durable, and notify who waits for that."""
        position = boundary.position
        self.progress.delays.committed(time.time_ns() // 1000)
        self.progress.times.committed()
        self._markers.committed()
        self.committed = boundary
        self.has_committed = True
        self.progress.position = position
        self.progress.committed_ms = now_ms
        self.progress.checkpoints += 1
        for participant in self._participants:
            participant.committed(position)

    def commit_part(self, offset: LogOffset) -> None:
        """Make the published rows of the transaction after the committed boundary durable; the boundary does not move."""
        self.settle()
        publisher, now = self._publisher, self._clock()
        for participant in self._in_parts:
            for key, document in participant.prepare_part(now).items():
                self._state.put(publisher, key, document)
        now_ms = time.time_ns() // 1_000_000
        offset = self._put_offset(offset, now_ms)
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
        """Drop the records since the last commit."""
        self.settle()
        self._publisher.abort()
        self.progress.delays.aborted()


def _horizon(works: Iterable[CheckpointWork], boundary: Position) -> Position:
    """Return the horizon of the participant that knows it; without snapshots it is the boundary."""
    return next((work.horizon for work in works if work.horizon is not None), boundary)
