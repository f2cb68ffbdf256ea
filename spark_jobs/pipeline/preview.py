"""What the plan of a sink makes of its tables, for people: layouts of source tables enter, planned targets leave."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pyspark.sql import SparkSession

from kafkaio.schema_registry import RegisteredSchema
from schemas.errors import SinkError
from schemas.identity import SourceTable, Target
from spark_jobs.decode import table_layout
from spark_jobs.decode.record_columns import SOURCE
from spark_jobs.decode.table_layout import TableLayout
from spark_jobs.decode.writer_schemas import key_writer, value_writer
from spark_jobs.pipeline.row_images import Image, image_of
from spark_jobs.pipeline.table_plan import plan_of, shape_of
from spark_jobs.pipeline.table_routes import Feed, Routes
from spark_jobs.pipeline.target_layout import target_layout


@dataclass(frozen=True, slots=True)
class PlannedTarget:
    """A target with its source tables, the names of its identity, and its columns with their types in Spark.

    `where` has the condition of each source table that has one. `key` is what transforms ask for; with `is_primary` it has the
    identity, and `SOURCE` of a target of several tables. `problem` says why there is no such target; None where there is.
    """

    name: str
    tables: tuple[str, ...]
    identity: tuple[str, ...] = ()
    columns: tuple[tuple[str, str], ...] = ()
    where: Mapping[str, str] | None = None
    key: tuple[str, ...] = ()
    is_primary: bool = False
    problem: str | None = None


def layout_of_schemas(key: str, value: str) -> TableLayout:
    """Return the layout of a table from the Avro text of its key and of its value."""
    keys, values = (RegisteredSchema(number, text) for number, text in ((1, key), (2, value)))
    return table_layout.layout([key_writer(keys)], [value_writer(values)])


def planned_targets(
    spark: SparkSession, routes: Routes, layouts: Mapping[SourceTable, TableLayout | None]
) -> Iterator[PlannedTarget]:
    """Yield the targets of these tables, by name; a table without a key, whose layout is None, has none."""
    plan = plan_of(routes, layouts)
    for table, reason in sorted(plan.failed.items()):
        yield PlannedTarget("", (table.name.plain,), problem=reason)
    feeds: dict[Target, list[Feed]] = {}
    for table in sorted(layouts.keys() - plan.failed.keys()):
        for feed in routes.feeds(table):
            feeds.setdefault(feed.target, []).append(feed)
    for target, found in sorted(feeds.items()):
        yield _planned(spark, target, found, layouts)


def _planned(
    spark: SparkSession, target: Target, feeds: list[Feed], layouts: Mapping[SourceTable, TableLayout | None]
) -> PlannedTarget:
    tables = tuple(feed.table.name.plain for feed in feeds)
    where = {feed.table.name.plain: feed.transform.where for feed in feeds if feed.transform and feed.transform.where}
    images: list[Image] = []
    try:
        for feed in feeds:
            layout = layouts[feed.table]
            if layout is None:
                return PlannedTarget(
                    target.name, tables, problem=f"{feed.table.name.plain} has no primary key and no unique key: a mirror needs one"
                )
            images.append(image_of(spark, feed, layout))
        shape_of(feeds)
        found = target_layout(target, images, is_shared=len(images) > 1)
    except SinkError as error:
        return PlannedTarget(target.name, tables, problem=str(error))
    columns = tuple((name, kind.simpleString()) for name, kind in found.columns)
    key = images[0].key
    is_primary = bool(key) and images[0].record_keys == key
    own = (SOURCE,) if is_primary and len(images) > 1 else ()
    return PlannedTarget(target.name, tables, found.keys, columns, where, (*own, *key), is_primary)
