"""Requests, tables, chunks and windows, and the JSON documents they survive a restart as (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, StrEnum, auto
from typing import TYPE_CHECKING, Any, Final

from producer.snapshot.child_rows import ChildRows
from producer.snapshot.ranges import Key, KeyRange, range_key
from schemas.columns import TableSchema
from schemas.errors import StateError
from schemas.position import Position

if TYPE_CHECKING:
    from producer.snapshot.buffered_chunk import BufferedChunk

VERSION: Final = 1
CHILDREN: Final = "children/"
TableId = tuple[str, str]


class State(StrEnum):
    """Of a request and of a table in it."""

    QUEUED = "queued"
    RUNNING = "running"
    PAUSED = "paused"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def final(self) -> bool:
        """Whether nothing will change any more."""
        return self in (State.DONE, State.FAILED, State.CANCELLED)


class Origin(StrEnum):
    """Who asked for a snapshot."""

    SIGNAL = "signal"
    INITIAL = "initial"
    AUTOMATIC = "automatic"


class WindowState(Enum):
    """The life of a window; all but ENDED hold the horizon."""

    REGISTERING = auto()  # its bound is in a Kafka transaction that is not committed yet
    READY = auto()  # the bound is durable; no reader has touched it
    RUNNING = auto()  # a reader has it
    CLOSING = auto()  # its rows are committed, the close row is written or about to be
    ORPHAN = auto()  # of a dead process, until its slots are fenced
    ENDED = auto()  # leaves the register with the next checkpoint


@dataclass(slots=True)
class Window:
    """A registered window: one attempt at one chunk. `held` are its buffered rows, which wait for the close row.

    `written` says that they were written there. `closes_at` is where the log ended when the rows had been read, for a
    window without a close row: it closes at the first transaction boundary that is not before that.
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
    held: BufferedChunk | None = None
    written: bool = False
    reread: bool = False
    cancelled: bool = False

    @property
    def key(self) -> str:
        """Key of its document."""
        return f"window/{self.id}"

    @property
    def is_watched(self) -> bool:
        """Whether what the log changes in its rows may still be asked for, in this process."""
        return self.state not in (WindowState.ORPHAN, WindowState.ENDED) and not self.reread

    def document(self, readers: int) -> dict[str, Any]:
        """As JSON; `readers` says which slots to fence before it may leave the register."""
        return {
            "v": VERSION,
            "id": self.id,
            "request": self.request,
            "table": self.table,
            "chunk": self.chunk,
            "bound": self.bound.text,
            "readers": readers,
        }

    @staticmethod
    def parse(document: Mapping[str, Any]) -> Window:
        """Return a window of an earlier process."""
        with _understood("window", document):
            return Window(
                id=str(document["id"]),
                request=str(document["request"]),
                table=str(document["table"]),
                chunk=int(document["chunk"]),
                bound=Position.parse(document["bound"]),
                state=WindowState.ORPHAN,
            )


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
    """A key range that is planned and not done. `not_before` is on the process's clock."""

    id: int
    range: KeyRange
    tries: Tries = field(default_factory=Tries)
    error: str = ""
    not_before: float = 0.0
    window: Window | None = None

    def document(self) -> list[Any]:
        """As JSON."""
        return [self.id, *self.range.document(), self.tries.all, self.error]

    @staticmethod
    def parse(document: Sequence[Any]) -> Chunk:
        """Return the chunk of a document, with all attempts before it: a new process may have better luck."""
        chunk, lower, upper, _, error = document
        return Chunk(int(chunk), KeyRange.parse([lower, upper]), error=str(error))


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

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "key": [list(part) for part in self.key],
            "upto": self.upto,
            "cap": self.cap,
            "cap_low": _text(self.cap_low),
            "step": self.step,
            "rows_per_chunk": self.rows_per_chunk,
            "complete": self.complete,
        }

    @staticmethod
    def parse(document: Mapping[str, Any]) -> Plan:
        """Return the plan of a document."""
        bounds = KeyRange.parse([document["upto"], document["cap"]])
        step = document["step"]
        return Plan(
            key=tuple((str(name), str(kind), str(order)) for name, kind, order in document["key"]),
            upto=bounds.lower,
            cap=bounds.upper,
            cap_low=_position(document["cap_low"]),
            step=None if step is None else int(step),
            rows_per_chunk=int(document["rows_per_chunk"]),
            complete=document["complete"] is True,
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
    `begun_rows` say when this process began to read it, and how many rows were read before. With `children` it is of
    no request: only these rows are read, in one chunk.
    """

    request: str
    table: str
    condition: str | None = None
    merge: str = "spark"
    surrogate: str | None = None
    children: ChildRows | None = None
    state: State = State.QUEUED
    status: str = ""
    error: str = ""
    rows: int = 0
    estimate: int | None = None
    chunks_done: int = 0
    next_chunk: int = 0
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
    def complete(self) -> bool:
        """Whether every chunk is planned and done."""
        return self.plan.complete and not self.chunks

    def document(self) -> dict[str, Any]:
        """As JSON: what is done stays done, the rest is planned or read again."""
        return {
            "v": VERSION,
            "request": self.request,
            "table": self.table,
            "condition": self.condition,
            "merge": self.merge,
            "surrogate": self.surrogate,
            "children": None if self.children is None else self.children.document(),
            "state": str(self.state),
            "status": self.status,
            "error": self.error,
            "rows": self.rows,
            "estimate": self.estimate,
            "chunks_done": self.chunks_done,
            "next_chunk": self.next_chunk,
            "plan": self.plan.document(),
            "outstanding": [chunk.document() for chunk in self.chunks.values()],
            "first_bound": _text(self.first_bound),
            "last_close": _text(self.last_close),
        }

    @staticmethod
    def parse(document: Mapping[str, Any]) -> TableTask:
        """Return the task of a document."""
        with _understood("table", document):
            chunks = [Chunk.parse(chunk) for chunk in document["outstanding"]]
            children = document.get("children")
            return TableTask(
                request=str(document["request"]),
                table=str(document["table"]),
                condition=document["condition"],
                merge=str(document.get("merge", "spark")),
                surrogate=document.get("surrogate"),
                children=None if children is None else ChildRows.parse(children),
                state=State(document["state"]),
                status=str(document["status"]),
                error=str(document["error"]),
                rows=int(document["rows"]),
                estimate=document["estimate"],
                chunks_done=int(document["chunks_done"]),
                next_chunk=int(document["next_chunk"]),
                plan=Plan.parse(document["plan"]),
                chunks={chunk.id: chunk for chunk in chunks},
                first_bound=_position(document["first_bound"]),
                last_close=_position(document["last_close"]),
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
        """As JSON."""
        return {
            "v": VERSION,
            "id": self.id,
            "number": self.number,
            "origin": str(self.origin),
            "tables": list(self.tables),
            "state": str(self.state),
            "started": self.started,
            "pause_told": self.pause_told,
            "position": _text(self.position),
            "reason": self.reason,
            "error": self.error,
            "created_ms": self.created_ms,
            "finished_ms": self.finished_ms,
            "blocking": self.blocking,
        }

    @staticmethod
    def parse(document: Mapping[str, Any]) -> Request:
        """Return the request of a document."""
        with _understood("request", document):
            return Request(
                id=str(document["id"]),
                number=int(document["number"]),
                origin=Origin(document["origin"]),
                tables=tuple(str(table) for table in document["tables"]),
                state=State(document["state"]),
                started=document["started"] is True,
                pause_told=document["pause_told"] is True,
                position=_position(document["position"]),
                reason=str(document["reason"]),
                error=str(document["error"]),
                created_ms=int(document["created_ms"]),
                finished_ms=document["finished_ms"],
                blocking=document.get("blocking") is True,
            )


class _understood:  # noqa: N801 - reads as a clause
    """Anything wrong with a document is a `StateError` that shows it."""

    def __init__(self, kind: str, document: object) -> None:
        self._kind = kind
        self._document = document

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, (KeyError, TypeError, ValueError)):
            message = (
                f"the state topic has a {self._kind} document that cannot be understood ({error!r}): "
                f"{self._document!r}; a newer version may have written it"
            )
            raise StateError(message) from error


def _text(position: Position | None) -> str | None:
    return None if position is None else position.text


def _position(text: str | None) -> Position | None:
    return None if text is None else Position.parse(text)
