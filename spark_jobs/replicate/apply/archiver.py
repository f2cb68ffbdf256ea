"""The changes of one source into an archive: Kafka transactions enter, records of segments in the order of the log leave.

A row is kept as its Kafka record is, so that `replay` decodes it as a task does. A statement is kept as its event.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Final

from kafkaio.committed_reader import CommittedRecord
from schemas.commit_records import CommitRecord, RowTimes
from schemas.errors import ConfigError
from schemas.json_codec import decode, encode
from schemas.paused_task import TaskPause
from spark_jobs.archive.archive_folder import Archive, ArchiveManifest
from spark_jobs.archive.segments import ROW, STATEMENT, ArchivedRecord
from spark_jobs.replicate.apply.applier import FollowedSource
from spark_jobs.replicate.apply.apply_target import SourceState, TaskFacts
from spark_jobs.replicate.order.log_order import PREFIX, Event, StatementEvent, transaction_at
from spark_jobs.replicate.order.stream_reader import KafkaTransaction
from spark_jobs.replicate.rows.row_events import RowEvent
from spark_jobs.replicate.rows.row_values import exact_note
from spark_jobs.store.durable_files import replace_file

_IDLE_S: Final = 10.0
"""The state of a source without changes is written so often."""
_PAUSE: Final = "pause.json"


class FileTarget(Archive):
    """The folder of a task as the target of its changes (`Destination`)."""

    def exists(self, database: str, table: str) -> bool:  # noqa: ARG002 - as of a database
        """Return False: every table that the task begins with is described in the files."""
        return False

    def has_rows(self, database: str, table: str) -> bool:  # noqa: ARG002 - as of a database
        """Return False: no row was kept before the task began."""
        return False

    def states(self) -> Mapping[str, SourceState]:
        """Return the state of each source that this task has begun."""
        return {source: decode(SourceState, document) for source, document in self.state_documents().items()}

    def put_state(self, source: str, state: SourceState) -> None:
        """Write the state of a source, within a transaction."""
        self.put_document(source, encode(state))

    def attach(self) -> None:
        """Read and change the pause beside the process that runs the task. `ConfigError`: the task has never run here."""
        manifest = ArchiveManifest.read(self.folder)
        if manifest is None or manifest.task != self.task:
            raise ConfigError(f"task: {self.task} has never run with the folder {self.folder}: start it by `tidemark task run`")

    def facts(self) -> TaskFacts:
        """Return the facts about the task, and change nothing. `ConfigError`: the task has never run here."""
        self.attach()
        manifest = ArchiveManifest.read(self.folder)
        assert manifest is not None
        states = {source: decode(SourceState, document) for source, document in manifest.states.items()}
        return TaskFacts(
            epoch=0, process=None, seen_s=None, pause=self.pause(), statement=None, states=states, progress=None
        )

    def note_end(self) -> None:
        """Do nothing: whether a process lives is unknown of files."""

    def pause(self) -> TaskPause | None:
        """Return the record of the task's pause, a file of the folder; None if it is not paused."""
        try:
            return decode(TaskPause, json.loads((self.folder / _PAUSE).read_bytes()))
        except FileNotFoundError:
            return None

    def change_pause(self, change: Callable[[TaskPause | None], TaskPause | None]) -> None:
        """Replace the record by the result of `change`. Of two at once the later one counts."""
        pause = change(self.pause())
        if pause is None:
            (self.folder / _PAUSE).unlink(missing_ok=True)
        else:
            replace_file(self.folder / _PAUSE, json.dumps(encode(pause)).encode())


class Archiver:
    """The writer of the files of one source. Use it in one thread."""

    def __init__(self, archive: FileTarget, text_of: Callable[[int], str]) -> None:
        archive.abandon()
        self._archive = archive
        self._text_of = text_of
        self._source: FollowedSource
        self._is_ahead = False  # the archive has changes that are not committed
        self._written_s = 0.0
        self.rows: Counter[tuple[str, str]] = Counter()
        """Rows that this object has kept, by source and operation."""

    def statements(self, source: str, follows: Callable[[str, str], bool]) -> Archiver:  # noqa: ARG002 - `add` has both
        """Return itself: it keeps statements, too."""
        return self

    def add(self, source: FollowedSource) -> None:
        """Keep the changes of a source; the archive has its state."""
        self._source = source

    @property
    def states(self) -> Mapping[str, SourceState]:
        """The state of the source."""
        return {self._source.name: self._source.state}

    def offset(self, source: str) -> int:
        """Return the offset of the first commit record that is not kept whole."""
        return self.states[source].offset

    def run(self, event: StatementEvent | RowEvent, state: SourceState) -> SourceState:
        """Keep a statement of the history; return the state behind it, which is committed."""
        assert isinstance(event, StatementEvent)
        behind = self._append(event, event.ts_us, None, state)
        if self._is_ahead:
            self._commit(behind)
        return behind

    def apply(self, transactions: Sequence[KafkaTransaction]) -> None:
        """Keep Kafka transactions, which follow `state`, and commit them whole. After an error the state of the archive counts."""
        state = self._source.state
        for transaction in transactions:
            times = _times_of(transaction.commit)
            for one in self._source.order.placed(transaction):
                if not state.reaches(one.event):
                    continue
                state = self._append(one.event, times(one.position[:PREFIX], one.us), one.record, state)
            state = state if transaction.open else state.behind(transaction)
        is_whole = not transactions or not transactions[-1].open
        is_loaded = state.loading != self._source.state.loading
        if is_whole and (self._is_ahead or is_loaded or time.monotonic() - self._written_s > _IDLE_S):
            self._commit(state)
        self._source.state = state

    def _append(self, event: Event, us: int, record: CommittedRecord | None, state: SourceState) -> SourceState:
        """Append an event of the task, which is not committed; return the state behind it."""
        if isinstance(event, RowEvent):
            if self._source.wants(event):
                assert record is not None
                note = exact_note(record.headers) if record.headers else b""
                kept = ArchivedRecord(ROW, us, event.position, note, record.value or b"")
                self._archive.append_row(kept, event.schema_id, self._text_of)
                self._is_ahead = True
                self.rows[event.source, event.op] += 1
            return state
        if event.offset < state.ddl_offset:
            return state
        if event.table is None or (event.session.is_captured and self._source.follows(*event.table)):
            self._archive.append(ArchivedRecord(STATEMENT, us, event.position, b"", json.dumps(encode(event)).encode()))
            self._is_ahead = True
        return replace(state, ddl_offset=event.offset + 1, position=event.position)

    def _commit(self, state: SourceState) -> None:
        with self._archive.transaction():
            self._archive.put_state(self._source.name, state)
        self._is_ahead = False
        self._written_s = time.monotonic()


def _times_of(commit: CommitRecord) -> Callable[[str, int], int]:
    """Return the function from the position of a transaction, and a time of its records, to its time in the stream."""
    times = RowTimes(commit)
    return cache(lambda prefix, us: times(transaction_at(prefix), us))
