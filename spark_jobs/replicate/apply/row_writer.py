"""The rows of a batch into the tables of a target: events enter, statements of many rows run in the open transaction.

Rows are written in the order of their log, or all changes of a key at once (`compaction`). How many rows a statement matched is
compared with its events.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import structlog

from mysqlio.information_schema import read_table_facts
from schemas.errors import RetriableSourceError, SinkError, SourceError
from schemas.overriding import override
from spark_jobs.replicate.apply.compaction import Compactor, EqualKeys
from spark_jobs.replicate.apply.moved_children import STAYS, MovedChildren
from spark_jobs.replicate.rows.row_statements import (
    RowSession,
    RowStatement,
    TableStatements,
    TextedRow,
    merged,
)

if TYPE_CHECKING:
    from schemas.settings.task_section import ApplySettings
    from spark_jobs.replicate.apply.apply_target import ApplyTarget
    from spark_jobs.replicate.apply.moved_children import MovedRow
    from spark_jobs.replicate.rows.row_events import RowEvent
    from spark_jobs.replicate.rows.row_texts import RowTexts
    from spark_jobs.replicate.rows.row_values import RowDecoder

Loading = Mapping[str, Collection[str]]
"""The tables of each source that are loaded still."""

log = structlog.get_logger()

_PACKET_BYTES: Final = 4 << 20


class RefusedRowError(SinkError):
    """The target does not take a statement; `first` is the event of its first row."""

    def __init__(self, message: str, first: RowEvent) -> None:
        super().__init__(message)
        self.first = first

    @override
    def __reduce__(self) -> tuple[type[RefusedRowError], tuple[str, RowEvent]]:
        return type(self), (str(self), self.first)


class _Table(NamedTuple):
    """A table of the target; without a compactor its rows are written one by one."""

    statements: TableStatements
    compactor: Compactor | None


class RowWriter:
    """The writer of the rows of all sources of a task. Use it in one thread."""

    def __init__(self, target: ApplyTarget, decoder: RowDecoder, settings: ApplySettings) -> None:
        self._target = target
        self._decoder = decoder
        self._is_safe = settings.safe_mode
        self.most_rows = settings.driver_rows
        """Rows of one transaction of the target at most."""
        self._compacts = settings.compact
        self._tables: dict[tuple[str, str], _Table] = {}
        self._moved = MovedChildren(target)

    def forget_tables(self) -> None:
        """Ask the target for its tables again: a statement has run."""
        self._tables.clear()
        self._moved.forget()

    def write(self, rows: Sequence[RowEvent], loading: Loading) -> None:
        """Write rows within a transaction. In the tables that are `loading`, per source, rows may be missing.

        `SinkError`: the target does not take a row, or has another number of rows than its events say.
        """
        self.write_texted(self.texted(rows, loading))

    def write_texted(self, rows: Sequence[TextedRow]) -> None:
        """Write rows that have their texts; see `write`."""
        if not (self._compacts and self._is_compacted(rows)):
            self._run_all(self._in_order(rows))

    def remove(self, rows: Sequence[RowEvent]) -> None:
        """Delete the rows that events name by a key, if they are there, within a transaction."""
        by_table = sorted(self.texted(rows, {event.source: () for event in rows}), key=lambda row: row.event.table)
        self._run_all(merged((row.event, self._table(row.event).statements.removals(row)) for row in by_table))

    def has_key(self, event: RowEvent) -> bool:
        """Return whether the target's table of a row has a key."""
        return self._table(event).statements.has_key

    def texted(self, rows: Sequence[RowEvent], loading: Loading) -> list[TextedRow]:
        """Return the rows with their texts, which are made table by table. `SinkError`: a table is missing."""
        alike: dict[tuple[str, str], list[int]] = {}
        for index, event in enumerate(rows):
            alike.setdefault(event.table, []).append(index)
        texts: dict[int, RowTexts] = {}
        moved: dict[int, MovedRow] = {}
        for indices in alike.values():
            statements, events = self._table(rows[indices[0]]).statements, [rows[index] for index in indices]
            texts.update(zip(indices, statements.texts(events), strict=True))
            if any(map(loading.__getitem__, {event.source for event in events})) or self._is_safe:
                loaded = {name for event in events for name in loading[event.source]}
                moved.update(zip(indices, self._moved.of(events, statements, loaded), strict=True))
        texted: list[TextedRow] = []
        for index, event in enumerate(rows):
            tables = loading[event.source]
            is_strict = not (self._is_safe or event.op == "r" or (tables and ".".join(event.table) in tables))
            is_whole = not (tables or self._is_safe)
            texted.append(TextedRow(event, texts[index], is_strict, is_whole, *moved.get(index, STAYS)))
        return texted

    def _is_compacted(self, rows: Sequence[TextedRow]) -> bool:
        """Return whether rows were written, of each key at once. If a row was not as its events say, none is: order finds it."""
        by_table: dict[tuple[str, str], list[TextedRow]] = {}
        for row in rows:
            by_table.setdefault(row.event.table, []).append(row)
        compactors = {table: self._table(own[0].event).compactor for table, own in by_table.items()}
        if not any(compactors.values()):
            return False
        statements = self._in_order([row for row in rows if compactors[row.event.table] is None])
        for table, compactor in compactors.items():
            if compactor is not None:
                made = compactor.compacted(by_table[table])
                statements += self._in_order(by_table[table]) if made is None else made
        packets, before = _packets(statements, self._target.packet_bytes), [b"SAVEPOINT tidemark_rows"]
        try:
            for packet in packets:
                self._run(packet, before)
                before = []
        except SinkError as error:
            log.info("apply.in_order", reason=str(error))
            self._target.execute("ROLLBACK TO SAVEPOINT tidemark_rows")
            self._target.execute(RowSession().sql.decode())  # the packet may have ended among rows with other settings
            return False
        return True

    def _in_order(self, rows: Sequence[TextedRow]) -> list[RowStatement]:
        return merged((row.event, self._table(row.event).statements.drafts(row)) for row in rows)

    def _run_all(self, statements: Sequence[RowStatement]) -> None:
        for packet in _packets(statements, self._target.packet_bytes):
            self._run(packet)

    def _table(self, event: RowEvent) -> _Table:
        table = event.table
        known = self._tables.get(table)
        if known is None:
            facts = read_table_facts(self._target.connection, *table)
            if facts is None:
                message = (
                    f"the target has no table {'.'.join(table)}, of which source {event.source} has rows: create it there, or "
                    f"leave it out with exclude_tables"
                )
                raise SinkError(message)
            if not self._target.is_transactional(*table):
                message = f"the target's table {'.'.join(table)} has no transactions: run ALTER TABLE ... ENGINE=InnoDB there"
                raise SinkError(message)
            statements, keys = TableStatements(facts.schema, self._decoder), EqualKeys.of(self._target, facts)
            known = self._tables[table] = _Table(statements, None if keys is None else Compactor(statements, keys))
        return known

    def _run(self, packet: Sequence[RowStatement], before: Sequence[bytes] = ()) -> None:
        """Run statements in one packet, each with the settings that it needs; behind it they are the usual ones."""
        sent: list[tuple[bytes, RowStatement | None]] = [(sql, None) for sql in before]
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

    def _refused(self, statement: RowStatement, reason: str) -> RefusedRowError:
        first, last = statement.first, statement.last
        where = first.position if first is last else f"{first.position} to {last.position}"
        message = (
            f"source {first.source}, {where}: the target does not take {_WORDS[first.op]} in {'.'.join(first.table)}: {reason}. "
            "Nothing behind it is applied. Was the target written by somebody else? Mend its rows, or read the table again"
        )
        return RefusedRowError(message, first)


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
