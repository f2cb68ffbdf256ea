"""The Delta sink as verification reads it: tables through delta-rs. No JVM.

`DeltaRows` are pinned to the version of the table at which they were opened. Files are read one after the other. Column mapping is
refused by delta-rs with a clear error.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit
from urllib.request import url2pathname

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, DeltaProtocolError, TableNotFoundError
from pyarrow.fs import LocalFileSystem

from schemas.identity import TableName
from schemas.names import folder_name, name_of_folder
from schemas.overriding import override
from tidemark.verify.column_rule import IncomparableError
from tidemark.verify.sink_reader import KeySpan, Near, SinkReader, TargetRows

_BATCH_ROWS: Final = 32_768


class DeltaReader(SinkReader):
    """A folder of Delta tables."""

    def __init__(self, path: str) -> None:
        self._path = path

    @override
    def rows(self, target: TableName, source: str | None = None) -> DeltaRows:
        return DeltaRows(f"{self._path}/{folder_name(target.database)}/{folder_name(target.table)}", source)

    @override
    def targets(self) -> Iterator[TableName]:
        """Yield the tables of a folder on this machine; of one elsewhere none."""
        for log in sorted(Path(self._path).glob("[!_]*/*/_delta_log")):  # no database's folder begins with `_`
            yield TableName(name_of_folder(log.parent.parent.name), name_of_folder(log.parent.name))


class DeltaRows(TargetRows):
    """One version of one Delta table."""

    def __init__(self, path: str, source: str | None = None) -> None:
        super().__init__(source)
        try:
            self._table = DeltaTable(path)
            # INT96 is what Spark may write; as nanoseconds it would not hold the year 1000.
            options = ds.ParquetReadOptions(coerce_int96_timestamp_unit="us")
            self._parts = _with_vectors(self._table, options) or [
                _Part(self._table.to_pyarrow_dataset(parquet_read_options=options))
            ]
            self._schema = pa.schema(self._table.schema().to_arrow())
        except TableNotFoundError:
            raise IncomparableError(f"there is no Delta table at {path} yet") from None
        except (DeltaProtocolError, DeltaError, OSError) as error:
            raise IncomparableError(f"the Delta table at {path} cannot be read: {error}") from error

    @property
    def version(self) -> int:
        """The table's version."""
        return int(self._table.version())

    @property
    @override
    def schema(self) -> pa.Schema:
        return self._schema

    @override
    def total(self) -> int:
        return sum(part.count() for part in self._parts)

    @override
    def scan(self, columns: Sequence[str], near: Near | None = None) -> Iterator[pa.RecordBatch]:
        # No filter for a source table: files have statistics of texts that Arrow cannot read.
        where = None if near is None else self._expression(near)
        for part in self._parts:
            yield from part.batches(columns, where)

    def _expression(self, near: Near) -> ds.Expression | None:
        """Return the filter that lets the reader skip files and row groups."""
        key = pc.field(near.name)
        if isinstance(near, KeySpan):
            above = None if near.first is None else key >= near.first
            below = None if near.end is None else key < near.end
            return (above & below) if above is not None and below is not None else (below if above is None else above)
        kind = self._schema.field(near.name).type
        return key.isin(pa.array(near.values, type=pa.int64()).cast(kind, safe=False))


@dataclass(frozen=True, slots=True)
class _Part:
    """Files of a table, or one file and which of its rows its deletion vector has left."""

    dataset: ds.Dataset
    left: pa.BooleanArray | None = None

    def count(self) -> int:
        return int(self.dataset.count_rows()) if self.left is None else int(self.left.true_count)

    def batches(self, columns: Sequence[str], where: ds.Expression | None) -> Iterator[pa.RecordBatch]:
        options = {"batch_size": _BATCH_ROWS, "batch_readahead": 2, "fragment_readahead": 1}
        if self.left is None:
            yield from self.dataset.scanner(columns=columns, filter=where, **options).to_batches()
            return
        first = 0
        for batch in self.dataset.scanner(columns=columns if where is None else None, **options).to_batches():
            rows = pa.Table.from_batches([batch.filter(self.left.slice(first, batch.num_rows))])
            first += batch.num_rows
            yield from (rows if where is None else rows.filter(where)).select(columns).to_batches()


def _with_vectors(table: DeltaTable, options: ds.ParquetReadOptions) -> list[_Part]:
    """Return the parts of a table in which rows may be marked as deleted; none of any other table, or one of other features."""
    if set(table.protocol().reader_features or ()) - {"timestampNtz"} != {"deletionVectors"}:
        return []
    left: dict[str, pa.ListScalar] = {}
    for batch in table.deletion_vectors():
        marked = pa.record_batch(batch)
        left |= {_file_name(uri): kept for uri, kept in zip(marked[0].to_pylist(), marked[1], strict=True)}
    kind, files, schema = ds.ParquetFileFormat(read_options=options), LocalFileSystem(), pa.schema(table.schema().to_arrow())
    root = Path(url2pathname(urlsplit(table.table_uri).path))
    parts = [_Part(ds.FileSystemDataset([], schema, kind, files))]
    for path in pa.table(table.get_add_actions())["path"].to_pylist():
        file = kind.make_fragment(str(root / unquote(path)), files)
        marks = left.get(_file_name(path))
        kept = None if marks is None else _whole(marks.values, file)
        parts.append(_Part(ds.FileSystemDataset([file], schema, kind, files), kept))
    return parts


def _file_name(path: str) -> str:
    return Path(unquote(path)).name


def _whole(marks: pa.BooleanArray, file: ds.ParquetFileFragment) -> pa.BooleanArray:
    """Return whether each row of a file is left: a vector may end with the last one it marks."""
    missing = file.metadata.num_rows - len(marks)
    return pa.concat_arrays([marks, pa.array([True] * missing, pa.bool_())])
