"""The folders of one sink: tables at `<sink>/<database>/<table>`, everything else in `<sink>/_tidemark`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from schemas.names import folder_name
from schemas.settings import SinkSettings
from schemas.sink_paths import local_path
from spark_jobs.store.files import LocalFiles

CHECKPOINT: Final = "checkpoint"
STATE: Final = "state"
TOMBSTONES: Final = "tombstones"
LOADS: Final = "loads"
KEPT_ROWS: Final = "rows"
STAGED: Final = "staged"
SCHEMAS: Final = "schemas"
PROGRESS: Final = "progress.json"
BATCH: Final = "batch.json"
"""How the last batch was begun (`merge.begun_batch`)."""
LOCK: Final = "lock"


@dataclass(frozen=True, slots=True)
class SinkLayout:
    """The paths of one sink."""

    sink: Path

    @staticmethod
    def of(settings: SinkSettings) -> SinkLayout:
        """Return the layout of a sink; `ConfigError` for a path that is no folder of a file system.

        Of a database it is that of `work`, which has no tables.
        """
        return SinkLayout(Path(local_path(settings.folder)).absolute())

    @property
    def service(self) -> Path:
        """The folder of everything that is not a mirror."""
        return self.sink / "_tidemark"

    @property
    def files(self) -> LocalFiles:
        """The documents of the service folder."""
        return LocalFiles(self.service)

    @property
    def checkpoint(self) -> Path:
        """Spark's checkpoint."""
        return self.service / CHECKPOINT

    @property
    def tombstones(self) -> Path:
        """The root of the tombstone folders."""
        return self.service / TOMBSTONES

    @property
    def loads(self) -> Path:
        """The folder of rows that loads keep for a moment."""
        return self.service / LOADS

    @property
    def kept_rows(self) -> Path:
        """The folder of rows that workers keep for a batch."""
        return self.service / KEPT_ROWS

    @property
    def staged(self) -> Path:
        """The folder of rows on their way into a staging table."""
        return self.service / STAGED

    @property
    def quarantine(self) -> Path:
        """The quarantine table."""
        return self.service / "quarantine"

    @property
    def progress(self) -> Path:
        """The file for people and tools."""
        return self.service / PROGRESS

    @property
    def liveness(self) -> Path:
        """The running job's liveness record."""
        return self.service / "alive.json"

    @property
    def spark_log(self) -> Path:
        """What Spark's JVM logs, where this is the first sink of the job."""
        return self.service / "spark.log"

    def folder(self, database: str, name: str) -> str:
        """Return the folder of a table below the sink."""
        return f"{folder_name(database)}/{folder_name(name)}"

    def table(self, database: str, name: str) -> Path:
        """Return the path of a table."""
        return self.sink / self.folder(database, name)
