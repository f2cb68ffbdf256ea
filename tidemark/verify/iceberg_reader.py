"""The Iceberg sink as verification reads it: tables of a Hadoop catalog's folder through pyiceberg. No JVM.

`IcebergRows` are pinned to the snapshot that was current when they were opened. pyiceberg applies deletion vectors and initial
defaults. Data files are read one after the other; the columns of one, as asked for, are in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyiceberg.exceptions import NotInstalledError, ResolveError, ValidationError
from pyiceberg.expressions import (
    AlwaysTrue,
    And,
    BooleanExpression,
    GreaterThanOrEqual,
    In,
    LessThan,
    Reference,
)
from pyiceberg.expressions.literals import literal
from pyiceberg.io.pyarrow import ArrowScan, schema_to_pyarrow
from pyiceberg.table import StaticTable

from schemas.identity import TableName
from schemas.names import folder_name, name_of_folder
from schemas.overriding import override
from schemas.sink_paths import local_path
from spark_jobs.sinks.iceberg.metadata_files import METADATA, newest_metadata
from tidemark.verify.column_rule import IncomparableError
from tidemark.verify.sink_reader import KeySpan, Near, SinkReader, TargetRows

_UNREADABLE: Final = (ValueError, TypeError, KeyError, NotImplementedError, NotInstalledError, ResolveError, ValidationError)
"""What pyiceberg raises for what it does not know or cannot decode, beside the errors of Arrow and of files."""


@contextmanager
def _reading() -> Iterator[None]:
    """Turn what pyiceberg raises for a table that it cannot read into an error of Arrow."""
    try:
        yield
    except pa.ArrowException:
        raise
    except _UNREADABLE as error:
        raise pa.ArrowInvalid(f"the Iceberg table cannot be read: {error}") from error


class IcebergReader(SinkReader):
    """A folder of Iceberg tables: the warehouse of a Hadoop catalog."""

    def __init__(self, path: str) -> None:
        self._path = Path(local_path(path)).absolute()

    @override
    def rows(self, target: TableName, source: str | None = None) -> IcebergRows:
        return IcebergRows(self._path / folder_name(target.database) / folder_name(target.table), source)

    @override
    def targets(self) -> Iterator[TableName]:
        for folder in sorted(self._path.glob(f"[!_]*/*/{METADATA}")):  # no database's folder begins with `_`
            if newest_metadata(folder.parent) is not None:
                yield TableName(name_of_folder(folder.parent.parent.name), name_of_folder(folder.parent.name))


class IcebergRows(TargetRows):
    """One snapshot of one Iceberg table."""

    def __init__(self, path: Path, source: str | None = None) -> None:
        super().__init__(source)
        newest = newest_metadata(path)
        if newest is None:
            raise IncomparableError(f"there is no Iceberg table at {path} yet")
        try:
            self._table = StaticTable.from_metadata(str(newest))  # a path: of a URI pyiceberg would not decode escapes
            self._schema = schema_to_pyarrow(self._table.schema(), include_field_ids=False)
        except (*_UNREADABLE, OSError) as error:
            raise IncomparableError(f"the Iceberg table at {path} cannot be read: {error}") from error

    @property
    @override
    def schema(self) -> pa.Schema:
        return self._schema

    @override
    def total(self) -> int:
        """Return the number of rows; files with deletion vectors are read for it."""
        with _reading():
            return self._table.scan(selected_fields=(self._schema.names[0],)).count()

    @override
    def scan(self, columns: Sequence[str], near: Near | None = None) -> Iterator[pa.RecordBatch]:
        with _reading():
            found = self._table.scan(AlwaysTrue() if near is None else self._expression(near), tuple(columns))
            reading = ArrowScan(self._table.metadata, self._table.io, found.projection(), found.row_filter)
            for file in found.plan_files():  # one at a time: of several pyiceberg would keep all rows in memory
                yield from reading.to_record_batches([file])

    def _expression(self, near: Near) -> BooleanExpression:
        """Return the filter that lets the reader skip files and row groups. No row has a value beyond the column's type."""
        key, limit = Reference(near.name), 2 ** (self._schema.field(near.name).type.bit_width - 1)
        if not isinstance(near, KeySpan):
            return In(term=key, values={literal(value) for value in near.values if -limit <= value < limit})
        above: BooleanExpression = AlwaysTrue()
        below: BooleanExpression = AlwaysTrue()
        if near.first is not None and near.first > -limit:
            above = GreaterThanOrEqual(term=key, value=literal(min(near.first, limit - 1)))
        if near.end is not None and near.end < limit:
            below = LessThan(term=key, value=literal(max(near.end, -limit)))
        return And(above, below)
