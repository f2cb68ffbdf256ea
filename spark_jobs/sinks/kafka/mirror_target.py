"""A mirror in a topic: its messages, folded in the order of each partition, are the rows of the source.

A table of Delta has the rows. A step computes the changes that it makes there, keeps them as messages, then changes the rows. It is
never computed again once the rows are changed. At the end of a batch the messages that are not sent, and the record that says so,
are one Kafka transaction.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name
from pyspark.sql import types as T  # noqa: N812 - the usual name

from schemas.errors import SinkError
from schemas.identity import SourceTable, TableName, Target
from schemas.merge_rule import DueSweep
from schemas.overriding import override
from spark_jobs.decode.record_columns import SOURCE
from spark_jobs.formats.event_texts import EventSource, texts
from spark_jobs.sinks.contract import (
    Columns,
    Evolution,
    MirrorTarget,
    MirrorWriter,
    TargetRecord,
    Winners,
    of_tables,
)
from spark_jobs.sinks.delta.commit_identity import FILL, FLOOR, ROWS
from spark_jobs.sinks.delta.commit_log import newest_change
from spark_jobs.sinks.delta.writes import rows_between
from spark_jobs.sinks.kafka.committed_topic import CommittedTopic
from spark_jobs.sinks.kafka.kept_changes import CHANGES, KeptChanges
from spark_jobs.sinks.kafka.row_changes import (
    BELOW,
    evolved_events,
    first_events,
    put_events,
    removed_events,
)
from spark_jobs.sinks.kafka.sink_commits import Mirrored, SinkCommit
from spark_jobs.sinks.stamp import Stamp
from spark_jobs.sinks.table_rows import key_pruning, sweep_frames

_SWEEP: Final = "sweep"
_WHOLE: Final = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)


class MirroredTopic(MirrorTarget):
    """A topic in one batch, with the table that has its rows, and the messages that are kept."""

    def __init__(
        self,
        spark: SparkSession,
        rows: MirrorTarget,
        topic: CommittedTopic,
        kept: KeptChanges,
        tables: Sequence[SourceTable],
        form: str,
    ) -> None:
        self.spark = spark
        self.kept = kept
        self._rows = rows
        self._topic = topic
        self._tables = tuple(tables)
        self._form = form
        self._is_sent = False

    @property
    @override
    def name(self) -> Target:
        return self._rows.name

    @override
    def location(self) -> str:
        return f"topic {self._topic.name}"

    @override
    def exists(self) -> bool:
        return self._rows.exists()

    @override
    def columns(self) -> Columns | None:
        return self._rows.columns()

    @override
    def fitting(self, columns: Columns) -> Columns:
        return self._rows.fitting(columns)

    @override
    def require_not_gone(self, record: TargetRecord) -> None:
        self._rows.require_not_gone(record)

    @override
    def trust(self, record: TargetRecord, batch_id: int) -> None:
        self._rows.trust(record, batch_id)
        commit = self._topic.commit()
        if commit is not None:
            self._require_own(commit)
            self._topic.require_same(commit, is_mirror=True)
        self._require_all_kept(commit)

    def _require_own(self, commit: SinkCommit) -> None:
        if commit.query_id != self._topic.query_id:
            by = f"batch {commit.batch_id} of query {commit.query_id}"
            message = f"{self.location()} was last written by {by}: {self._topic.rebuild}"
            raise SinkError(message)

    def _require_all_kept(self, commit: SinkCommit | None) -> None:
        """Raise `SinkError` unless all changes of the rows are sent, or kept to be sent."""
        sent, stamped = _sent(commit), self._stamped()
        first = self.kept.steps[0].number if self.kept.steps else 0
        if first > sent + 1 or self.kept.last < max(sent, stamped, 0):
            message = (
                f"{self.location()} has the changes up to step {sent}, its rows are those of step {stamped}, and the steps {first} "
                f"to {self.kept.last} are kept: messages are lost. {self._topic.rebuild}"
            )
            raise SinkError(message)

    @override
    def has_commit(self, batch_id: int) -> bool:
        return self._rows.has_commit(batch_id)

    @override
    def evolve(self, change: Evolution, stamp: Stamp) -> None:
        self.begin(stamp)
        step = step_name(stamp, FILL if change.filled else f"evolve/{hashlib.sha256(repr(change).encode()).hexdigest()[:16]}")
        missing = change.missing_in(self.columns() or ())
        if not missing or self.kept.has(step, stamp.batch_id):
            return
        self._require_same_key_types(missing)
        parts: list[DataFrame] = []
        if missing.touches_rows:
            parts = [self.messages(part) for part in evolved_events(self.read(), missing, self._source_before(missing))]
        kept = self.kept.keep(step, stamp.batch_id, self.keys, parts)
        self._rows.evolve(change, numbered(stamp, kept.number))
        if self._is_sent:
            self._send(stamp)  # no commit of the batch comes any more

    def _source_before(self, change: Evolution) -> str | None:
        """Return the source table of all rows; None where the rows have it in a column, or get it by the change."""
        names = {name for name, _ in self.columns() or ()} | {name for name, _, _ in change.added}
        return None if SOURCE in names else self._tables[0].text

    def _require_same_key_types(self, change: Evolution) -> None:
        """Raise `SinkError` where the keys of messages would have another text: they would go to other partitions."""
        was = dict(self.columns() or ())
        for name, kind in change.retyped:
            if name in self.keys and not (isinstance(was[name], _WHOLE) and isinstance(kind, _WHOLE)):
                message = (
                    f"{self.location()}: {name} of the key becomes {kind.simpleString()}, and was {was[name].simpleString()}: "
                    f"messages of its rows would go to other partitions, where their order is lost. {self._topic.rebuild}"
                )
                raise SinkError(message)

    @override
    @contextmanager
    def commit(self, stamp: Stamp) -> Iterator[MirrorWriter]:
        self.begin(stamp)
        with self._rows.commit(stamp) as rows:
            writer = MirroredTopicWriter(self, rows, self._tables, stamp)
            yield writer
        self._send(writer.stamp)
        self._is_sent = True

    @override
    def compact(self, stamp: Stamp) -> None:
        self._rows.compact(numbered(stamp, self.kept.last))

    # ── for the writer ────────────────────

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns of the identity as of the last step, without `SOURCE`."""
        return self.kept.steps[-1].keys if self.kept.steps else ()

    def begin(self, stamp: Stamp) -> None:
        """Make the topic, where there is none, and find which steps the rows have. `SinkError` for a topic of somebody else."""
        with self._topic.commits.lock:
            commit = self._topic.commit() or self._topic.made(stamp, is_mirror=True)
        self._require_own(commit)
        sent = _sent(commit)
        if sent >= 0 and not self.exists():
            message = f"{self.location()} has messages of rows that are gone from {self._rows.location()}: {self._topic.rebuild}"
            raise SinkError(message)
        self.kept.settle(max(sent, self._stamped()))
        self.kept.drop(stamp.batch_id, sent)

    def require_keys(self, keys: Sequence[str]) -> None:
        """Raise `SinkError` for another identity than that of the messages so far."""
        if self.kept.steps and tuple(keys) != self.keys:
            message = (
                f"{self.location()}: the key of its messages is ({', '.join(self.keys)}), and becomes ({', '.join(keys)}): "
                f"messages of a row would go to other partitions, where their order is lost. {self._topic.rebuild}"
            )
            raise SinkError(message)

    def read(self) -> DataFrame:
        """Return the rows as they are now."""
        return self.spark.read.format("delta").load(self._rows.location())

    def messages(self, events: DataFrame, keys: Sequence[str] | None = None) -> DataFrame:
        """Return the messages of events."""
        named = tuple(self.keys if keys is None else keys)
        source = EventSource(self._tables[0], TableName.parse(self.name.name), named, is_column=True)
        return texts(events, self._form, source)

    # ── messages ────────────────────

    def _stamped(self) -> int:
        """Return the number of the last step that has changed the rows; -1 for none."""
        stamp = newest_change(Path(self._rows.location())) if self.exists() else None
        return -1 if stamp is None else int(stamp.get(CHANGES, -1))

    def _send(self, stamp: Stamp) -> None:
        """Send in one transaction what is kept and not sent, with the record that says so."""
        commits = self._topic.commits
        with commits.lock:
            before = self._topic.commit()
            if before is None or before.mirrored is None:
                raise SinkError(f"{commits.topic} has no commit of {self.location()}: {self._topic.rebuild}")
            left = [step for step in self.kept.steps if step.number > before.mirrored.sent]
            if not left:
                return
            mirrored = Mirrored(left[-1].number, before.mirrored.partitions)
            after = SinkCommit(
                stamp.query_id, stamp.batch_id, before.topic, before.topic_id, {}, json.loads(stamp.metadata), mirrored
            )
            with commits.client.transaction() as transaction:
                for step in left:
                    for key, value in self.kept.messages(step):
                        transaction.produce(self._topic.name, key, value)
                commits.add(transaction, self.name, after)
            commits.note(self.name, after)
        self.kept.release(mirrored.sent)


class MirroredTopicWriter(MirrorWriter):
    """The steps of a batch in a mirror: each keeps its messages, then changes the rows."""

    def __init__(self, target: MirroredTopic, rows: MirrorWriter, tables: tuple[SourceTable, ...], stamp: Stamp) -> None:
        self._target = target
        self._rows = rows
        self._tables = tables
        self.stamp = stamp

    @override
    def restamp(self, stamp: Stamp) -> None:
        self.stamp = stamp

    @override
    def put(self, winners: Winners) -> None:
        target = self._target
        keys = [name for name in winners.keys if name != SOURCE]
        target.require_keys(keys)
        if target.exists():
            pruned = key_pruning(winners.range_column, winners.batch_range, winners.target_range)

            def events() -> DataFrame:
                return put_events(winners.rows, target.read(), winners.keys, pruned, self._only_source)

            self._step(ROWS, lambda: target.messages(events(), keys), lambda: self._rows.put(winners), keys)
            return
        with _computed(winners.rows) as rows:
            first = replace(winners, rows=rows)
            messages = target.messages(first_events(rows, self._only_source), keys)
            self._step(ROWS, lambda: messages, lambda: self._rows.put(first), keys)

    @override
    def delete_between(self, spans: Mapping[SourceTable, tuple[str, str]]) -> None:
        found = of_tables(spans, self._tables)
        if not found:
            return

        def messages() -> DataFrame:
            floor, taken = F.lit(None).cast("string"), F.lit(False)
            for table, (first, below) in sorted(found.items()):
                is_taken = F.expr(rows_between(first, below, None if self._only_source else table.text))
                floor, taken = F.when(is_taken, F.lit(below)).otherwise(floor), taken | is_taken
            rows = self._target.read().withColumn(BELOW, floor).where(taken)
            return self._target.messages(removed_events(rows, self._only_source))

        self._step(FLOOR, messages, lambda: self._rows.delete_between(spans))

    @override
    def sweep(self, due: Mapping[SourceTable, Sequence[DueSweep]]) -> None:
        for table, sweeps in sorted(of_tables(due, self._tables).items()):
            groups: dict[tuple[str, ...], list[DueSweep]] = {}
            for one in sweeps:
                columns = [name.lower() for name in one.sweep.columns]
                groups.setdefault((*columns, *([one.above] if one.above else [])), []).append(one)
            for name, group in groups.items():
                self._sweep(table, name, group)

    def _sweep(self, table: SourceTable, name: Sequence[str], group: Sequence[DueSweep]) -> None:
        """Take the rows of sweeps of the same columns: one commit of the rows."""
        target, only = self._target, self._only_source

        def messages() -> DataFrame:
            types: dict[str, T.DataType] = {name.lower(): kind for name, kind in target.columns() or ()}
            ((_, values, match),) = sweep_frames(target.spark, group, types)
            rows = target.read()
            condition = F.expr(match) if only else F.expr(match) & (F.col(f"t.{SOURCE}") == F.lit(table.text))
            taken = rows.alias("t").join(values.alias("s"), condition)
            return target.messages(removed_events(taken.select("t.*", F.col("s.below").alias(BELOW)), only))

        parts = (_SWEEP, *name, *([] if only else [table.text]))
        self._step("/".join(parts), messages, lambda: self._rows.sweep({table: group}))

    @property
    def _only_source(self) -> str | None:
        """The only source table of the target; None where rows have theirs in a column."""
        return self._tables[0].text if len(self._tables) == 1 else None

    def _step(
        self, name: str, messages: Callable[[], DataFrame], change: Callable[[], None], keys: Sequence[str] | None = None
    ) -> None:
        """Keep the messages of a step, then change the rows; do nothing where the batch has done it before."""
        kept, step = self._target.kept, step_name(self.stamp, name)
        if kept.has(step, self.stamp.batch_id):
            return
        number = kept.keep(step, self.stamp.batch_id, self._target.keys if keys is None else keys, [messages()]).number
        self._rows.restamp(numbered(self.stamp, number))
        change()


def step_name(stamp: Stamp, name: str) -> str:
    """Return the name of a step: as in the rows' table, a step with the name of another one of its batch is that one."""
    return "/".join((stamp.table, name, *([stamp.redrive] if stamp.redrive else [])))


def numbered(stamp: Stamp, number: int) -> Stamp:
    """Return the stamp of a step, with its number."""
    return replace(stamp, progress={**stamp.progress, CHANGES: number})


def _sent(commit: SinkCommit | None) -> int:
    return -1 if commit is None or commit.mirrored is None else commit.mirrored.sent


@contextmanager
def _computed(rows: DataFrame) -> Iterator[DataFrame]:
    """Compute rows once, for messages and rows."""
    kept = rows.localCheckpoint(eager=True, storageLevel=StorageLevel.MEMORY_AND_DISK)
    try:
        yield kept
    finally:
        kept._jdf.queryExecution().analyzed().rdd().unpersist(False)  # noqa: SLF001 - PySpark has no other way
