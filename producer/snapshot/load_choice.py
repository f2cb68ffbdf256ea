"""Which tables the merge job reads itself, and what it is asked for (pure).

The rule rests on what is known when a table is first looked at: the settings, what the request says, the server's statistics. It
is asked once for each plan of a table; what was chosen is remembered with the task.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from producer.snapshot.snapshot_state import TableTask
    from schemas.position import Position
    from schemas.settings import Settings


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """What the merge job is asked for: the marker of a load, without what its window says."""

    low: Position
    file: str
    snapshot: str
    query: str
    server: str
    key_schema: int | None
    value_schema: int

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of the marker's draft; positions are texts."""
        return {
            "low": self.low.text,
            "file": self.file,
            "snapshot": self.snapshot,
            "query": self.query,
            "server": self.server,
            "key_schema": self.key_schema,
            "value_schema": self.value_schema,
        }


@dataclass(frozen=True, slots=True)
class LoadRule:
    """What the settings say: `via` of requests that do not say it themselves.

    "auto" means the merge job for tables of `min_rows` or more. `impossible` says why it can read no table, "" where it can.
    `chunk_rows` are the rows of a chunk that goes through Kafka.
    """

    via: str = "kafka"
    min_rows: int = 0
    impossible: str = ""
    chunk_rows: int = 0

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """Return the rule of the settings."""
        snapshot = settings.snapshot
        return cls(snapshot.via, snapshot.spark_min_rows, settings.why_no_loads, snapshot.chunk_rows)

    def asked(self, task: TableTask) -> str:
        """Return what is asked for: "auto", "kafka" or "spark"."""
        return task.asked_via or self.via

    def choose(self, task: TableTask) -> tuple[str, str]:
        """Return the way of a task's rows, "kafka" or "spark", and why it is not the one that was asked for, "" where it is."""
        asked = self.asked(task)
        if asked == "kafka":
            return "kafka", ""
        reason = self.impossible or _refusal(task)
        if reason:
            return "kafka", reason if asked == "spark" else ""
        is_chosen = asked == "spark" or (task.estimate is not None and task.estimate >= self.min_rows)
        return "spark" if is_chosen else "kafka", ""

    def refusal(self, task: TableTask) -> str:
        """Return why the merge job may read no more of a table that it began with, "" where it may: settings have changed."""
        if self.asked(task) == "kafka":
            return "snapshot.via is kafka"
        return self.impossible or _refusal(task)


def _refusal(task: TableTask) -> str:
    """Return why the rows of this task cannot be read by the merge job."""
    if task.merge == "producer":
        return "the producer merges its rows (merge: producer)"
    if task.condition is not None:
        return "the request has a condition"
    if task.surrogate is not None:
        return "the request has a surrogate key"
    return "these are rows of changed parents" if task.children is not None else ""
