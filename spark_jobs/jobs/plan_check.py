"""The plan of a sink, before it is written to: each route and transform is bound to the tables that are known."""

from __future__ import annotations

from pyspark.sql import SparkSession

from schemas.errors import ConfigError
from schemas.identity import SourceTable
from schemas.settings import Settings
from schemas.topics import key_subject, state_topic, value_subject
from spark_jobs.decode.table_layout import TableLayout
from spark_jobs.kafka.admin import topic_exists
from spark_jobs.kafka.schema_registry import SchemaRegistry
from spark_jobs.kafka.state_reader import tables_with_topics
from spark_jobs.merge.merge_parts import MergeParts
from spark_jobs.pipeline.preview import layout_of_schemas, planned_targets
from spark_jobs.pipeline.udfs import register_udfs


def require_plan(spark: SparkSession, settings: Settings, parts: MergeParts, registry: SchemaRegistry) -> None:
    """Raise `ConfigError` for a target that cannot be made of the tables as the registry has them now."""
    register_udfs(spark, settings.udfs)
    routes = parts.naming.routes
    anchor = state_topic(settings.name, settings.kafka.topic_delimiter)
    if not routes.are_given or not topic_exists(spark, settings.kafka, anchor):
        return  # no table is known before the producer has begun
    layouts: dict[SourceTable, TableLayout | None] = {}
    for name in sorted(tables_with_topics(spark, settings, parts.few)):
        changes, _ = parts.tables.topics(name)
        keys, values = registry.versions(key_subject(changes)), registry.versions(value_subject(changes))
        if keys and values:  # a table without a key is skipped when it is merged
            layouts[parts.naming.table(*name)] = layout_of_schemas(keys[-1].text, values[-1].text)
    problems = [f"{target.name}: {target.problem}" for target in planned_targets(spark, routes, layouts) if target.problem]
    if problems:
        raise ConfigError("; ".join(problems))
