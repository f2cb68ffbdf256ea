"""The figures of a task that is running, for its metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from schemas.commit_records import CommitRecord
    from spark_jobs.replicate.apply.components import Conflicts


@dataclass(frozen=True, slots=True)
class SourceProgress:
    """A source since the attempt began: promises in µs since 1970 (None: unknown).

    `lifted` transactions had their time raised, `skipped` ones were not applied.
    """

    read_us: int | None = None
    applied_us: int | None = None
    lifted: int = 0
    skipped: int = 0

    def behind(self, commit: CommitRecord) -> SourceProgress:
        """Return the figures behind a commit record that was read."""
        return replace(self, read_us=commit.promise_us, lifted=self.lifted + len(commit.lifts))


@dataclass(frozen=True, slots=True)
class TaskFigures:
    """The figures behind a round. `rows` are those applied, by source and Debezium's letter of the operation.

    With `order: global`: the time up to which everything is applied, and the source that others wait for. With workers: the
    conflicts of the last batch that they applied.
    """

    sources: Mapping[str, SourceProgress] = field(default_factory=dict)
    rows: Mapping[tuple[str, str], int] = field(default_factory=Counter)
    apply_s: float = 0.0
    frontier_us: int | None = None
    blocked_by: str | None = None
    conflicts: Conflicts | None = None
