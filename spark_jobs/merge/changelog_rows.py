"""Changes of a source table become events of its targets: for each target the images before and after every change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from spark_jobs.decode.record_columns import (
    AFTER,
    BEFORE,
    CHANGE,
    COMMITTED,
    DELETED,
    KEYS,
    OFFSET,
    ORIGIN,
    PARTITION,
    POSITION,
    TOPIC,
)
from spark_jobs.decode.spark_types import quoted
from spark_jobs.decode.table_layout import TableLayout
from spark_jobs.pipeline.row_images import Image

_GONE: Final = "_tm_gone "
_CARRIED: Final = (*ORIGIN, POSITION, COMMITTED, CHANGE, KEYS, BEFORE, AFTER)


def change_of(number: int) -> str:
    """Return the name of the column that says what a change is in the target of a number; NULL where it is nothing there."""
    return f"_tm_change_{number} "


def failed_of(number: int) -> str:
    """Return the name of the column that says whether an expression fails on the row after a change."""
    return f"_tm_failed_{number} "


def _before_of(number: int) -> str:
    return f"_tm_before_{number} "


def _after_of(number: int) -> str:
    return f"_tm_after_{number} "


def with_images(changes: DataFrame, layout: TableLayout, images: Sequence[Image], *, isolates: bool) -> DataFrame:
    """Return changes with their images in each target: `change_of`, and images that `events_of` reads.

    `changes` is what `decoded_changes` gives. With `isolates` no expression fails: `failed_of` is true for a change on whose row
    after it one does, and that change is nothing in the target. A row before a change on which one fails counts as not known.
    """
    rows = changes.select(*_CARRIED)
    for number, image in enumerate(images):
        rows = _with_image(rows, layout, image, number, isolates=isolates)
    return rows


def opened(rows: DataFrame, side: str, names: Sequence[str], kept: Sequence[str]) -> DataFrame:
    """Return rows with the columns of one side, `DELETED` where there is no such row, and the columns `kept`."""
    columns = [F.col(side).getField(name).alias(name) for name in names]
    return rows.select(*kept, *columns, F.col(side).isNull().alias(DELETED))


def events_of(rows: DataFrame, number: int, seen: Mapping[str, Mapping[int, int]]) -> DataFrame:
    """Return the events of one target: `POSITION`, `COMMITTED`, `CHANGE`, `BEFORE`, `AFTER`, without those that `seen` has.

    `seen` are offsets, exclusive, by topic and partition.
    """
    events = rows.where(F.col(change_of(number)).isNotNull())
    if seen:
        events = events.where(~_is_seen(seen))
    return events.select(
        POSITION,
        COMMITTED,
        F.col(change_of(number)).alias(CHANGE),
        F.col(_before_of(number)).alias(BEFORE),
        F.col(_after_of(number)).alias(AFTER),
    )


def _is_seen(seen: Mapping[str, Mapping[int, int]]) -> Column:
    found = F.lit(False)
    for topic, ends in seen.items():
        for partition, end in ends.items():
            same = (F.col(TOPIC) == F.lit(topic)) & (F.col(PARTITION) == F.lit(partition))
            found |= same & (F.col(OFFSET) < F.lit(end))
    return found


def _with_image(rows: DataFrame, layout: TableLayout, image: Image, number: int, *, isolates: bool) -> DataFrame:
    """Add the images of one target, and what the change is there."""
    carried = list(rows.columns)
    if image.feed.transform is None:
        rows = rows.withColumns({_before_of(number): F.col(BEFORE), _after_of(number): F.col(AFTER)})
        if isolates:
            rows = rows.withColumn(failed_of(number), F.lit(False))
        is_known = F.col(BEFORE).isNotNull()
    else:
        rows = _side(rows, layout, image, (AFTER, _after_of(number), failed_of(number)), carried, isolates=isolates)
        failed = f"_tm_failed_before_{number} "
        rows = _side(rows, layout, image, (BEFORE, _before_of(number), failed), list(rows.columns), isolates=isolates)
        is_known = F.col(BEFORE).isNotNull() & (~F.col(failed) if isolates else F.lit(True))
    before, after, change = F.col(_before_of(number)), F.col(_after_of(number)), F.col(CHANGE)
    # What may be in the target under this key, though no change that was read has put it there, is deleted.
    retracts = after.isNull() & ~is_known & (change != F.lit("c"))
    what = (
        F.when(after.isNotNull() & before.isNotNull(), F.lit("u"))
        .when(after.isNotNull() & (change == F.lit("u")) & is_known, F.lit("c"))
        .when(after.isNotNull(), change)
        .when(before.isNotNull() | retracts, F.lit("d"))
    )
    if isolates:
        what = F.when(~F.col(failed_of(number)), what)
    alone = image.keys_alone(F.col(KEYS), layout.keys)
    kept = [*carried, *((failed_of(number),) if isolates else ())]
    return rows.select(
        *kept,
        what.alias(change_of(number)),
        F.when(retracts, alone).otherwise(before).alias(_before_of(number)),
        after.alias(_after_of(number)),
    )


def _side(
    rows: DataFrame, layout: TableLayout, image: Image, names: tuple[str, str, str], kept: Sequence[str], *, isolates: bool
) -> DataFrame:
    """Add the image of one side of the changes; with `isolates` also whether an expression fails on it."""
    side, name, failed = names
    asked = opened(rows, side, layout.names, kept)
    if isolates:
        asked = image.failing(asked, layout.names, failed)
        asked = image.judged(asked, layout.names, _GONE, unless=failed).withColumn(_GONE, F.col(_GONE) | F.col(failed))
        return image.packed(asked, _GONE, name, [*kept, failed])
    return image.packed(image.judged(asked, layout.names, _GONE), _GONE, name, kept)


def row_after(rows: DataFrame, layout: TableLayout) -> DataFrame:
    """Return changes as rows of the source table, as `Image.judged` takes them: the row after each."""
    return opened(rows, AFTER, layout.names, [POSITION, COMMITTED, CHANGE]).where(~F.col(DELETED)).select(
        *[F.col(quoted(name)) for name in layout.names], DELETED, POSITION, COMMITTED, CHANGE
    )
