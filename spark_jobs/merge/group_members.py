"""The source tables of a group in one batch, and their rows as rows of its targets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the usual name
from pyspark.sql import types as T  # noqa: N812 - the usual name

from schemas.errors import SchemaMismatchError, SinkError, TidemarkError, TransformError, UnsupportedTypeError
from schemas.identity import SourceTable, Target
from spark_jobs.decode.record_columns import DELETED, POSITION, SOURCE
from spark_jobs.decode.spark_types import converted, literal, quoted
from spark_jobs.decode.table_layout import TableLayout
from spark_jobs.merge.source_part import SourcePart
from spark_jobs.pipeline.row_images import Image
from spark_jobs.spark_errors import expression_error


class MemberError(SinkError):
    """The error of a table of a group that cannot be merged; the others can. No target was written to by then."""

    def __init__(self, table: SourceTable, error: TidemarkError) -> None:
        super().__init__(str(error))
        self.table = table
        self.error = error


@contextmanager
def errors_of(table: SourceTable) -> Iterator[None]:
    """Raise `MemberError` for an error of the columns of a table, or of a transform that is bound to them."""
    try:
        yield
    except (TransformError, SchemaMismatchError, UnsupportedTypeError) as error:
        raise MemberError(table, error) from error


@dataclass(slots=True)
class Member:
    """A source table of the group: its part of the batch, its layout and its images (none while its schemas are not known).

    `rows` are the newest of its keys, of which there are `winners`, where Spark computes them. `times_ms` are when the source
    committed some of them.
    """

    part: SourcePart
    layout: TableLayout | None = None
    images: Mapping[Target, Image] = field(default_factory=dict)
    needs_plan: bool = True
    rows: DataFrame | None = None
    winners: int = 0
    times_ms: Sequence[int] = ()

    @property
    def table(self) -> SourceTable:
        """The table."""
        return self.part.input.table


def gone(number: int) -> str:
    """Return the name of the column that says whether a row has no image in the target of a number."""
    return f"_tm_gone_{number} "


def failed(number: int) -> str:
    """Return the name of the column that says whether an expression of the image of a number fails on a row."""
    return f"_tm_failed_{number} "


def as_target(image: Image, rows: DataFrame, layout: TableLayout) -> DataFrame:
    """Return images of one table with all columns of their target, `DELETED` and `POSITION`."""
    given = {name.lower(): (name, kind) for name, kind in image.columns}

    def column(name: str, kind: T.DataType) -> Any:
        if name == SOURCE:
            return F.lit(image.feed.table.text).alias(name)
        if name.lower() not in given:
            return literal(None, kind).alias(name)
        own, had = given[name.lower()]
        value = F.col(quoted(own))
        return (value if had == kind else converted(value, had, kind)).alias(name)

    return rows.select(*[column(*one) for one in layout.columns], DELETED, POSITION)


def why_it_fails(image: Image, row: DataFrame, layout: TableLayout, types: Mapping[str, T.DataType]) -> str:
    """Return the reason of an expression that fails on a row, or of a value that the target does not have in its fixed types."""
    try:
        image.of(image.judged(row, layout.names, gone(0)), gone(0)).collect()
    except (PySparkException, Py4JError) as error:
        return f"{image.feed.target.name}: {expression_error(error)}"
    names = ", ".join(image.misfits(row, types))
    what = f"the value of {names} does not fit, and schema_changes keeps the types" if names else "an expression fails on it"
    return f"{image.feed.target.name}: {what}"
