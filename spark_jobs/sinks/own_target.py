"""What the targets of all sinks have in common: their names, and whether a target is as its query left it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from schemas.errors import SinkError
from schemas.identity import SourceTable, Target
from schemas.overriding import override
from spark_jobs.sinks.contract import REMEDY, SinkTarget, TargetRecord

_Commit = TypeVar("_Commit")


class OwnTarget(SinkTarget):
    """A target with the source tables that go into it, the query that writes it, and the record of its last batch."""

    def __init__(self, name: Target, tables: Sequence[SourceTable], query_id: str) -> None:
        self.tables = tuple(tables)
        self.query_id = query_id
        self._name = name
        self._record = TargetRecord()

    @property
    @override
    def name(self) -> Target:
        return self._name

    @override
    def require_not_gone(self, record: TargetRecord) -> None:
        if record.last_commit >= 0 and not self.exists():
            message = (
                f"{self.location()} was written up to batch {record.last_commit} and is gone: what is in Kafka now would be a part "
                "of it only. Put it back, or rebuild the target (tidemark rebuild)"
            )
            raise SinkError(message)

    @override
    def trust(self, record: TargetRecord, batch_id: int) -> None:
        self._record = record
        self.trust_again(batch_id)

    @abstractmethod
    def trust_again(self, batch_id: int) -> None:
        """Refuse what happened since the last step of this batch (`SinkError`), before a further one."""

    def source_of(self, table: SourceTable) -> str | None:
        """Return how the rows of a table are known in this target; None where there are no others."""
        return table.text if len(self.tables) > 1 else None

    def require_own(self, by: str, batch: int, batch_id: int) -> None:
        """Raise `SinkError` unless a query's commit of a batch is ours, of the record or of an attempt at this batch."""
        require_own_commit(self.location(), by, batch, (self.query_id, self._record.last_commit, batch_id))


def require_own_commit(location: str, by: str, batch: int, own: tuple[str, int, int]) -> None:
    """Raise `SinkError` unless a commit of a query and a batch is our own.

    `own` has our query, its last batch in the target, and its batch now.
    """
    query_id, last_commit, batch_id = own
    if by != query_id or batch not in (last_commit, batch_id):
        message = (
            f"{location} was last written by batch {batch} of query {by}; query {query_id}, now at batch {batch_id}, wrote to it "
            f"in batch {last_commit}: {REMEDY}"
        )
        raise SinkError(message)


def newest_own_commit(
    location: str,
    commits: Iterable[tuple[_Commit, Mapping[str, Any] | None]],
    own: tuple[str, int, int],
    is_shortened: Callable[[], bool],
) -> _Commit | None:
    """Return the newest commit of a batch in a table; `SinkError` if another query has written it, or it was put back or forward.

    `commits` are those that led to the rows of now, the newest first, each with its stamp, None for one of somebody else: that is
    looked through. So is a write between two batches. None is returned if no commit of a batch is left, which is accepted if others
    removed the oldest ones (`is_shortened`). `own` is as in `require_own_commit`.
    """
    query_id, last_commit, _ = own
    is_redriven = False
    for commit, stamp in commits:
        if stamp is None:
            continue
        if stamp["query_id"] == query_id and "redrive" in stamp:  # between two batches
            is_redriven = True
            continue
        require_own_commit(f"table {location}", stamp["query_id"], stamp["batch_id"], own)
        return commit
    if is_redriven:
        return None
    if last_commit < 0:
        raise SinkError(f"there is a table at {location} that no merge job has written: move it away, or change sinks.path")
    if not is_shortened():
        raise SinkError(f"the table {location} is not the one this merge job wrote to in batch {last_commit}: {REMEDY}")
    return None
