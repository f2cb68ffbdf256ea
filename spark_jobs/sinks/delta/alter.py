"""The sink's table follows the source's: columns are added and widened, never dropped.

A column takes a narrower type only when every row was read again since the source's column has it, and no value is lost.

A change of columns is one commit of its own, before the batch that needs it is merged, and idempotent:
after a crash the columns are found as they should be and nothing is done. A table feature that a new type needs is
enabled in a commit before that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - what everybody calls it
from pyspark.sql import types as T  # noqa: N812 - as F

from spark_jobs.decode.avro_records import POSITION, TableLayout, Writer, fill_value
from spark_jobs.decode.spark_types import converted, holds, literal, narrowed, widened, widest

Columns = Sequence[tuple[str, T.DataType]]

FEATURE_OF_DATETIME: Final = "delta.feature.timestampNtz"
"""The only sink type that a table of Delta's first protocol may not have; Delta adds it by itself to new tables only."""


@dataclass(frozen=True, slots=True)
class Evolution:
    """What has to happen to a table: columns added (with the value its rows get) and types changed: widened, or taken anew."""

    added: tuple[tuple[str, T.DataType, Any], ...]
    widened: tuple[tuple[str, T.DataType], ...]

    @property
    def touches_rows(self) -> bool:
        """Whether rows change, and not only the list of columns."""
        return bool(self.widened) or any(value is not None for _, _, value in self.added)


def table_exists(path: Path) -> bool:
    """Whether there is a Delta table: a first write that was cut off leaves a log folder without a commit."""
    log = path / "_delta_log"
    return any(log.glob("*.json")) or any(log.glob("*.checkpoint*.parquet"))


def table_columns(spark: SparkSession, path: str) -> tuple[tuple[str, T.DataType], ...] | None:
    """The columns of a Delta table, ours included; None when there is no table."""
    if not table_exists(Path(path)):
        return None
    schema = spark.read.format("delta").load(path).schema
    return tuple((item.name, item.dataType) for item in schema.fields)


def own_columns(columns: Columns) -> Columns:
    """The source's columns among those of a table."""
    return [(name, kind) for name, kind in columns if name != POSITION]


def evolution(existing: Columns, plan: TableLayout) -> Evolution:
    """What leads from the table's columns to those of the plan."""
    have = dict(existing)
    added = [
        (name, kind, fill_value(plan.versions, None, name, kind)) for name, kind in plan.columns if name not in have
    ]
    widened = [(name, kind) for name, kind in plan.columns if name in have and have[name] != kind]
    return Evolution(tuple(added), tuple(widened))


def apply(spark: SparkSession, path: str, change: Evolution) -> None:
    """Bring a table to its new columns in one commit, after one that enables what their types need.

    Columns whose rows stay NULL cost a commit of metadata. A constant default for the rows that are there, or
    another type, rewrites the table from itself: new schema and rows appear together or not at all.
    """
    _enable(spark, path, [kind for _, kind, _ in change.added] + [kind for _, kind in change.widened])
    if not change.touches_rows:
        if change.added:
            listed = ", ".join(f"{quoted(name)} {kind.simpleString()}" for name, kind, _ in change.added)
            spark.sql(f"ALTER TABLE delta.{quoted(path)} ADD COLUMNS ({listed})")
        return
    wider = dict(change.widened)
    table = spark.read.format("delta").load(path)

    def kept(name: str) -> Column:
        column = F.col(quoted(name))
        return converted(column, table.schema[name].dataType, wider[name]).alias(name) if name in wider else column

    columns = [kept(name) for name in table.columns]
    columns += [literal(value, kind).alias(name) for name, kind, value in change.added]
    writer = table.select(*columns).write.format("delta").mode("overwrite").option("overwriteSchema", "true")
    writer.save(path)


def narrowing(existing: Columns, writers: Iterable[Writer]) -> Columns:
    """The columns that are wider than these writers' records need them to be, with the type that would do."""
    found: list[tuple[str, T.DataType]] = []
    for name, kind in existing:
        wanted: T.DataType = T.NullType()
        for writer in writers:
            if name.lower() in writer.by_name:
                wanted = widest(wanted, writer.by_name[name.lower()].type)
        if wanted not in (kind, T.NullType()):
            found.append((name, wanted))
    return found


def without_loss(spark: SparkSession, path: str, columns: Columns) -> Columns:
    """Those of the narrower types that have every value of the table's column, and give back the very same."""
    table = spark.read.format("delta").load(path)

    def fits(name: str, kind: T.DataType) -> Column:
        value, given = F.col(quoted(name)), table.schema[name].dataType
        again = widened(narrowed(value, given, kind), kind, given)
        return F.coalesce(F.every(value.isNull() | value.eqNullSafe(again)), F.lit(True))

    (found,) = table.select(*(fits(*column).alias(str(number)) for number, column in enumerate(columns))).collect()
    return [column for number, column in enumerate(columns) if found[str(number)]]


def outgrown(existing: Columns, writers: Iterable[Writer]) -> tuple[int, ...]:
    """The writers (their ids) some of whose values the table's columns do not hold."""
    types = {name.lower(): kind for name, kind in existing}
    return tuple(
        writer.id
        for writer in writers
        if not all(holds(types[name], item.type) for name, item in writer.by_name.items() if name in types)
    )


def _enable(spark: SparkSession, path: str, kinds: Iterable[T.DataType]) -> None:
    """Enable the table feature that a new type needs, in a table that does not have it (an older version made it)."""
    if not any(isinstance(kind, T.TimestampNTZType) for kind in kinds):
        return
    detail = spark.sql(f"DESCRIBE DETAIL delta.{quoted(path)}").select("tableFeatures").collect()[0]
    if FEATURE_OF_DATETIME.rpartition(".")[2] not in (detail["tableFeatures"] or ()):
        spark.sql(f"ALTER TABLE delta.{quoted(path)} SET TBLPROPERTIES ('{FEATURE_OF_DATETIME}' = 'supported')")


def quoted(name: str) -> str:
    """An identifier in back quotes."""
    return "`" + name.replace("`", "``") + "`"
