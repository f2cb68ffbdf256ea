"""Requests, tables, chunks and windows as a process knows them, and what is remembered of them in the state topic (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final

from producer.snapshot.child_rows import ChildRows
from producer.snapshot.ranges import Key, KeyRange, range_key
from schemas.columns import TableSchema
from schemas.documents import (
    ChildRowsDocument,
    ChunkDocument,
    PlanDocument,
    RequestDocument,
    SnapshotState,
    TaskDocument,
    WindowDocument,
)
from schemas.documents import Origin as Origin  # noqa: PLC0414 - exported
from schemas.json_codec import encode
from schemas.loads import LoadAnswer
from schemas.position import Position
from schemas.state import parse

if TYPE_CHECKING:
    from producer.snapshot.buffered_chunk import BufferedChunk

CHILDREN: Final = TaskDocument.CHILDREN
TableId = tuple[str, str]
State = SnapshotState


class WindowState(Enum):
    """The life of a window; all but ENDED hold the horizon."""

    REGISTERING = auto()  # its bound is in a Kafka transaction that is not committed yet
    READY = auto()  # the bound is durable; no reader has touched it
    RUNNING = auto()  # a reader has it
    CLOSING = auto()  # its rows are committed, the close row is written or about to be
    ORPHAN = auto()  # of a dead process, until its slots are fenced
    ENDED = auto()  # leaves the register with the next checkpoint


@dataclass(slots=True)
class LoadAttempt:
    """What is known of a chunk that the merge job is asked for: since when it is, and what it has answered."""

    asked_at: float | None = None
    answer: LoadAnswer | None = None


@dataclass(slots=True)
class Window:
    """A registered window: one attempt at one chunk. `buffered` are its buffered rows, which wait for the close row.

    `written` says that they were written there. `closes_at` is where the log ended when the rows had been read, for a
    window without a close row: it closes at the first transaction boundary that is not before that. `load` is of a window whose
    rows the merge job reads.
    """

    id: str
    request: str
    table: str
    chunk: int
    bound: Position
    state: WindowState = WindowState.REGISTERING
    generation: int = 0
    low: Position | None = None
    opened_at: Position | None = None
    closes_at: Position | None = None
    rows_read: int = 0
    rows: int = 0
    first_offsets: Mapping[int, int] = field(default_factory=dict)
    buffered: BufferedChunk | None = None
    written: bool = False
    reread: bool = False
    cancelled: bool = False
    load: LoadAttempt | None = None

    @property
    def key(self) -> str:
        """Key of its document."""
        return f"window/{self.id}"

    @property
    def is_watched(self) -> bool:
        """Whether what the log changes in its rows may still be asked for, in this process."""
        return self.state not in (WindowState.ORPHAN, WindowState.ENDED) and not self.reread

    def document(self, readers: int) -> dict[str, Any]:
        """Return the JSON form; `readers` are the slots to fence before the window may leave the register."""
        return _form(WindowDocument(self.id, self.request, self.table, self.chunk, self.bound, readers))

    @staticmethod
    def parse(document: Mapping[str, Any]) -> Window:
        """Return a window of an earlier process."""
        one = parse(WindowDocument, f"{WindowDocument.PREFIX}{document.get('id')}", document)
        return Window(one.id, one.request, one.table, one.chunk, one.bound, WindowState.ORPHAN)


@dataclass(slots=True)
class Tries:
    """Attempts that failed in this process: `faults` that no time heals, `outages` that it may, and those that waited."""

    all: int = 0
    faults: int = 0
    outages: int = 0

    def count(self, *, heals: bool, waits: bool) -> None:
        """One more. `waits`: a person or a program will end it, and nobody knows when."""
        self.all += 1
        self.faults += not heals
        self.outages += heals and not waits


@dataclass(slots=True)
class Chunk:
    """A key range that is planned and not done. `not_before` is on the process's clock.

    `planned_rows` is how many rows it was to have when it was planned, 0 where that is not known any more. `loads_failed` counts
    the answers of the merge job that it could not read the chunk.
    """

    id: int
    range: KeyRange
    tries: Tries = field(default_factory=Tries)
    error: str = ""
    not_before: float = 0.0
    window: Window | None = None
    planned_rows: int = 0
    loads_failed: int = 0

    def document(self) -> ChunkDocument:
        """Return what is remembered of the chunk."""
        return ChunkDocument(self.id, self.range.lower, self.range.upper, self.tries.all, self.error)

    @staticmethod
    def parse(document: ChunkDocument) -> Chunk:
        """Return the chunk of a document, without the attempts before it: a new process may succeed."""
        return Chunk(document.id, KeyRange(document.lower, document.upper), error=document.error)


@dataclass(slots=True)
class Plan:
    """How far a table is cut. `cap` is its largest key, read behind a barrier; `step` means arithmetic.

    Rows with larger keys have positions behind `cap_low`, the barrier's low.
    """

    key: tuple[tuple[str, str, str], ...] = ()
    upto: Key | None = None
    cap: Key | None = None
    cap_low: Position | None = None
    step: int | None = None
    rows_per_chunk: int = 0
    complete: bool = False

    def document(self) -> PlanDocument:
        """Return what is remembered of the plan."""
        return PlanDocument(
            self.key, self.upto, self.cap, self.cap_low, self.step, self.rows_per_chunk, self.complete
        )

    @staticmethod
    def parse(document: PlanDocument) -> Plan:
        """Return the plan of a document."""
        return Plan(
            document.key,
            document.upto,
            document.cap,
            document.cap_low,
            document.step,
            document.rows_per_chunk,
            document.complete,
        )


def key_identity(table: TableSchema, surrogate: str | None = None) -> tuple[tuple[str, str, str], ...]:
    """Return what a plan rests on: names, types and order of the key. If it changes, key ranges mean nothing."""
    return tuple(
        (column.name, _type_of(column), column.collation or column.charset or "")
        for column in range_key(table, surrogate).columns
    )


def _type_of(column: Any) -> str:
    details = [str(column.type), "unsigned" if column.unsigned else ""]
    details += [str(column.precision or ""), str(column.scale or ""), ",".join(column.members)]
    return " ".join(details).strip()


@dataclass(slots=True)
class TableTask:
    """One table of one request. `generation` changes when the plan is thrown away.

    `merge` is who merges its rows with the log, `surrogate` the column its signal cuts it by. `begun_ms` and
    `begun_rows` say when this process began to read it, and how many rows were read before. `chunk_rows` is the size of its
    next chunks, 0 until one was read: that of the plan then. With `children` it is of no request: only these rows are read,
    in one chunk. `via`, `asked_via` and `via_reason` are those of its document.
    """

    request: str
    table: str
    condition: str | None = None
    merge: str = "spark"
    surrogate: str | None = None
    children: ChildRows | None = None
    via: str = "kafka"
    asked_via: str = ""
    via_reason: str = ""
    state: State = State.QUEUED
    status: str = ""
    error: str = ""
    rows: int = 0
    estimate: int | None = None
    chunks_done: int = 0
    next_chunk: int = 0
    chunk_rows: int = 0
    plan: Plan = field(default_factory=Plan)
    chunks: dict[int, Chunk] = field(default_factory=dict)
    first_bound: Position | None = None
    last_close: Position | None = None
    changed_at: Position | None = None
    generation: int = 0
    begun_ms: int | None = None
    begun_rows: int = 0
    plan_tries: Tries = field(default_factory=Tries)
    plan_not_before: float = 0.0

    @property
    def key(self) -> str:
        """Key of its document."""
        return f"table/{self.request}/{self.table}" if self.children is None else f"{CHILDREN}{self.request}"

    @property
    def is_loaded(self) -> bool:
        """Whether the merge job reads its chunks."""
        return self.via == "spark"

    @property
    def complete(self) -> bool:
        """Whether every chunk is planned and done."""
        return self.plan.complete and not self.chunks

    def document(self) -> dict[str, Any]:
        """Return the JSON form: what is done stays done, the rest is planned or read again."""
        children = self.children
        return _form(
            TaskDocument(
                request=self.request,
                table=self.table,
                condition=self.condition,
                merge=self.merge,
                surrogate=self.surrogate,
                children=None
                if children is None
                else ChildRowsDocument(children.columns, children.old, children.new, children.nulled),
                state=self.state,
                status=self.status,
                error=self.error,
                rows=self.rows,
                estimate=self.estimate,
                chunks_done=self.chunks_done,
                next_chunk=self.next_chunk,
                chunk_rows=self.chunk_rows,
                plan=self.plan.document(),
                outstanding=tuple(chunk.document() for chunk in self.chunks.values()),
                first_bound=self.first_bound,
                last_close=self.last_close,
                via=self.via,
                asked_via=self.asked_via,
                via_reason=self.via_reason,
            )
        )

    @staticmethod
    def parse(document: Mapping[str, Any]) -> TableTask:
        """Return the table of a document."""
        one = parse(TaskDocument, f"{TaskDocument.PREFIX}{document.get('request')}/{document.get('table')}", document)
        children = one.children
        return TableTask(
            request=one.request,
            table=one.table,
            condition=one.condition,
            merge=one.merge,
            surrogate=one.surrogate,
            children=None
            if children is None
            else ChildRows(children.columns, children.old, children.new, children.nulled),
            state=one.state,
            status=one.status,
            error=one.error,
            rows=one.rows,
            estimate=one.estimate,
            chunks_done=one.chunks_done,
            next_chunk=one.next_chunk,
            chunk_rows=one.chunk_rows,
            plan=Plan.parse(one.plan),
            chunks={chunk.id: Chunk.parse(chunk) for chunk in one.outstanding},
            first_bound=one.first_bound,
            last_close=one.last_close,
            via=one.via,
            asked_via=one.asked_via,
            via_reason=one.via_reason,
        )


@dataclass(slots=True)
class Request:
    """One snapshot request. `number` orders requests by arrival; `position` is that of its signal.

    `blocking`: its tables are read in one view, while the log reader waits. `not_before` is on the process's clock.
    """

    id: str
    number: int
    origin: Origin
    tables: tuple[str, ...]
    state: State = State.QUEUED
    started: bool = False
    pause_told: bool = False
    position: Position | None = None
    reason: str = ""
    error: str = ""
    created_ms: int = 0
    finished_ms: int | None = None
    blocking: bool = False
    tries: Tries = field(default_factory=Tries)
    not_before: float = 0.0

    @property
    def key(self) -> str:
        """Key of its document."""
        return f"request/{self.id}"

    def document(self) -> dict[str, Any]:
        """Return the JSON form."""
        return _form(
            RequestDocument(
                self.id,
                self.number,
                self.origin,
                self.tables,
                self.state,
                self.started,
                self.pause_told,
                self.position,
                self.reason,
                self.error,
                self.created_ms,
                self.finished_ms,
                self.blocking,
            )
        )

    @staticmethod
    def parse(document: Mapping[str, Any]) -> Request:
        """Return the request of a document."""
        one = parse(RequestDocument, f"{RequestDocument.PREFIX}{document.get('id')}", document)
        return Request(
            id=one.id,
            number=one.number,
            origin=one.origin,
            tables=one.tables,
            state=one.state,
            started=one.started,
            pause_told=one.pause_told,
            position=one.position,
            reason=one.reason,
            error=one.error,
            created_ms=one.created_ms,
            finished_ms=one.finished_ms,
            blocking=one.blocking,
        )


def _form(document: object) -> dict[str, Any]:
    form: dict[str, Any] = encode(document)
    return form
