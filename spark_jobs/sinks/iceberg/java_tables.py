"""Iceberg's Java API on the driver: what needs no Spark job, and what SQL cannot say.

Each step loads its table. Nothing is cached: other writers and other sessions change tables as well.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name
from pyspark.sql import types as T  # noqa: N812 - the usual name

from spark_jobs.decode.record_columns import POSITION, SOURCE
from spark_jobs.decode.spark_types import literal
from spark_jobs.sinks.arrival import not_arrived
from spark_jobs.sinks.contract import Columns, Evolution

_PARTLY_MATCHES: Final = "Cannot delete file where some, but not all, rows match filter"
_EPOCH: Final = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - as Iceberg counts both kinds of times
_NESTED: Final = (T.StructType, T.ArrayType, T.MapType)
_WHOLE: Final = (T.ByteType, T.ShortType, T.IntegerType)


def load(spark: SparkSession, path: Path) -> Any:
    """Return the Java object of a table; raises `Py4JJavaError` if there is none."""
    java: Any = spark._jvm  # noqa: SLF001 - Iceberg has no other API on the driver
    return java.org.apache.iceberg.hadoop.HadoopTables(spark._jsc.hadoopConfiguration()).load(str(path))  # noqa: SLF001


def table_columns(spark: SparkSession, path: Path) -> tuple[tuple[str, T.DataType], ...]:
    """Return the columns of a table, ours included, as Spark has them."""
    java: Any = spark._jvm  # noqa: SLF001
    schema = json.loads(java.org.apache.iceberg.spark.SparkSchemaUtil.convert(load(spark, path).schema()).json())
    return tuple((field.name, field.dataType) for field in T.StructType.fromJson(schema).fields)


def stored_type(kind: T.DataType) -> T.DataType:
    """Return the type that a table has for a type of a column: Iceberg's shortest integer has 32 bits."""
    return T.IntegerType() if isinstance(kind, _WHOLE) else kind


def is_promotion(have: T.DataType, want: T.DataType) -> bool:
    """Return whether a column takes another type and no row is written again (Iceberg's specification, schema evolution)."""
    if isinstance(have, T.DecimalType) and isinstance(want, T.DecimalType):
        return have.scale == want.scale and have.precision <= want.precision
    return (type(have), type(want)) in {(T.IntegerType, T.LongType), (T.FloatType, T.DoubleType)}


def needs_rewrite(columns: Columns, change: Evolution) -> bool:
    """Return whether a change of a table with these columns writes its rows again, and is no matter of metadata alone."""
    have = dict(columns)
    is_promoted = all(is_promotion(have[name], stored_type(kind)) for name, kind in change.retyped)
    has_defaults = all(value is None or not isinstance(kind, _NESTED) for _, kind, value in change.added)
    return bool(change.filled) or not is_promoted or not has_defaults


def evolve(spark: SparkSession, path: Path, change: Evolution, summary: Mapping[str, str]) -> None:
    """Add, promote and drop columns, and make a snapshot without files that has this summary, in one commit.

    The value of the rows that are there is the column's initial default: readers get it for files without the column.
    """
    java: Any = spark._jvm  # noqa: SLF001
    transaction = load(spark, path).newTransaction()
    update, types = transaction.updateSchema(), _iceberg_types(java, [(name, kind) for name, kind, _ in change.added])
    for name, kind, value in change.added:
        default = None if value is None else _default(spark, value, kind)
        update.addColumn(None, name, types[name], None, default)
    retyped = _iceberg_types(java, change.retyped)
    for name, _ in change.retyped:
        update.updateColumn(name, retyped[name])
    for name in change.dropped:
        update.deleteColumn(name)
    update.commit()
    _stamped(transaction.newFastAppend(), summary).commit()
    transaction.commitTransaction()


def stamp_without_files(spark: SparkSession, path: Path, summary: Mapping[str, str]) -> None:
    """Make a snapshot that changes nothing."""
    _stamped(load(spark, path).newFastAppend(), summary).commit()


def delete_whole_files(
    spark: SparkSession, path: Path, spans: Mapping[str | None, tuple[str, str]], summary: Mapping[str, str]
) -> bool:
    """Delete the rows of spans of positions by removing files, in one commit; return False where a file has other rows as well.

    `spans` are by source table; None is that of all rows.
    """
    java: Any = spark._jvm  # noqa: SLF001
    expressions = java.org.apache.iceberg.expressions.Expressions
    chosen = expressions.alwaysFalse()
    both, either = getattr(expressions, "and"), getattr(expressions, "or")  # words of Python, too
    for source, (first, below) in sorted(spans.items(), key=str):
        matched = both(expressions.greaterThanOrEqual(POSITION, first), expressions.lessThan(POSITION, below))
        chosen = either(chosen, matched if source is None else both(expressions.equal(SOURCE, source), matched))
    try:
        _stamped(load(spark, path).newDelete().deleteFromRowFilter(chosen), summary).commit()
    except Py4JJavaError as error:
        if _PARTLY_MATCHES in str(error):
            return False
        raise
    return True


def compact(spark: SparkSession, path: Path, summary: Mapping[str, str], options: Mapping[str, str]) -> None:
    """Make small files, and those with many deleted rows, into large ones: one snapshot, if there is something to do."""
    java: Any = spark._jvm  # noqa: SLF001
    actions = java.org.apache.iceberg.spark.actions.SparkActions.get(spark._jsparkSession)  # noqa: SLF001
    action = actions.rewriteDataFiles(load(spark, path))
    for key, value in options.items():
        action = action.option(key, value)
    for key, value in summary.items():
        action = action.snapshotProperty(key, value)
    action.execute()


def require_files(spark: SparkSession, path: Path, snapshots: Sequence[int]) -> None:
    """Raise `SinkError` unless the files that these snapshots add are there, whole.

    Executors write them, and the one who commits believes what they say: on a disk that is not shared the files are elsewhere.
    """
    table = load(spark, path)
    for number in snapshots:
        snapshot, io = table.snapshot(number), table.io()
        for files in (snapshot.addedDataFiles(io), snapshot.addedDeleteFiles(io)):
            for found in files:
                file, size = Path(str(found.location()).removeprefix("file:")), found.fileSizeInBytes()
                if not file.is_file() or file.stat().st_size != size:
                    raise not_arrived(f"snapshot {number} of the table {path}", file, size)


def expire_snapshots(spark: SparkSession, path: Path) -> None:
    """Remove the snapshots that the properties of a table no longer keep (`history.expire.*`), and files that no other has."""
    load(spark, path).expireSnapshots().commit()


def _stamped(update: Any, summary: Mapping[str, str]) -> Any:
    for key, value in summary.items():
        update.set(key, value)
    return update


def _iceberg_types(java: Any, columns: Columns) -> dict[str, Any]:
    """Return the types of columns as Iceberg has them, by name."""
    schema = T.StructType([T.StructField(name, kind) for name, kind in columns])
    struct = java.org.apache.spark.sql.types.DataType.fromJson(schema.json())
    converted = java.org.apache.iceberg.spark.SparkSchemaUtil.convert(struct).columns()
    return {name: converted.get(number).type() for number, (name, _) in enumerate(columns)}


def _default(spark: SparkSession, value: Any, kind: T.DataType) -> Any:
    """Return the default of a column as Iceberg has it: what Spark makes of the value, as a literal of Java."""
    java: Any = spark._jvm  # noqa: SLF001
    (row,) = spark.range(1).select(_plain(literal(value, kind), kind).alias("value")).collect()
    found = row["value"]
    if found is None:
        return None
    if isinstance(found, (bytes, bytearray)):
        found = java.java.nio.ByteBuffer.wrap(bytes(found))
    elif isinstance(kind, (T.TimestampType, T.TimestampNTZType)):  # a small number would arrive as an Integer, which is no time
        moment = (_EPOCH + dt.timedelta(microseconds=found)).isoformat(timespec="microseconds")
        found = moment if isinstance(kind, T.TimestampNTZType) else f"{moment}+00:00"
    return java.org.apache.iceberg.expressions.Expressions.lit(found)


def _plain(value: Column, kind: T.DataType) -> Column:
    """Return a date as its day and a time as its microseconds: as Iceberg counts them, and in no time zone of Python's."""
    if isinstance(kind, T.DateType):
        return F.unix_date(value)
    if isinstance(kind, (T.TimestampType, T.TimestampNTZType)):
        return F.unix_micros(value.cast(T.TimestampType()))
    return value
