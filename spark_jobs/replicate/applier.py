"""The apply of one source: Kafka transactions enter, transactions of the target with their progress leave.

Rows are applied in the order of the log, at most `driver_rows` in one transaction of the target, which also commits how far the
source is applied. Statements are run one by one between such transactions (`ddl_statements`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import structlog

from mysqlio.information_schema import read_table_facts
from schemas.errors import RetriableSourceError, SinkError, SourceError
from spark_jobs.replicate.log_order import RowEvent
from spark_jobs.replicate.row_statements import Draft, RowSession, RowStatement, TableStatements, merged

if TYPE_CHECKING:
    from schemas.settings.task_section import ApplySettings
    from spark_jobs.replicate.apply_target import ApplyTarget, SourceState
    from spark_jobs.replicate.ddl_statements import DdlStatements
    from spark_jobs.replicate.log_order import Event, LogOrder
    from spark_jobs.replicate.row_values import RowDecoder
    from spark_jobs.replicate.stream_reader import KafkaTransaction

log = structlog.get_logger()

_PACKET_BYTES: Final = 4 << 20
_IDLE_S: Final = 10.0
"""How far a source without changes is read is written so often: a start reads no more of commit records than that."""


class Applier:
    """The apply of a source. `follows` returns whether a table is one of the task. Use it in one thread."""

    def __init__(
        self,
        target: ApplyTarget,
        source: str,
        state: SourceState,
        order: LogOrder,
        decoder: RowDecoder,
        statements: DdlStatements,
        follows: Callable[[str, str], bool],
        settings: ApplySettings,
    ) -> None:
        self.state = state
        self._target = target
        self._source = source
        self._order = order
        self._decoder = decoder
        self._statements = statements
        self._follows = follows
        self._settings = settings
        self._tables: dict[tuple[str, str], TableStatements] = {}
        self._waiting: list[RowEvent] = []
        self._loading = state.loading  # as the target has it
        self._written_s = time.monotonic()
        self.rows = 0
        """Rows that this object has applied."""

    def apply(self, transactions: Sequence[KafkaTransaction]) -> None:
        """Apply Kafka transactions, which follow `state`. `SinkError`: the target does not take a row or a statement.

        After an error `state` may be ahead of the target, whose own state counts.
        """
        for transaction in transactions:
            self._apply(transaction)
        if self._waiting or self.state.loading != self._loading or time.monotonic() - self._written_s > _IDLE_S:
            self._flush(self.state.done)  # of a Kafka transaction that an earlier start has begun, if none came

    def apply_events(self, events: Sequence[Event], behind: tuple[int, int]) -> None:
        """Apply events, which follow `state`, and commit them with `offset` and `n` of the state behind them."""
        self._apply_events(events)
        self.state = replace(self.state, offset=behind[0], n=behind[1])
        self._flush(0)

    def _apply(self, transaction: KafkaTransaction) -> None:
        events = self._order.events(transaction)
        self._apply_events(events)
        behind = self.state.behind(transaction)
        if behind.loading != self.state.loading:
            self._flush(len(events))  # with the rows that may be missing
        self.state = behind

    def _apply_events(self, events: Sequence[Event]) -> None:
        for index, event in enumerate(events):
            if index < self.state.done:
                continue
            if not isinstance(event, RowEvent) or event.op == "t":
                self._flush(index)
                self.state = self._statements.run(event, replace(self.state, done=index + 1))
                self._tables.clear()
            elif self._is_wanted(event):
                self._waiting.append(event)
                if len(self._waiting) >= self._settings.driver_rows:
                    self._flush(index + 1)

    def _is_wanted(self, event: RowEvent) -> bool:
        return self._follows(*event.table) and (event.op != "r" or event.request == self.state.request)

    def _flush(self, done: int) -> None:
        """Commit the rows that wait, with the state behind them: so many records of the present Kafka transaction are applied."""
        self.state = replace(self.state, done=done)
        statements = merged([(event, self._drafts(event)) for event in self._waiting])
        with self._target.transaction():
            for packet in _packets(statements, self._target.packet_bytes):
                self._run(packet)
            self._target.put_state(self._source, self.state)
        self._loading, self._written_s = self.state.loading, time.monotonic()
        self.rows += len(self._waiting)
        self._waiting = []

    def _drafts(self, event: RowEvent) -> Sequence[Draft]:
        loading = self.state.loading
        is_strict = not (self._settings.safe_mode or ".".join(event.table) in loading or event.op == "r")
        return self._table(event.table).drafts(event, is_strict=is_strict, is_whole=not (loading or self._settings.safe_mode))

    def _table(self, table: tuple[str, str]) -> TableStatements:
        known = self._tables.get(table)
        if known is None:
            facts = read_table_facts(self._target.connection, *table)
            if facts is None:
                message = (
                    f"the target has no table {'.'.join(table)}, of which source {self._source} has rows: create it there, or "
                    f"leave it out with exclude_tables"
                )
                raise SinkError(message)
            if not self._target.is_transactional(*table):
                message = f"the target's table {'.'.join(table)} has no transactions: run ALTER TABLE ... ENGINE=InnoDB there"
                raise SinkError(message)
            schema = facts.schema
            filled = frozenset(column.name for column in schema.columns if column.filled_by == "expression")
            decoder = self._decoder
            known = TableStatements(schema, lambda ident, whole: decoder.columns(ident, schema, frozenset() if whole else filled))
            self._tables[table] = known
        return known

    def _run(self, packet: Sequence[RowStatement]) -> None:
        """Run statements in one packet, each with the settings that it needs; behind it they are the usual ones."""
        sent: list[tuple[bytes, RowStatement | None]] = []
        session = RowSession()
        for statement in packet:
            if statement.session != session:
                session = statement.session
                sent.append((session.sql, None))
            sent.append((statement.sql, statement))
        if session != RowSession():
            sent.append((RowSession().sql, None))
        counts: list[int] = []
        try:
            self._target.execute_many([sql for sql, _ in sent], counts)
        except RetriableSourceError:
            raise
        except SourceError as error:
            raise self._refused(sent[len(counts)][1] or packet[0], str(error)) from error
        for (_, one), count in zip(sent, counts, strict=True):
            if one is not None and one.rows not in (None, count):
                raise self._refused(one, f"{count} rows were there of {one.rows}")

    def _refused(self, statement: RowStatement, reason: str) -> SinkError:
        first, last = statement.first, statement.last
        where = first.position if first is last else f"{first.position} to {last.position}"
        message = (
            f"source {self._source}, {where}: the target does not take {_WORDS[first.op]} in {'.'.join(first.table)}: {reason}. "
            "Nothing behind it is applied. Was the target written by somebody else? Mend its rows, or read the table again"
        )
        return SinkError(message)


_WORDS: Final = {"c": "an insert", "u": "an update", "d": "a delete", "r": "a row of the snapshot", "t": "a truncate"}


def _packets(statements: Sequence[RowStatement], most: int) -> list[list[RowStatement]]:
    """Return the statements in packets of so many bytes at most. `SinkError`: the statement of a row is longer."""
    packets: list[list[RowStatement]] = []
    size = 0
    for statement in statements:
        if len(statement.sql) > most:
            message = (
                f"{statement.first.position}: a row of {'.'.join(statement.first.table)} needs a statement of "
                f"{len(statement.sql):,} bytes, and max_allowed_packet of the target lets {most:,} through: raise it there"
            )
            raise SinkError(message)
        if not packets or size + len(statement.sql) > min(most, _PACKET_BYTES):
            packets.append([])
            size = 0
        packets[-1].append(statement)
        size += len(statement.sql) + 1
    return packets
