"""The interfaces between a task and its target: a database (`ApplyTarget`, `Applier`) or files (`FileTarget`, `Archiver`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from mysqlio.server_access import ServerAccess
from spark_jobs.replicate.apply.apply_target import ApplyTarget
from spark_jobs.replicate.apply.archiver import FileTarget
from spark_jobs.replicate.task_pause import PauseKeeper

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from schemas.settings.task_section import TaskSettings
    from spark_jobs.replicate.apply.applier import FollowedSource, StatementWriter
    from spark_jobs.replicate.apply.apply_target import SourceState
    from spark_jobs.replicate.order.stream_reader import KafkaTransaction


class Destination(PauseKeeper, Protocol):
    """The durable state of a task, beside the changes that it counts. Use it in one thread."""

    task: str
    epoch: int
    """0 until `take_over`."""

    def require_usable(self, source: str, server: str) -> None:
        """Raise `ConfigError` if nothing can be written there, or if it is the `server` that the source reads."""

    def take_over(self) -> None:
        """Begin to write; no other process can from then on."""

    def exists(self, database: str, table: str) -> bool:
        """Return whether there is such a table, which is kept as it is."""

    def has_rows(self, database: str, table: str) -> bool:
        """Return whether a table has any row."""

    def states(self) -> Mapping[str, SourceState]:
        """Return the state of each source that this task has begun."""

    def transaction(self) -> AbstractContextManager[None]:
        """Commit all that the block writes, or nothing."""

    def put_state(self, source: str, state: SourceState) -> None:
        """Write the state of a source, within a transaction."""


class ChangeWriter(Protocol):
    """Applies or keeps the changes of sources."""

    rows: Counter[tuple[str, str]]
    """Rows that were applied or kept, by source and operation."""

    @property
    def states(self) -> Mapping[str, SourceState]:
        """The state of each source."""

    def statements(self, source: str, follows: Callable[[str, str], bool]) -> StatementWriter:
        """Return the runner or keeper of the statements of a source; `follows` returns whether a table is one of the task."""

    def add(self, source: FollowedSource) -> None:
        """Apply or keep the changes of a source, too; the destination has its state."""

    def offset(self, source: str) -> int:
        """Return the offset of the first commit record that is not applied or kept whole."""

    def apply(self, transactions: Sequence[KafkaTransaction]) -> None:
        """Apply or keep Kafka transactions, which follow the states, and commit them with the states behind them."""


def target_of(settings: TaskSettings) -> FileTarget | ApplyTarget:
    """Return the target of a task. Nothing is connected or opened yet."""
    if settings.target.type == "file":
        return FileTarget(settings.target, settings.task)
    return ApplyTarget(ServerAccess.of(settings.target), settings.task, settings.target.channel)
