"""Events as rows of a table: an update becomes two, the row before it and the row after it, each with its kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name
from pyspark.sql import types as T  # noqa: N812 - the usual name

from spark_jobs.decode.record_columns import AFTER, BEFORE, CHANGE, POSITION, SOURCE
from spark_jobs.decode.spark_types import literal
from spark_jobs.formats.event_columns import DETAIL, OP

_KINDS: Final = "_tm_kinds "
_ROW: Final = "_tm_row "
OWN_COLUMNS: Final = (OP, POSITION, SOURCE, DETAIL)


def kinds_of(events: DataFrame) -> DataFrame:
    """Return the rows of events: `OP` and `_tm_row ` (the image) instead of what they had; `POSITION` and all others stay.

    An update without an image before it is the row after it alone. The order of the events is kept, `-U` comes before `+U`.
    """
    before = F.struct(F.lit("-U").alias(OP), F.col(BEFORE).alias(_ROW))
    after = F.struct(F.lit("+U").alias(OP), F.col(AFTER).alias(_ROW))
    inserted = F.struct(F.lit("+I").alias(OP), F.col(AFTER).alias(_ROW))
    deleted = F.struct(F.lit("-D").alias(OP), F.col(BEFORE).alias(_ROW))
    kinds = (
        F.when(F.col(CHANGE) == F.lit("d"), F.array(deleted))
        .when(F.col(CHANGE) != F.lit("u"), F.array(inserted))
        .when(F.col(BEFORE).isNull(), F.array(after))
        .otherwise(F.array(before, after))
    )
    others = [name for name in events.columns if name not in (CHANGE, BEFORE, AFTER)]
    rows = events.select(*others, F.explode(kinds).alias(_KINDS))
    return rows.select(*others, F.col(_KINDS)[OP].alias(OP), F.col(_KINDS)[_ROW].alias(_ROW))


def row_of(rows: DataFrame) -> DataFrame:
    """Return what `kinds_of` gives with the image as one column `row`."""
    return rows.withColumnRenamed(_ROW, "row")


def notice_rows(
    spark: SparkSession, image: T.DataType, notices: Sequence[tuple[str, str, str | None]], source: str
) -> DataFrame:
    """Return floors and sweeps as rows that `table_rows` of events with these images could have: all columns of the image are NULL.

    `notices` have the kind, the position, and what a sweep takes.
    """
    assert isinstance(image, T.StructType)
    text = T.StringType()
    own = T.StructType([T.StructField(name, text) for name in (OP, POSITION, DETAIL)])
    rows = spark.createDataFrame([*notices], own).withColumn(SOURCE, F.lit(source))
    nothing = [literal(None, field.dataType).alias(field.name) for field in image.fields]
    return rows.select(*OWN_COLUMNS, *nothing)


def table_rows(events: DataFrame, source: str) -> DataFrame:
    """Return the rows of events as a table has them: `OWN_COLUMNS`, then the columns of the images."""
    kind = events.schema[AFTER].dataType
    assert isinstance(kind, T.StructType)
    rows = kinds_of(events)
    image = [F.col(_ROW).getField(name).alias(name) for name in kind.fieldNames()]
    own = (F.col(OP), F.col(POSITION), F.lit(source).alias(SOURCE), literal(None, T.StringType()).alias(DETAIL))
    return rows.select(*own, *image)
