"""The sink side: a Delta table through delta-rs, its rows as columns of common type. No JVM.

A `DeltaSink` is pinned to the version it was opened at. Rows are streamed in record batches; files are read
one after the other. Column mapping is refused by delta-rs with a clear error.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit
from urllib.request import url2pathname

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, DeltaProtocolError, TableNotFoundError
from pyarrow.fs import LocalFileSystem

from schemas.identity import SourceTable
from schemas.json_codec import decode
from schemas.merge_progress import MergeProgress, TableProgress
from schemas.position import SourcePosition
from tidemark.verify.column_rule import ColumnRule, IncomparableError

POSITION_COLUMN: Final = "_tm_position"
SOURCE_COLUMN: Final = "_tm_source"

_BATCH_ROWS: Final = 32_768


class DeltaSink:
    """One version of one Delta table; with `source` the rows of that source table alone, of several that go into it."""

    def __init__(self, path: str, source: str | None = None) -> None:
        self._source = source
        try:
            self._table = DeltaTable(path)
            # INT96 is what Spark may write; as nanoseconds it would not hold the year 1000.
            options = ds.ParquetReadOptions(coerce_int96_timestamp_unit="us")
            self._parts = _with_vectors(self._table, options) or [
                _Part(self._table.to_pyarrow_dataset(parquet_read_options=options))
            ]
            self._schema = pa.schema(self._table.schema().to_arrow())
        except TableNotFoundError:
            message = f"there is no Delta table at {path} yet"
            raise IncomparableError(message) from None
        except (DeltaProtocolError, DeltaError, OSError) as error:
            message = f"the Delta table at {path} cannot be read: {error}"
            raise IncomparableError(message) from error

    @property
    def version(self) -> int:
        """The table's version."""
        return int(self._table.version())

    @property
    def schema(self) -> pa.Schema:
        """Names and Arrow types of the columns."""
        return self._schema

    def find(self, name: str) -> pa.Field | None:
        """Find the column of that name: as written, else in other case; None when there is none."""
        if name in self._schema.names:
            return self._schema.field(name)
        for candidate in self._schema.names:
            if candidate.casefold() == name.casefold():
                return self._schema.field(candidate)
        return None

    def count(self) -> int:
        """Return the number of rows."""
        if self._source is not None:
            return sum(batch.num_rows for batch in self._batches([POSITION_COLUMN], None))
        return sum(part.count() for part in self._parts)

    def count_of_others(self, sources: Sequence[str]) -> int:
        """Return the number of rows that are of none of these source tables."""
        known = pa.array(sources, pa.string())
        found = 0
        for part in self._parts:
            for batch in part.batches([SOURCE_COLUMN], None):
                found += pc.sum(pc.invert(pc.is_in(batch[SOURCE_COLUMN].cast(pa.string()), known))).as_py() or 0
        return found

    def read_all(
        self, rules: Sequence[ColumnRule], where: ds.Expression | None = None
    ) -> Iterator[list[pa.Array]]:
        """Read all rows, or those of the expression, as columns of common type."""
        for batch in self._batches([rule.sink_name for rule in rules if rule.sink_name is not None], where):
            yield [_common(rule, batch) for rule in rules]

    def read_with_positions(
        self, rules: Sequence[ColumnRule], where: ds.Expression | None
    ) -> Iterator[tuple[list[pa.Array], pa.Array]]:
        """Read the same with the position of each row, as text."""
        names = [rule.sink_name for rule in rules if rule.sink_name is not None]
        for batch in self._batches([*names, POSITION_COLUMN], where):
            yield [_common(rule, batch) for rule in rules], batch.column(POSITION_COLUMN).cast(pa.string())

    def key_filter(self, key_rule: ColumnRule, values: Sequence[Any]) -> ds.Expression | None:
        """Return a filter that lets every row with one of these (common) first key values through, or None."""
        if not key_rule.ordered or key_rule.sink_name is None:
            return None
        kind = self._schema.field(key_rule.sink_name).type
        if not pa.types.is_integer(kind):
            return None
        return pc.field(key_rule.sink_name).isin(
            pa.array(sorted(set(values)), type=pa.int64()).cast(kind, safe=False)
        )

    def _batches(self, names: Sequence[str], where: ds.Expression | None) -> Iterator[pa.RecordBatch]:
        columns = list(dict.fromkeys(names))
        if self._source is not None and SOURCE_COLUMN not in columns:
            columns.append(SOURCE_COLUMN)
        for part in self._parts:
            for batch in part.batches(columns, where):
                own = batch if self._source is None else self._of_source(batch)
                if own.num_rows:
                    yield own

    def _of_source(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows of the one source table. No filter of the scan: files have statistics it cannot read."""
        return batch.filter(pc.equal(batch[SOURCE_COLUMN].cast(pa.string()), self._source))


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


def _common(rule: ColumnRule, batch: pa.RecordBatch) -> pa.Array:
    if rule.sink_name is None:
        return pa.nulls(batch.num_rows, rule.common)
    return rule.from_sink(batch.column(rule.sink_name))


@dataclass(frozen=True, slots=True)
class Applied:
    """How far the sink has come with a table.

    It holds every change up to `position`. `change_offsets` are the ends of what was read of the change
    topic, per partition, and `floor` is the highest floor: while neither moves, no change of the table came.
    `consistent` says that its snapshot is complete in the sink.
    """

    position: SourcePosition | None
    change_offsets: Mapping[int, int]
    floor: SourcePosition | None = None
    consistent: bool = False

    def rested_since(self, earlier: Applied) -> bool:
        """Return whether nothing came from the log between the earlier reading and this one."""
        return self.change_offsets == earlier.change_offsets and self.floor == earlier.floor


def read_applied(progress_path: str, table: SourceTable) -> Applied:
    """Return what the merge job's progress file says about a table; nothing is known without such a file."""
    try:
        progress = decode(MergeProgress, json.loads(Path(progress_path).read_text(encoding="utf-8")))
    except FileNotFoundError:
        return Applied(None, {})
    one = progress.tables.get(table.name.plain, TableProgress())
    position, floor = (None if at is None else at.of(table.source) for at in (one.applied_position, one.floor))
    return Applied(position, one.change_offsets, floor, one.consistent_at is not None)
