"""Parents that change in the log, and the children that InnoDB changed with them in silence.

Enter rows events of parents, leave requests to the coordinator: which rows of which child to read and sweep, or to
read a child whole. They are handed over at each cut, so that they are durable in the Kafka transaction that
commits the offset behind the parents' transactions. Between two cuts all parents of one foreign key are one request.

The foreign keys are those the server tells: at the start, and again when a DDL speaks of keys or names. One that it
no longer tells is still followed, since rows further back in the log may have been under it; reading needlessly does no harm.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

import structlog

from producer.binlog.images import RowImages
from producer.catalog.foreign_keys import ForeignKeys, TableName, Trigger, read_foreign_keys
from producer.catalog.information_schema import wait_for_ddl
from producer.snapshot.child_rows import COMPARABLE, MAX_VALUES, ChildRows, Value
from schemas.columns import Column, ColumnType
from schemas.shape import hides_values

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from producer.catalog.effects import DdlChange
    from producer.snapshot.coordinator import SnapshotCoordinator
    from producer.source.connection import Connection
    from producer.stream.routes import CapturedTables, Route
    from schemas.settings import FormatSettings, RecordSettings

log = structlog.get_logger(__name__)

NO_FOREIGN_KEY_CHECKS: Final = 2  # a flag of rows events: the session had foreign_key_checks=0, no rule was carried out
_SPEAKS_OF_KEYS: Final = re.compile(r"REFERENCES|FOREIGN\s+KEY|CONSTRAINT|RENAME|CHANGE", re.IGNORECASE)
_DROPS_KEY: Final = re.compile(
    r"DROP\s+(?:FOREIGN\s+KEY|CONSTRAINT)\s+(?:IF\s+EXISTS\s+)?(?:`((?:[^`]|``)+)`|(\w+))", re.IGNORECASE
)
_BYTES: Final = frozenset({ColumnType.BINARY, ColumnType.VARBINARY})
_INTEGERS: Final = COMPARABLE - _BYTES
_TOO_MANY: Final = "more parents changed at once than are followed one by one"
_UNREACHED: Final = "a foreign key changed rows without logging them, and the parent's row does not tell which"
_UNREADABLE: Final = "a foreign key changed rows without logging them, by a column whose values are not compared elsewhere"
_RENAMED: Final = "a parent was renamed that had not been known by its former name"
_UNKNOWN_KEY: Final = "a foreign key was dropped that had not been known: it may have changed rows without logging them"

_DDL_WAIT_S: Final = 5
_NAMED_AT_MOST: Final = 20
_LARGEST_PREFIX: Final = -4

Rows = tuple[TableName, tuple[str, ...], tuple[str, ...]]  # child, columns, nulled


class Cascades:
    """Follows the foreign keys of one source. Owned by the log reader's thread."""

    def __init__(
        self,
        session: Callable[[], AbstractContextManager[Connection]],
        captured: CapturedTables,
        wire: FormatSettings,
        records: RecordSettings,
        logged_since: int | None = None,
    ) -> None:
        """What the server wrote at `logged_since` (seconds since 1970) and later is not followed: it is in the log."""
        self._session = session
        self._logged_since = logged_since
        self._captured = captured
        self._wire = wire
        self._records = records
        self._keys = ForeignKeys(())
        self._triggers: dict[tuple[TableName, str], tuple[Trigger, ...]] = {}
        self._read = False
        self._old: dict[Rows, set[Value]] = {}
        self._new: dict[Rows, set[Value]] = {}
        self._whole: dict[TableName, str] = {}

    @property
    def children(self) -> list[TableName]:
        """The captured tables that may change in silence."""
        self._read_once()
        return sorted({key.child for key in self._keys.keys if self._captured.holds_data(*key.child)})

    def describes(self, database: str, table: str) -> bool:
        """Whether the columns of a table are needed although it is not captured: it is a parent."""
        self._read_once()
        return (database, table) in self._keys.parents

    def are_logged(self, written_s: int) -> bool:
        """Whether what the events of that second changed in silence is in the log itself."""
        return self._logged_since is not None and written_s >= self._logged_since

    def triggers(self, route: Route, op: Literal["c", "u", "d"], flags: int) -> tuple[Trigger, ...]:
        """What a rows event of that table sets off; most often nothing."""
        if op == "c" or flags & NO_FOREIGN_KEY_CHECKS:
            return ()
        self._read_once()
        name = (route.database, route.table), op
        found = self._triggers.get(name)
        if found is None:
            known = self._keys.triggers(name[0], "delete" if op == "d" else "update")
            found = self._triggers[name] = tuple(filter(None, map(self._captured_only, known)))
        return found

    def take(
        self, triggers: Sequence[Trigger], route: Route, op: str, buf: npt.NDArray[np.uint8], start: int, end: int
    ) -> None:
        """Take the rows of an event that lie in `buf` from `start` to `end`."""
        triggers = [one for one in triggers if any(c.child not in self._whole for c in one.consequences)]
        cells = [self._cells(route, trigger.columns) for trigger in triggers]
        for trigger, found in zip(triggers, cells, strict=True):
            if found is None:  # nobody knows the columns: any row may be meant
                self._note_whole(trigger, _UNREADABLE)
        known = [(trigger, found) for trigger, found in zip(triggers, cells, strict=True) if found is not None]
        if not known:
            return
        images = RowImages(buf[start:end].tobytes(), route.sizes.tolist())
        while not images.exhausted:
            before = images.take()
            after = images.take() if op == "u" else None
            for trigger, found in known:
                old = [before[cell.place] for cell in found]
                new = None if after is None else [after[cell.place] for cell in found]
                if None not in old and old != new:
                    self._note(trigger, found, old, new)

    def note_ddl(self, sql: str, changes: Sequence[DdlChange]) -> set[TableName]:
        """A DDL statement was met; the parents that were none before it."""
        if not _SPEAKS_OF_KEYS.search(sql):
            return set()
        old = {(change.database, change.table) for change in changes}
        renamed = {(c.new_database, c.new_table): (c.database, c.table) for c in changes if c.kind == "rename"}
        tables = {table for table in (*old, *renamed) if all(table)}
        self._read_once()
        before = set(self._keys.parents)
        dropped = {(quoted or plain).lower() for quoted, plain in _DROPS_KEY.findall(sql)}
        for table in tables:
            known = {key.name.lower() for key in self._keys.keys if key.child == table}
            if dropped - known and self._captured.holds_data(*table):
                self._whole.setdefault(table, _UNKNOWN_KEY)
        self._keys = ForeignKeys(
            [key for key in self._keys.keys if key.child not in tables or key.name.lower() not in dropped]
        )
        self._read_keys(tables)
        for new, former in renamed.items():
            if former not in before:  # its changes under the former name were not known for a parent's
                for trigger in self._keys.triggers(new, "delete"):
                    found = self._captured_only(trigger)
                    if found is not None:
                        self._note_whole(found, _RENAMED)
        return set(self._keys.parents) - before

    def hand_over(self, coordinator: SnapshotCoordinator, ensure: Callable[[str, str], None]) -> None:
        """Ask for what came together since the last time."""
        if not self._old and not self._whole:
            return
        for table, reason in self._whole.items():
            ensure(*table)
            coordinator.follow_table(".".join(table), reason)
        for (child, columns, nulled), old in self._old.items():
            if child not in self._whole:
                new = frozenset(self._new.get((child, columns, nulled), ()))
                ensure(*child)
                coordinator.follow_children(".".join(child), ChildRows(columns, frozenset(old), new, nulled))
        self._old.clear()
        self._new.clear()
        self._whole.clear()

    def _note(
        self, trigger: Trigger, cells: Sequence[_Cell], old: Sequence[bytes | None], new: Sequence[bytes | None] | None
    ) -> None:
        """A row of a parent changed its referenced values from `old` to `new`, or went."""
        names = [cell.name for cell in cells]
        before = dict(zip(names, [cell.text(value) for cell, value in zip(cells, old, strict=True)], strict=True))
        after: dict[str, str | None] = {}
        if new is not None:
            after = dict(zip(names, [cell.text(value) for cell, value in zip(cells, new, strict=True)], strict=True))
        for consequence in trigger.consequences:
            child, columns = consequence.child, consequence.columns
            if child in self._whole:
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

    def _note_whole(self, trigger: Trigger, reason: str) -> None:
        for consequence in trigger.consequences:
            self._whole.setdefault(consequence.child, reason)

    def _cells(self, route: Route, columns: Sequence[str]) -> list[_Cell] | None:
        """Where the columns of a parent lie and how they are read; None where that is not known."""
        if route.schema is None or len(route.schema.columns) != route.columns or (route.sizes < _LARGEST_PREFIX).any():
            return None
        places = {column.name.lower(): place for place, column in enumerate(route.schema.columns)}
        if any(name.lower() not in places for name in columns):
            return None
        found = [(name, places[name.lower()]) for name in columns]
        return [_Cell(name, place, self._reader(route.schema.columns[place])) for name, place in found]

    def _reader(self, column: Column) -> Callable[[bytes], str] | None:
        """What makes the text of a value that the sink can compare; None for a type where it can't."""
        if column.type in _INTEGERS:
            wraps = column.type is ColumnType.BIGINT and column.unsigned and self._wire.bigint_unsigned == "long"
            signed = not column.unsigned
            return None if wraps else lambda cell: str(int.from_bytes(cell, "little", signed=signed))
        if column.type in _BYTES and self._wire.binary == "bytes":
            length = (column.length or 0) if column.type is ColumnType.BINARY else 0
            return lambda cell: cell.ljust(length, b"\0").hex().upper()
        return None

    def _captured_only(self, trigger: Trigger) -> Trigger | None:
        found = tuple(one for one in trigger.consequences if self._captured.holds_data(*one.child))
        return Trigger(trigger.columns, found) if found else None

    def _read_once(self) -> None:
        if not self._read:
            self._read_keys(None)

    def _read_keys(self, changed: set[TableName] | None) -> None:
        """Ask the server, once DDL of these tables that is in the log can be seen there; None: of all tables."""
        with self._session() as connection:
            for table in changed or ():
                wait_for_ddl(connection, *table, _DDL_WAIT_S)
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
    """A column of a parent: its place in a row, and what reads it."""

    name: str
    place: int
    read: Callable[[bytes], str] | None

    def text(self, cell: bytes | None) -> str | None:
        """The value; None for NULL, and for a value that the sink can't compare."""
        return None if cell is None or self.read is None else self.read(cell)


def _value(texts: Iterable[str | None]) -> Value:
    return tuple(text for text in texts if text is not None)


def followed_at(cascades: Cascades | None, written_s: int) -> Cascades | None:
    """What follows the foreign keys of events of that second; None where the log holds what they change."""
    return None if cascades is None or cascades.are_logged(written_s) else cascades
