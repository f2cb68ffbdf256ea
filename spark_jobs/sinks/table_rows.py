"""What sinks of tables ask of Spark alike: statements and frames over the rows of a table, whatever its format."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name
from pyspark.sql import types as T  # noqa: N812 - the usual name

from schemas.merge_rule import DueSweep
from spark_jobs.decode.record_columns import DELETED, POSITION, SOURCE
from spark_jobs.decode.spark_types import converted, literal, narrowed, quoted, widened
from spark_jobs.sinks.contract import Columns, Evolution, KeyRange

_LEAST_RANGE_BITS: Final = 16
_FEW_RANGES: Final = 8
_LARGEST: Final = 2**63 - 1
_SWEEPS: Final = "tidemark_sweeps"


@contextmanager
def configured(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Have settings count for what is done inside. No other thread may use the session."""
    for key, value in settings.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key in settings:
            spark.conf.unset(key)


def live_rows(rows: DataFrame) -> DataFrame:
    """Return the winners that are no deletes, with the columns of the target and `POSITION`, which is the last."""
    columns = [quoted(name) for name in rows.columns if name not in (DELETED, POSITION)]
    return rows.where(~F.col(DELETED)).select(*columns, POSITION)


def guarded_merge(table: str, view: str, keys: Sequence[str], columns: Sequence[str], pruned: str) -> str:
    """Return the MERGE of the winners in a view: a row changes only for a newer one.

    `table` is quoted. `pruned` is a further condition on the target `t` that every matching row meets, to skip files by.
    """
    match = " AND ".join([f"t.{quoted(name)} = s.{quoted(name)}" for name in keys] + ([pruned] if pruned else []))
    names = [quoted(name) for name in (*columns, POSITION)]
    newer, deleted = f"s.{POSITION} > t.{POSITION}", f"s.{quoted(DELETED)}"
    return f"""
        MERGE INTO {table} t USING {view} s ON {match}
        WHEN MATCHED AND {deleted} AND {newer} THEN DELETE
        WHEN MATCHED AND {newer} THEN UPDATE SET {", ".join(f"t.{name} = s.{name}" for name in names)}
        WHEN NOT MATCHED AND NOT {deleted} THEN
            INSERT ({", ".join(names)}) VALUES ({", ".join(f"s.{name}" for name in names)})
    """  # noqa: S608 - quoted names only


def sweep_frames(
    spark: SparkSession, due: Sequence[DueSweep], types: Mapping[str, T.DataType]
) -> Iterator[tuple[tuple[str, ...], DataFrame, str]]:
    """Yield for sweeps of the same columns: their name, a frame of the values with `below`, and how `t` matches a row of it, `s`.

    The name is the columns, and the position below which rows are kept, if there is one. `types` are those of the table's columns,
    by lower-case name. The frame has each value once, with the highest bound.
    """
    groups: dict[tuple[tuple[str, ...], str], list[tuple[str, ...]]] = {}
    for one in due:
        columns = tuple(name.lower() for name in one.sweep.columns)
        groups.setdefault((columns, one.above), []).extend((*value, one.below) for value in one.sweep.values)
    for (columns, above), values in groups.items():
        names = [f"v{number}" for number in range(len(columns))]
        texts = spark.createDataFrame(values, T.StructType([T.StructField(n, T.StringType()) for n in (*names, "below")]))
        typed = [_of_text(F.col(n), types[column]).alias(n) for n, column in zip(names, columns, strict=True)]
        frame = texts.select(*typed, "below").groupBy(*names).agg(F.max("below").alias("below"))
        match = " AND ".join(f"t.{quoted(c)} = s.{n}" for n, c in zip(names, columns, strict=True))
        kept = f" AND t.{POSITION} >= '{above}'" if above else ""
        yield (*columns, *([above] if above else [])), frame, f"{match}{kept} AND t.{POSITION} < s.below"


def sweep_statements(
    spark: SparkSession, table: str, due: Sequence[DueSweep], types: Mapping[str, T.DataType], source: str | None, mark: str | None
) -> Iterator[tuple[str, str]]:
    """Yield the step and the MERGE of sweeps of the same columns, of one of several source tables if it is named.

    `table` is quoted. With `mark` it sets that column of the rows that it would delete. Each deletes a row once however many sweeps
    take it. Its view lasts until the next one is asked for.
    """
    for columns, values, match in sweep_frames(spark, due, types):
        values.createOrReplaceTempView(_SWEEPS)
        of_source = "" if source is None else f" AND t.{is_of(source)}"
        step = "/".join(("sweep", *columns, *([source] if source else [])))
        yield step, f"MERGE INTO {table} t USING {_SWEEPS} s ON {match}{of_source} {rows_taken(mark)}"


def rows_taken(mark: str | None) -> str:
    """Return what becomes of a row `t` that a floor or a sweep takes, as a clause of MERGE."""
    if mark is None:
        return "WHEN MATCHED THEN DELETE"
    return f"WHEN MATCHED AND NOT t.{quoted(mark)} THEN UPDATE SET t.{quoted(mark)} = true"


def _of_text(text: Column, kind: T.DataType) -> Column:
    """Return a value of a sweep as the column has it; NULL, which takes no row, for one that the column cannot have."""
    return F.unhex(text) if isinstance(kind, T.BinaryType) else text.try_cast(kind)


def is_of(source: str) -> str:
    """Return the condition for the rows of one of several source tables."""
    return f"{SOURCE} = {quoted_text(source)}"


def quoted_text(value: str) -> str:
    """Return a text as a literal of Spark SQL."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def evolved_rows(table: DataFrame, change: Evolution) -> DataFrame:
    """Return the rows of a table as a change leaves them."""
    retyped = dict(change.retyped)

    def kept(name: str) -> Column:
        column = F.col(quoted(name))
        return converted(column, table.schema[name].dataType, retyped[name]).alias(name) if name in retyped else column

    columns = [kept(name) for name in table.columns]
    columns += [literal(value, kind).alias(name) for name, kind, value in change.added]
    rows = table.select(*columns)
    for name, source, value in change.filled:
        is_of_source, kind = F.col(SOURCE) == F.lit(source), rows.schema[name].dataType
        filled = F.when(is_of_source, literal(value, kind)).otherwise(F.col(quoted(name)))
        rows = rows.withColumn(name, filled)
    return rows.select(*[F.col(quoted(name)) for name in rows.columns if name not in change.dropped])


def lossless_columns(table: DataFrame, columns: Columns) -> Columns:
    """Return those of the types that have every value of the table's column, and give back the very same."""

    def fits(name: str, kind: T.DataType) -> Column:
        value, given = F.col(quoted(name)), table.schema[name].dataType
        again = widened(narrowed(value, given, kind), kind, given)
        return F.coalesce(F.every(value.isNull() | value.eqNullSafe(again)), F.lit(True))

    (found,) = table.select(*(fits(*column).alias(str(number)) for number, column in enumerate(columns))).collect()
    return [column for number, column in enumerate(columns) if found[str(number)]]


def key_pruning(name: str | None, batch: KeyRange | None, table: KeyRange | None) -> str:
    """Return a condition on the target `t` to skip files by, where a batch touches few of the keys; else "".

    Its constants become part of the code Spark generates and compiles: they are rounded to a power of two
    above the range, so that a stretch of keys that moves slowly compiles once, and left out where little
    can be skipped.
    """
    if name is None or batch is None or table is None:
        return ""
    (low, high), span = batch, table[1] - table[0]
    step = 1 << max(_LEAST_RANGE_BITS, (high - low).bit_length())
    if span < _FEW_RANGES * step:
        return ""
    return (
        f"t.{quoted(name)} BETWEEN {low // step * step} AND {min((high // step + 1) * step, _LARGEST)}"
    )
