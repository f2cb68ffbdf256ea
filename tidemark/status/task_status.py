"""A task at one moment, as its target and Kafka report it: one tree, of which text and JSON are made."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, ClassVar, Final

from schemas.json_codec import Form, json_field
from schemas.paused_task import TaskPause

if TYPE_CHECKING:
    from schemas.settings.task_section import TaskSettings

SILENT_S: Final = 20.0
"""A process that applies notes each 5 s that it lives."""


class TaskPhase(Enum):
    """The state of a task in one word."""

    RUNNING = "running"
    PAUSING = "pausing"
    PAUSED = "paused"
    STOPPED = "stopped"
    SILENT = "silent"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOfTaskStatus:
    """A source of a task: the position up to which it is applied, and how far Kafka is ahead of it.

    `behind_s` is between two promises of the source, by its own clock; `behind_commits` counts commit records. Kafka keeps the
    records that are next for `head_room_s` at least; `is_kept`: it removes none by time or size. None: unknown.
    """

    name: str = json_field(name="source")
    position: str | None
    behind_s: float | None
    behind_commits: int | None
    head_room_s: float | None = None
    is_kept: bool | None = None
    loading: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenPlanStatus:
    """A batch that workers apply: `done` of its `rows` are applied."""

    rows: int
    done: int
    workers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskStatus:
    """A task, read at `read_ms`. `process` was seen `seen_s` ago, by the clock of the target; "": it has ended; None: unknown.

    `problem`: why nothing else is known; `kafka_problem`: why it is unknown how far a source is behind.
    `statement` of DDL runs, or was interrupted. `released_us`: with `order: global` everything before that time is applied, and
    `blocked_by` is the source that is waited for next (None: unknown).
    """

    JSON: ClassVar = Form(head=lambda status: {"state": status.phase.value})

    read_ms: int
    task: str
    target: str
    epoch: int | None = None
    process: str | None = None
    seen_s: float | None = None
    pause: TaskPause | None = None
    statement: str | None = None
    released_us: int | None = None
    blocked_by: str | None = None
    plan: OpenPlanStatus | None = None
    sources: tuple[SourceOfTaskStatus, ...] = json_field((), required=True)
    problem: str | None = None
    kafka_problem: str | None = None

    @classmethod
    def unknown(cls, settings: TaskSettings, read_ms: int, problem: str) -> TaskStatus:
        """Return the status of a task of which nothing is known, for that reason."""
        return cls(read_ms=read_ms, task=settings.task, target=settings.target.address, problem=problem)

    @property
    def phase(self) -> TaskPhase:
        """The state in one word."""
        is_effective = self.pause is not None and self.pause.is_effective
        if self.problem is not None or (self.process is None and not is_effective):
            return TaskPhase.UNKNOWN
        if self.process == "":
            return TaskPhase.STOPPED
        if self.seen_s is not None and self.seen_s > SILENT_S:
            return TaskPhase.SILENT
        if self.pause is not None:
            return TaskPhase.PAUSED if is_effective else TaskPhase.PAUSING
        return TaskPhase.RUNNING
