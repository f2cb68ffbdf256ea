"""One set of columns for all writer schemas of a table: writers and the sink's columns enter, a `TableLayout` leaves. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

from pyspark.sql import types as T  # noqa: N812 - the usual name

from schemas.errors import SchemaMismatchError
from spark_jobs.decode.record_columns import POSITION
from spark_jobs.decode.spark_types import holds, widest
from spark_jobs.decode.writer_schemas import WriterSchema


@dataclass(frozen=True)
class TableLayout:
    """The columns a table has in the sink, and the writers whose records become them.

    `columns` are the sink's columns without ours; `keys` are the names of those that are the record key. `versions`
    are all value schemas, oldest first; `value_writers` those that records of this batch may have. With `is_fixed` the types of
    the columns do not follow the writers: a record with a value that does not fit cannot be merged.
    """

    key_writers: tuple[WriterSchema, ...]
    value_writers: tuple[WriterSchema, ...]
    versions: tuple[WriterSchema, ...]
    columns: tuple[tuple[str, T.DataType], ...]
    keys: tuple[str, ...] = field(default=())
    is_fixed: bool = False

    @property
    def unfit(self) -> tuple[tuple[str, T.DataType], ...]:
        """The columns, with a type of some writer each, whose type does not have every value of that writer, if types are fixed."""
        writers = (*self.value_writers, *self.key_writers) if self.is_fixed else ()
        return tuple(
            (name, item.type)
            for name, kind in self.columns
            for writer in writers
            for item in [writer.by_name.get(name.lower())]
            if item is not None and not holds(kind, item.type)
        )

    @property
    def names(self) -> tuple[str, ...]:
        """Column names, in the sink's order."""
        return tuple(name for name, _ in self.columns)

    @property
    def types(self) -> dict[str, T.DataType]:
        """Column types by name."""
        return dict(self.columns)


def layout(
    key_writers: Sequence[WriterSchema],
    versions: Sequence[WriterSchema],
    existing: Sequence[tuple[str, T.DataType]] = (),
    present: Sequence[WriterSchema] | None = None,
    retired: Collection[int] = (),
) -> TableLayout:
    """Return the sink's columns for these writers (oldest first): those it has, then the newest writer's new ones.

    The last of `key_writers` has the table's key of today.

    A column is as wide as its widest writer; one that was dropped or renamed at the source stays. `present`
    narrows the writers that are decoded; the types of those that are `retired` (by id: all their records are below the
    floor) do not count. Raises `SchemaMismatchError` for a source column with our own
    column's name.
    """
    newest = versions[-1]
    for writer in (newest, key_writers[-1]):
        if POSITION in writer.by_name:
            message = (
                f"its column {writer.by_name[POSITION].name} has the name of the one column that the sink adds to every table "
                f"({POSITION}); rename it at the source, or leave the table out of source.tables"
            )
            raise SchemaMismatchError(message)
    columns = dict(existing)
    spelling = {name.lower(): name for name in columns}
    for item in newest.fields:
        columns.setdefault(spelling.setdefault(item.name.lower(), item.name), T.NullType())
    for item in key_writers[-1].fields:  # a key column that is left out of the rows is read from the keys
        columns.setdefault(spelling.setdefault(item.name.lower(), item.name), T.NullType())
    for name, kind in columns.items():
        known = (*versions, *key_writers)
        kinds = [w.by_name[name.lower()].type for w in known if name.lower() in w.by_name and w.id not in retired]
        columns[name] = reduce(widest, kinds, kind)
    keys = tuple(spelling[item.name.lower()] for item in key_writers[-1].fields)
    writers = tuple(versions if present is None else present)
    return TableLayout(tuple(key_writers), writers, tuple(versions), tuple(columns.items()), keys)


def kept_to(plan: TableLayout, existing: Sequence[tuple[str, T.DataType]], *, adds: bool, retypes: bool) -> TableLayout:
    """Return the layout for a target whose columns do not follow the source: none is added, or none gets another type."""
    have = dict(existing)
    columns = tuple((name, kind if retypes else have.get(name, kind)) for name, kind in plan.columns if adds or name in have)
    return replace(plan, columns=columns, is_fixed=not retypes)


def fill_value(versions: Sequence[WriterSchema], after: WriterSchema | None, column: str, kind: T.DataType) -> Any:
    """Return what a row gets for a column of that type that its writer lacks (None: a writer older than all of them).

    The default of the first later version that has the column; None where only earlier ones had it: dropped. A version with
    values that the column cannot have is one of a column that was dropped.
    """
    start = 0 if after is None else list(versions).index(after) + 1
    for writer in versions[start:]:
        item = writer.by_name.get(column.lower())
        if item is not None and holds(kind, item.type):
            return item.fill
    return None
