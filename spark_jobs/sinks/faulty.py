"""A fault-injecting sink: any sink, with an error raised before or after the steps that a test names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from schemas.identity import SourceTable, Target
from schemas.merge_rule import DueSweep
from schemas.overriding import override
from spark_jobs.sinks.changelog_events import Appended, Events
from spark_jobs.sinks.contract import (
    Capabilities,
    Columns,
    Evolution,
    LoadedRows,
    PutShape,
    Quarantine,
    QuarantineStep,
    Sink,
    SinkTarget,
    StateStore,
    TargetRecord,
    Winners,
    WorkerLoad,
    WorkerPut,
    Writer,
)
from spark_jobs.sinks.stamp import Stamp
from spark_jobs.sinks.target_shape import PLAIN_SHAPE, TargetShape


class InjectedCrashError(Exception):
    """The process ends here: what was done stays done, nothing else happens. No code of the merge handles it."""


@dataclass(slots=True)
class Faults:
    """Which points raise an error. `passed` are all points that were reached, in order: `before put`, `after put` ..."""

    armed: dict[str, Exception] = field(default_factory=dict)
    passed: list[str] = field(default_factory=list)

    def crash_at(self, point: str) -> None:
        """Have the next pass of a point raise `InjectedCrashError`."""
        self.fail_at(point, InjectedCrashError(point))

    def fail_at(self, point: str, error: Exception) -> None:
        """Have the next pass of a point raise this error."""
        self.armed[point] = error

    @contextmanager
    def around(self, step: str) -> Iterator[None]:
        """Pass the points before and after a step."""
        self._pass(f"before {step}")
        yield
        self._pass(f"after {step}")

    def _pass(self, point: str) -> None:
        self.passed.append(point)
        error = self.armed.pop(point, None)
        if error is not None:
            raise error


class FaultySink(Sink):
    """A sink whose steps pass the points of `faults`."""

    def __init__(self, inner: Sink, faults: Faults) -> None:
        self._inner = inner
        self._faults = faults

    @property
    @override
    def can(self) -> Capabilities:
        return self._inner.can

    @override
    def exclusive(self, spark: SparkSession, wait_s: int) -> AbstractContextManager[None]:
        return self._inner.exclusive(spark, wait_s)

    @override
    def states(self) -> StateStore:
        return FaultyStates(self._inner.states(), self._faults)

    @override
    def quarantine(self) -> Quarantine:
        return FaultyQuarantine(self._inner.quarantine(), self._faults)

    @override
    def target(
        self, spark: SparkSession, name: Target, tables: Sequence[SourceTable], shape: TargetShape = PLAIN_SHAPE
    ) -> SinkTarget:
        return FaultyTarget(self._inner.target(spark, name, tables, shape), self._faults)

    @override
    def remove(self, name: Target) -> None:
        self._inner.remove(name)

    @override
    def remove_old_files(self, spark: SparkSession, name: Target) -> bool:
        with self._faults.around("remove_old_files"):
            return self._inner.remove_old_files(spark, name)

    @override
    def forget(self, name: Target) -> None:
        self._inner.forget(name)

    @override
    def passing(self, error: Exception) -> str | None:
        return self._inner.passing(error)


class FaultyStates(StateStore):
    """States whose `save` passes the points of `faults`."""

    def __init__(self, inner: StateStore, faults: Faults) -> None:
        self._inner = inner
        self._faults = faults

    @override
    def newest(self) -> int:
        return self._inner.newest()

    @override
    def load(self, batch_id: int) -> str:
        return self._inner.load(batch_id)

    @override
    def save(self, batch_id: int, text: str) -> None:
        with self._faults.around("save"):
            self._inner.save(batch_id, text)

    @override
    def location(self, batch_id: int) -> str:
        return self._inner.location(batch_id)


class FaultyQuarantine(Quarantine):
    """A quarantine whose writes pass the points of `faults`."""

    def __init__(self, inner: Quarantine, faults: Faults) -> None:
        self._inner = inner
        self._faults = faults

    @override
    def append(self, rows: DataFrame, stamp: Stamp, step: QuarantineStep) -> None:
        with self._faults.around("quarantine"):
            self._inner.append(rows, stamp, step)

    @override
    def records(self, spark: SparkSession) -> DataFrame | None:
        return self._inner.records(spark)

    @override
    def remove(self, coordinates: DataFrame) -> int:
        with self._faults.around("remove"):
            return self._inner.remove(coordinates)

    @override
    def has_commit(self, query_id: str, batch_id: int) -> bool:
        return self._inner.has_commit(query_id, batch_id)


class FaultyTarget(SinkTarget):
    """A target whose steps pass the points of `faults`."""

    def __init__(self, inner: SinkTarget, faults: Faults) -> None:
        self._inner = inner
        self._faults = faults

    @property
    @override
    def name(self) -> Target:
        return self._inner.name

    @override
    def location(self) -> str:
        return self._inner.location()

    @override
    def exists(self) -> bool:
        return self._inner.exists()

    @override
    def columns(self) -> Columns | None:
        return self._inner.columns()

    @override
    def fitting(self, columns: Columns) -> Columns:
        return self._inner.fitting(columns)

    @override
    def require_not_gone(self, record: TargetRecord) -> None:
        self._inner.require_not_gone(record)

    @override
    def trust(self, record: TargetRecord, batch_id: int) -> None:
        with self._faults.around("trust"):
            self._inner.trust(record, batch_id)

    @override
    def has_commit(self, batch_id: int) -> bool:
        return self._inner.has_commit(batch_id)

    @override
    def appended(self, table: SourceTable) -> Appended:
        return self._inner.appended(table)

    @override
    def evolve(self, change: Evolution, stamp: Stamp) -> None:
        with self._faults.around("evolve"):
            self._inner.evolve(change, stamp)

    @override
    @contextmanager
    def commit(self, stamp: Stamp) -> Iterator[Writer]:
        with self._faults.around("commit"), self._inner.commit(stamp) as writer:
            yield FaultyWriter(writer, self._faults)

    @override
    def worker_put(self, shape: PutShape, stamp: Stamp) -> WorkerPut | None:
        return self._inner.worker_put(shape, stamp)

    @override
    def worker_load(self, shape: PutShape, stamp: Stamp, lane: int) -> WorkerLoad | None:
        inner = self._inner.worker_load(shape, stamp, lane)
        return None if inner is None else FaultyLoad(inner, self._faults)

    @override
    def compact(self, stamp: Stamp) -> None:
        with self._faults.around("compact"):
            self._inner.compact(stamp)


class FaultyLoad(WorkerLoad):
    """A load that passes the points of `faults`, in the process that made it."""

    def __init__(self, inner: WorkerLoad, faults: Faults) -> None:
        self._inner = inner
        self._faults = faults

    @override
    def run(self, blocks: Iterator[pa.Table], version: str, kept: Path) -> LoadedRows:
        with self._faults.around("load"):
            return self._inner.run(blocks, version, kept)

    @override
    def replace_older(self, kept: Path) -> int:
        with self._faults.around("replace_older"):
            return self._inner.replace_older(kept)

    @override
    def require_arrived(self, done: LoadedRows) -> None:
        self._inner.require_arrived(done)

    @override
    def has_written(self) -> bool:
        return self._inner.has_written()


class FaultyWriter(Writer):
    """A writer whose steps pass the points of `faults`."""

    def __init__(self, inner: Writer, faults: Faults) -> None:
        self._inner = inner
        self._faults = faults

    @override
    def restamp(self, stamp: Stamp) -> None:
        self._inner.restamp(stamp)

    @override
    def put(self, winners: Winners) -> None:
        with self._faults.around("put"):
            self._inner.put(winners)

    @override
    def note_put(self, columns: Columns) -> None:
        with self._faults.around("put"):
            self._inner.note_put(columns)

    @override
    def append(self, events: Events) -> None:
        with self._faults.around("append"):
            self._inner.append(events)

    @override
    def delete_below(self, floors: Mapping[SourceTable, str]) -> None:
        with self._faults.around("delete_below"):
            self._inner.delete_below(floors)

    @override
    def delete_between(self, spans: Mapping[SourceTable, tuple[str, str]]) -> None:
        with self._faults.around("delete_below"):
            self._inner.delete_between(spans)

    @override
    def sweep(self, due: Mapping[SourceTable, Sequence[DueSweep]]) -> None:
        with self._faults.around("sweep"):
            self._inner.sweep(due)
