"""Where the merge job keeps things: tables at `<sink>/<database>/<table>`, the rest in `<sink>/_tidemark`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from schemas.names import folder_name
from schemas.settings import SinkSettings


@dataclass(frozen=True, slots=True)
class Places:
    """The paths of one sink."""

    sink: Path

    @staticmethod
    def of(settings: SinkSettings) -> Places:
        """The places of a sink."""
        return Places(Path(settings.path).absolute())

    @property
    def service(self) -> Path:
        """The folder of all that is not a mirror."""
        return self.sink / "_tidemark"

    @property
    def checkpoint(self) -> Path:
        """Spark's checkpoint."""
        return self.service / "checkpoint"

    @property
    def state(self) -> Path:
        """The states of the last batches."""
        return self.service / "state"

    @property
    def tombstones(self) -> Path:
        """The root of the tombstone folders."""
        return self.service / "tombstones"

    @property
    def quarantine(self) -> Path:
        """The quarantine table."""
        return self.service / "quarantine"

    @property
    def schemas(self) -> Path:
        """The root of the schemas that were used."""
        return self.service / "schemas"

    @property
    def progress(self) -> Path:
        """The file for people and tools."""
        return self.service / "progress.json"

    @property
    def sign(self) -> Path:
        """The running job's sign of life."""
        return self.service / "alive.json"

    @property
    def lock(self) -> Path:
        """Held by the JVM of the job that writes to this sink."""
        return self.service / "lock"

    def table(self, database: str, name: str) -> Path:
        """Where a table lands."""
        return self.sink / folder_name(database) / folder_name(name)
