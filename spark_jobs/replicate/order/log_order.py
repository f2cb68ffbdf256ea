"""The records of a Kafka transaction in the order of the log (pure but for decoding): records enter, events leave.

Rows and statements are sorted by their position. The rows of a chunk come at the place that the commit record gives them: before
the transaction there. Of a changed key the two records have one position, and become one event.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from schemas.errors import StateError
from schemas.json_codec import decode, json_field
from schemas.position import Position
from schemas.schema_changes import StatementSession
from spark_jobs.replicate.order.frontier import LoggedEvents
from spark_jobs.replicate.rows.row_events import RowEvent, row_event
from spark_jobs.replicate.rows.row_values import RowRecord, exact_note

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from kafkaio.committed_reader import CommittedRecord
    from schemas.commit_records import ChunkRows, CommitRecord
    from spark_jobs.replicate.order.skipped_transactions import SkippedTransactions
    from spark_jobs.replicate.order.stream_reader import KafkaTransaction
    from spark_jobs.replicate.rows.record_heads import RecordHead
    from spark_jobs.replicate.rows.row_values import RowDecoder

PREFIX: Final = len(Position.MINIMUM.prefix)
"""Characters of the position of a transaction, in the positions of its rows."""
_EVENT_BYTES: Final = 600
"""Of an event in memory, beside the bytes of its record."""
_RANKS: Final = {"r": 0, "ddl": 1, "t": 1, "d": 2, "u": 2, "c": 3}
"""Of events at one position: the delete of a changed key comes before its insert."""


@dataclass(frozen=True, slots=True)
class StatementEvent:
    """A statement of the log at `offset` of its topic; `table` is the one that it changes, None for a database.

    `is_description`: it says how a table is, and was not run there. `ts_us` is the time of the server. Without a session, of a
    producer that had no order.group then, it is not known whether its table is captured.
    """

    position: str
    offset: int
    sql: str
    database: str
    table: tuple[str, str] | None
    kind: str
    session: StatementSession
    is_description: bool
    ts_us: int = 0
    gtid: str = ""
    has_session: bool = True
    is_skipped: bool = json_field(default=False, omits_default=True)


Event = RowEvent | StatementEvent


class PlacedRecord(NamedTuple):
    """A record at its position in the order of the log; `us` is the time of its row or statement in its own record.

    A row of a snapshot is at the place of its `chunk`. The description of a table has no time: the transactions behind its
    position may be older than the record.
    """

    position: str
    rank: int
    offset: int
    event: Event
    us: int
    record: CommittedRecord
    chunk: ChunkRows | None = None


class LogOrder:
    """Sorts the records of the Kafka transactions of one source. `statements` is the topic of its DDL."""

    def __init__(
        self, decoder: RowDecoder, source: str, statements: str, skipped: SkippedTransactions | None = None
    ) -> None:
        self._decoder = decoder
        self._source = source
        self._statements = statements
        self._skipped = skipped
        self._waiting: list[PlacedRecord] = []  # of a slice: an earlier one may come yet
        self._reached: dict[tuple[str, int], str] = {}

    def events(self, transaction: KafkaTransaction) -> list[Event]:
        """Return the events of a Kafka transaction, without rows of the signal table. Errors as the decoder's."""
        return list(joined([one.event for one in self.placed(transaction)]))

    def logged(self, transaction: KafkaTransaction) -> Iterator[LoggedEvents[Event]]:
        """Yield the events of each transaction of the log, and of each chunk. Errors as the decoder's."""
        for (prefix, chunk), group in groupby(self.placed(transaction), lambda one: (one.position[:PREFIX], one.chunk)):
            records = list(group)
            events = list(joined([one.event for one in records]))
            size = sum(one.record.size + _EVENT_BYTES for one in records)
            us = records[-1].us  # descriptions are before the transaction at their position
            yield LoggedEvents(transaction_at(prefix), us, events, chunk, size)

    def placed(self, transaction: KafkaTransaction) -> list[PlacedRecord]:
        """Return the records of the events in their order; a changed key has two.

        Of a slice, and those before it, they are the records that no record of a later slice is before.
        """
        placed = self._placed(transaction)
        if not (transaction.open or self._waiting):
            return placed
        for one in placed:
            self._reached[one.record.topic, one.record.partition] = one.position
        placed = sorted(self._waiting + placed, key=itemgetter(0, 1, 2))
        if not transaction.open:
            self._waiting, self._reached = [], {}
            return placed
        end = bisect_left(placed, min(self._reached.get(one, "") for one in transaction.open), key=itemgetter(0))
        self._waiting = placed[end:]
        return placed[:end]

    def _placed(self, transaction: KafkaTransaction) -> list[PlacedRecord]:
        commit = transaction.commit
        chunks = {(one.table, one.file, one.pos): one for one in commit.chunks}
        statements: list[CommittedRecord] = []
        changes: list[CommittedRecord] = []
        values: list[bytes] = []
        for record in transaction.records:
            if record.topic == self._statements:
                statements.append(record)
            elif record.value is not None and record.topic != commit.signals:
                changes.append(record)
                values.append(record.value)
        placed = [self._placed_statement(record) for record in statements if record.value is not None]
        heads = self._decoder.heads(values)
        placed += [self._placed_row(record, head, chunks, commit) for record, head in zip(changes, heads, strict=True)]
        placed.sort(key=itemgetter(0, 1, 2))
        return placed

    def statement(self, record: CommittedRecord) -> StatementEvent:
        """Return the statement of a record of the topic of statements."""
        value = self._decoder.payload(record.value or b"")
        source, changes = value["source"], value["tableChanges"]
        header = next((text for name, text in record.headers if name == StatementSession.HEADER), None)
        database = value["databaseName"] or ""
        session = StatementSession(database) if header is None else decode(StatementSession, json.loads(header))
        gtid, is_description = source.get("gtid") or "", source["snapshot"] == "true"
        return StatementEvent(
            position=source["sequence"],
            offset=record.offset,
            sql=value["ddl"] or "",
            database=database,
            table=_table_of(changes[0]["id"]) if changes else None,
            kind=changes[0]["type"] if changes else "",
            session=session,
            is_description=is_description,
            ts_us=source["ts_us"],
            gtid=gtid,
            has_session=header is not None,
            is_skipped=not is_description and self._is_skipped(source["sequence"], gtid.encode(), lambda: gtid),
        )

    def _is_skipped(self, position: str, text: bytes, gtid: Callable[[], str | None]) -> bool:
        """Return whether the transaction of a row or a statement is not applied; see `SkippedTransactions.has`."""
        return self._skipped is not None and self._skipped.has(position[:PREFIX], text, gtid)

    def _placed_statement(self, record: CommittedRecord) -> PlacedRecord:
        statement = self.statement(record)
        us = 0 if statement.is_description else statement.ts_us
        return PlacedRecord(statement.position, _RANKS["ddl"], record.offset, statement, us, record)

    def _placed_row(
        self,
        record: CommittedRecord,
        head: RecordHead,
        chunks: Mapping[tuple[str, str, int], ChunkRows],
        commit: CommitRecord,
    ) -> PlacedRecord:
        position, request, us, chunk = head.position, "", head.us, None
        if head.op == "r":
            name = ".".join(head.table)
            chunk = chunks.get((name, head.file, head.pos))
            if chunk is None:
                message = f"commit record {commit.n} names no chunk for rows of {name} at {head.file}:{head.pos}"
                raise StateError(message)
            position, request, us = chunk.at.text, chunk.request, chunk.us
        value = record.value or b""
        row = RowRecord(value, exact_note(record.headers) if record.headers else b"")
        event = row_event(head, row, position, request, self._source)
        if self._skipped is not None and head.op != "r":  # rows of snapshots are of no transaction
            is_skipped = self._is_skipped(position, value, lambda: self._decoder.payload(value)["source"]["gtid"])
            event = event._replace(is_skipped=is_skipped)
        return PlacedRecord(position, _RANKS[head.op], record.offset, event, us, record, chunk)


def transaction_at(prefix: str) -> Position:
    """Return the position of the transaction that rows with this prefix are of."""
    return Position.parse(f"{prefix}.{0:010d}")


def joined(events: Sequence[Event]) -> Iterator[Event]:
    """Yield the events; the delete and the insert of a changed key as one update."""
    waiting: RowEvent | None = None
    for event in events:
        if waiting is not None:
            if isinstance(event, RowEvent) and event.op == "c" and event.position == waiting.position:
                yield event._replace(op="u", before=waiting.before)
                waiting = None
                continue
            yield waiting
            waiting = None
        if isinstance(event, RowEvent) and event.op == "d":
            waiting = event
        else:
            yield event
    if waiting is not None:
        yield waiting


def _table_of(ident: str) -> tuple[str, str]:
    """Return database and table of an id of Debezium's schema changes: `"shop"."orders"`."""
    database, _, table = ident.partition('"."')
    return database[1:], table[:-1]
