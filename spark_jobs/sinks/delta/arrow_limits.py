"""What delta-rs writes exactly: an open Delta table enters, the reason against it leaves, or None.

Everything here was tried with deltalake 1.6.6 against Spark 4.1 and Delta 4.4. Whatever was not tried is refused, and the JVM
writes the table instead: a new feature or property costs speed, never rows.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from spark_jobs.decode.record_columns import POSITION

_FEATURES: Final = frozenset({"appendOnly", "deletionVectors", "invariants", "timestampNtz"})
"""Table features with which delta-rs writes what Delta writes.

Of the others it refuses some itself (`typeWidening`, `rowTracking`, `inCommitTimestamp`, `clustering`), and commits to tables with
`columnMapping`, `changeDataFeed`, `checkConstraints` and `v2Checkpoint`, which nobody compared.
"""

_LAST_WRITER_VERSION_WITHOUT_FEATURES: Final = 2
_LAST_READER_VERSION_WITHOUT_FEATURES: Final = 1
_WRITER_VERSION_WITH_FEATURES: Final = 7
_READER_VERSION_WITH_FEATURES: Final = 3

_PROPERTIES: Final = frozenset(
    {
        "delta.autoOptimize.autoCompact",
        "delta.autoOptimize.optimizeWrite",
        "delta.checkpointInterval",
        "delta.dataSkippingNumIndexedCols",
        "delta.deletedFileRetentionDuration",
        "delta.enableDeletionVectors",
        "delta.logRetentionDuration",
        "delta.minReaderVersion",
        "delta.minWriterVersion",
        "delta.targetFileSize",
    }
)
"""Properties that ask nothing of a writer, or nothing that rows depend on. Those that do not begin with `delta.` are a person's."""

_LEAST_DECIMAL_OF_FLOATS: Final = 15
"""delta-rs keeps the smallest and largest decimal of a file as a double; up to so many digits it gives them back."""

_YEARS_OF_NANOSECONDS: Final = (1678, 2261)
"""delta-rs reads the timestamps of Spark's old format, INT96, as nanoseconds of 64 bits. Outside of these years they change."""

_UNSAFE_IN_PATH: Final = "%\\"


def why_not(path: str, columns: Sequence[str], keys: Sequence[str]) -> str | None:
    """Return why delta-rs must not write these source columns to the table that is at a path now; None if it may."""
    return why_not_path(path) or why_not_table(open_table(path), path, columns, keys)


def open_table(path: str) -> DeltaTable:
    """Return the newest version of a table. A text that is no URL would be read as one."""
    return DeltaTable(Path(path).absolute().as_uri())


def why_not_table(table: DeltaTable, path: str, columns: Sequence[str], keys: Sequence[str]) -> str | None:
    """Return why delta-rs must not write to an open table; None if it may."""
    return next(_reasons(table, path, columns, keys), None)


def why_not_path(path: str) -> str | None:
    """Return why delta-rs must not open a table at a path: it decodes a percent sign twice, and takes a backslash for a slash."""
    if any(character in path for character in _UNSAFE_IN_PATH):
        return "its path has a percent sign or a backslash"
    return None


def is_without_statistics(kind: pa.DataType) -> bool:
    """Return whether delta-rs would write wrong statistics of a column, by which readers skip files that have what they seek.

    Decimals become doubles (the largest BIGINT UNSIGNED half of what it is), NaN is in no range.
    """
    if pa.types.is_decimal(kind):
        return bool(kind.precision > _LEAST_DECIMAL_OF_FLOATS)
    return bool(pa.types.is_floating(kind))


def arrow_schema(table: DeltaTable) -> pa.Schema:
    """Return the columns of an open table as Arrow has them."""
    return pa.schema(table.schema().to_arrow())


def quoted_column(name: str) -> str:
    """Return the name of a column as delta-rs and its queries have it."""
    return '"' + name.replace('"', '""') + '"'


def _reasons(table: DeltaTable, path: str, columns: Sequence[str], keys: Sequence[str]) -> Iterator[str]:
    yield from _protocol_reasons(table)
    metadata = table.metadata()
    if metadata.partition_columns:
        yield "it has partition columns"
    yield from (
        f"it has the property {name}"
        for name in metadata.configuration
        if name.startswith("delta.") and name not in _PROPERTIES
    )
    fields = table.schema().fields
    for field in fields:
        if field.metadata and set(field.metadata) != {"comment"}:
            yield f"its column {field.name} has metadata ({', '.join(sorted(field.metadata))})"
        if not field.nullable:
            yield f"its column {field.name} has no NULL"
    names = sorted(field.name for field in fields)
    if names != sorted((*columns, POSITION)):
        yield "its columns are not those of the batch"
    schema = arrow_schema(table)
    for key in keys:
        if pa.types.is_nested(schema.field(key).type):
            yield f"its key {key} is no simple value"
    if _has_ancient_timestamps(table, path, schema):
        yield "it has timestamps in INT96 that may be outside of the years 1678 to 2261"


def _protocol_reasons(table: DeltaTable) -> Iterator[str]:
    protocol = table.protocol()
    features = {*(protocol.reader_features or ()), *(protocol.writer_features or ())}
    if unknown := sorted(features - _FEATURES):
        yield f"it has the table features {', '.join(unknown)}"
    if protocol.min_writer_version not in (*range(_LAST_WRITER_VERSION_WITHOUT_FEATURES + 1), _WRITER_VERSION_WITH_FEATURES):
        yield f"it has writer version {protocol.min_writer_version}"
    if protocol.min_reader_version not in (*range(_LAST_READER_VERSION_WITHOUT_FEATURES + 1), _READER_VERSION_WITH_FEATURES):
        yield f"it has reader version {protocol.min_reader_version}"


def _has_ancient_timestamps(table: DeltaTable, path: str, schema: pa.Schema) -> bool:
    """Return whether a file may have timestamps that delta-rs reads as others. Statistics show it, else the file."""
    names = [field.name for field in schema if _has_timestamp(field.type)]
    if not names:
        return False
    files = pa.table(table.get_add_actions(flatten=True))
    for row in files.select(_statistics_of(names, files.column_names)).to_pylist():
        if all(_is_recent(row, name) for name in names):
            continue
        if _has_int96(str(Path(path) / unquote(row["path"]))):
            return True
    return False


def _has_timestamp(kind: pa.DataType) -> bool:
    if pa.types.is_nested(kind):
        return any(_has_timestamp(kind.field(number).type) for number in range(kind.num_fields))
    return bool(pa.types.is_timestamp(kind) and kind.tz is not None)


def _statistics_of(names: Sequence[str], known: Sequence[str]) -> list[str]:
    wanted = [f"{kind}.{name}" for name in names for kind in ("min", "max")]
    return ["path", *(name for name in wanted if known.count(name) == 1)]


def _is_recent(row: Mapping[str, Any], name: str) -> bool:
    least, largest = row.get(f"min.{name}"), row.get(f"max.{name}")
    if not isinstance(least, dt.datetime) or not isinstance(largest, dt.datetime):
        return False
    first, last = _YEARS_OF_NANOSECONDS
    return first <= least.year and largest.year <= last


@lru_cache(maxsize=65536)
def _has_int96(file: str) -> bool:
    """Return whether a file, which never changes, has values of INT96."""
    columns = pq.ParquetFile(file).schema
    return any(columns.column(number).physical_type == "INT96" for number in range(len(columns.names)))
