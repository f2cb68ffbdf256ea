"""Cascades: rows of children that InnoDB changed with their parents, without logging them.

What enters: rows events of parents. What leaves: requests to the snapshot side: which rows of which child to read and sweep,
or to read a child whole. They are sent at each checkpoint, so that they are durable in the Kafka transaction that commits
the offset after the parents' transactions. Between two checkpoints all parents of one foreign key are one request.

The foreign keys are those of the server: read at the start, and again when a DDL statement names keys or names. One that
the server no longer has is still followed, since rows further back in the log may have been under it; reading too much
does no harm.

With `merge: producer` a chunk of a child is read again if a parent changed while its window was open: its rows may be from before
that.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import structlog

from mysqlio.information_schema import wait_for_ddl
from producer.binlog.events import NO_FOREIGN_KEY_CHECKS
from producer.binlog.images import RowImages
from producer.catalog.foreign_keys import ForeignKeys, TableTrigger, read_foreign_keys
from producer.snapshot.child_rows import MAX_VALUES, ChildRows, Value
from producer.snapshot.followed_rows import GATHER_S
from producer.stream.ports import CheckpointParticipant, CheckpointWork
from schemas.applied.shape import hides_values
from schemas.columns import Column
from schemas.identity import TableId
from schemas.overriding import override
from schemas.types.column_facts import INTEGER_TYPES, SHORT_BINARIES, fixed_length, is_beyond_long

if TYPE_CHECKING:
    from mysqlio.connection import Connection
    from producer.kafka.tables import TableTopics
    from producer.snapshot.log_windows import LogWindows
    from producer.snapshot.shared_ledger import SharedLedger
    from producer.stream.handlers.set_aside import AsideTables
    from producer.stream.ports import LoggedStatement, Op, Route, RowsEvent
    from producer.stream.routes import CapturedTables
    from schemas.position import Position
    from schemas.settings import FormatSettings, RecordSettings

log = structlog.get_logger(__name__)

_NAMES_KEYS: Final = re.compile(r"REFERENCES|FOREIGN\s+KEY|CONSTRAINT|RENAME|CHANGE", re.IGNORECASE)
_DROPS_KEY: Final = re.compile(
    r"DROP\s+(?:FOREIGN\s+KEY|CONSTRAINT)\s+(?:IF\s+EXISTS\s+)?(?:`((?:[^`]|``)+)`|(\w+))", re.IGNORECASE
)
_TOO_MANY: Final = "more parents changed at once than are followed one by one"
_UNREACHED: Final = "a foreign key changed rows without logging them, and the parent's row does not show which"
_UNREADABLE: Final = "a foreign key changed rows without logging them, by a column whose values are not compared elsewhere"
_RENAMED: Final = "a parent was renamed that had not been known by its former name"
_UNKNOWN_KEY: Final = "a foreign key was dropped that had not been known: it may have changed rows without logging them"

_NAMED_AT_MOST: Final = 20
_LARGEST_PREFIX: Final = -4

Rows = tuple[TableId, tuple[str, ...], tuple[str, ...]]  # child, columns, nulled


class Cascades:
    """The foreign keys of one source that change rows without logging them. Owned by the log reader's thread.

    What the server wrote at `logged_since` (seconds since 1970) and later is not followed: the log has it. Unless `makes_requests`,
    only chunks with open `windows` are read again.
    """

    def __init__(
        self,
        session: Callable[[], AbstractContextManager[Connection]],
        captured: CapturedTables,
        wire: FormatSettings,
        records: RecordSettings,
        windows: LogWindows,
        logged_since: int | None = None,
        *,
        makes_requests: bool = True,
    ) -> None:
        self.makes_requests = makes_requests
        self._windows = windows
        self._session = session
        self._logged_since = logged_since
        self._captured = captured
        self._wire = wire
        self._records = records
        self._keys = ForeignKeys(())
        self._triggers: dict[tuple[TableId, str], tuple[TableTrigger, ...]] = {}
        self._read = False
        self._old: dict[Rows, set[Value]] = {}
        self._new: dict[Rows, set[Value]] = {}
        self._whole: dict[TableId, str] = {}

    @property
    def children(self) -> list[TableId]:
        """The captured tables that may change without log events."""
        self._read_once()
        return sorted({key.child for key in self._keys.keys if self._captured.holds_data(*key.child)})

    def describes(self, database: str, table: str) -> bool:
        """Return whether the table is a parent: its columns are needed even if it is not captured."""
        self._read_once()
        return (database, table) in self._keys.parents

    def forget_captured(self) -> None:
        """Ask again which children are captured."""
        self._triggers.clear()

    # ---- rows

    def wants(self, table: Route, op: Op) -> bool:
        """Return whether they are updates or deletes of a parent."""
        return op != "c" and self.describes(table.database, table.table)

    def rows(self, event: RowsEvent) -> None:
        """Note the referenced values that the event changes."""
        if self._are_logged(event.written_s) or event.flags & NO_FOREIGN_KEY_CHECKS:
            return
        triggers = self._triggers_of(event.route, event.op)
        if triggers and not self._keeps_keys(event, triggers):
            self._note_images(triggers, event)

    def _are_logged(self, written_s: int) -> bool:
        """Return whether the log itself has what the events of that second changed in children."""
        return self._logged_since is not None and written_s >= self._logged_since

    def _triggers_of(self, route: Route, op: Op) -> tuple[TableTrigger, ...]:
        """Return what a rows event of that table triggers."""
        name = route.key, op
        found = self._triggers.get(name)
        if found is None:
            known = self._keys.triggers(name[0], "delete" if op == "d" else "update")
            found = self._triggers[name] = tuple(filter(None, map(self._captured_only, known)))
        return found

    def _keeps_keys(self, event: RowsEvent, triggers: Sequence[TableTrigger]) -> bool:
        """Return whether an update clearly changed no referenced value: they are in the key, and a changed key is more records."""
        records, codec = event.records, event.route.codec
        if event.op != "u" or records is None or codec is None:
            return False
        if self._records.skip_messages_without_change or records.count != records.rows:
            return False
        key = {name.lower() for name in codec.table.record_key}
        return all(name.lower() in key for trigger in triggers for name in trigger.columns)

    def _note_images(self, triggers: Sequence[TableTrigger], event: RowsEvent) -> None:
        triggers = [one for one in triggers if any(self._is_noted(c.child) for c in one.consequences)]
        cells = [self._cells(event.route, trigger.columns) for trigger in triggers]
        for trigger, found in zip(triggers, cells, strict=True):
            if found is None:  # the columns are not known: it may be any row
                self._note_whole(trigger, _UNREADABLE)
        known = [(trigger, found) for trigger, found in zip(triggers, cells, strict=True) if found is not None]
        if not known:
            return
        images = RowImages(event.buf[event.start : event.end].tobytes(), event.route.sizes.tolist())
        while not images.exhausted:
            before = images.next_row()
            after = images.next_row() if event.op == "u" else None
            for trigger, found in known:
                old = [before[cell.index] for cell in found]
                new = None if after is None else [after[cell.index] for cell in found]
                if None not in old and old != new:
                    self._note(trigger, found, old, new)

    # ---- statements

    def new_parents(self, statement: LoggedStatement) -> set[TableId]:
        """Read the foreign keys that a DDL statement may change; return the tables that became parents by it."""
        if self._are_logged(statement.written_s) or not _NAMES_KEYS.search(statement.parsed.sql):
            return set()
        changes = statement.changes
        old = {change.name for change in changes}
        renamed = {change.new_name: change.name for change in changes if change.kind == "rename"}
        tables = {table for table in (*old, *renamed) if all(table)}
        self._read_once()
        before = set(self._keys.parents)
        dropped = {(quoted or plain).lower() for quoted, plain in _DROPS_KEY.findall(statement.parsed.sql)}
        for table in tables:
            known = {key.name.lower() for key in self._keys.keys if key.child == table}
            if dropped - known and self._captured.holds_data(*table) and self.makes_requests:
                self._whole.setdefault(table, _UNKNOWN_KEY)
        self._keys = ForeignKeys(
            [key for key in self._keys.keys if key.child not in tables or key.name.lower() not in dropped]
        )
        self._read_keys(tables)
        for new, former in renamed.items():
            if former not in before:  # under the former name it was not known as a parent
                for trigger in self._keys.triggers(new, "delete"):
                    found = self._captured_only(trigger)
                    if found is not None:
                        self._note_whole(found, _RENAMED)
        return set(self._keys.parents) - before

    # ---- requests

    def pop_whole(self) -> dict[TableId, str]:
        """Return the children that are to be read whole, with the reason, and forget them."""
        whole, self._whole = self._whole, {}
        return whole

    def pop_rows(self) -> list[tuple[TableId, ChildRows]]:
        """Return the rows of children that are to be read and swept, and forget them."""
        found = [
            (child, ChildRows(columns, frozenset(old), frozenset(self._new.get((child, columns, nulled), ())), nulled))
            for (child, columns, nulled), old in self._old.items()
        ]
        self._old.clear()
        self._new.clear()
        return found

    # ---- inside

    def _note(
        self, trigger: TableTrigger, cells: Sequence[_Cell], old: Sequence[bytes | None], new: Sequence[bytes | None] | None
    ) -> None:
        """Note that a row of a parent changed its referenced values from `old` to `new`, or was deleted."""
        names = [cell.name for cell in cells]
        before = dict(zip(names, [cell.text(value) for cell, value in zip(cells, old, strict=True)], strict=True))
        after: dict[str, str | None] = {}
        if new is not None:
            after = dict(zip(names, [cell.text(value) for cell, value in zip(cells, new, strict=True)], strict=True))
        for consequence in trigger.consequences:
            child, columns = consequence.child, consequence.columns
            self._windows.children_changed(".".join(child))
            if child in self._whole or not self.makes_requests:
                continue
            values = [before[name] for name in consequence.sources]
            renewed = [after[name] for name in consequence.sources] if new and consequence.renewed else []
            hidden = any(hides_values(f"{child[0]}.{child[1]}.{column}", self._records) for column in columns)
            if not columns or hidden or None in values or None in renewed:
                self._whole[child] = _UNREADABLE if columns else _UNREACHED
                continue
            rows = (child, columns, consequence.nulled)
            known = self._old.setdefault(rows, set())
            known.add(_value(values))
            if renewed:
                self._new.setdefault(rows, set()).add(_value(renewed))
            if len(known) > MAX_VALUES:
                self._whole[child] = _TOO_MANY

    def _is_noted(self, child: TableId) -> bool:
        """Return whether a change of rows of a child is wanted."""
        return (self.makes_requests and child not in self._whole) or self._windows.watches(".".join(child))

    def _note_whole(self, trigger: TableTrigger, reason: str) -> None:
        for consequence in trigger.consequences:
            self._windows.children_changed(".".join(consequence.child))
            if self.makes_requests:
                self._whole.setdefault(consequence.child, reason)

    def _cells(self, route: Route, columns: Sequence[str]) -> list[_Cell] | None:
        """Return the cells of a parent's columns; None where they are not known."""
        if route.schema is None or len(route.schema.columns) != route.columns or (route.sizes < _LARGEST_PREFIX).any():
            return None
        indices = {column.name.lower(): index for index, column in enumerate(route.schema.columns)}
        if any(name.lower() not in indices for name in columns):
            return None
        found = [(name, indices[name.lower()]) for name in columns]
        return [_Cell(name, index, self._reader(route.schema.columns[index])) for name, index in found]

    def _reader(self, column: Column) -> Callable[[bytes], str] | None:
        """Return what makes the text of a value that the sink can compare; None for a type that it cannot compare."""
        if column.type in INTEGER_TYPES:
            wraps = is_beyond_long(column) and self._wire.bigint_unsigned == "long"
            signed = not column.unsigned
            return None if wraps else lambda cell: str(int.from_bytes(cell, "little", signed=signed))
        if column.type in SHORT_BINARIES and self._wire.binary == "bytes":
            length = fixed_length(column)
            return lambda cell: cell.ljust(length, b"\0").hex().upper()
        return None

    def _captured_only(self, trigger: TableTrigger) -> TableTrigger | None:
        found = tuple(one for one in trigger.consequences if self._captured.holds_data(*one.child))
        return TableTrigger(trigger.columns, found) if found else None

    def _read_once(self) -> None:
        if not self._read:
            self._read_keys(None)

    def _read_keys(self, changed: set[TableId] | None) -> None:
        """Read the keys of these tables, once the server shows the DDL that is in the log; None: of all tables."""
        with self._session() as connection:
            for table in changed or ():
                wait_for_ddl(connection, *table)
            found = read_foreign_keys(connection, changed)
        self._read = True
        self._triggers.clear()
        added = found - self._keys.keys
        if added:
            columns = {(key.child, key.name): key.columns for key in added}
            kept = [  # not one whose columns have other names now: its rows could not be asked for
                key for key in self._keys.keys if columns.get((key.child, key.name), key.columns) == key.columns
            ]
            self._keys = ForeignKeys({*kept, *found})
            names = sorted(".".join((*key.child, key.name)) for key in added)
            log.info("cascades.known", foreign_keys=names[:_NAMED_AT_MOST], in_all=len(self._keys.keys))


@dataclass(frozen=True, slots=True)
class _Cell:
    """A column of a parent: its index in a row, and what reads it."""

    name: str
    index: int
    read: Callable[[bytes], str] | None

    def text(self, cell: bytes | None) -> str | None:
        """Return the value; None for NULL, and for a value that the sink cannot compare."""
        return None if cell is None or self.read is None else self.read(cell)


def _value(texts: Iterable[str | None]) -> Value:
    return tuple(text for text in texts if text is not None)


class CascadeRequests(CheckpointParticipant):
    """The cascades as a participant: requests to read children are made at checkpoints, and are durable with them."""

    def __init__(
        self, cascades: Cascades, shared: SharedLedger, table_topics: TableTopics, aside: AsideTables
    ) -> None:
        self._cascades = cascades
        self._shared = shared
        self._table_topics = table_topics
        self._aside = aside

    @override
    def prepare(self, boundary: Position, _now_s: float) -> CheckpointWork:
        whole = self._cascades.pop_whole()
        for table, reason in whole.items():
            self._ensure_topics(table, boundary)
            with self._shared.changing() as ledger:
                ledger.followed.follow_whole(".".join(table), reason)
        for child, rows in self._cascades.pop_rows():
            if child not in whole:
                self._ensure_topics(child, boundary)
                with self._shared.changing() as ledger:
                    ledger.followed.follow(".".join(child), rows, self._shared.clock() + GATHER_S)
        return CheckpointWork()

    def _ensure_topics(self, table: TableId, boundary: Position) -> None:
        """Make the topics of a table, or set it aside."""
        with self._aside.errors_of(*table, boundary):
            self._table_topics.ensure(*table)
