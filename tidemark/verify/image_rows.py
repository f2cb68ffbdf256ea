"""What the plan makes of the rows of a source table, in a Spark session of this process.

Rows are read and decoded as a snapshot's are (`codec_rows`); Spark computes their images, block by block, by the expressions that
the merge job binds. Columns are cast to the types of the target, as the merge job widens them.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - the usual name
from pyspark.sql import types as T  # noqa: N812 - the usual name
from pyspark.sql.pandas.types import from_arrow_type

from mysqlio.quoting import quoted as quoted_in_sql
from schemas.errors import SinkError
from schemas.overriding import override
from spark_jobs.decode.record_columns import CHANGE, COMMITTED, DELETED, POSITION
from spark_jobs.decode.spark_types import quoted, widened
from spark_jobs.pipeline.row_images import Image, image_of
from spark_jobs.spark_errors import expression_error
from tidemark.verify.codec_rows import CodecRows
from tidemark.verify.column_rule import IncomparableError
from tidemark.verify.expected_rows import ExpectedRows, Spans
from tidemark.verify.source import KEYS_PER_STATEMENT, Key, key_list, key_literal

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from spark_jobs.pipeline.table_routes import Feed
    from tidemark.verify.bulk_comparison import TablePlan

_ROWS: Final = 1 << 17
_BYTES: Final = 64 << 20
_MOST_FAILING: Final = 100_000
_GONE: Final = "_tm_gone "
_FAILED: Final = "_tm_failed "


def bound_image(spark: SparkSession, feed: Feed, rows: CodecRows) -> Image:
    """Return the image of a table with the columns that it has now; `IncomparableError` where an expression does not fit them."""
    try:
        return image_of(spark, feed, rows.layout)
    except SinkError as error:
        raise IncomparableError(str(error)) from error


@dataclass(frozen=True, slots=True)
class Cast:
    """A column of an image, and the type that it has in the target."""

    name: str
    given: T.DataType
    kind: T.DataType

    @staticmethod
    def to(name: str, given: T.DataType, sink: pa.DataType | None) -> Cast:
        """Return the cast to a type of the sink, None for none. `IncomparableError` for a type that Spark does not have."""
        try:
            return Cast(name, given, given if sink is None else from_arrow_type(sink, prefer_timestamp_ntz=True))
        except PySparkException as error:
            raise IncomparableError(f"column {name}: {sink} of the sink is no type that an expression can have") from error

    @property
    def column(self) -> Column:
        """The value as the target has it."""
        value = F.col(quoted(self.name))
        return (value if self.given == self.kind else widened(value, self.given, self.kind)).alias(self.name)


class ImageRows(ExpectedRows):
    """The images of the rows of a table. Any thread may read.

    `casts` has a column for each rule of the plan. Rows on which an expression fails are not among the images: `failing` has their
    keys, up to 100,000.
    """

    def __init__(self, spark: SparkSession, rows: CodecRows, image: Image, plan: TablePlan, casts: Sequence[Cast]) -> None:
        self._spark = spark
        self._rows = rows
        self._image = image
        self._plan = plan
        self._casts = tuple(casts)
        self._lock = threading.Lock()
        self._schema = T.StructType(
            [T.StructField(name, kind) for name, kind in rows.layout.columns]
            + [T.StructField(DELETED, T.BooleanType()), T.StructField(POSITION, T.StringType())]
            + [T.StructField(CHANGE, T.StringType()), T.StructField(COMMITTED, T.LongType())]
        )

    @override
    def read_all(self, *, in_key_order: bool) -> Iterator[list[pa.Array]]:
        if not in_key_order:
            yield from self._images([""])
            return
        index = self._plan.key_indexes[0]
        for block in self._images([f" ORDER BY {key_list(self._plan.table.schema)}"]):
            order = pa.compute.array_sort_indices(block[index])
            yield [column.take(order) for column in block]

    @override
    def read_between(self, spans: Spans) -> Iterator[list[pa.Array]]:
        key = quoted_in_sql(self._plan.table.schema.record_key[0])
        pairs = [([f"{key} >= {first}"] * (first is not None), [f"{key} < {end}"] * (end is not None)) for first, end in spans]
        yield from self._images([f" WHERE {' AND '.join([*above, *below]) or 'TRUE'}" for above, below in pairs])

    @override
    def read_keys(self, keys: Sequence[Key]) -> Iterator[list[pa.Array]]:
        names = [quoted_in_sql(name) for name in self._plan.table.schema.record_key]
        subject = names[0] if len(names) == 1 else f"({', '.join(names)})"
        literals = [key_literal(self._plan.key_rules, key) for key in keys]
        yield from self._images([
            f" WHERE {subject} IN ({', '.join(literals[first : first + KEYS_PER_STATEMENT])})"
            for first in range(0, len(keys), KEYS_PER_STATEMENT)
        ])  # fmt: skip

    # --- inside ------------------------------------------------------------------------------------------

    def _images(self, selections: Sequence[str]) -> Iterator[list[pa.Array]]:
        for rows in self._gathered(selections):
            found = self._image_of(rows)
            if found.num_rows:
                columns = [found.column(number).combine_chunks() for number in range(len(self._casts))]
                yield [rule.from_source(column) for rule, column in zip(self._plan.rules, columns, strict=True)]

    def _gathered(self, selections: Sequence[str]) -> Iterator[pa.Table]:
        """Yield the rows in blocks that are worth a job of Spark."""
        parts: list[pa.Table] = []
        for part in chain.from_iterable(self._rows.read(rest) for rest in selections):
            parts.append(part)
            if sum(one.num_rows for one in parts) >= _ROWS or sum(one.nbytes for one in parts) >= _BYTES:
                yield pa.concat_tables(parts)
                parts = []
        if parts:
            yield pa.concat_tables(parts)

    def _image_of(self, rows: pa.Table) -> pa.Table:
        count = rows.num_rows
        rows = rows.append_column(DELETED, pa.repeat(pa.scalar(value=False), count))
        rows = rows.append_column(POSITION, pa.repeat(pa.scalar(""), count))
        rows = rows.append_column(CHANGE, pa.repeat(pa.scalar("r"), count))
        rows = rows.append_column(COMMITTED, pa.nulls(count, pa.int64()))
        try:
            frame = self._spark.createDataFrame(rows, schema=self._schema)
            return self._computed(self._image.judged(frame, self._rows.layout.names, _GONE))
        except (PySparkException, Py4JError) as error:
            try:
                return self._without_failing(self._spark.createDataFrame(rows, schema=self._schema))
            except (PySparkException, Py4JError):
                raise IncomparableError(f"an expression fails on the rows of the source: {expression_error(error)}") from error

    def _without_failing(self, frame: DataFrame) -> pa.Table:
        """Return the images of the rows on which no expression fails, and remember the others."""
        names = self._rows.layout.names
        judged = self._image.judged(self._image.failing(frame, names, _FAILED), names, _GONE, unless=_FAILED)
        judged = judged.withColumn(_GONE, F.col(_GONE) | F.col(_FAILED))
        keys = [F.col(quoted(name)) for name in self._rows.layout.keys]
        casts = [self._casts[index] for index in self._plan.key_indexes]
        found = judged.where(F.col(_FAILED)).select(*[
            (key if cast.given == cast.kind else widened(key, cast.given, cast.kind)).alias(cast.name)
            for key, cast in zip(keys, casts, strict=True)
        ]).limit(_MOST_FAILING).toArrow()  # fmt: skip
        columns = [
            rule.from_source(found.column(number).combine_chunks()).to_pylist() for number, rule in enumerate(self._plan.key_rules)
        ]
        with self._lock:
            self.failing |= frozenset(zip(*columns, strict=True))
        return self._computed(judged)

    def _computed(self, judged: DataFrame) -> pa.Table:
        rows = self._image.of(judged, _GONE).where(~F.col(DELETED))
        return rows.select(*[cast.column for cast in self._casts]).toArrow()
