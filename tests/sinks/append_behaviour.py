"""What every sink with changelogs does: events and how far they reach become visible at once, or never.

An `AppendLab` is a sink with its storage. `open` is a start of the job: nothing but the storage is remembered from the one before.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import pytest
from pyspark.sql import types as T  # noqa: N812

from schemas.errors import SinkError
from schemas.identity import SourceId, SourceTable, Target
from spark_jobs.decode.record_columns import AFTER, BEFORE, CHANGE, COMMITTED, POSITION
from spark_jobs.sinks.changelog_events import Appended, Events
from spark_jobs.sinks.contract import ChangelogTarget, Sink, TargetRecord
from spark_jobs.sinks.faulty import Faults, InjectedCrashError
from spark_jobs.sinks.stamp import Stamp
from tests.sinks.behaviour import at

QUERY = "11111111-query"
ONE, TWO = (SourceTable.of(SourceId("shop"), name, "orders") for name in ("s1", "s2"))
COLUMNS = (("id", T.LongType()), ("amount", T.IntegerType()))
APPEND_POINTS = tuple(f"{side} {step}" for step in ("trust", "commit", "append", "save") for side in ("before", "after"))
SWEEP = '{"columns":["amount"],"values":[["7"]],"below":"' + at(300) + '"}'

Change = tuple[str, int, tuple[int, int] | None, tuple[int, int] | None]


class AppendLab(ABC):
    """A sink and its storage. One target, `name`, of the source tables `ONE` and `TWO`."""

    spark: Any = None
    name = Target("lake", "ods.orders")

    @abstractmethod
    def open(self, faults: Faults | None = None, query: str = QUERY) -> Sink:
        """Open the sink as a start of the job does, with faults if they are given."""

    @abstractmethod
    def frame(self, rows: Sequence[tuple[Any, ...]], columns: Sequence[tuple[str, T.DataType]]) -> Any:
        """Rows as the merge hands them over."""

    @abstractmethod
    def ops(self) -> list[tuple[str, str, str | None]]:
        """Source table, kind and position of all events that a reader sees; of changes the record's op or the kinds of its rows."""

    def target(self, sink: Sink) -> ChangelogTarget:
        target = sink.target(self.spark, self.name, (ONE, TWO))
        assert isinstance(target, ChangelogTarget)
        return target

    def events(self, table: SourceTable, until: int, *changes: Change, **more: Any) -> Events:
        image = T.StructType([T.StructField(name, kind) for name, kind in COLUMNS])
        typed = ((POSITION, T.StringType()), (COMMITTED, T.LongType()), (CHANGE, T.StringType()), (BEFORE, image), (AFTER, image))
        rows = [(at(position), None, op, before, after) for op, position, before, after in changes]
        cursor = Appended({"changes@1": {0: until}}, max(more.get("floors", ("",))), tuple(more.get("sweeps", ())))
        return Events(table, self.frame(rows, typed), len(rows), ("id",), COLUMNS, cursor, **more)

    def play(
        self, number: int, *events: Events, record: TargetRecord = TargetRecord(), sink: Sink | None = None  # noqa: B008
    ) -> TargetRecord:
        """Run a batch as the merge does: what is appended already is left out."""
        sink = sink or self.open()
        target, stamp = self.target(sink), Stamp(QUERY, number, self.name.name, {"rows": number})
        target.require_not_gone(record)
        if target.exists():
            target.trust(record, number)
        known = {one.table: target.appended(one.table) if target.exists() else Appended() for one in events}
        left = [one for one in events if known[one.table] != one.until]
        if left:
            with target.commit(stamp) as writer:
                for one in left:
                    writer.append(one)
        sink.states().save(number, f"state of {number}")
        return replace(record, last_commit=number) if target.has_commit(number) else record


class AppendBehaviour:
    """The suite."""

    crash_points: ClassVar[tuple[str, ...]] = APPEND_POINTS

    def first(self, lab: AppendLab) -> tuple[Events, Events]:
        return lab.events(ONE, 5, ("c", 100, None, (1, 1)), ("r", 90, None, (2, 7))), lab.events(TWO, 3, ("c", 50, None, (1, 5)))

    def test_the_first_events_make_the_target_also_none(self, lab: AppendLab) -> None:
        assert not lab.target(lab.open()).exists()
        record = lab.play(0, lab.events(ONE, 1))
        assert lab.target(lab.open()).exists()
        assert lab.ops() == []
        assert record.last_commit == 0
        lab.play(1, *self.first(lab), record=record)
        assert sorted({source for source, *_ in lab.ops()}) == [ONE.text, TWO.text]

    def test_a_batch_that_is_repeated_after_a_crash_is_appended_once(self, lab: AppendLab, crash_point: str) -> None:
        record = lab.play(0, *self.first(lab))
        news = (
            lab.events(ONE, 8, ("u", 200, (1, 1), (1, 2)), ("d", 210, (2, 7), None), floors=(at(95),), sweeps=(SWEEP,)),
            lab.events(TWO, 4, ("c", 60, None, (2, 6))),
        )
        before, faults = lab.ops(), Faults()
        faults.crash_at(crash_point)
        with pytest.raises(InjectedCrashError):
            lab.play(1, *news, record=record, sink=lab.open(faults))
        seen = lab.ops()
        after = lab.play(1, *news, record=record)
        whole = lab.ops()
        assert seen in (before, whole), "all of a commit or nothing of it"
        assert len(whole) == len(set(whole)), "nothing twice"
        assert {("floor", at(95)), ("sweep", at(300))} <= {(kind, position) for source, kind, position in whole if source == ONE.text}
        assert lab.target(lab.open()).appended(ONE) == news[0].until
        assert after.last_commit == 1

    def test_a_table_that_could_not_take_part_is_appended_by_the_repeated_attempt(self, lab: AppendLab) -> None:
        one, two = self.first(lab)
        lab.play(0, one)
        lab.play(0, one, two)
        assert lab.target(lab.open()).appended(TWO) == two.until
        assert len(lab.ops()) == 3

    def test_a_target_of_another_query_and_one_that_is_gone_are_refused(self, lab: AppendLab) -> None:
        record = lab.play(0, *self.first(lab))
        with pytest.raises(SinkError, match="was last written by batch 0 of query"):
            lab.target(lab.open(query="another")).trust(record, 1)
        sink = lab.open()
        sink.remove(lab.name)
        sink.remove(lab.name)
        with pytest.raises(SinkError, match="was written up to batch 0"):
            lab.target(lab.open()).require_not_gone(record)
        lab.play(1, *self.first(lab))
        assert len(lab.ops()) == 3
