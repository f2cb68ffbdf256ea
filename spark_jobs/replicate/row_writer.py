"""The rows of a batch into the tables of a target: events enter, statements of many rows run in the open transaction.

Rows are written in the order of their log. How many rows a statement matched is compared with its events.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from mysqlio.information_schema import read_table_facts
from schemas.errors import RetriableSourceError, SinkError, SourceError
from spark_jobs.replicate.row_statements import Draft, RowSession, RowStatement, TableStatements, merged

if TYPE_CHECKING:
    from schemas.settings.task_section import ApplySettings
    from spark_jobs.replicate.apply_target import ApplyTarget
    from spark_jobs.replicate.log_order import RowEvent
    from spark_jobs.replicate.row_texts import RowTexts
    from spark_jobs.replicate.row_values import RowDecoder

Loading = Mapping[str, Collection[str]]
"""The tables of each source that are loaded still."""
_PACKET_BYTES: Final = 4 << 20


class RowWriter:
    """The writer of the rows of all sources of a task. Use it in one thread."""

    def __init__(self, target: ApplyTarget, decoder: RowDecoder, settings: ApplySettings) -> None:
        self._target = target
        self._decoder = decoder
        self._is_safe = settings.safe_mode
        self.most_rows = settings.driver_rows
        """Rows of one transaction of the target at most."""
        self._tables: dict[tuple[str, str], TableStatements] = {}

    def forget_tables(self) -> None:
        """Ask the target for its tables again: a statement has run."""
        self._tables.clear()

    def write(self, rows: Sequence[RowEvent], loading: Loading) -> None:
        """Write rows within a transaction. In the tables that are `loading`, per source, rows may be missing.

        `SinkError`: the target does not take a row, or has another number of rows than its events say.
        """
        statements = merged(self._drafts(rows, loading))
        for packet in _packets(statements, self._target.packet_bytes):
            self._run(packet)

    def _drafts(self, rows: Sequence[RowEvent], loading: Loading) -> Iterator[tuple[RowEvent, Sequence[Draft]]]:
        for event, texts in zip(rows, self._texts(rows), strict=True):
            tables = loading[event.source]
            is_strict = not (self._is_safe or event.op == "r" or (tables and ".".join(event.table) in tables))
            is_whole = not (tables or self._is_safe)
            yield event, self._table(event).drafts(event, texts, is_strict=is_strict, is_whole=is_whole)

    def _texts(self, rows: Sequence[RowEvent]) -> Iterable[RowTexts]:
        """Return the texts of each row, which are made table by table."""
        alike: dict[tuple[str, str], list[int]] = {}
        for index, event in enumerate(rows):
            alike.setdefault(event.table, []).append(index)
        texts: dict[int, RowTexts] = {}
        for indices in alike.values():
            made = self._table(rows[indices[0]]).texts([rows[index] for index in indices])
            texts.update(zip(indices, made, strict=True))
        return [texts[index] for index in range(len(rows))]

    def _table(self, event: RowEvent) -> TableStatements:
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
            known = self._tables[table] = TableStatements(facts.schema, self._decoder)
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
            f"source {first.source}, {where}: the target does not take {_WORDS[first.op]} in {'.'.join(first.table)}: {reason}. "
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
