"""The sink of changelogs in files: a folder per target, with state, quarantine and lock in its service folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyspark.sql import SparkSession

from schemas.identity import SourceTable, Target
from schemas.overriding import override
from spark_jobs.sinks.contract import SinkTarget
from spark_jobs.sinks.delta.quarantine_table import DeltaQuarantine
from spark_jobs.sinks.files.files_target import FilesTarget
from spark_jobs.sinks.folder_sink import FolderSink
from spark_jobs.sinks.target_shape import PLAIN_SHAPE, TargetShape
from spark_jobs.store.sink_layout import SinkLayout


class FilesSink(FolderSink):
    """Changelogs below a folder, in one format."""

    def __init__(self, layout: SinkLayout, query_id: Callable[[], str], form: str) -> None:
        super().__init__(layout, query_id, DeltaQuarantine(layout.quarantine))
        self._form = form

    @override
    def target(
        self, spark: SparkSession, name: Target, tables: Sequence[SourceTable], shape: TargetShape = PLAIN_SHAPE
    ) -> SinkTarget:
        return FilesTarget(spark, self._path(name), name, tables, self._query_id(), self._form)
