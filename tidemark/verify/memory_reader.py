"""The twins of the reader for tests: one of a sink in memory, and one that fails on demand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from schemas.identity import TableName
from schemas.overriding import override
from tidemark.verify.column_rule import IncomparableError
from tidemark.verify.sink_reader import KeySpan, Near, SinkReader, TargetRows

_BATCH_ROWS = 2


class MemoryReader(SinkReader):
    """Targets as Arrow tables; the mapping may be changed at any time."""

    def __init__(self, tables: Mapping[TableName, pa.Table]) -> None:
        self._tables = tables

    @override
    def rows(self, target: TableName, source: str | None = None) -> TargetRows:
        found = self._tables.get(target)
        if found is None:
            raise IncomparableError(f"there is no table {target.plain} in memory yet")
        return _MemoryRows(found, source)

    @override
    def targets(self) -> Iterator[TableName]:
        yield from self._tables


class _MemoryRows(TargetRows):
    def __init__(self, rows: pa.Table, source: str | None) -> None:
        super().__init__(source)
        self._rows = rows

    @property
    @override
    def schema(self) -> pa.Schema:
        return self._rows.schema

    @override
    def scan(self, columns: Sequence[str], near: Near | None = None) -> Iterator[pa.RecordBatch]:
        rows = self._rows
        if isinstance(near, KeySpan):
            if near.first is not None:
                rows = rows.filter(pc.greater_equal(rows[near.name], near.first))
            if near.end is not None:
                rows = rows.filter(pc.less(rows[near.name], near.end))
        elif near is not None:
            rows = rows.filter(pc.is_in(pc.cast(rows[near.name], pa.int64()), pa.array(near.values, pa.int64())))
        yield from rows.select(list(columns)).to_batches(max_chunksize=_BATCH_ROWS)


class FaultyReader(SinkReader):
    """A reader whose next `failures` scans break off after their first batch, as a lost connection does."""

    def __init__(self, inner: SinkReader, failures: int) -> None:
        self._inner = inner
        self.failures = failures

    @override
    def rows(self, target: TableName, source: str | None = None) -> TargetRows:
        return _FaultyRows(self, self._inner.rows(target, source))

    @override
    def targets(self) -> Iterator[TableName]:
        return self._inner.targets()


class _FaultyRows(TargetRows):
    def __init__(self, reader: FaultyReader, inner: TargetRows) -> None:
        super().__init__(inner.source)
        self._reader = reader
        self._inner = inner

    @property
    @override
    def schema(self) -> pa.Schema:
        return self._inner.schema

    @override
    def scan(self, columns: Sequence[str], near: Near | None = None) -> Iterator[pa.RecordBatch]:
        for batch in self._inner.scan(columns, near):
            yield batch
            if self._reader.failures:
                self._reader.failures -= 1
                raise OSError("the sink was lost while it was read")
