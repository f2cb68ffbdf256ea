"""The plan of a sink, before it is written to: each route and transform is bound to the tables that are known."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import structlog
from pyspark.sql import SparkSession

from kafkaio.schema_registry import RegisteredSchema, SchemaRegistry
from schemas.errors import ConfigError, SchemaMismatchError, SinkError
from schemas.identity import SourceTable
from schemas.settings import Settings
from schemas.topics import key_subject, state_topic, value_subject
from spark_jobs.decode.table_layout import TableLayout, layout
from spark_jobs.decode.writer_schemas import WriterSchema, key_writer, value_writer
from spark_jobs.kafka.admin import topic_exists
from spark_jobs.kafka.state_reader import tables_with_topics
from spark_jobs.merge.context import MergeParts
from spark_jobs.merge.schema_sources import built
from spark_jobs.pipeline.preview import PlannedTarget, planned_targets
from spark_jobs.pipeline.row_images import image_of
from spark_jobs.pipeline.table_routes import Routes
from spark_jobs.pipeline.udfs import register_udfs

log = structlog.get_logger()


def require_plan(spark: SparkSession, settings: Settings, parts: MergeParts, registry: SchemaRegistry) -> None:
    """Raise `ConfigError` if no target can be made of the tables, by any schema that the registry has of them.

    If others can be made, the problem is one of its tables: it is logged, and the batch with records of them sets them aside. With
    `on_table_error: stop` it is an error. The registry does not say which schema is the one of today: a table that has returned to
    an earlier form has an old version.
    """
    register_udfs(spark, settings.udfs)
    routes = parts.naming.routes
    anchor = state_topic(settings.name, settings.kafka.topic_delimiter)
    if not routes.are_given or not topic_exists(spark, settings.kafka, anchor):
        return  # no table is known before the producer has begun
    schemas: dict[SourceTable, _Schemas] = {}
    for name in sorted(tables_with_topics(spark, settings, parts.few)):
        changes, _ = parts.tables.topics(name)
        known = _Schemas(key_subject(changes), value_subject(changes), registry)
        if known.keys and known.values:  # a table without a key is skipped when it is merged
            schemas[parts.naming.table(*name)] = known
    planned = list(_planned(spark, routes, schemas))
    problems = [target for target in planned if target.problem]
    if problems and (settings.on_table_error == "stop" or len(problems) == len(planned)):
        raise ConfigError("; ".join(f"{target.name or ', '.join(target.tables)}: {target.problem}" for target in problems))
    for one in problems:
        log.error("merge.target_not_planned", target=one.name, tables=list(one.tables), reason=one.problem, others="continue")


class _Schemas:
    """The schemas of a table that the registry has now, oldest first."""

    def __init__(self, keys: str, values: str, registry: SchemaRegistry) -> None:
        self._subjects = keys, values
        self.keys, self.values = registry.versions(keys), registry.versions(values)
        self.refused = ""

    def layouts(self) -> Iterator[TableLayout]:
        """Yield the layouts that the table has or had, the last one first. `refused` is why some schemas have none."""
        for value in self._writers(1, self.values, value_writer):
            for key in self._writers(0, self.keys, key_writer):
                try:
                    yield layout([key], [value])
                except SchemaMismatchError as error:
                    self.refused = self.refused or str(error)

    def _writers(
        self, part: int, schemas: Sequence[RegisteredSchema], build: Callable[[RegisteredSchema], WriterSchema]
    ) -> Iterator[WriterSchema]:
        for schema in reversed(schemas):
            writer = built(self._subjects[part], schema, build)
            if writer is not None:
                yield writer


def _planned(spark: SparkSession, routes: Routes, schemas: Mapping[SourceTable, _Schemas]) -> Iterator[PlannedTarget]:
    """Yield the targets by the newest layouts of the tables for which they can be made."""
    layouts: dict[SourceTable, TableLayout | None] = {}
    for table, one in schemas.items():
        found = next(one.layouts(), None)
        if found is not None:
            layouts[table] = found
        elif one.refused:
            yield PlannedTarget("", (table.name.plain,), problem=one.refused)
    planned = list(planned_targets(spark, routes, layouts))
    of_problems = {name for target in planned if target.problem for name in target.tables}
    others = {
        table: found
        for table in layouts
        if table.name.plain in of_problems and (found := _bound(spark, routes, table, schemas[table])) is not None
    }
    changed = {table: found for table, found in others.items() if found != layouts[table]}
    yield from planned_targets(spark, routes, {**layouts, **changed}) if changed else planned


def _bound(spark: SparkSession, routes: Routes, table: SourceTable, schemas: _Schemas) -> TableLayout | None:
    """Return the newest layout of a table to which its transforms can be bound; None if there is none."""
    for found in schemas.layouts():
        try:
            for feed in routes.feeds(table):
                image_of(spark, feed, found)
        except SinkError:
            continue
        return found
    return None
