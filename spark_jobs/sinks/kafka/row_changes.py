"""The net changes that a step of a mirror makes: rows there and what a batch does to them enter, events leave, each identity once.

Events have `POSITION`, `COMMITTED`, `CHANGE`, `BEFORE`, `AFTER` and `SOURCE`, and are computed when they are read. A row whose text
stays the same is no change.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the usual name
from pyspark.sql import types as T  # noqa: N812 - the usual name

from spark_jobs.decode.record_columns import AFTER, BEFORE, CHANGE, COMMITTED, DELETED, POSITION, SOURCE
from spark_jobs.decode.spark_types import quoted
from spark_jobs.formats.event_texts import json_of
from spark_jobs.sinks.contract import Evolution
from spark_jobs.sinks.table_rows import evolved_rows

_OWN: Final = (POSITION, SOURCE)
BELOW: Final = "_tm_below "  # ends with a space, as the names of `decode.record_columns`
"""The position at which a row goes, beside its columns."""
_FEW: Final = 200_000
_IS_CHANGED: Final = "_tm_is_changed "


def first_events(winners: DataFrame, source: str | None) -> DataFrame:
    """Return the events of the first rows of a target. `source` is the only source table; None where `SOURCE` says it."""
    rows = winners.where(~F.col(DELETED))
    kind = _image_type(rows, (*_OWN, DELETED))
    return _events(rows, F.lit("c"), F.lit(None).cast(kind), _image(rows, (*_OWN, DELETED)), source)


def put_events(winners: DataFrame, rows: DataFrame, keys: Sequence[str], pruned: str, source: str | None) -> DataFrame:
    """Return the events of winners that are put into rows, by the guard of `table_rows.guarded_merge`.

    Winners are computed already. `pruned` is a further condition on the row there, `t`, that every matching row meets. `source` is
    as in `first_events`.
    """
    match = reduce(operator.and_, [F.col(f"t.{quoted(name)}") == F.col(f"s.{quoted(name)}") for name in keys])
    given_keys = winners.select(*map(quoted, keys))
    few = F.broadcast(given_keys) if winners.count() <= _FEW else given_keys  # no rows of the table are shuffled then
    there_now = rows.alias("t").join(few.alias("s"), match & F.expr(pruned) if pruned else match, "left_semi")
    joined = winners.alias("s").join(there_now.alias("t"), match, "left")
    is_there, is_deleted = F.col(f"t.{POSITION}").isNotNull(), F.col(f"s.{quoted(DELETED)}")
    fields = [field for field in rows.schema.fields if field.name not in _OWN]
    given = {field.name: field.dataType for field in winners.schema.fields}

    def after(field: T.StructField) -> Column:
        there = F.col(f"t.{quoted(field.name)}")
        if field.name not in given:
            return F.when(is_there, there).alias(field.name)  # MERGE leaves the column as it is
        new = F.col(f"s.{quoted(field.name)}")
        return (new if given[field.name] == field.dataType else new.cast(field.dataType)).alias(field.name)

    there = F.struct(*[F.col(f"t.{quoted(field.name)}").alias(field.name) for field in fields])
    before, new = F.when(is_there, there), F.when(~is_deleted, F.struct(*map(after, fields)))
    is_newer = F.col(f"s.{POSITION}") > F.col(f"t.{POSITION}")
    change = (
        F.when(~is_there, F.when(~is_deleted, F.lit("c")))
        .when(is_newer & is_deleted, F.lit("d"))
        .when(is_newer & (json_of(before) != json_of(new)), F.lit("u"))
    )
    named = F.col(f"s.{SOURCE}") if source is None else F.lit(source)
    position = F.col(f"s.{POSITION}").alias(POSITION)
    own = (position, F.lit(None).cast("bigint").alias(COMMITTED), change.alias(CHANGE), named.alias(SOURCE))
    return joined.select(*own, before.alias(BEFORE), new.alias(AFTER)).where(F.col(CHANGE).isNotNull())


def removed_events(rows: DataFrame, source: str | None) -> DataFrame:
    """Return the events of rows that go at the position in their column `BELOW`."""
    own = (*_OWN, BELOW)
    return _events(rows, F.lit("d"), _image(rows, own), F.lit(None).cast(_image_type(rows, own)), source, F.col(BELOW))


def evolved_events(rows: DataFrame, change: Evolution, source: str | None) -> tuple[DataFrame, DataFrame]:
    """Return the events of rows that a change of columns changes: each is deleted as it was, then created as it becomes.

    The images of the first have the former columns, those of the second the later ones.
    """
    former = {field.name for field in rows.schema.fields if field.name not in _OWN}
    both = evolved_rows(rows.withColumn(BEFORE, _image(rows, _OWN)), change)
    later = [name for name in both.columns if name not in (*_OWN, BEFORE)]
    kept = [name for name in later if name in former]
    was = F.struct(*[F.col(quoted(BEFORE)).getField(name).alias(name) for name in kept])
    now = F.struct(*[F.col(quoted(name)) for name in kept])
    changed = [json_of(was) != json_of(now)] if kept else []
    changed += [F.col(quoted(name)).isNotNull() for name in later if name not in former]
    changed += [F.col(quoted(BEFORE)).getField(name).isNotNull() for name in former if name not in later]
    found = both.withColumn(_IS_CHANGED, reduce(operator.or_, changed)).where(F.col(quoted(_IS_CHANGED)))
    own = (*_OWN, BEFORE, _IS_CHANGED)
    before, after = F.col(quoted(BEFORE)), _image(found, own)
    deleted = _events(found, F.lit("d"), before, F.lit(None).cast(both.schema[BEFORE].dataType), source)
    return deleted, _events(found, F.lit("c"), F.lit(None).cast(_image_type(found, own)), after, source)


def _events(
    rows: DataFrame, change: Column, before: Column, after: Column, source: str | None, position: Column | None = None
) -> DataFrame:
    at = F.col(POSITION) if position is None else position
    named = F.col(SOURCE) if source is None else F.lit(source)
    return rows.select(
        at.alias(POSITION),
        F.lit(None).cast("bigint").alias(COMMITTED),
        change.alias(CHANGE),
        named.alias(SOURCE),
        before.alias(BEFORE),
        after.alias(AFTER),
    )


def _image(rows: DataFrame, own: Sequence[str]) -> Column:
    return F.struct(*[F.col(quoted(name)).alias(name) for name in rows.columns if name not in own])


def _image_type(rows: DataFrame, own: Sequence[str]) -> T.StructType:
    return T.StructType([T.StructField(field.name, field.dataType) for field in rows.schema.fields if field.name not in own])
