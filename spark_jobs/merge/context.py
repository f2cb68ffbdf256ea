"""What the tables of a merge job share while it runs. It owns nothing durable: all of it can be found out again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from pyspark.sql import SparkSession

from kafkaio.schema_registry import SchemaRegistry
from schemas.identity import SourceId, SourceTable, Target
from schemas.settings import Settings
from spark_jobs.decode.table_layout import TableLayout
from spark_jobs.kafka.few_records import FewRecords
from spark_jobs.kafka.producer_schemas import ProducerSchemas
from spark_jobs.kafka.topic_tables import TopicTables, topic_tables
from spark_jobs.merge.job_state import Naming
from spark_jobs.merge.schema_sources import SchemaSources, UsedSchemas
from spark_jobs.merge.spark_checkpoint import SparkCheckpoint
from spark_jobs.pipeline.row_images import Image, image_of
from spark_jobs.pipeline.schema_rules import SchemaRule
from spark_jobs.pipeline.table_plan import Plan
from spark_jobs.pipeline.table_routes import Feed, Routes
from spark_jobs.sinks.contract import FedBy, Sink
from spark_jobs.store.sink_layout import CHECKPOINT, SCHEMAS, SinkLayout


@dataclass(slots=True)
class JobContext:
    """The settings, names, schemas and sink of a job.

    `plan` says which table goes where, of the tables that are known now. `looked_at` is when the registry was last asked about a
    table that had no records. `images` are those of feeds, by the columns and the key of their source tables.
    `worker_failures` counts, by the names of a group's targets, how often workers failed in a row. `topic_ids` are the ids of the
    topics of the batch, by their names. `fed_by` is what targets of a group had been fed by when its last batch failed.
    `written` are targets to which an earlier attempt at the batch has written; `reads_otherwise` says that rows are read from the
    source by other settings than in that attempt. `rebuilt` counts, by table, the targets made again since the batch began.
    """

    settings: Settings
    layout: SinkLayout
    sink: Sink
    naming: Naming
    query_id: str
    schemas: SchemaSources
    plan: Plan = field(default_factory=lambda: Plan({}, (), {}))
    images: dict[tuple[object, ...], Image] = field(default_factory=dict)
    worker_failures: dict[tuple[str, ...], int] = field(default_factory=dict)
    looked_at: dict[SourceTable, float] = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    fed_by: dict[Target, Mapping[str, FedBy]] = field(default_factory=dict)
    written: frozenset[Target] = frozenset()
    rebuilt: Mapping[str, int] = field(default_factory=dict)
    reads_otherwise: bool = False

    @property
    def schema_rule(self) -> SchemaRule:
        """What the sink makes of schema changes."""
        return SchemaRule.of(self.settings.sink.schema_changes)

    @property
    def drops_columns(self) -> bool:
        """Whether columns go from targets when they go from the source."""
        return self.schema_rule.drops

    def folder_of(self, table: SourceTable) -> str:
        """Return the folder of a table, below the sink and below the folders of what is kept of it."""
        return self.layout.folder(table.name.database, table.name.table)

    def target_of(self, table: SourceTable) -> Target:
        """Return the one target of a table that goes into it alone and as it is."""
        return self.plan.alone[table]

    def image(self, spark: SparkSession, feed: Feed, layout: TableLayout) -> Image:
        """Return the image of a table whose rows have this layout; `TransformError` if there is none."""
        known = (feed.table, feed.target, feed.rule, layout.columns, layout.keys)
        if known not in self.images:
            self.images[known] = image_of(spark, feed, layout)
        return self.images[known]

    def forget(self, table: SourceTable) -> None:
        """Take nothing of a table for granted after a failure."""
        for target in self.naming.targets_of(table):
            self.sink.forget(target)
        self.looked_at.pop(table, None)


@dataclass(frozen=True, slots=True)
class MergeParts:
    """What a merge, and a repair of its quarantine, work with."""

    layout: SinkLayout
    sink: Sink
    checkpoint: SparkCheckpoint
    tables: TopicTables
    naming: Naming
    few: FewRecords

    def context(
        self, spark: SparkSession, settings: Settings, registry: SchemaRegistry, stops: Callable[[], bool] = lambda: False
    ) -> JobContext:
        """Return what the tables of a job share. The id of its query is known from its first batch on."""
        given = ProducerSchemas.of_producer(spark, settings, self.few)
        schemas = SchemaSources(registry, UsedSchemas(self.layout.files, SCHEMAS), given, stops)
        return JobContext(settings, self.layout, self.sink, self.naming, self.checkpoint.query_id or "", schemas)


def checkpoint_of(layout: SinkLayout) -> SparkCheckpoint:
    """Return the checkpoint beside a sink."""
    return SparkCheckpoint(layout.files, CHECKPOINT)


def merge_parts(spark: SparkSession, settings: Settings, layout: SinkLayout, sink: Sink) -> MergeParts:
    """Return the parts of the configured merge."""
    few = FewRecords(settings.kafka)
    tables = topic_tables(spark, settings, few)
    sink_name = settings.sink.name.replace(":", "_") or "sink"
    routes = Routes.of(sink_name, settings.sink).refusing(partial(settings.comes_round, settings.sink))
    naming = Naming(SourceId(settings.name), sink_name, tables.named, routes)
    return MergeParts(layout, sink, checkpoint_of(layout), tables, naming, few)
