"""Statements of rows: events of one table enter, SQL for MySQL and MariaDB leaves (pure).

A row is found by the primary key of the target, else by its first unique key without NULL, else by all of its columns. Consecutive
inserts are one statement of many rows. The order of the source is kept: a statement that deletes many rows has the order of an
index, in which a row may come before the rows of its table that name it. A row whose key stays is never deleted and inserted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from mysqlio.quoting import qualified, quoted
from spark_jobs.replicate.rows.row_texts import TableTexts

if TYPE_CHECKING:
    from schemas.columns import TableSchema
    from spark_jobs.replicate.rows.row_events import RowEvent
    from spark_jobs.replicate.rows.row_texts import RowTexts
    from spark_jobs.replicate.rows.row_values import RowDecoder

MODE: Final = "ALLOW_INVALID_DATES,NO_AUTO_VALUE_ON_ZERO"
"""The sql_mode of all sessions, beside STRICT_ALL_TABLES: literals need it."""
STATEMENT_BYTES: Final = 1 << 20
"""Of a statement of many rows, if no row is longer."""


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


class Draft(NamedTuple):
    """A statement to which more rows may be added: `head`, the rows with `,` between them, `tail`."""

    head: bytes
    tail: bytes
    row: bytes
    is_counted: bool
    may_grow: bool
    session: RowSession


class TextedRow(NamedTuple):
    """An event with its texts. Unless `is_strict`, its row may be missing, or present already.

    Unless `is_whole`, the rows that foreign keys need may be missing: they are not checked for new values. `moves_children`: the
    target's foreign keys change other rows with this one. `old_row` is written before, if the row may be missing: the target finds
    the children by it.
    """

    event: RowEvent
    texts: RowTexts
    is_strict: bool
    is_whole: bool
    moves_children: bool = False
    old_row: bytes = b""


class TableStatements:
    """The statements of one table of the target. Errors as `TableTexts`."""

    def __init__(self, table: TableSchema, decoder: RowDecoder) -> None:
        self._name = qualified(table.database, table.name).encode()
        self._texts = TableTexts(table, decoder)
        self.texts = self._texts.of
        """Returns the texts of events."""
        self.literals = self._texts.literals
        """Returns the literals of some columns of events."""
        names = b",".join(map(_quoted, self._texts.key))
        self._key = b"(%b)" % names if names else b""
        self.has_key = bool(names)
        self.column_names = self._texts.names
        """Returns the names of the columns that get values of the records with a schema id."""
        self._heads: dict[tuple[int, bool], tuple[bytes, bytes]] = {}
        self.delete_head = b"DELETE FROM %b WHERE %b IN (" % (self._name, self._key), b")"
        """Begin and end of a statement that deletes rows by their keys."""
        kept = b",".join(b"%b=%b" % (name, name) for name in map(_quoted, self._texts.key))
        self.same_head = b"UPDATE %b SET %b WHERE %b IN (" % (self._name, kept, self._key), b")"
        """Begin and end of a statement that finds rows by their keys, and changes nothing."""

    def key_kinds(self, schema_id: int) -> Sequence[int | None]:
        """Return the kinds of literals that the key has in records with a schema id (`LiteralForm`)."""
        return [None if column.form is None else column.form.kind for column in self._texts.key_columns(schema_id)]

    def drafts(self, row: TextedRow) -> list[Draft]:
        """Return the statements of an event.

        An update of another key is made as such, and a delete, so that the target's foreign keys follow.
        """
        event, texts, is_strict, is_whole = row[:4]
        old = [self._old_row(event, row.old_row)] if row.old_row else []
        if event.op == "d":
            return [*old, self._delete(event, texts, is_strict=is_strict)]
        is_moved = event.op == "u" and (row.moves_children or not self._key or texts.old_key != texts.new_key)
        update = [self._update(event, texts, is_strict=is_strict, checks=is_whole or is_moved)] if event.op == "u" else []
        if is_strict and update:
            return update
        insert = self._insert(event, texts, is_strict=is_strict, checks=is_whole)
        return [*old, *update, insert] if is_moved else [insert]

    def _old_row(self, event: RowEvent, values: bytes) -> Draft:
        head, tail = self.insert_head(event.schema_id, is_strict=False)
        session = RowSession(checks_keys=False, is_strict=False)
        return Draft(head, tail, values, is_counted=False, may_grow=False, session=session)

    def removals(self, row: TextedRow) -> list[Draft]:
        """Return the statements that delete the rows of a key before and behind an event; rows that name them stay."""
        keys = dict.fromkeys((row.texts.old_key, row.texts.new_key))
        session = RowSession(checks_keys=False)
        return [Draft(*self.delete_head, key, is_counted=False, may_grow=True, session=session) for key in keys if key]

    def _insert(self, event: RowEvent, texts: RowTexts, *, is_strict: bool, checks: bool) -> Draft:
        head, tail = self.insert_head(event.schema_id, is_strict=is_strict)
        return Draft(head, tail, texts.values, is_strict, True, _session(event, texts, checks=checks))

    def insert_head(self, schema_id: int, *, is_strict: bool) -> tuple[bytes, bytes]:
        """Return begin and end of a statement that inserts rows, and, unless `is_strict`, updates those that are there."""
        head = self._heads.get((schema_id, is_strict))
        if head is None:
            names = [_quoted(column.name) for column in self._texts.columns(schema_id)]
            start = b"INSERT INTO %b (%b) VALUES " % (self._name, b",".join(names))
            updates = b",".join(b"%b=VALUES(%b)" % (name, name) for name in names)
            head = start, b"" if is_strict else b" ON DUPLICATE KEY UPDATE " + updates
            self._heads[schema_id, is_strict] = head
        return head

    def _delete(self, event: RowEvent, texts: RowTexts, *, is_strict: bool) -> Draft:
        session = RowSession(event.checks_keys)
        if not self._key:
            sql = b"DELETE FROM %b WHERE %b LIMIT 1" % (self._name, texts.old_key)
            return Draft(sql, b"", b"", is_counted=is_strict, may_grow=False, session=session)
        return Draft(*self.delete_head, texts.old_key, is_counted=is_strict, may_grow=False, session=session)

    def _update(self, event: RowEvent, texts: RowTexts, *, is_strict: bool, checks: bool) -> Draft:
        found = b"%b=%b" % (self._key, texts.old_key) if self._key else texts.old_key
        sql = b"UPDATE %b SET %b WHERE %b LIMIT 1" % (self._name, texts.changes, found)
        return Draft(sql, b"", b"", is_counted=is_strict, may_grow=False, session=_session(event, texts, checks=checks))


def _quoted(name: str) -> bytes:
    return quoted(name).encode()


def _session(event: RowEvent, texts: RowTexts, *, checks: bool) -> RowSession:
    return RowSession(checks and event.checks_keys, texts.is_strict)


def merged(statements: Iterable[tuple[RowEvent, Sequence[Draft]]]) -> list[RowStatement]:
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
        sql = b"".join((draft.head, b",".join(self._rows), draft.tail))
        return RowStatement(sql, count, draft.session, self._first, self._last)
