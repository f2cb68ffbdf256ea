"""Foreign keys of the source, and which rows of which tables change in silence when a parent does (pure, but for the read).

InnoDB carries out ON DELETE and ON UPDATE rules below the log: MySQL up to 9.5 and MariaDB log the parent's change and
not the children's. `consequences` follows the rules from one table through all levels and says, per table that may
change, which of its columns are known to have had values of the parent's row. A row reached through a key the
parent's row does not contain (a grandchild by its own parent's number, a tree below its second level) has no known
columns: of such a table only reading all of it shows what is left.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

import structlog

from mysqlio.foreign_key_facts import SILENT_RULES, ForeignKey, list_foreign_keys
from mysqlio.information_schema import list_tables_with_keys
from mysqlio.quoting import qualified
from mysqlio.server_errors import server_code
from mysqlio.server_facts import ask, is_mariadb
from schemas.errors import RetriableSourceError, SourceError
from schemas.identity import TableId

if TYPE_CHECKING:
    from mysqlio.connection import Connection

log = structlog.get_logger(__name__)

Change = Literal["delete", "update"]

# Since MySQL 9.6 the server carries rules out above the log, unless this is ON; servers without it leave them to InnoDB.
_NATIVE: Final = "innodb_native_foreign_keys"
_LISTED: Final = r"`(?:[^`]|``)+`(?:\s*[.,]\s*`(?:[^`]|``)+`)*"
_CLAUSE: Final = re.compile(
    rf"^\s*CONSTRAINT (?P<name>{_LISTED}) FOREIGN KEY \((?P<columns>{_LISTED})\) "
    rf"REFERENCES (?P<parent>{_LISTED}) \((?P<referenced>{_LISTED})\)(?P<rules>[^,\n]*)",
    re.MULTILINE,
)
_RULE: Final = re.compile(r"ON (DELETE|UPDATE) (CASCADE|SET NULL|SET DEFAULT|NO ACTION|RESTRICT)")
_NAME: Final = re.compile(r"`((?:[^`]|``)+)`")
_NOT_SHOWN: Final = frozenset({1049, 1142, 1146, 1347})  # no such database or table, no right, a view
_DAMAGED: Final = frozenset({2, 9, 29})  # a file of the table cannot be read, ends early, is missing


@dataclass(frozen=True, slots=True)
class Consequence:
    """Rows of `child` that a change of a parent's row may change.

    Their `columns` had the values of the parent's columns `sources` before it, and where `renewed` have the new values
    of those after it; else they are gone, or their columns `nulled` are NULL. Without `columns` any row may be
    meant.
    """

    child: TableId
    columns: tuple[str, ...]
    sources: tuple[str, ...]
    renewed: bool = False
    nulled: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TableTrigger:
    """One foreign key of a parent, and all that follows when these `columns` of a row change, or the row goes."""

    columns: tuple[str, ...]
    consequences: tuple[Consequence, ...]


@dataclass(frozen=True, slots=True)
class _Event:
    """What happens to rows of a table: column → the first parent's column whose value it had. Columns in small letters."""

    kind: Change
    known: tuple[tuple[str, str], ...]
    changed: frozenset[str] = frozenset()
    nulled: frozenset[str] = frozenset()


def logs_cascades_since(connection: Connection) -> int | None:
    """Return from when on the server logs the rows its foreign keys change: its start, in seconds since 1970; None: it does not.

    What it wrote before may be of another version (9.6 was the first to log them), or of another setting.
    """
    rows = list(ask(connection, f"SHOW GLOBAL VARIABLES LIKE '{_NATIVE}'"))
    if not rows or str(rows[0][1]).upper() not in ("OFF", "0"):
        return None
    (_, uptime) = ask(connection, "SHOW GLOBAL STATUS LIKE 'Uptime'")[0]
    (now,) = ask(connection, "SELECT UNIX_TIMESTAMP()")[0]  # asked last: a late answer makes the start later, not earlier
    return int(now) - int(uptime)


def read_foreign_keys(connection: Connection, tables: Iterable[TableId] | None = None) -> set[ForeignKey]:
    """Return the foreign keys under which a parent's change may change children: of all tables, at least of these.

    MariaDB's information_schema hides those of tables that the user may only SELECT from; SHOW CREATE TABLE does not.
    """
    shown: set[ForeignKey] = set()
    if is_mariadb(connection):
        for table in list_tables_with_keys(connection) if tables is None else tables:
            shown |= _shown(connection, table)
    return {key for key in {*list_foreign_keys(connection), *shown} if key.is_silent}


def _shown(connection: Connection, table: TableId) -> set[ForeignKey]:
    """Return the foreign keys in a table's definition; none where it is gone, is no table, or is damaged."""
    try:
        rows = ask(connection, f"SHOW CREATE TABLE {qualified(*table)}")
    except SourceError as error:
        code = server_code(error)
        if isinstance(error, RetriableSourceError) and code not in _DAMAGED:
            raise
        if code not in _NOT_SHOWN:
            log.warning("cascades.table_not_shown", table=".".join(table), error=str(error))
        return set()
    return set(parse_foreign_keys(table, str(rows[0][1])))


def parse_foreign_keys(table: TableId, definition: str) -> Iterator[ForeignKey]:
    """Yield the foreign keys of a table as SHOW CREATE TABLE gives it."""
    for match in _CLAUSE.finditer(definition):
        names = [_names(match[group]) for group in ("name", "columns", "parent", "referenced")]
        parent = tuple(names[2])
        rules = dict(_RULE.findall(match["rules"]))
        yield ForeignKey(
            names[0][0],
            table,
            tuple(names[1]),
            (parent[0], parent[1]) if len(parent) > 1 else (table[0], parent[0]),
            tuple(names[3]),
            rules.get("DELETE", "RESTRICT"),
            rules.get("UPDATE", "RESTRICT"),
        )


def _names(text: str) -> list[str]:
    return [name.replace("``", "`") for name in _NAME.findall(text)]


def _lower(names: Iterable[str]) -> frozenset[str]:
    return frozenset(name.lower() for name in names)


class ForeignKeys:
    """The foreign keys of a server, by parent."""

    def __init__(self, keys: Iterable[ForeignKey]) -> None:
        self.keys = frozenset(keys)
        self._by_parent: dict[TableId, list[ForeignKey]] = {}
        for key in sorted(self.keys, key=lambda key: (key.child, key.name, key.on_delete, key.on_update)):
            self._by_parent.setdefault(key.parent, []).append(key)

    @property
    def parents(self) -> Iterable[TableId]:
        """The tables whose changes have consequences."""
        return self._by_parent.keys()

    def triggers(self, parent: TableId, kind: Change) -> tuple[TableTrigger, ...]:
        """Return what follows from a change of a row of `parent`, one trigger per foreign key that it sets off."""
        triggers = []
        for key in self._by_parent.get(parent, ()):
            columns = tuple(dict.fromkeys(key.referenced))
            event = _Event(kind, tuple((name.lower(), name) for name in columns), _lower(columns))
            found = tuple(dict.fromkeys(self._follow(key, event, set())))
            if found:
                triggers.append(TableTrigger(columns, found))
        return tuple(triggers)

    def _follow(
        self, key: ForeignKey, event: _Event, seen: set[tuple[ForeignKey, _Event]]
    ) -> Iterator[Consequence]:
        """Yield the consequences of an event; `seen` is not followed again: between many tables there are too many paths."""
        if (key, event) in seen:
            return
        seen.add((key, event))
        rule = key.on_delete if event.kind == "delete" else key.on_update
        touched = event.kind == "delete" or event.changed & _lower(key.referenced)
        if rule not in SILENT_RULES or not touched:
            return
        pairs = [(column, name.lower()) for column, name in zip(key.columns, key.referenced, strict=True)]
        sources = dict(event.known)
        known = tuple((column, sources[name]) for column, name in pairs if name in sources)
        passed = tuple((column.lower(), source) for column, source in known)
        if rule == "CASCADE" and event.kind == "delete":
            child = _Event("delete", passed)
        elif rule == "CASCADE":
            changed = _lower(column for column, name in pairs if name in event.changed)
            nulled = _lower(column for column, name in pairs if name in event.nulled)
            child = _Event("update", passed, changed, nulled)
        else:
            child = _Event("update", passed, _lower(key.columns), _lower(key.columns))
        if rule == "SET DEFAULT":
            known = ()
        yield Consequence(
            key.child,
            tuple(column for column, _ in known),
            tuple(source for _, source in known),
            renewed=child.kind == "update" and not child.nulled,
            nulled=tuple(column for column in key.columns if column.lower() in child.nulled),
        )
        for further in self._by_parent.get(key.child, ()):
            yield from self._follow(further, child, seen)
