"""What the tables of a merge job share while it runs. It owns nothing durable: all of it can be found out again."""

from __future__ import annotations

from dataclasses import dataclass, field

from schemas.identity import SourceTable
from schemas.settings import Settings
from spark_jobs.merge.job_state import Naming
from spark_jobs.merge.schema_sources import SchemaSources
from spark_jobs.sinks.contract import Sink
from spark_jobs.store.sink_layout import SinkLayout


@dataclass(slots=True)
class JobContext:
    """The settings, names, schemas and sink of a job.

    `looked_at` is when the registry was last asked about a table that had no records.
    """

    settings: Settings
    layout: SinkLayout
    sink: Sink
    naming: Naming
    query_id: str
    schemas: SchemaSources
    looked_at: dict[SourceTable, float] = field(default_factory=dict)

    def folder_of(self, table: SourceTable) -> str:
        """Return the folder of a table, below the sink and below the folders of what is kept of it."""
        return self.layout.folder(table.name.database, table.name.table)

    def forget(self, table: SourceTable) -> None:
        """Take nothing of a table for granted after a failure."""
        self.sink.forget(self.naming.target_of(table))
        self.looked_at.pop(table, None)
