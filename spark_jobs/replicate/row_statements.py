"""Statements of rows: events of one table enter, SQL for MySQL and MariaDB leaves (pure).

A row is found by the primary key of the target, else by its first unique key without NULL, else by all of its columns. Consecutive
inserts are one statement of many rows, and so are deletes by key; the order of the source is kept otherwise. A row whose key stays
is never deleted and inserted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

from mysqlio.quoting import qualified, quoted
from schemas.types.column_facts import TEXT_TYPES, Semantic, semantic_of
from spark_jobs.replicate.row_values import is_refused_if_strict

if TYPE_CHECKING:
    from schemas.columns import Column, TableSchema
    from spark_jobs.replicate.log_order import RowEvent
    from spark_jobs.replicate.row_values import Row, RowColumn

MODE: Final = "ALLOW_INVALID_DATES,NO_AUTO_VALUE_ON_ZERO"
"""The sql_mode of all sessions, beside STRICT_ALL_TABLES: literals need it."""
STATEMENT_BYTES: Final = 1 << 20
"""Of a statement of many rows, if no row is longer."""


Columns = Callable[[int, bool], Sequence["RowColumn"]]


class RowSession(NamedTuple):
    """The settings of a session for some rows.

    `checks_keys`: the target checks its foreign keys, and follows them (CASCADE). `is_strict`: a value that a column cannot hold is
    an error.
    """

    checks_keys: bool = True
    is_strict: bool = True

    @property
    def sql(self) -> bytes:
        """The statement that sets them."""
        mode = ",".join(["STRICT_ALL_TABLES"] * self.is_strict + [MODE])
        return f"SET SESSION foreign_key_checks={self.checks_keys:d}, sql_mode='{mode}'".encode()


class RowStatement(NamedTuple):
    """A statement, how many rows it has to match (None: any number), its session, the event at its begin and at its end."""

    sql: bytes
    rows: int | None
    session: RowSession
    first: RowEvent
    last: RowEvent


@dataclass(frozen=True, slots=True)
class Draft:
    """A statement to which more rows may be added: `head`, the rows with `,` between them, `tail`."""

    head: bytes
    tail: bytes
    row: bytes
    is_counted: bool
    may_grow: bool
    session: RowSession


class TableStatements:
    """The statements of one table of the target.

    `columns_of` returns the columns of the records with a schema id; if the second argument is False, without columns that the
    target fills itself.
    """

    def __init__(self, table: TableSchema, columns_of: Columns) -> None:
        self._name = qualified(table.database, table.name).encode()
        self._columns = cache(columns_of)
        self._key_columns = cache(self._columns_of_key)
        self._enums = cache(self._columns_of_enums)
        self._key = table.primary_key or table.unique_key
        self._kinds = {column.name: column for column in table.columns}
        self._heads: dict[tuple[int, bool], tuple[bytes, bytes]] = {}

    def drafts(self, event: RowEvent, *, is_strict: bool, is_whole: bool) -> list[Draft]:
        """Return the statements of an event. Unless `is_strict`, rows may be missing, or there already.

        Unless `is_whole`, the rows that foreign keys need may be missing: they are not checked for new values. An update of another
        key is made as such, and a delete, so that the target's foreign keys follow.
        """
        before, after = event.before, event.after
        if event.op == "d":
            return [self._delete(event, before, is_strict=is_strict)]
        is_moved = event.op == "u" and self._is_moved(event, before, after)
        update = [self._update(event, before, after, is_strict=is_strict, checks=is_whole or is_moved)] if event.op == "u" else []
        if is_strict and update:
            return update
        insert = self._insert(event, after, is_strict=is_strict, checks=is_whole)
        return [*update, insert] if is_moved else [insert]

    def _insert(self, event: RowEvent, row: Row | None, *, is_strict: bool, checks: bool) -> Draft:
        assert row is not None
        columns = self._columns(event.schema_id, False)
        head, tail = self._insert_head(event.schema_id, columns, is_strict=is_strict)
        values = b"(%b)" % b",".join([column.literal(row) for column in columns])
        return Draft(head, tail, values, is_counted=is_strict, may_grow=True, session=self._session(event, row, checks=checks))

    def _insert_head(self, schema_id: int, columns: Sequence[RowColumn], *, is_strict: bool) -> tuple[bytes, bytes]:
        head = self._heads.get((schema_id, is_strict))
        if head is None:
            names = [quoted(column.name).encode() for column in columns]
            start = b"INSERT INTO %b (%b) VALUES " % (self._name, b",".join(names))
            updates = b",".join(b"%b=VALUES(%b)" % (name, name) for name in names)
            head = start, b"" if is_strict else b" ON DUPLICATE KEY UPDATE " + updates
            self._heads[schema_id, is_strict] = head
        return head

    def _delete(self, event: RowEvent, row: Row | None, *, is_strict: bool) -> Draft:
        assert row is not None
        if not self._key:
            sql = b"DELETE FROM %b WHERE %b LIMIT 1" % (self._name, self._found(event, row))
            return Draft(sql, b"", b"", is_counted=is_strict, may_grow=False, session=RowSession(event.checks_keys))
        names = b",".join(quoted(name).encode() for name in self._key)
        head = b"DELETE FROM %b WHERE (%b) IN (" % (self._name, names)
        key = b"(%b)" % b",".join(self._key_literals(event, row))
        return Draft(head, b")", key, is_counted=is_strict, may_grow=True, session=RowSession(event.checks_keys))

    def _update(self, event: RowEvent, before: Row | None, after: Row | None, *, is_strict: bool, checks: bool) -> Draft:
        assert before is not None
        assert after is not None
        columns = self._columns(event.schema_id, False)
        changed = [column for column in columns if before[column.field] != after[column.field]] or columns[:1]
        assigned = b",".join(b"%b=%b" % (quoted(one.name).encode(), one.literal(after)) for one in changed)
        sql = b"UPDATE %b SET %b WHERE %b LIMIT 1" % (self._name, assigned, self._found(event, before))
        return Draft(sql, b"", b"", is_counted=is_strict, may_grow=False, session=self._session(event, after, checks=checks))

    def _session(self, event: RowEvent, row: Row, *, checks: bool) -> RowSession:
        return RowSession(checks and event.checks_keys, not is_refused_if_strict(self._enums(event.schema_id), row))

    def _is_moved(self, event: RowEvent, before: Row | None, after: Row | None) -> bool:
        assert before is not None
        assert after is not None
        return self._key_literals(event, before) != self._key_literals(event, after) if self._key else True

    def _key_literals(self, event: RowEvent, row: Row) -> list[bytes]:
        return [column.literal(row) for column in self._key_columns(event.schema_id)]

    def _columns_of_key(self, schema_id: int) -> Sequence[RowColumn]:
        by_name = {column.name: column for column in self._columns(schema_id, True)}
        return [by_name[name] for name in self._key]

    def _columns_of_enums(self, schema_id: int) -> Sequence[RowColumn]:
        return [column for column in self._columns(schema_id, False) if column.lacks_empty]

    def _found(self, event: RowEvent, row: Row) -> bytes:
        """Return the condition that finds the row with these values."""
        if self._key:
            literals = self._key_literals(event, row)
            return b" AND ".join(b"%b=%b" % (quoted(one).encode(), value) for one, value in zip(self._key, literals, strict=True))
        columns = self._columns(event.schema_id, False)
        return b" AND ".join(_same(self._kinds[column.name], column.literal(row)) for column in columns)


def _same(column: Column, literal: bytes) -> bytes:
    """Return the condition that a column has exactly a value: no collation, and of JSON the document."""
    name = quoted(column.name).encode()
    if literal == b"NULL":
        return name + b" IS NULL"
    if semantic_of(column) is Semantic.JSON:
        return b"%b=CAST(%b AS JSON)" % (name, literal)
    if column.type in TEXT_TYPES:
        return b"BINARY CONVERT(%b USING utf8mb4)=BINARY %b" % (name, literal)
    return b"%b=%b" % (name, literal)


def merged(statements: Sequence[tuple[RowEvent, Sequence[Draft]]]) -> list[RowStatement]:
    """Return the statements of events in order; consecutive ones of one head are one statement of many rows."""
    made: list[_Open] = []
    for event, drafts in statements:
        for draft in drafts:
            if not made or not made[-1].fits(draft):
                made.append(_Open(draft, event))
            made[-1].add(draft, event)
    return [one.ended() for one in made]


class _Open:
    """A statement to which rows are added."""

    def __init__(self, draft: Draft, first: RowEvent) -> None:
        self._draft = draft
        self._rows: list[bytes] = []
        self._bytes = len(draft.head)
        self._kind = (draft.head, draft.tail, draft.session)
        self._first = self._last = first

    def fits(self, draft: Draft) -> bool:
        """Return whether the row of a draft may be added."""
        own = self._draft
        is_alike = own.may_grow and draft.may_grow and (draft.head, draft.tail, draft.session) == self._kind
        return is_alike and self._bytes + len(draft.row) <= STATEMENT_BYTES

    def add(self, draft: Draft, event: RowEvent) -> None:
        """Add the row of a draft."""
        self._rows.append(draft.row)
        self._bytes += len(draft.row) + 1
        self._last = event

    def ended(self) -> RowStatement:
        """Return the statement."""
        draft = self._draft
        count = len(self._rows) if draft.is_counted else None
        sql = draft.head + b",".join(self._rows) + draft.tail
        return RowStatement(sql, count, draft.session, self._first, self._last)
