"""Requests, tables, chunks and windows as a process knows them (pure).

Each inherits the fields of its document in the state topic (`schemas.documents`). The fields here are those that no restart keeps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final, Protocol

from producer.snapshot.buffered_chunk import BufferedChunk
from producer.snapshot.child_rows import ChildRows
from producer.snapshot.ranges import KeyRange
from schemas.documents import ChunkDocument, RequestDocument, SnapshotState, TaskDocument, WindowDocument
from schemas.json_codec import json_field
from schemas.loads import LoadAnswer
from schemas.notifications import ScanStatus
from schemas.position import Position

State = SnapshotState
MAX_ATTEMPTS: Final = 8
MAX_OUTAGE_ATTEMPTS: Final = 60
FIRST_DELAY_S: Final = 0.5
MAX_DELAY_S: Final = 30.0


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
    """A chunk that the merge job is asked for: since when, and its answer."""

    asked_at: float | None = None
    answer: LoadAnswer | None = None


@dataclass(slots=True)
class Window(WindowDocument):
    """A registered window. `buffered` are its buffered rows, which wait for the close row.

    `written` says that they were written there. `closes_at` is the end of the log after the rows had been read, for a
    window without a close row: it closes at the first transaction boundary that is not before that. `load` is of a window whose
    rows the merge job reads.
    """

    state: WindowState = json_field(WindowState.REGISTERING, absent=True)
    generation: int = json_field(0, absent=True)
    low: Position | None = json_field(None, absent=True)
    opened_at: Position | None = json_field(None, absent=True)
    closes_at: Position | None = json_field(None, absent=True)
    rows_read: int = json_field(0, absent=True)
    rows: int = json_field(0, absent=True)
    first_offsets: Mapping[int, int] = json_field(factory=dict, absent=True)
    buffered: BufferedChunk | None = json_field(None, absent=True)
    written: bool = json_field(default=False, absent=True)
    reread: bool = json_field(default=False, absent=True)
    cancelled: bool = json_field(default=False, absent=True)
    load: LoadAttempt | None = json_field(None, absent=True)

    @property
    def is_watched(self) -> bool:
        """Whether the changes of its rows in the log may still be asked for, in this process."""
        return self.state not in (WindowState.ORPHAN, WindowState.ENDED) and not self.reread


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

    @property
    def are_exhausted(self) -> bool:
        """Whether no further attempt is made."""
        return self.faults >= MAX_ATTEMPTS or self.outages >= MAX_OUTAGE_ATTEMPTS

    @property
    def delay_s(self) -> float:
        """The back-off before the next attempt."""
        return min(MAX_DELAY_S, FIRST_DELAY_S * 2.0 ** min(self.all - 1, 20))


@dataclass(slots=True)
class Chunk:
    """A key range that is planned and not done. `not_before` is on the process's clock.

    `planned_rows` is how many rows it was to have when it was planned, 0 if that is not known any more. `loads_failed` counts
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
        """Return the document of the chunk."""
        return ChunkDocument(self.id, self.range.lower, self.range.upper, self.tries.all, self.error)

    @staticmethod
    def of(document: ChunkDocument) -> Chunk:
        """Return the chunk of a document, without the attempts before it: a new process may succeed."""
        return Chunk(document.id, KeyRange(document.lower, document.upper), error=document.error)


@dataclass(slots=True)
class ReadTask(TaskDocument):
    """One table of one request, with its `chunks` by id. `generation` changes when the plan is thrown away.

    `begun_ms` and `begun_rows` say when this process began to read it, and how many rows were read before. With `children`, only
    these rows are read, in one chunk.
    """

    children: ChildRows | None = None
    chunks: dict[int, Chunk] = json_field(factory=dict, absent=True)
    changed_at: Position | None = json_field(None, absent=True)
    generation: int = json_field(0, absent=True)
    begun_ms: int | None = json_field(None, absent=True)
    begun_rows: int = json_field(0, absent=True)
    plan_tries: Tries = json_field(factory=Tries, absent=True)
    plan_not_before: float = json_field(0.0, absent=True)

    def __post_init__(self) -> None:
        self.chunks.update({chunk.id: Chunk.of(chunk) for chunk in self.outstanding})

    @property
    def is_loaded(self) -> bool:
        """Whether the merge job reads its chunks."""
        return self.via == "spark"

    @property
    def complete(self) -> bool:
        """Whether every chunk is planned and done."""
        return self.plan.complete and not self.chunks

    def note_outstanding(self) -> None:
        """Bring `outstanding` up to date: chunks that are done stay done, the rest is planned or read again."""
        self.outstanding = tuple(chunk.document() for chunk in self.chunks.values())


@dataclass(slots=True)
class Request(RequestDocument):
    """One snapshot request. `not_before` is on the process's clock."""

    tries: Tries = json_field(factory=Tries, absent=True)
    not_before: float = json_field(0.0, absent=True)


class TaskOwner(Protocol):
    """Who wanted the rows of a task, and interprets its outcome: `SnapshotRequests`, `FollowedRows`."""

    def start(self, task: ReadTask) -> None:
        """Note that the task is being planned or read; called more than once."""

    def report_progress(self, task: ReadTask, chunk: Chunk | None = None) -> None:
        """Report how far the task is; `chunk` was read last."""

    def complete(self, task: ReadTask) -> None:
        """End the task: every row has been read."""

    def fail(self, task: ReadTask, error: str) -> None:
        """End the task: no further attempt is made."""

    def finish(self, task: ReadTask, state: State, status: ScanStatus, error: str) -> None:
        """End the task as that says."""
