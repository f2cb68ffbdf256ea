"""The parts of a merge over one sink, put together from the settings: its folders, its names, its checkpoint."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from pyspark.sql import SparkSession

from schemas.identity import SourceId
from schemas.settings import Settings
from spark_jobs.kafka.few_records import FewRecords
from spark_jobs.kafka.topic_tables import TopicTables, topic_tables
from spark_jobs.merge.job_state import Naming
from spark_jobs.merge.spark_checkpoint import Checkpoint
from spark_jobs.pipeline.table_routes import Routes
from spark_jobs.sinks.contract import Sink
from spark_jobs.store.sink_layout import CHECKPOINT, SinkLayout


@dataclass(frozen=True, slots=True)
class MergeParts:
    """What a merge, and a repair of its quarantine, work with."""

    layout: SinkLayout
    sink: Sink
    checkpoint: Checkpoint
    tables: TopicTables
    naming: Naming
    few: FewRecords


def checkpoint_of(layout: SinkLayout) -> Checkpoint:
    """Return the checkpoint beside a sink."""
    return Checkpoint(layout.files, CHECKPOINT)


def merge_parts(spark: SparkSession, settings: Settings, layout: SinkLayout, sink: Sink) -> MergeParts:
    """Return the parts of the configured merge."""
    few = FewRecords(settings.kafka)
    tables = topic_tables(spark, settings, few)
    sink_name = settings.sink.name.replace(":", "_") or "sink"
    routes = Routes.of(sink_name, settings.sink).refusing(partial(settings.comes_round, settings.sink))
    naming = Naming(SourceId(settings.name), sink_name, tables.named, routes)
    return MergeParts(layout, sink, checkpoint_of(layout), tables, naming, few)
