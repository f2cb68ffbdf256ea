"""Which keys a Delta table has, for rows that may be new: rows enter, the positions of the rows of the same keys leave.

Only files whose range of keys overlaps that of the rows are looked at, and of those only the key columns. While chunks of a table
are loaded, these are the files with changed rows, and none in a table that has no others.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, QueryBuilder

from spark_jobs.decode.record_columns import POSITION
from spark_jobs.sinks.contract import KeyRange
from spark_jobs.sinks.delta.arrow_limits import arrow_schema, quoted_column

_GROUP_ROWS: Final = 1 << 16
_PART_ROWS: Final = 1 << 20
_NUMBER: Final = "_tm_number "
_FOUND: Final = "_tm_found "


class KnownKeys:
    """The keys of an open table. The rows that are asked for are in groups that belong together (`groups`).

    Where the first key column is an integer, a text or a date, whose statistics are bounds, a group is some of the rows as they
    come. Of any other it is all rows, and all keys of the table are read once: the ranges of its files are not known.
    """

    def __init__(self, table: DeltaTable, keys: Sequence[str]) -> None:
        self._table = table
        self._keys = tuple(keys)
        self._schema = arrow_schema(table)
        self._kind = self._schema.field(keys[0]).type
        files = pa.table(table.get_add_actions(flatten=True))
        self._files = files.num_rows
        self._bounds = _bounds(files, keys[0], self._kind) if _has_exact_bounds(self._kind) else None

    def groups(self, blocks: Iterator[pa.Table]) -> Iterator[pa.Table]:
        """Yield the rows of the blocks in groups."""
        most = _GROUP_ROWS if self._files == 0 or _has_exact_bounds(self._kind) else None
        waiting: list[pa.Table] = []
        rows = 0
        for block in blocks:
            waiting.append(block)
            rows += block.num_rows
            if most is not None and rows >= most:
                yield pa.concat_tables(waiting)
                waiting, rows = [], 0
        if rows:
            yield pa.concat_tables(waiting)

    def positions(self, rows: pa.Table) -> pa.Array | None:
        """Return for each row the position of the row with its key, null where there is none; None if there is none at all."""
        if not self._files or not rows.num_rows:
            return None
        condition = ""
        if _has_exact_bounds(self._kind):
            found = pc.min_max(rows[self._keys[0]].cast(self._kind))
            low, high = found["min"], found["max"]
            if not self._overlaps(low, high):
                return None
            name = quoted_column(self._keys[0])
            condition = f" WHERE {name} >= {_literal(low.as_py())} AND {name} <= {_literal(high.as_py())}"
        names = ", ".join(quoted_column(name) for name in (*self._keys, POSITION))
        query = QueryBuilder().register("t", self._table).execute(f"SELECT {names} FROM t{condition}")  # noqa: S608 - quoted
        return self._joined(rows, pa.RecordBatchReader.from_stream(query))

    def _overlaps(self, low: pa.Scalar, high: pa.Scalar) -> bool:
        if self._bounds is None:
            return True
        least, most = self._bounds
        apart = pc.or_kleene(pc.less(most, low.cast(most.type)), pc.greater(least, high.cast(least.type)))
        return not pc.all(pc.fill_null(apart, fill_value=False)).as_py()

    def _joined(self, rows: pa.Table, stored: pa.RecordBatchReader) -> pa.Array | None:
        kinds = pa.schema([(name, rows.schema.field(name).type) for name in self._keys])
        wanted = rows.select(self._keys).append_column(_NUMBER, pa.array(range(rows.num_rows), pa.int64()))
        parts = []
        for part in _parts(stored):
            columns = [part[name].cast(kinds.field(name).type) for name in self._keys]
            there = pa.table([*columns, part[POSITION].cast(pa.string())], names=[*self._keys, _FOUND])
            matched = wanted.join(there, list(self._keys), join_type="inner", use_threads=False)
            if matched.num_rows:
                parts.append(matched.select([_NUMBER, _FOUND]))
        if not parts:
            return None
        found = pa.concat_tables(parts).group_by(_NUMBER, use_threads=False).aggregate([(_FOUND, "max")])
        return _spread(found[_NUMBER], found[f"{_FOUND}_max"], rows.num_rows)


def stored_range(table: DeltaTable, column: str) -> KeyRange | None:
    """Return a range of all values of an integer column in a table, by its statistics; None where they do not say."""
    files = pa.table(table.get_add_actions(flatten=True))
    kind = arrow_schema(table).field(column).type
    bounds = _bounds(files, column, kind)
    if bounds is None or not files.num_rows or any(one.null_count for one in bounds):
        return None
    return int(pc.min(bounds[0]).as_py()), int(pc.max(bounds[1]).as_py())


def _has_exact_bounds(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_date(kind))


def _bounds(files: pa.Table, name: str, kind: pa.DataType) -> tuple[pa.ChunkedArray, pa.ChunkedArray] | None:
    """Return the least and the largest value in each file, null where that is not known; None if no file says it."""
    names = [f"{side}.{name}" for side in ("min", "max")]
    if any(files.column_names.count(one) != 1 for one in names):
        return None
    least, most = (files[one] for one in names)
    return (least, most) if least.type == kind and most.type == kind else None


def _parts(stored: pa.RecordBatchReader) -> Iterator[pa.Table]:
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in stored:
        waiting.append(batch)
        rows += batch.num_rows
        if rows >= _PART_ROWS:
            yield pa.Table.from_batches(waiting)
            waiting, rows = [], 0
    if rows:
        yield pa.Table.from_batches(waiting)


def _spread(numbers: pa.ChunkedArray, values: pa.ChunkedArray, count: int) -> pa.Array:
    """Return an array with these values at these numbers, null elsewhere."""
    where = np.full(count, -1, np.int64)
    where[numbers.to_numpy()] = np.arange(len(numbers))
    return values.combine_chunks().take(pa.array(where, mask=where < 0))


def _literal(value: Any) -> str:
    if isinstance(value, dt.date):
        return f"DATE '{value.isoformat()}'"
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else str(value)
