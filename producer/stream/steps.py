"""The steps into which the transaction assembler divides the log, and what makes it read a transaction again (pure)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from schemas.errors import RetriableSourceError

if TYPE_CHECKING:
    from producer.binlog import EventBatch
    from producer.binlog.events import QueryEvent
    from producer.stream.transaction import OpenTransaction


class Begin(NamedTuple):
    """A transaction begins."""

    transaction: OpenTransaction


class BeginRows(NamedTuple):
    """The transaction begins to have rows, by event `at` of `batch` at `offset` of `file`."""

    transaction: OpenTransaction
    file: str
    offset: int
    batch: EventBatch
    at: int


class TableMapStep(NamedTuple):
    """A TABLE_MAP event, in `batch.memory` from `start` to `end`."""

    transaction: OpenTransaction
    batch: EventBatch
    start: int
    end: int


class Rows(NamedTuple):
    """A rows event: `at` in `batch`, of type `kind`, from `start` to `end`; in the log at `offset` of `file`."""

    transaction: OpenTransaction
    batch: EventBatch
    at: int
    kind: int
    start: int
    end: int
    file: str
    offset: int


class PartialRows(NamedTuple):
    """A PARTIAL_UPDATE_ROWS event (JSON differences): `at` in `batch`; in the log at `offset` of `file`."""

    transaction: OpenTransaction
    batch: EventBatch
    at: int
    file: str
    offset: int


class SqlText(NamedTuple):
    """The SQL of the rows that follow."""

    sql: str


class Definition(NamedTuple):
    """A statement that is no data change, DDL most often: event `at` of `batch`; in the log at `offset` of `file`."""

    transaction: OpenTransaction
    query: QueryEvent
    batch: EventBatch
    at: int
    file: str
    offset: int


class DataStatement(NamedTuple):
    """A data change that is logged as a statement: which tables it changes is to be judged; in the log at `offset` of `file`."""

    transaction: OpenTransaction
    query: QueryEvent
    file: str
    offset: int


class Kept(NamedTuple):
    """A rows event was added to the pending rows of its transaction."""


class Release(NamedTuple):
    """The pending rows of the transaction follow: they are committed."""

    transaction: OpenTransaction


class Drop(NamedTuple):
    """The log breaks off inside the transaction: the server rolled it back, and none of it was published."""


class CommitFirst(NamedTuple):
    """A transaction begins that takes long: everything before it is to be committed now."""


class End(NamedTuple):
    """The transaction is committed, by event `at` of `batch`: the log is at a boundary."""

    transaction: OpenTransaction
    batch: EventBatch
    at: int


class Boundary(NamedTuple):
    """The boundary has moved, without a transaction."""


Step = (
    Begin | BeginRows | TableMapStep | Rows | PartialRows | SqlText | Definition | DataStatement | Kept | Release | Drop
    | CommitFirst | End | Boundary
)


class RereadHint(NamedTuple):
    """A transaction that an attempt has begun to publish, and that the next one treats in another way from its beginning on.

    With `next_file` it breaks off where that file begins: the server died while it wrote the transaction, and rolled it back.
    Else it takes too long for one Kafka transaction. The hint is valid only in that epoch.
    """

    epoch: int
    file: str
    pos: int
    next_file: str = ""


class RereadError(RetriableSourceError):
    """A part of a transaction was produced, and only the whole Kafka transaction can be aborted: reading restarts."""

    def __init__(self, hint: RereadHint) -> None:
        subject = f"the transaction at {hint.file}:{hint.pos}"
        super().__init__(
            f"the log breaks off inside {subject}, which the server was writing when it died, and has rolled back: the log is "
            f"read again without it"
            if hint.next_file
            else f"{subject} takes too long for one transaction of Kafka: it is read again, and published in parts"
        )
        self.hint = hint
