"""The documents of the state topic `<name>.state`: what a producer must know after a restart, and what others read of it.

One dataclass per document, and the key it has in the topic; `schemas.json_codec` is the JSON form. Fields keep their names, since
other versions read them. One that was added later may be missing: its default is what its absence in an older document means.
Requests, tasks and windows are not frozen: the producer's own inherit their fields (`producer.snapshot.snapshot_state`).

    offset                    OffsetDocument         where reading resumes
    alive                     schemas.liveness.Sign  the producer's liveness record
    request/<id>              RequestDocument        a snapshot request
    table/<request>/<table>   TaskDocument           a table of a request, with its plan and the chunks that are not done
    children/<id>             TaskDocument           rows of a child that a foreign key may have changed
    window/<id>               WindowDocument         a registered window: it keeps the horizon back
    topics/<table>            TopicsDocument         a table that has topics
    registered/<id>/<subject> SchemaIdDocument       the schema of an id in records
    aside/<table>             AsideDocument          a table that is set aside
    schema/<table>            TableModel             a table as schema-change records describe it (schemas.schema_changes)
    schema-charsets           DefaultCharsets        character sets of databases, for the same records
    columns/<table>           ColumnsDocument        names of columns that a table has, and had
    catalog/<table>           CatalogDocument        a table at the committed offset
    catalog-databases         DatabasesDocument      character sets of databases, likewise
    inexact                   InexactDocument        tables that change without a word in the log
    coverage                  CoverageDocument       what the settings name and the source does not show
    unseen-statements         UnseenStatementsDocument  statements of the log whose effect our user may not see

`<table>` is `database.table`; of a table that is set aside, a name with a dot is in backticks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar, Final, Literal

from schemas.columns import Column
from schemas.commit_records import StreamState
from schemas.identity import TableName
from schemas.json_codec import INLINE, Form, json_field
from schemas.position import Position, file_number

VERSION: Final = 1
VERSION_1: Final = Form(head=lambda _: {"v": VERSION})
KeyTexts = tuple[str, ...]


class SnapshotState(StrEnum):
    """The state of a request, and of a table in it."""

    QUEUED = "queued"
    RUNNING = "running"
    PAUSED = "paused"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def final(self) -> bool:
        """Return whether it cannot change any more."""
        return self in (SnapshotState.DONE, SnapshotState.FAILED, SnapshotState.CANCELLED)


class Origin(StrEnum):
    """What asked for a snapshot."""

    SIGNAL = "signal"
    INITIAL = "initial"
    AUTOMATIC = "automatic"


@dataclass(frozen=True, slots=True)
class TransactionStart:
    """The beginning of a transaction in the log: `pos` is the offset of its first event, `checksum` that of the event."""

    file: str
    pos: int
    gtid: str | None
    ts_us: int | None
    checksum: int


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """Coordinates in the log where reading can begin: a transaction boundary, and the GTIDs before it."""

    file: str
    pos: int
    gtid_set: str


@dataclass(frozen=True, slots=True)
class PartDocument:
    """The transaction at a boundary of which the first `rows` rows are in Kafka."""

    begun: TransactionStart = field(metadata=INLINE)
    rows: int


def _offset_head(document: OffsetDocument) -> Mapping[str, int]:
    return {"v": 3 if document.part is not None else 2 if document.resume is not None else 1}


@dataclass(frozen=True, slots=True)
class OffsetDocument:
    """The committed offset: everything before this transaction boundary is in Kafka.

    It is of version 2 with a `resume`, of version 3 with a `part`; `last`, `inherited` and `stream` came later.
    """

    JSON: ClassVar = Form(head=_offset_head)
    KEY: ClassVar = "offset"
    VERSIONS: ClassVar = (1, 2, 3)

    epoch: int
    file: str
    pos: int
    gtid_set: str
    server: str
    position: Position | None = None
    committed_ms: int = 0
    resume: ResumePoint | None = json_field(None, omits_default=True)
    last: TransactionStart | None = json_field(None, omits_default=True)
    inherited: str = json_field("", omits_default=True)
    part: PartDocument | None = json_field(None, omits_default=True)
    stream: StreamState | None = json_field(None, omits_default=True)

    @property
    def boundary(self) -> Position:
        """Return the transaction boundary as a position."""
        return Position(self.epoch, file_number(self.file), self.pos, 0)


@dataclass(slots=True)
class RequestDocument:
    """A snapshot request; `number` orders requests by arrival, `position` is that of its signal.

    `blocking`: its tables are read in one view, while the log reader waits.
    """

    JSON: ClassVar = VERSION_1
    PREFIX: ClassVar = "request/"

    id: str
    number: int
    origin: Origin
    tables: tuple[str, ...]
    state: SnapshotState = json_field(SnapshotState.QUEUED, required=True)
    started: bool = json_field(default=False, required=True)
    pause_told: bool = json_field(default=False, required=True)
    position: Position | None = json_field(None, required=True)
    reason: str = json_field("", required=True)
    error: str = json_field("", required=True)
    created_ms: int = json_field(0, required=True)
    finished_ms: int | None = json_field(None, required=True)
    blocking: bool = False

    @property
    def key(self) -> str:
        """Return its key in the state topic."""
        return f"{self.PREFIX}{self.id}"


@dataclass(frozen=True, slots=True)
class PlanDocument:
    """How far a table is divided into chunks: up to the key `upto`, at most up to `cap`, its largest key, read behind a barrier.

    `step` means arithmetic. Rows with larger keys than `cap` have positions behind `cap_low`, the barrier's low watermark.
    """

    key: tuple[tuple[str, str, str], ...] = json_field((), required=True)
    upto: KeyTexts | None = json_field(None, required=True)
    cap: KeyTexts | None = json_field(None, required=True)
    cap_low: Position | None = json_field(None, required=True)
    step: int | None = json_field(None, required=True)
    rows_per_chunk: int = json_field(0, required=True)
    complete: bool = json_field(default=False, required=True)


@dataclass(frozen=True, slots=True)
class ChunkDocument:
    """A chunk that is planned and not done."""

    JSON: ClassVar = Form(as_list=True)

    id: int
    lower: KeyTexts | None
    upper: KeyTexts | None
    attempts: int
    error: str


@dataclass(frozen=True, slots=True)
class ChildRowsDocument:
    """Rows of a child by the values of `columns`: `old` ones, `new` ones, or NULL in all of `nulled`."""

    columns: tuple[str, ...]
    old: frozenset[KeyTexts]
    new: frozenset[KeyTexts] = json_field(frozenset(), required=True)
    nulled: tuple[str, ...] = json_field((), required=True)


@dataclass(slots=True)
class TaskDocument:
    """A table of a request: what is done stays done, the rest is planned or read again. With `children` it is of no request.

    `merge` is who merges its rows with the log, `surrogate` the column its signal divides it by. `via` is the way of its rows:
    "kafka", or "spark", where the merge job reads them itself. `asked_via` is what its signal says of that, `via_reason` why they
    go through Kafka although they could have gone the other way. `chunk_rows` is the size of its next chunks, 0 until one was
    read: that of the plan then.
    """

    JSON: ClassVar = VERSION_1
    PREFIX: ClassVar = "table/"
    CHILDREN: ClassVar = "children/"

    request: str
    table: str
    condition: str | None = json_field(None, required=True)
    merge: str = "spark"
    surrogate: str | None = None
    children: ChildRowsDocument | None = None
    state: SnapshotState = json_field(SnapshotState.QUEUED, required=True)
    status: str = json_field("", required=True)
    error: str = json_field("", required=True)
    rows: int = json_field(0, required=True)
    estimate: int | None = json_field(None, required=True)
    chunks_done: int = json_field(0, required=True)
    next_chunk: int = json_field(0, required=True)
    plan: PlanDocument = json_field(PlanDocument(), required=True)
    outstanding: tuple[ChunkDocument, ...] = json_field((), required=True)
    first_bound: Position | None = json_field(None, required=True)
    last_close: Position | None = json_field(None, required=True)
    chunk_rows: int = json_field(0, omits_default=True)
    via: str = json_field("kafka", omits_default=True)
    asked_via: str = json_field("", omits_default=True)
    via_reason: str = json_field("", omits_default=True)

    @property
    def key(self) -> str:
        """Return its key in the state topic."""
        return f"{self.PREFIX}{self.request}/{self.table}" if self.children is None else f"{self.CHILDREN}{self.request}"


@dataclass(slots=True)
class WindowDocument:
    """A registered window: one attempt at one chunk. `readers` are the slots to fence before it may leave the register."""

    JSON: ClassVar = VERSION_1
    PREFIX: ClassVar = "window/"

    id: str
    request: str
    table: str
    chunk: int
    bound: Position
    readers: int = 0

    @property
    def key(self) -> str:
        """Return its key in the state topic."""
        return f"{self.PREFIX}{self.id}"


@dataclass(frozen=True, slots=True)
class TopicsDocument:
    """A table that has topics, and the number of their partitions.

    `released`: it is not captured any more, so the topics end where it left. When it comes back it is read whole.
    """

    JSON: ClassVar = VERSION_1
    PREFIX: ClassVar = "topics/"

    database: str
    table: str
    partitions: int
    released: bool = json_field(default=False, omits_default=True)

    @property
    def key(self) -> str:
        """Return its key in the state topic."""
        return f"{self.PREFIX}{self.database}.{self.table}"


@dataclass(frozen=True, slots=True)
class SchemaIdDocument:
    """The schema that an id in records means, in one subject of the registry."""

    JSON: ClassVar = VERSION_1
    PREFIX: ClassVar = "registered/"

    subject: str
    id: int
    schema: str

    @property
    def key(self) -> str:
        """Return its key in the state topic."""
        return f"{self.PREFIX}{self.id}/{self.subject}"


@dataclass(frozen=True, slots=True)
class AsideDocument:
    """A table that is set aside: why, since when, and from which position on nothing of it was published."""

    JSON: ClassVar = VERSION_1
    PREFIX: ClassVar = "aside/"

    database: str
    table: str
    reason: str
    position: Position
    since_ms: int

    @property
    def name(self) -> str:
        """Return `database.table`."""
        return f"{self.database}.{self.table}"

    @property
    def key(self) -> str:
        """Return its key in the state topic: two tables that are set aside may have one `database.table`."""
        return f"{self.PREFIX}{TableName(self.database, self.table).text}"


@dataclass(frozen=True, slots=True)
class ColumnsDocument:
    """The names of a table's columns, in small letters: those it has at the committed offset, and those it had before."""

    JSON: ClassVar = VERSION_1
    PREFIX: ClassVar = "columns/"

    database: str
    table: str
    present: tuple[str, ...]
    gone: tuple[str, ...]

    @property
    def key(self) -> str:
        """Return its key in the state topic."""
        return f"{self.PREFIX}{self.database}.{self.table}"


@dataclass(frozen=True, slots=True)
class IndexDocument:
    """An index of a table; each part is a column and the length of the prefix, 0 for the whole column."""

    name: str
    unique: bool
    parts: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class CatalogDocument:
    """A table at the committed offset, as its DDL and its rows show it.

    Versions before `unshown` did not say which columns no row has shown: None.
    """

    JSON: ClassVar = VERSION_1
    PREFIX: ClassVar = "catalog/"

    database: str
    table: str
    charset: str
    collation: str
    columns: tuple[Column, ...]
    keys: tuple[IndexDocument, ...]
    uncertain: frozenset[str]
    unshown: frozenset[str] | None = json_field(None, omits_default=True)
    since_copy: Literal["none", "fill", "snapshot", "floor"] | None = json_field(None, omits_default=True)
    is_kept_up: bool = json_field(default=False, omits_default=True)

    @property
    def key(self) -> str:
        """Return its key in the state topic."""
        return f"{self.PREFIX}{self.database}.{self.table}"


@dataclass(frozen=True, slots=True)
class DatabasesDocument:
    """Character set and collation of tables that name none, by database."""

    JSON: ClassVar = VERSION_1
    KEY: ClassVar = "catalog-databases"

    charsets: Mapping[str, tuple[str, str]]


@dataclass(frozen=True, slots=True)
class InexactDocument:
    """Tables whose rows change without a word in the log, and are not read again."""

    JSON: ClassVar = VERSION_1
    KEY: ClassVar = "inexact"

    tables: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CoverageDocument:
    """How many tables are captured, what to do per pattern that matches none, and which tables may not be read."""

    JSON: ClassVar = VERSION_1
    KEY: ClassVar = "coverage"

    captured: int
    unmatched: Mapping[str, str]
    unreadable: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class UnseenStatementsDocument:
    """Data changes that were logged as statements and passed over although our user may not see all that they reach.

    `tables` are those that they name, `grants` the statements that show the rest, `position` the file and offset of the first one.
    """

    JSON: ClassVar = VERSION_1
    KEY: ClassVar = "unseen-statements"

    tables: tuple[str, ...]
    grants: tuple[str, ...]
    position: str

    @property
    def note(self) -> str:
        """The note of the status."""
        named = f"{', '.join(self.tables[:3])}{' and others' if len(self.tables) > 3 else ''}"
        remedy = "; ".join((*self.grants, "snapshot the captured tables that they may have changed", "then restart the producer"))
        return (
            f"statements about {named} were passed over, from {self.position} on: what they change by triggers, functions, "
            f"views and foreign keys cannot be seen: {remedy}"
        )
