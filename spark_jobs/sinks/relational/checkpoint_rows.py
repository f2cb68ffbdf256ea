"""The rows that make batches count once: who owns a sink, and which steps of which batch a target has."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from schemas.identity import Target
from spark_jobs.sinks.contract import FencedSinkError
from spark_jobs.sinks.relational.sink_connection import SinkConnection
from spark_jobs.sinks.relational.sql_dialect import CHECKPOINT, OWNER, Dialect
from spark_jobs.sinks.stamp import Stamp

KEPT_BATCHES: Final = 3
EMPTY: Final[Mapping[str, Any]] = {"empty": True}
"""The witness of a target without rows."""


@dataclass(frozen=True, slots=True)
class TargetCheckpoint:
    """What a target has: the query, the last batch (-1: only made so far), the steps of the last batches with their stamps.

    `witness` is a row that the last write left there: its key as texts, and its position. A target that has it not was put back or
    replaced. {} is none: nothing is known of the rows.
    """

    query_id: str
    batch_id: int = -1
    witness: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    steps: tuple[Mapping[str, Any], ...] = ()

    def has(self, stamp: Stamp, step: str) -> bool:
        """Return whether a step of this batch, or of this redrive, took effect, with the same source tables (`Stamp.table`)."""
        wanted = (step, stamp.table, stamp.query_id, stamp.redrive)
        return any(
            (one["step"], one["table"], one["query_id"], one.get("redrive", "")) == wanted
            and one["batch_id"] >= stamp.batch_id
            for one in self.steps
        )

    def has_batch(self, query_id: str, batch_id: int) -> bool:
        """Return whether any step of a batch took effect."""
        return any((one["query_id"], one["batch_id"], one.get("redrive", "")) == (query_id, batch_id, "") for one in self.steps)

    def with_step(self, stamp: Stamp, step: str) -> TargetCheckpoint:
        """Return it with one more step."""
        kept = [one for one in self.steps if one["batch_id"] > stamp.batch_id - KEPT_BATCHES]
        done = {"step": step, **json.loads(stamp.metadata)}
        batch_id = self.batch_id if stamp.redrive else stamp.batch_id
        return replace(self, query_id=stamp.query_id, batch_id=batch_id, steps=(*kept, done))


class CheckpointRows:
    """The tables of the sink's own in a database, for one sink."""

    def __init__(self, dialect: Dialect, sink: str) -> None:
        self._dialect = dialect
        self._sink = sink
        self._owner = dialect.service(OWNER)
        self._checkpoint = dialect.service(CHECKPOINT)

    def raise_epoch(self, connection: SinkConnection) -> int:
        """Return a new epoch of this sink. It waits for transactions of the former owner; later ones are refused."""
        with connection.transaction():
            connection.execute(self._dialect.add_owner(), self._sink)
            connection.execute(f"UPDATE {self._owner} SET epoch = epoch + 1 WHERE sink = %s", self._sink)  # noqa: S608
            return int(connection.value(f"SELECT epoch FROM {self._owner} WHERE sink = %s", self._sink))  # noqa: S608

    def require_epoch(self, connection: SinkConnection, epoch: int) -> None:
        """Refuse to continue if another has opened the sink since (`FencedSinkError`). Nobody can before the transaction ends."""
        sql = f"SELECT epoch FROM {self._owner} WHERE sink = %s {self._dialect.share_lock}"  # noqa: S608
        found = connection.value(sql, self._sink)
        if found != epoch:
            message = (
                f"another merge job has opened the sink {self._sink!r} in this database since (epoch {found}, ours is {epoch}): "
                "this one has written nothing since. Stop one of them, or give one of the sinks another name"
            )
            raise FencedSinkError(message)

    def read(self, connection: SinkConnection, name: Target, *, lock: str = "") -> TargetCheckpoint | None:
        """Return what a target has; None if nothing is known of it. With `lock` the row stays as it is for this transaction."""
        columns = "query_id, batch_id, witness, steps"
        sql = f"SELECT {columns} FROM {self._checkpoint} WHERE sink = %s AND target = %s {lock}"  # noqa: S608
        rows = connection.query(sql, self._sink, name.name)
        if not rows:
            return None
        query_id, batch_id, witness, steps = rows[0]
        return TargetCheckpoint(str(query_id), int(batch_id), json.loads(witness), tuple(json.loads(steps)))

    def write(self, connection: SinkConnection, name: Target, found: TargetCheckpoint) -> None:
        """Replace what a target has."""
        values = (found.query_id, found.batch_id, json.dumps(found.witness), json.dumps(found.steps, separators=(",", ":")))
        own = "WHERE sink = %s AND target = %s"
        sql = f"UPDATE {self._checkpoint} SET query_id = %s, batch_id = %s, witness = %s, steps = %s {own}"  # noqa: S608
        if not connection.query(f"SELECT 1 FROM {self._checkpoint} {own}", self._sink, name.name):  # noqa: S608
            sql = (
                f"INSERT INTO {self._checkpoint} (query_id, batch_id, witness, steps, sink, target) VALUES (%s, %s, %s, %s, %s, %s)"  # noqa: S608
            )
        connection.execute(sql, *values, self._sink, name.name)

    def remove(self, connection: SinkConnection, name: Target) -> None:
        """Forget a target."""
        connection.execute(f"DELETE FROM {self._checkpoint} WHERE sink = %s AND target = %s", self._sink, name.name)  # noqa: S608
