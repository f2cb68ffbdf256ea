"""The sink side: a Delta table through delta-rs, its rows as columns of common type. No JVM.

A `DeltaSink` is pinned to the version it was opened at. Rows are streamed in record batches; files are read
one after the other. Deletion vectors and column mapping are refused by delta-rs with a clear error.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, DeltaProtocolError, TableNotFoundError

from schemas.identity import SourceTable
from schemas.json_codec import decode
from schemas.merge_progress import MergeProgress, TableProgress
from schemas.position import SourcePosition
from tidemark.verify.column_rule import ColumnRule, IncomparableError

POSITION_COLUMN: Final = "_tm_position"

_BATCH_ROWS: Final = 32_768


class DeltaSink:
    """One version of one Delta table."""

    def __init__(self, path: str) -> None:
        try:
            self._table = DeltaTable(path)
            # INT96 is what Spark may write; as nanoseconds it would not hold the year 1000.
            options = ds.ParquetReadOptions(coerce_int96_timestamp_unit="us")
            self._dataset = self._table.to_pyarrow_dataset(parquet_read_options=options)
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
        return self._dataset.schema

    def find(self, name: str) -> pa.Field | None:
        """Find the column of that name: as written, else in other case; None when there is none."""
        names = self._dataset.schema.names
        if name in names:
            return self._dataset.schema.field(name)
        for candidate in names:
            if candidate.casefold() == name.casefold():
                return self._dataset.schema.field(candidate)
        return None

    def count(self) -> int:
        """Return the number of rows."""
        return int(self._dataset.count_rows())

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
        kind = self._dataset.schema.field(key_rule.sink_name).type
        if not pa.types.is_integer(kind):
            return None
        return pc.field(key_rule.sink_name).isin(
            pa.array(sorted(set(values)), type=pa.int64()).cast(kind, safe=False)
        )

    def _batches(self, names: Sequence[str], where: ds.Expression | None) -> Iterator[pa.RecordBatch]:
        columns = list(dict.fromkeys(names))
        scanner = self._dataset.scanner(
            columns=columns, filter=where, batch_size=_BATCH_ROWS, batch_readahead=2, fragment_readahead=1
        )
        for batch in scanner.to_batches():
            if batch.num_rows:
                yield batch


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
