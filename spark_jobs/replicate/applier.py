"""The apply of a task: Kafka transactions of its sources enter, transactions of the target with their progress leave.

Rows are applied in the order of each log, at most `driver_rows` in one transaction of the target, which also commits how far each
source is applied. Statements are run one by one between such transactions (`ddl_statements`).

`StreamApplier` applies the transactions of all sources in one order (`frontier`). `Applier` applies them as they come: the order of
a source is kept, and nothing is promised between two of them.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from schemas.errors import SinkError
from schemas.overriding import override
from spark_jobs.replicate.apply_target import StreamProgress
from spark_jobs.replicate.ddl_statements import DdlStatements
from spark_jobs.replicate.event_spill import EventSpill
from spark_jobs.replicate.frontier import LoggedEvents, SourceCursor, StreamMerge
from spark_jobs.replicate.log_order import RowEvent

if TYPE_CHECKING:
    from spark_jobs.replicate.apply_target import ApplyTarget, SourceState
    from spark_jobs.replicate.destination import StatementWriter
    from spark_jobs.replicate.log_order import Event, LogOrder
    from spark_jobs.replicate.row_writer import RowWriter
    from spark_jobs.replicate.stream_reader import KafkaTransaction

_IDLE_S: Final = 10.0
"""How far a source without changes is read is written so often: a start reads no more of commit records than that."""


@dataclass(slots=True)
class FollowedSource:
    """A source of the task. `follows` returns whether a table is one of the task."""

    name: str
    order: LogOrder
    statements: StatementWriter
    follows: Callable[[str, str], bool]
    state: SourceState
    passed: int = 0
    """Events of the present Kafka transaction in earlier slices."""

    def wants(self, event: RowEvent) -> bool:
        """Return whether the row is for the target."""
        return self.follows(*event.table) and self.state.expects(event)


class Applier:
    """The apply of sources, each in the order of its log. Use it in one thread.

    After an error the states may be ahead of the target, whose own states count.
    """

    def __init__(self, target: ApplyTarget, writer: RowWriter) -> None:
        self._target = target
        self._writer = writer
        self._sources: dict[str, FollowedSource] = {}
        self._kept: dict[str, SourceState] = {}  # as the target has them
        self._written_s = time.monotonic()
        self._waiting: list[RowEvent] = []
        self._owners: dict[tuple[str, str], str] = {}
        self._unit: FollowedSource | None = None  # whose Kafka transaction is applied
        self._done = 0
        self.rows: Counter[tuple[str, str]] = Counter()
        """Rows that this object has applied, by source and operation."""

    def statements(self, source: str, follows: Callable[[str, str], bool]) -> DdlStatements:
        """Return the runner of the statements of a source."""
        return DdlStatements(self._target, source, follows)

    def add(self, source: FollowedSource) -> None:
        """Apply a source, too; the target has its state."""
        self._sources[source.name] = source
        self._kept[source.name] = source.state

    @property
    def states(self) -> Mapping[str, SourceState]:
        """How far each source is applied."""
        return {name: source.state for name, source in self._sources.items()}

    def offset(self, source: str) -> int:
        """Return the offset of the first commit record that is not applied whole."""
        return self._sources[source].state.offset

    def apply(self, transactions: Sequence[KafkaTransaction]) -> None:
        """Apply Kafka transactions, which follow the states. `SinkError`: the target does not take a row or a statement."""
        for transaction in transactions:
            source = self._sources[transaction.source]
            events = source.order.events(transaction)
            self._apply_events(source, events)
            if transaction.open:
                source.passed += len(events)
                continue
            source.passed = 0
            behind = source.state.behind(transaction)
            if behind.loading != source.state.loading:
                self._flush()  # the rows that may be missing
            source.state, self._unit = behind, None
        self._flush_if_due()

    def apply_events(self, name: str, events: Sequence[Event], behind: tuple[int, int]) -> None:
        """Apply events, which follow the state, and commit them with `offset` and `n` of the state behind them."""
        source = self._sources[name]
        self._apply_events(source, events)
        source.state, self._unit = replace(source.state, offset=behind[0], n=behind[1], done=0), None
        self._flush()

    def _apply_events(self, source: FollowedSource, events: Sequence[Event]) -> None:
        self._mark()
        self._unit, self._done = source, source.state.done
        for index, event in enumerate(events, source.passed):
            if index >= source.state.done:
                self._apply_event(source, event, index + 1)

    def _apply_event(self, source: FollowedSource, event: Event, done: int) -> None:
        """Apply an event now, or with the next rows; `done` is the progress behind it."""
        table = event.table
        if not source.state.reaches(event):
            self._done = done
            return
        if not isinstance(event, RowEvent) or event.op == "t":
            if table is not None and source.follows(*table) and (isinstance(event, RowEvent) or event.session.is_captured):
                self._require_one_source(source, table)
            self._flush()
            self._done = done
            self._mark()
            source.state = source.statements.run(event, source.state)
            self._writer.forget_tables()
            return
        if source.wants(event):
            self._require_one_source(source, event.table)
            self._waiting.append(event)
        self._done = done
        if len(self._waiting) >= self._writer.most_rows:
            self._flush()

    def _require_one_source(self, source: FollowedSource, table: tuple[str, str]) -> None:
        owner = self._owners.setdefault(table, source.name)
        if owner != source.name:
            message = (
                f"table {'.'.join(table)} has changes of two sources, {owner} and {source.name}, and which row of a key is the "
                "newer one cannot be known: leave it out at one of them with exclude_tables. Nothing more is applied"
            )
            raise SinkError(message)

    def _mark(self) -> None:
        """Note the progress in the states."""
        if self._unit is not None:
            self._unit.state = replace(self._unit.state, done=self._done)

    def _flush_if_due(self) -> None:
        is_loaded = any(self._kept[name].loading != source.state.loading for name, source in self._sources.items())
        if self._waiting or is_loaded or time.monotonic() - self._written_s > _IDLE_S:
            self._flush()

    def _flush(self) -> None:
        """Commit the rows that wait, with the states behind them."""
        self._mark()
        with self._target.transaction():
            if self._waiting:
                self._writer.write(self._waiting, {name: source.state.loading for name, source in self._sources.items()})
            for name, source in self._sources.items():
                if self._kept[name] != source.state:
                    self._target.put_state(name, source.state)
            self._target.put_progress()
        self._kept |= self.states
        self._written_s = time.monotonic()
        self.rows.update((event.source, event.op) for event in self._waiting)
        self._waiting = []


class StreamApplier(Applier):
    """The apply of all sources in one order. `merge` has the cursors of the progress that the target has."""

    def __init__(self, target: ApplyTarget, writer: RowWriter, merge: StreamMerge[Event]) -> None:
        super().__init__(target, writer)
        self._merge = merge
        self._begun = target.progress
        self._at = self._begun.released
        self._cursors: Mapping[str, SourceCursor] = self._begun.cursors
        self._complete: dict[str, list[KafkaTransaction]] = {}
        self._slices: dict[str, list[LoggedEvents[Event]]] = {}
        self._spills: dict[str, EventSpill] = {}

    @override
    def offset(self, source: str) -> int:
        cursor = self._cursors.get(source)
        return 0 if cursor is None else cursor.offset

    @override
    def apply(self, transactions: Sequence[KafkaTransaction]) -> None:
        """Note Kafka transactions, and apply everything before the frontier. Errors as `Applier.apply`, and as the merge's."""
        for transaction in transactions:
            source = self._sources[transaction.source]
            logged = self._slices.setdefault(source.name, [])
            logged += self._logged(source, transaction)
            if transaction.open:
                continue
            self._merge.note(source.name, transaction.offset, transaction.commit, self._slices.pop(source.name))
            if transaction.commit.complete:
                self._complete.setdefault(source.name, []).append(replace(transaction, records=[]))
        self._cursors = self._merge.cursors()  # a start that continues within the following events reads from there
        for ordered in self._merge.release():
            source = self._sources[ordered.source]
            if ordered.at != self._at:
                self._at, self._done = ordered.at, 0
            for event in ordered.events:
                if ordered.at == self._begun.released and self._done < self._begun.done:
                    self._done += 1
                else:
                    self._apply_event(source, event, self._done + 1)
        self._end_round()

    def _logged(self, source: FollowedSource, transaction: KafkaTransaction) -> Iterator[LoggedEvents[Event]]:
        """Yield the events of a Kafka transaction. Of a large one, and of parts of one, they are on disk."""
        logged, spill = source.order.logged(transaction), self._spills.get(source.name)
        if transaction.open or transaction.commit.open is not None:
            spill = self._spills[source.name] = spill or EventSpill()
        else:
            self._spills.pop(source.name, None)
        for one in logged:
            yield one if spill is None else one._replace(events=spill.spilled(one.events))

    def _end_round(self) -> None:
        """Note that everything released is applied, and the tables that are loaded with that."""
        cursors = self._merge.cursors()
        loaded = [
            (self._sources[name], transaction)
            for name, waiting in self._complete.items()
            for transaction in waiting
            if transaction.offset < cursors[name].offset
        ]
        if loaded and self._waiting:
            self._flush()  # the rows that may be missing
        self._at, self._done, self._cursors = self._merge.released, 0, cursors
        for source, transaction in loaded:
            source.state = replace(source.state, loading=source.state.behind(transaction).loading)
            self._complete[source.name].remove(transaction)
        self._mark()
        self._flush_if_due()

    @override
    def _mark(self) -> None:
        self._target.progress = StreamProgress(released=self._at, done=self._done, cursors=self._cursors)
