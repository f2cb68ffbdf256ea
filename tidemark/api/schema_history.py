"""How the columns of a table changed: records of the topic `<name>` enter, the table's versions leave (pure).

`tidemark.api.schema_reader` reads the records. The command and the page show the same values. A version is a set of columns, with
key and character set; a statement that changes none of these (an index, for example) makes no new one. Versions are counted from
the oldest record that Kafka has.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Final

from schemas.errors import DecodeError
from schemas.identity import TableName
from schemas.json_codec import Form
from schemas.schema_changes import TableModel

AS_FOUND: Final = "FOUND"
"""The kind of the event with which the history of a table begins that was there before the producer's first start."""
_DROP_DATABASE: Final = re.compile(r"\s*DROP\s+(DATABASE|SCHEMA)\b", re.IGNORECASE)
_SIGNS: Final = (" UNSIGNED", " ZEROFILL")


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaColumn:
    """A column as DDL defines it. `type` is SQL (`DECIMAL(10,2) UNSIGNED`), `default` the text of the statement, None for none."""

    name: str
    type: str
    nullable: bool
    default: str | None = None
    charset: str | None = None
    auto_increment: bool = False
    comment: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableColumns:
    """The columns of a table in their order, the names of its key columns, and its character set."""

    columns: tuple[SchemaColumn, ...]
    key: tuple[str, ...]
    charset: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaEvent:
    """A statement on a table, and what the table is after it: `columns` is None where it is gone, or where nobody knows them.

    `kind` is CREATE, ALTER or DROP, or `AS_FOUND`. `version` is None where there are no columns. `committed_ms` is the source's
    time (Unix). `position` sorts as the log does; `file` and `pos` are where the statement is in the log, of `AS_FOUND` where
    reading began.
    """

    kind: str
    ddl: str
    columns: TableColumns | None
    version: int | None
    committed_ms: int | None
    position: str
    file: str
    pos: int
    gtid: str | None


@dataclass(frozen=True, slots=True)
class ColumnChange:
    """A column that two versions have with other properties; `what` names those that differ."""

    JSON: ClassVar = Form(head=lambda change: {"column": change.after.name})

    before: SchemaColumn
    after: SchemaColumn
    what: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BeforeAndAfter:
    """A property of a table in two versions."""

    before: Any
    after: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaDifference:
    """What is in one version and not in another. A column with another name is one that is dropped and one that is added.

    `moved` are columns that have another place among those that both have. `key` and `charset` are None if both are equal.
    """

    added: tuple[SchemaColumn, ...] = ()
    dropped: tuple[SchemaColumn, ...] = ()
    changed: tuple[ColumnChange, ...] = ()
    moved: tuple[str, ...] = ()
    key: BeforeAndAfter | None = None
    charset: BeforeAndAfter | None = None

    @property
    def is_empty(self) -> bool:
        """Whether both are the same."""
        return self == SchemaDifference()


@dataclass(frozen=True, slots=True)
class SchemaHistory:
    """All that Kafka has of one table, oldest first. `is_complete`: no older records were removed from the topic."""

    table: str
    events: tuple[SchemaEvent, ...]
    is_complete: bool = True
    versions: Mapping[int, TableColumns] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        found = {one.version: one.columns for one in self.events if one.version is not None and one.columns is not None}
        object.__setattr__(self, "versions", found)

    @property
    def version(self) -> int | None:
        """The version that the table has after the last statement; None where it is gone or unknown."""
        return self.events[-1].version if self.events else None


def history_of(table: TableName, records: Iterable[Mapping[str, Any]], *, is_complete: bool = True) -> SchemaHistory:
    """Return the history of a table by the values of the topic's records, in their order.

    Raises `DecodeError` for a record that is no schema change. What a start of the producer repeats adds nothing. A table that was
    renamed has another history under its new name; under the old one nothing follows.
    """
    quoted = _quoted(table)
    events: list[SchemaEvent] = []
    versions: list[TableColumns] = []
    last: TableColumns | None = None
    for record in records:
        try:
            for kind, columns in _changes(record, quoted, "" if last is None else table.database):
                if kind == AS_FOUND and columns == last and events:
                    continue
                if columns is not None and columns != last:
                    versions.append(columns)
                events.append(_event(record, kind, columns, len(versions) if columns is not None else None))
                last = columns
        except (KeyError, TypeError, AttributeError) as error:
            raise DecodeError(f"not a schema-change record: {error!r}") from error
    return SchemaHistory(table.plain, tuple(events), is_complete)


def histories_of(tables: Iterable[TableName], records: Sequence[Mapping[str, Any]]) -> dict[TableName, SchemaHistory]:
    """Return the history of each of many tables, as `history_of` does; the records are searched once."""
    of_table: dict[str, list[Mapping[str, Any]]] = {}
    for record in records:
        try:
            named = {str(change["id"]) for change in record["tableChanges"] or ()}
        except (KeyError, TypeError) as error:
            raise DecodeError(f"not a schema-change record: {error!r}") from error
        if not named:  # a statement on a database
            database = f'"{record.get("databaseName")}".'
            named = {one for one in of_table if one.startswith(database)}
        for one in named:
            of_table.setdefault(one, []).append(record)
    return {table: history_of(table, of_table.get(_quoted(table), ())) for table in tables}


def difference(before: TableColumns, after: TableColumns) -> SchemaDifference:
    """Return what is different; columns are the same where their names are, upper and lower case alike."""
    old = {column.name.casefold(): column for column in before.columns}
    new = {column.name.casefold(): column for column in after.columns}
    changed = []
    for name, column in new.items():
        if name in old and old[name] != column:
            left, right = asdict(old[name]), asdict(column)
            changed.append(ColumnChange(old[name], column, tuple(one for one in right if left[one] != right[one])))
    return SchemaDifference(
        added=tuple(column for name, column in new.items() if name not in old),
        dropped=tuple(column for name, column in old.items() if name not in new),
        changed=tuple(changed),
        moved=_moved([name for name in old if name in new], [name for name in new if name in old], new),
        key=None if before.key == after.key else BeforeAndAfter(before.key, after.key),
        charset=None if before.charset == after.charset else BeforeAndAfter(before.charset, after.charset),
    )


def columns_of(model: TableModel) -> TableColumns:
    """Return the columns of a model of the state topic, which is the table at the committed offset."""
    return _columns(model.payload(comments=True))


def _quoted(table: TableName) -> str:
    """Return the name of a table as the records have it."""
    return f'"{table.database}"."{table.table}"'


def _changes(record: Mapping[str, Any], quoted: str, database: str) -> list[tuple[str, TableColumns | None]]:
    """Return what a record says of the table: kinds and columns. DROPs that a start writes before its CREATEs say nothing.

    `database` is that of the table, "" while there is none to be dropped with it.
    """
    is_start = record["source"].get("snapshot") == "true"
    found: list[tuple[str, TableColumns | None]] = []
    for change in record["tableChanges"] or ():
        if change["id"] != quoted or (is_start and change["type"] == "DROP"):
            continue
        columns = None if change["table"] is None else _columns(change["table"])
        found.append((AS_FOUND if is_start else str(change["type"]), columns))
    if database and not is_start and record.get("databaseName") == database and _DROP_DATABASE.match(record.get("ddl") or ""):
        found.append(("DROP", None))
    return found


def _event(record: Mapping[str, Any], kind: str, columns: TableColumns | None, version: int | None) -> SchemaEvent:
    source = record["source"]
    return SchemaEvent(
        kind=kind,
        ddl=record["ddl"] or "",
        columns=columns,
        version=version,
        committed_ms=source.get("ts_ms") or None,
        position=str(source.get("sequence") or ""),
        file=str(source.get("file") or ""),
        pos=int(source.get("pos") or 0),
        gtid=source.get("gtid"),
    )


def _columns(table: Mapping[str, Any]) -> TableColumns:
    return TableColumns(
        columns=tuple(_column(column) for column in table["columns"]),
        key=tuple(table["primaryKeyColumnNames"] or ()),
        charset=table.get("defaultCharsetName"),
    )


def _column(column: Mapping[str, Any]) -> SchemaColumn:
    return SchemaColumn(
        name=column["name"],
        type=_type(column),
        nullable=bool(column.get("optional", True)),
        default=column.get("defaultValueExpression"),
        charset=column.get("charsetName"),
        auto_increment=bool(column.get("autoIncremented")),
        comment=column.get("comment") or None,
    )


def _type(column: Mapping[str, Any]) -> str:
    """Return the type as SQL writes it."""
    name, length, scale, members = (column.get(one) for one in ("typeName", "length", "scale", "enumValues"))
    head, tail = str(name), ""
    for sign in reversed(_SIGNS):
        if head.upper().endswith(sign):
            head, tail = head[: -len(sign)], head[-len(sign) :] + tail
    if members:
        return f"{head}({','.join(members)}){tail}"
    if length is None:
        return f"{head}{tail}"
    return f"{head}({length}){tail}" if scale is None else f"{head}({length},{scale}){tail}"


def _moved(old: list[str], new: list[str], columns: Mapping[str, SchemaColumn]) -> tuple[str, ...]:
    """Return the names in `new` that are not in the longest run that both orders share."""
    lengths = [[0] * (len(new) + 1) for _ in range(len(old) + 1)]
    for i in range(len(old) - 1, -1, -1):
        for j in range(len(new) - 1, -1, -1):
            lengths[i][j] = lengths[i + 1][j + 1] + 1 if old[i] == new[j] else max(lengths[i + 1][j], lengths[i][j + 1])
    kept, i, j = set[str](), 0, 0
    while i < len(old) and j < len(new):
        if old[i] == new[j]:
            kept.add(old[i])
            i, j = i + 1, j + 1
        elif lengths[i + 1][j] >= lengths[i][j + 1]:
            i += 1
        else:
            j += 1
    return tuple(columns[name].name for name in new if name not in kept)
