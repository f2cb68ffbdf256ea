"""The interfaces of the log reader: what handles rows, statements and checkpoints.

All methods run on the log reader's thread, in log order. Their twins are in `tests.support.log_handlers`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, runtime_checkable

from schemas.position import Position
from schemas.schema_changes import StatementSession

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from producer.catalog.effects import DdlChange
    from producer.catalog.statements import Statement
    from producer.kafka.key_headers import KeyText
    from producer.kafka.outbox_events import Outbox
    from producer.snapshot.outbox import MarkerDraft
    from producer.stream.offset import LogOffset
    from producer.stream.transaction import OpenTransaction
    from rowcodec import BinlogLayout, EventContext, Records, RowsOfRun, TableCodec
    from schemas.columns import TableSchema
    from schemas.errors import TidemarkError
    from schemas.schema_changes import ChangeOrigin

Op = Literal["c", "u", "d"]
State = Mapping[str, Any]
"""The documents of the state topic by key."""
Document = Mapping[str, Any] | None
"""A state document; None deletes it."""


class RoutePlan(NamedTuple):
    """What happens to rows of one operation: whether they are encoded, and who gets them, in this order.

    `images` is how many row images each row has in the log. `watchers` may want rows of ignored transactions.
    """

    op: Op
    images: int
    encodes: bool
    handlers: tuple[Callable[[RowsEvent], None], ...]
    watchers: tuple[RowsWatcher, ...] = ()


class RunPlan(NamedTuple):
    """What happens to rows of several operations in a run of transactions: as in `RoutePlan`, the same for all of them."""

    encodes: bool
    handlers: tuple[Callable[[EncodedRun], None], ...]


@dataclass(frozen=True, slots=True)
class Route:
    """What becomes of the rows of one table version. `codec` is None for a table that is not captured.

    `json_columns` are the indices of the columns of type JSON. `schema` is the table version, also of a table that is
    not captured but is a parent of one that is. `encoded_ops` are the operations that become records. `plans` has what
    happens to each type of rows event, `run_plans` what happens in runs by operations (bits: 1 insert, 2 update, 4 delete; None:
    its rows are in no run). `is_mark`: a transaction that begins with it is ignored.
    """

    database: str
    table: str
    columns: int
    sizes: npt.NDArray[np.int64]
    json_columns: tuple[int, ...] = ()
    topic: str = ""
    codec: TableCodec | None = None
    key_text: KeyText | None = None
    layout: BinlogLayout | None = None
    is_signal: bool = False
    is_mark: bool = False
    outbox: Outbox | None = None
    schema: TableSchema | None = None
    encoded_ops: frozenset[Op] = frozenset()
    plans: Mapping[int, RoutePlan] = field(default_factory=dict)
    run_plans: Sequence[RunPlan | None] = ()
    name: str = field(init=False, default="")
    key: tuple[str, str] = field(init=False, default=("", ""))

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", f"{self.database}.{self.table}")
        object.__setattr__(self, "key", (self.database, self.table))


@dataclass(slots=True)
class RowsEvent:
    """The rows of one event, all of one version of one table: `buf[start:end]`, one or two images per row.

    `written_s` is the event's time in whole seconds since 1970. `flags` are those of the event's rows header.
    `is_in_kafka`: an earlier start has published these rows; handlers that write records ignore such an event.
    `context` and `records` exist only where the route encodes the operation (`Route.encoded_ops`). Valid only during the
    call of a handler: memory and event are used again.
    """

    route: Route
    op: Op
    transaction: OpenTransaction
    buf: npt.NDArray[np.uint8]
    start: int
    end: int
    written_s: int
    flags: int
    is_in_kafka: bool = False
    context: EventContext | None = None
    records: Records | None = None

    @property
    def encoded(self) -> tuple[EventContext, Records]:
        """The context and the records, for handlers that want only encoded rows."""
        assert self.context is not None
        assert self.records is not None
        return self.context, self.records


@dataclass(frozen=True, slots=True)
class EncodedRun:
    """The rows of one table in a run of transactions: as a `RowsEvent`, but of many rows events at once.

    `source_ts_ms` is the source's time at the end of the run, `first_us` and `last_us` are those of the table's first and last
    event, in µs. None of the rows is in Kafka already.
    """

    route: Route
    rows: RowsOfRun
    records: Records
    source_ts_ms: int
    first_us: int
    last_us: int


class RecordPublisher(Protocol):
    """A writer of records into transactions: `producer.kafka.alternating_publisher.AlternatingPublisher`, or its memory twin."""

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""

    @property
    def uncommitted(self) -> int:
        """How many records were written since the last commit."""

    @property
    def uncommitted_bytes(self) -> int:
        """How many bytes their keys and values have."""

    @property
    def is_long_open(self) -> bool:
        """Whether the open transaction should be committed, at least in part, before its time is over."""

    def write(self, topic: str, records: Records, key_text: KeyText | None = None) -> None:
        """Write the records of one event or block in order. Begins a transaction where none is open."""

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        partition: int = -1,
        headers: list[tuple[str, bytes]] | None = None,
    ) -> None:
        """Write one record. Begins a transaction where none is open."""

    def flush(self) -> None:
        """Wait until every record is acknowledged: end offsets are then final."""

    def commit(self) -> None:
        """Commit the open transaction, if there is one. It settles the commit that was begun before."""

    def commit_later(self) -> None:
        """Begin to commit the open transaction, if there is one: all of its records are acknowledged when this returns.

        It settles the commit that was begun before. Records that follow are in another transaction, which is never committed
        before this one is.
        """

    def commit_flushed(self) -> None:
        """Do what `commit_later` does, without waiting for the records since the last `flush`.

        Into the topics of these records nothing may be written before `settle`: the order would not be certain.
        """

    @property
    def is_answered(self) -> bool:
        """Whether `settle` would not wait."""

    def settle(self) -> None:
        """Wait until the commit that `commit_later` began is done; raise its error, each time that it is called."""

    def abort(self) -> None:
        """Abort the open transaction, if there is one. It settles the commit that was begun before."""


class DocumentStore(Protocol):
    """A store of state documents: `producer.kafka.state_topic.StateTopic`, or its memory twin."""

    def put(self, publisher: RecordPublisher, key: str, document: Document) -> None:
        """Write one document inside the publisher's open transaction."""


class RowsHandler(Protocol):
    """A consumer of rows events. It gets them in log order, on the log reader's thread, and never blocks."""

    def wants(self, table: Route, op: Op) -> bool:
        """Return whether it handles these rows. Asked once per table version and operation; compiled into the route."""

    def rows(self, event: RowsEvent) -> None:
        """Handle one event. An error ends this start; nothing after the last checkpoint is then visible."""


@runtime_checkable
class RunHandler(RowsHandler, Protocol):
    """A rows handler for which it is the same whether it gets the rows events of many transactions one by one, or at once."""

    def run(self, run: EncodedRun) -> None:
        """Handle the rows of one table in a run, in log order. Errors as those of `rows`."""


@runtime_checkable
class RowsWatcher(RowsHandler, Protocol):
    """A rows handler that writes nothing, and at times has to see rows of ignored transactions, too."""

    def watches(self, table: Route) -> bool:
        """Return whether it has to see all rows of a table at the moment."""


@dataclass(frozen=True, slots=True)
class LoggedStatement:
    """A statement of the log that is no data change, and what it does to tables (`changes`, refined by the catalog).

    `written_s` is the event's time in whole seconds since 1970. `is_unpublished`: no record of it is written, since an earlier
    start has published it, or an ignored channel has run it.
    """

    parsed: Statement
    changes: Sequence[DdlChange]
    origin: ChangeOrigin
    written_s: int
    is_unpublished: bool
    session: StatementSession


class StatementHandler(Protocol):
    """A consumer of DDL statements, each inside its transaction."""

    def statement(self, statement: LoggedStatement) -> None:
        """Handle one statement."""


@dataclass(frozen=True, slots=True)
class OutgoingRecord:
    """A record to be written as it is."""

    topic: str
    value: bytes
    key: bytes


@dataclass(frozen=True, slots=True)
class CheckpointWork:
    """What a participant has written with a checkpoint, in this order: rows, markers, records, documents.

    `rows` (topic and records) go into change topics before the markers, whose `change_offsets` include them. They may be
    a generator, which is consumed once. `horizon` is set by the one participant that knows it.
    """

    rows: Iterable[tuple[str, Records]] = ()
    markers: Sequence[MarkerDraft] = ()
    records: Sequence[OutgoingRecord] = ()
    documents: Mapping[str, Document] | None = None
    horizon: Position | None = None


class CheckpointParticipant:
    """A keeper of state that is committed with the log offset. By itself it has no state.

    What `prepare` returns and the offset are durable together or not at all. Participants are prepared in their order
    and restored in the reverse order: a participant uses only those after it. Where no participant had anything to write, the
    log may be read on between `prepare` and `committed`; another `prepare` comes only after that. So `prepare` hands work over,
    and `committed` forgets none: what was noted meanwhile belongs to the next checkpoint.
    """

    def restore(self, state: State) -> None:
        """Take over the documents of an earlier process. Called once, before any other method."""

    def prepare(self, boundary: Position, now_s: float) -> CheckpointWork:  # noqa: ARG002
        """Return what to write with the checkpoint at that transaction boundary. `now_s` is the monotonic clock."""
        return CheckpointWork()

    def committed(self, boundary: Position) -> None:
        """Note that the work of the last `prepare` is durable. Not guaranteed to be called after a crash."""


@runtime_checkable
class Seal(Protocol):
    """A participant that writes the last records of each Kafka transaction, which say at which offsets the other records are.

    At the end of a checkpoint, and of a part of a long transaction::

        1. everything else is produced, without the offset; all of it is acknowledged
        2. `seal` lists the end offsets of the topics that were written since the last seal, and returns its records
        3. these records and the offset are produced, and the Kafka transaction ends

    Records that follow are in another transaction, which is never visible before this one: in each topic it begins at the end of
    this one. If a transaction fails, the start ends with it, and so does its seal.
    """

    def is_wanted(self, boundary: Position) -> bool:
        """Return whether its records are wanted at that boundary, even in a transaction without any other. Cheap."""

    def seal(self, offset: LogOffset, works: Sequence[CheckpointWork]) -> tuple[LogOffset, Sequence[OutgoingRecord]]:
        """Return the offset to write and the records before it. `works` is written by participants in the same transaction."""


class MarkerWriter(Protocol):
    """A writer of window markers, whose heartbeats can be a reason for a checkpoint."""

    def is_due(self, boundary: Callable[[], Position]) -> bool:
        """Return whether a table waits for a heartbeat."""

    def write(self, drafts: Sequence[MarkerDraft], boundary: Position, horizon: Position) -> None:
        """Write the drafts and the heartbeats that are due, once all records before them are acknowledged."""

    def committed(self) -> None:
        """Note that the markers are durable."""


class TransactionFrame(Protocol):
    """A writer of the records of where transactions begin and end."""

    def begin(self, transaction: OpenTransaction, file: str, offset: int, ts_ms: int) -> None:
        """Write that the transaction begins to have rows."""

    def numbered(self, context: EventContext, transaction: OpenTransaction, table: str) -> EventContext:
        """Return the context of a rows event with the numbers of its first record."""

    def end(self, transaction: OpenTransaction, ts_ms: int) -> None:
        """Write that the transaction is committed."""


class BoundaryTask(Protocol):
    """Something that another thread wants done between two transactions, by the log reader's thread."""

    @property
    def is_waiting(self) -> bool:
        """Whether there is something to do."""

    def carry_out(self, boundary: Position) -> None:
        """Do it. Everything before the boundary is committed; what this changes is committed before reading continues."""


class TableErrors(Protocol):
    """What happens to a captured table that cannot be published, and to one that can be again."""

    def put(self, database: str, table: str, error: TidemarkError, position: Position) -> None:
        """Set the table aside because of the error, or raise it."""

    def resume_table(self, database: str, table: str) -> None:
        """Publish the table again, if it is set aside."""


@runtime_checkable
class CheckpointTrigger(Protocol):
    """A participant that can ask for a checkpoint. Asked at transaction boundaries and while the log is idle."""

    def is_due(self, boundary: Callable[[], Position] | None, now_s: float) -> bool:
        """Return whether it needs a checkpoint now. Cheap. `boundary` is None while the reader waits for the log."""


@runtime_checkable
class PartParticipant(Protocol):
    """A participant with documents that are committed even with a part of a transaction, without its boundary."""

    def prepare_part(self, now_s: float) -> Mapping[str, Document]:
        """Return the documents that the published rows depend on."""
