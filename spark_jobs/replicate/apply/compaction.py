"""Compaction: the events of one table enter, for each key one change leaves that makes the same row.

Only of tables whose rows meet by their primary key alone: no other unique key, no foreign key to it or from it, no trigger. Then
rows of different keys may be written in any order, and of one key its last event counts. Keys that the server calls equal have to
be one key here: two keys whose literals may be equal to it, and are not the same, are left in order with all others of their table.

What the log says of a row before its first event stays checked, by the number of rows that a statement counts:

    rows                              statement                                   counts for each row
    missing, then present             INSERT                                      1, or the server refuses it
    missing, and missing at the end   DELETE … IN                                 0
    present, then missing             DELETE … IN                                 1
    present, and changed              INSERT … ON DUPLICATE KEY UPDATE            2; a missing row, or one that stays as it is, 1
    present, and the same             UPDATE of nothing … IN, CLIENT_FOUND_ROWS   1
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final

from schemas.types.column_facts import TEXT_TYPES, Semantic, fixed_length, semantic_of
from spark_jobs.arrow import literal_kernels as kernels
from spark_jobs.replicate.rows.row_statements import STATEMENT_BYTES, RowSession, RowStatement, merged

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from mysqlio.information_schema import TableFacts
    from schemas.columns import Column
    from spark_jobs.replicate.apply.apply_target import ApplyTarget
    from spark_jobs.replicate.rows.row_events import RowEvent
    from spark_jobs.replicate.rows.row_statements import TableStatements, TextedRow
    from spark_jobs.replicate.rows.row_texts import RowTexts

_MEETINGS: Final = """
    SELECT 1 FROM information_schema.KEY_COLUMN_USAGE WHERE REFERENCED_TABLE_NAME IS NOT NULL
    AND ((TABLE_SCHEMA = %s AND TABLE_NAME = %s) OR (REFERENCED_TABLE_SCHEMA = %s AND REFERENCED_TABLE_NAME = %s))
    UNION ALL SELECT 1 FROM information_schema.TRIGGERS WHERE EVENT_OBJECT_SCHEMA = %s AND EVENT_OBJECT_TABLE = %s"""
_MOST_ROWS: Final = 5_000
"""Of a statement: more keys after IN than the optimizer has memory for would be a scan of the table."""
VERSIONED: Final = re.compile(r"WITH SYSTEM VERSIONING|WITHOUT OVERLAPS", re.IGNORECASE)
_CHARSETS: Final = frozenset({"ascii", "latin1", "utf8", "utf8mb3", "utf8mb4"})
"""Of texts of which each has bytes of its own."""
COLLATIONS: Final = frozenset(
    {
        "ascii_general_ci", "latin1_swedish_ci", "latin1_general_ci", "latin1_general_cs",
        *(f"{charset}_{name}" for charset in ("utf8", "utf8mb3", "utf8mb4") for name in (
            "general_ci", "unicode_ci", "unicode_520_ci", "uca1400_ai_ci", "uca1400_as_ci", "uca1400_as_cs",
        )),
        "utf8mb4_0900_ai_ci", "utf8mb4_0900_as_ci", "utf8mb4_0900_as_cs",
    }
)  # fmt: skip
"""Those to which texts of printable ASCII are only equal if they differ in case, or in blanks at the end, or not at all."""
_PRINTABLE: Final = bytes(range(0x20, 0x7F))
_ENDS: Final = re.compile(rb"[ \0]+'(?![^,)])")
"""The end of a literal: a quote within one is doubled, so that no comma or parenthesis follows the first of two."""
_KINDS: Final = {
    Semantic.INTEGER: frozenset({kernels.NUMBER, kernels.UNSIGNED}),
    Semantic.TEXT: frozenset({kernels.TEXT}),
    Semantic.BINARY: frozenset({kernels.BINARY}),
}
"""Of literals by which keys are compared, by the type of a column."""


@dataclass(frozen=True, slots=True)
class EqualKeys:
    """The equality of keys as the server has it, as far as it follows from their literals.

    `are_similar`: different literals may be equal. `is_folded`: a collation does more than `form` does, but to printable ASCII.
    """

    semantics: tuple[Semantic, ...]
    are_similar: bool
    is_folded: bool

    @classmethod
    def of(cls, target: ApplyTarget, facts: TableFacts) -> EqualKeys | None:
        """Return the equality of a table's keys, None if its rows may not be compacted."""
        schema = facts.schema
        unique = [key for key in facts.keys if key.unique]
        columns = [schema.column(name) for name in schema.primary_key]
        if len(unique) != 1 or not columns or any(part.prefix for part in unique[0].parts):
            return None
        name = schema.database, schema.name
        if not all(map(is_comparable, columns)) or target.rows(_MEETINGS, *name, *name, *name):
            return None
        if VERSIONED.search(target.definition(*name)):
            return None
        texts = [column for column in columns if column.type in TEXT_TYPES]
        is_folded = any(column.collation in COLLATIONS for column in texts)
        return cls(tuple(map(semantic_of, columns)), bool(texts) or any(map(fixed_length, columns)), is_folded)

    def are_of(self, kinds: Sequence[int | None]) -> bool:
        """Return whether the literals of the keys of some records, of these kinds, are compared so."""
        return all(kind in _KINDS[semantic] for kind, semantic in zip(kinds, self.semantics, strict=True))

    def form(self, key: bytes) -> bytes | None:
        """Return bytes that are equal for keys that are equal to the server, None if that is not known.

        It may be equal for different keys, too. A key is the tuple of its literals, or one literal.
        """
        if self.is_folded and key.translate(None, _PRINTABLE):
            return None
        return _ENDS.sub(b"'", key).lower()

    def are_distinct(self, keys: Collection[bytes]) -> bool:
        """Return whether all of these different keys are different to the server, for certain."""
        if not self.are_similar:
            return True
        forms = set(map(self.form, keys))
        return None not in forms and len(forms) == len(keys)


def is_comparable(column: Column) -> bool:
    """Return whether equality of a column's values follows from their literals."""
    if column.filled_by == "expression" or semantic_of(column) not in _KINDS:
        return False
    collation = column.collation or ""
    return column.type not in TEXT_TYPES or (
        column.charset in _CHARSETS and (collation.endswith("_bin") or collation in COLLATIONS)
    )


@dataclass(slots=True)
class _Net:
    """The changes of one key: whether its row had to be there (None: either), whether it is there behind them, the last event.

    `is_same`: no event changed a column.
    """

    was_needed: bool | None
    is_present: bool
    is_same: bool
    event: RowEvent
    texts: RowTexts


class Compactor:
    """Makes the statements of the events of one table."""

    def __init__(self, statements: TableStatements, equal_keys: EqualKeys) -> None:
        self._statements = statements
        self._equal_keys = equal_keys
        self._are_comparable = cache(lambda schema_id: equal_keys.are_of(statements.key_kinds(schema_id)))

    def compacted(self, rows: Sequence[TextedRow]) -> list[RowStatement] | None:
        """Return statements that leave the rows as their events in order do, None if only order does that.

        An update of a key, and a row that needs a session of its own, are made between the events before and behind them.
        """
        made: list[RowStatement] = []
        nets: dict[bytes, _Net] = {}
        keys: set[bytes] = set()
        for row in rows:
            event, texts, is_strict = row[:3]
            op = event.op
            is_moved = op == "u" and texts.old_key != texts.new_key
            if is_moved or not texts.is_strict or not self._are_comparable(event.schema_id):
                made += self._of_nets(nets)
                made += merged([(event, self._statements.drafts(row))])
                keys.update(nets)
                nets = {}
                continue
            key = texts.old_key if op == "d" else texts.new_key
            needs, is_same = op != "c" if is_strict else None, op == "u" and not texts.is_changed
            net = nets.get(key)
            if net is None:
                nets[key] = _Net(needs, op != "d", is_same, event, texts)
            elif needs is not None and needs != net.is_present:
                return None
            else:
                net.is_present, net.is_same, net.event, net.texts = op != "d", net.is_same and is_same, event, texts
        keys.update(nets)
        return made + self._of_nets(nets) if self._equal_keys.are_distinct(keys) else None

    def _of_nets(self, nets: Mapping[bytes, _Net]) -> list[RowStatement]:
        """Return the statements of keys, of which each has one row at most: their order does not count."""
        groups: dict[tuple[bytes, bytes, int | None], list[tuple[bytes, RowEvent]]] = {}
        for net in nets.values():
            (head, tail), counts, row = self._change(net)
            groups.setdefault((head, tail, counts), []).append((row, net.event))
        return [one for (head, tail, counts), rows in groups.items() for one in _of_many(head, tail, counts, rows)]

    def _change(self, net: _Net) -> tuple[tuple[bytes, bytes], int | None, bytes]:
        """Return begin and end of a statement, how many rows it counts for this row (None: any number), and the row's part."""
        statements, needed, texts = self._statements, net.was_needed, net.texts
        if not net.is_present:
            return statements.delete_head, None if needed is None else int(needed), texts.old_key
        if needed and net.is_same:
            return statements.same_head, 1, texts.new_key
        is_inserted = needed is False
        head = statements.insert_head(net.event.schema_id, is_strict=is_inserted)
        return head, 1 if is_inserted else 2 if needed else None, texts.values


def _of_many(head: bytes, tail: bytes, counts: int | None, rows: Sequence[tuple[bytes, RowEvent]]) -> Iterator[RowStatement]:
    """Yield statements of many rows, each of which counts so many."""
    first, size = 0, len(head)
    for index, (row, _) in enumerate(rows):
        if index > first and (size + len(row) > STATEMENT_BYTES or index - first >= _MOST_ROWS):
            yield _statement(head, tail, counts, rows[first:index])
            first, size = index, len(head)
        size += len(row) + 1
    yield _statement(head, tail, counts, rows[first:])


def _statement(head: bytes, tail: bytes, counts: int | None, rows: Sequence[tuple[bytes, RowEvent]]) -> RowStatement:
    sql = b"".join((head, b",".join([row for row, _ in rows]), tail))
    return RowStatement(sql, None if counts is None else counts * len(rows), RowSession(), rows[0][1], rows[-1][1])
