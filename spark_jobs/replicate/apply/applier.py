"""The apply of a task: Kafka transactions of its sources enter, transactions of the target with their progress leave.

Rows are applied in the order of each log, about `driver_rows` in one transaction of the target, which also commits how far each
source is applied. With `consistency: transaction` no transaction of a source is divided. With `eventual` workers apply larger
batches (`parallel_apply`). Statements are run one by one between such transactions and batches (`ddl_statements`).

`StreamApplier` applies the transactions of all sources in one order (`frontier`). `Applier` applies them as they come: the order of
a source is kept, and nothing is promised between two of them.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Final, Protocol

from schemas.errors import SinkError
from schemas.overriding import override
from spark_jobs.replicate.apply.apply_target import StreamProgress
from spark_jobs.replicate.apply.ddl_statements import DdlStatements
from spark_jobs.replicate.order.event_spill import SourceSpill
from spark_jobs.replicate.order.frontier import LoggedEvents, SourceCursor, StreamMerge
from spark_jobs.replicate.order.log_order import PREFIX
from spark_jobs.replicate.rows.row_events import RowEvent

if TYPE_CHECKING:
    from spark_jobs.replicate.apply.apply_target import ApplyTarget, SourceState
    from spark_jobs.replicate.apply.parallel_apply import ParallelApply
    from spark_jobs.replicate.apply.row_writer import Loading, RowWriter
    from spark_jobs.replicate.order.log_order import Event, LogOrder, StatementEvent
    from spark_jobs.replicate.order.stream_reader import KafkaTransaction

_MOST_BYTES: Final = 32 << 20
"""Of the rows of a batch, each with about so many for its texts and objects:"""
_ROW_BYTES: Final = 500
_IDLE_S: Final = 10.0
"""How far a source without changes is read is written so often: a start reads no more of commit records than that."""


class StatementWriter(Protocol):
    """Runs or keeps statements of one source."""

    def run(self, event: StatementEvent | RowEvent, state: SourceState) -> SourceState:
        """Run or keep a statement, or a truncate; return the state behind it."""


@dataclass(slots=True)
class PartialTransaction:
    """A transaction of a log of which more may come: the prefix of its positions, and how many of its rows wait.

    `state` and `done` are the ones before these rows.
    """

    prefix: str
    state: SourceState
    done: int
    rows: int = 0

    @property
    def before(self) -> SourceState:
        """The state before the rows that wait."""
        return replace(self.state, done=self.done)


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
    open: PartialTransaction | None = None
    """The last transaction of its log that has rows; None between Kafka transactions, if it has ended."""

    def wants(self, event: RowEvent) -> bool:
        """Return whether the row is for the target."""
        return self.follows(*event.table) and self.state.expects(event)


class Applier:
    """The apply of sources, each in the order of its log. Use it in one thread.

    After an error the states may be ahead of the target, whose own states count.
    """

    def __init__(
        self, target: ApplyTarget, writer: RowWriter, parallel: ParallelApply | None = None, whole_rows: int = 0
    ) -> None:
        """`parallel` applies larger batches. Transactions of a source up to `whole_rows` rows are not divided."""
        self._target = target
        self._writer = writer
        self._parallel = parallel
        self._whole_rows = whole_rows
        self._most_rows = whole_rows or (writer.most_rows if parallel is None else parallel.most_rows)
        self._sources: dict[str, FollowedSource] = {}
        self._kept: dict[str, SourceState] = {}  # as the target has them
        self._written_s = time.monotonic()
        self._waiting: list[RowEvent] = []
        self._bytes = 0  # of these
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
            if not (transaction.open or transaction.commit.open):
                source.open = None
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
            source.open = None
            self._flush(keeps_open=True)
            self._done = done
            self._mark()
            source.state = source.statements.run(event, source.state)
            self._writer.forget_tables()
            if self._parallel is not None:
                self._parallel.forget_tables()
            return
        if source.wants(event):
            self._require_one_source(source, event.table)
            if not self._waiting and self._parallel is not None and self._is_beyond_rows():
                self._flush()
            if self._whole_rows:
                self._note_transaction(source, event)
            self._waiting.append(event)
            self._bytes += _size(event)
        self._done = done
        if len(self._waiting) >= self._most_rows or self._bytes > _MOST_BYTES:
            self._flush()

    def _note_transaction(self, source: FollowedSource, event: RowEvent) -> None:
        """Note the transaction that a row belongs to. If it begins one, the rows before it may be enough for a batch."""
        prefix = event.position[:PREFIX]
        if source.open is None or source.open.prefix != prefix:
            source.open = None
            if len(self._waiting) - self._open_rows() >= self._writer.most_rows:
                self._flush(keeps_open=True)
            if event.op != "r":
                source.open = PartialTransaction(prefix, source.state, self._done)
        if source.open is not None:
            source.open.rows += 1

    def _open_rows(self) -> int:
        """Return how many rows wait of transactions of which more may come."""
        return sum(source.open.rows for source in self._sources.values() if source.open is not None)

    def _is_beyond_rows(self) -> bool:
        """Return whether a state differs from the one in the target by more than rows: a plan differs by rows alone."""
        return any(_beside_rows(self._kept[name]) != _beside_rows(source.state) for name, source in self._sources.items())

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
        if len(self._waiting) > self._open_rows() or is_loaded or time.monotonic() - self._written_s > _IDLE_S:
            self._flush(keeps_open=True)

    def _flush(self, *, keeps_open: bool = False) -> None:
        """Commit the rows that wait, with the states behind them; with `keeps_open` only whole transactions."""
        self._mark()
        if not keeps_open:
            self._divide()
        kept = self._pop_open()
        states = {name: source.state if source.open is None else source.open.before for name, source in self._sources.items()}
        changed = {name: state for name, state in states.items() if self._kept[name] != state}
        loading = {name: state.loading for name, state in states.items()}
        plans = self._parallel if len(self._waiting) > self._writer.most_rows else None
        if plans is not None:
            plans.apply(self._in_order(), loading, changed, self._stream_progress())
        with self._target.transaction():
            if plans is not None:
                plans.store.close()
            else:
                self._write(loading)
            for name, state in changed.items():
                self._target.put_state(name, state)
            self._target.put_progress()
        self._kept |= states
        self._written_s = time.monotonic()
        self.rows.update((event.source, event.op) for event in self._waiting)
        self._waiting, self._bytes = kept, sum(map(_size, kept))

    def _pop_open(self) -> list[RowEvent]:
        """Remove the rows of transactions of which more may come, the last ones of their sources, and return them."""
        left = {name: source.open.rows for name, source in self._sources.items() if source.open is not None and source.open.rows}
        if not left:
            return []
        kept, rows = list[RowEvent](), list[RowEvent]()
        for event in reversed(self._waiting):
            is_open = left.get(event.source, 0) > 0
            (kept if is_open else rows).append(event)
            left[event.source] = left.get(event.source, 0) - is_open
        self._waiting = rows[::-1]
        return kept[::-1]

    def _divide(self) -> None:
        """Note that the rows of open transactions are committed, too."""
        for source in self._sources.values():
            if source.open is not None:
                source.open.state, source.open.done, source.open.rows = source.state, source.state.done, 0

    def _write(self, loading: Loading) -> None:
        """Write the rows that wait, within a transaction, some at a time: their texts are in memory."""
        most = self._writer.most_rows
        for begin in range(0, len(self._waiting), most):
            self._writer.write(self._waiting[begin : begin + most], loading)

    def _in_order(self) -> list[RowEvent]:
        """Return the rows that wait in an order that a later start makes again: one source after the other."""
        return sorted(self._waiting, key=attrgetter("source"))

    def _stream_progress(self) -> StreamProgress | None:
        """Return the progress of the order of all sources, None without one."""
        return None


def _beside_rows(state: SourceState) -> tuple[int, tuple[str, ...]]:
    return state.ddl_offset, state.loading


def _size(event: RowEvent) -> int:
    before, after = event.before, event.after
    size = _ROW_BYTES if before is None else _ROW_BYTES + len(before.value)
    return size if after is None or after is before else size + len(after.value)


class StreamApplier(Applier):
    """The apply of all sources in one order. `merge` has the cursors of the progress that the target has."""

    def __init__(
        self,
        target: ApplyTarget,
        writer: RowWriter,
        merge: StreamMerge[Event],
        parallel: ParallelApply | None = None,
        whole_rows: int = 0,
    ) -> None:
        super().__init__(target, writer, parallel, whole_rows)
        self._merge = merge
        self._begun = target.progress
        self._at = self._begun.released
        self._cursors: Mapping[str, SourceCursor] = self._begun.cursors
        self._complete: dict[str, list[KafkaTransaction]] = {}
        self._slices: dict[str, list[LoggedEvents[Event]]] = {}
        self._spills: dict[str, SourceSpill] = {}

    @override
    def add(self, source: FollowedSource) -> None:
        super().add(source)
        self._spills[source.name] = SourceSpill(source.order)

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
            logged += self._spills[source.name].logged(transaction)
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
                if self._whole_rows and len(self._waiting) >= self._writer.most_rows:
                    self._flush()
            for event in ordered.events:
                if ordered.at == self._begun.released and self._done < self._begun.done:
                    self._done += 1
                else:
                    self._apply_event(source, event, self._done + 1)
        self._end_round()

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

    @override
    def _note_transaction(self, source: FollowedSource, event: RowEvent) -> None:
        """Only whole transactions are released."""

    @override
    def _is_beyond_rows(self) -> bool:
        return super()._is_beyond_rows() or self._target.kept_progress.cursors.keys() != self._cursors.keys()

    @override
    def _in_order(self) -> list[RowEvent]:
        return self._waiting

    @override
    def _stream_progress(self) -> StreamProgress | None:
        return self._target.progress
