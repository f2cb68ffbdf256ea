"""What every sink does: one suite, run on each implementation by a subclass that gives the fixture `lab`.

A `Lab` is a sink with its storage, and what somebody else can do to it. `open` is a start of the job: nothing but the storage is
remembered from the one before.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, ClassVar

import pytest
from pyspark.sql import types as T  # noqa: N812

from schemas.errors import SinkError
from schemas.identity import SourceId, SourceTable, Target
from schemas.markers import Sweep
from schemas.merge_rule import NOTHING, DueSweep
from schemas.position import Position
from spark_jobs.decode.record_columns import DELETED, POSITION
from spark_jobs.sinks.contract import (
    Columns,
    CompactionError,
    Evolution,
    KeyRange,
    MirrorTarget,
    Sink,
    TargetRecord,
    Winners,
)
from spark_jobs.sinks.faulty import Faults, InjectedCrashError
from spark_jobs.sinks.stamp import Stamp

QUERY = "11111111-query"
TABLE = SourceTable.of(SourceId("shop"), "shop", "orders")
NAME = Target("lake", "shop.orders")
ID, AMOUNT = ("id", T.LongType()), ("Amount", T.IntegerType())
COLUMNS: Columns = (ID, AMOUNT)
STEPS = ("trust", "evolve", "commit", "put", "delete_between", "sweep", "compact", "quarantine", "save")
ALL_POINTS = tuple(f"{side} {step}" for step in STEPS for side in ("before", "after"))

Rows = dict[int, dict[str, Any]]


def at(offset: int) -> str:
    """A position of a change."""
    return Position(1, 1, offset, 1).text


@dataclass(frozen=True)
class Change:
    """The newest record of a key: its columns besides the key, None for a delete."""

    key: int
    position: int
    values: Mapping[str, Any] | None = field(default_factory=dict)


def change(key: int, position: int, amount: int | None = 0, **more: Any) -> Change:
    return Change(key, position, {"Amount": amount} | more)


def delete(key: int, position: int) -> Change:
    return Change(key, position, None)


@dataclass(frozen=True)
class Batch:
    """The steps of a batch in one target; the columns are those after `evolution`."""

    number: int
    changes: Sequence[Change] | None = None
    columns: Columns = COLUMNS
    evolution: Evolution | None = None
    floor: int | None = None
    due: Sequence[DueSweep] = ()
    compacts: bool = False
    quarantined: Sequence[int] = ()
    batch_range: KeyRange | None = None
    target_range: KeyRange | None = None
    redrive: str = ""

    @property
    def stamp(self) -> Stamp:
        return Stamp(QUERY, self.number, NAME.name, {"rows": self.number}, self.redrive)


class Lab(ABC):
    """A sink and its storage. One target, `NAME`, of one source table, `TABLE`."""

    @abstractmethod
    def open(self, faults: Faults | None = None, query: str = QUERY) -> Sink:
        """Open the sink as a start of the job does, with faults if they are given."""

    @abstractmethod
    def frame(self, rows: Sequence[tuple[Any, ...]], columns: Columns) -> Any:
        """Rows as the merge hands them over."""

    @abstractmethod
    def rows(self) -> list[dict[str, Any]]:
        """The rows of the target as a reader of the sink sees them, position included."""

    @abstractmethod
    def stamps(self) -> list[Mapping[str, Any]]:
        """Query, batch and progress of the commits of merge jobs that changed rows or columns, oldest first."""

    @abstractmethod
    def quarantined(self) -> list[int]:
        """The offsets of the quarantined records."""

    @abstractmethod
    def keep_copy(self) -> None:
        """Copy the target as it is now."""

    @abstractmethod
    def put_back(self) -> None:
        """Put the copy in the place of the target."""

    @abstractmethod
    def replace(self) -> None:
        """Replace the rows of the target, as somebody who overwrites it."""

    @abstractmethod
    def remove(self) -> None:
        """Remove the target."""

    @abstractmethod
    def meddle(self) -> None:
        """Do to the target what leaves its rows as they are, as somebody else."""

    @abstractmethod
    def make_foreign(self) -> None:
        """Make the target as somebody who is no merge job."""

    @abstractmethod
    def second_writer(self) -> AbstractContextManager[None]:
        """Be the only writer, as another job that does not wait."""

    def target(self, sink: Sink) -> MirrorTarget:
        target = sink.target(self.spark, NAME, (TABLE,))
        assert isinstance(target, MirrorTarget)
        return target

    spark: Any = None

    def winners(self, batch: Batch) -> Winners:
        names = [name for name, _ in batch.columns if name != "id"]
        rows = [
            (one.key, *((one.values or {}).get(name) for name in names), one.values is None, at(one.position)) for one in batch.changes or ()
        ]
        typed = (*batch.columns, (DELETED, T.BooleanType()), (POSITION, T.StringType()))
        ranges = ("id", batch.batch_range, batch.target_range)
        return Winners(self.frame(rows, typed), ("id",), batch.columns, *ranges)

    def play(self, batch: Batch, record: TargetRecord = TargetRecord(), sink: Sink | None = None) -> TargetRecord:  # noqa: B008
        """Run a batch as the merge does, and return what is to be remembered of the target."""
        sink = sink or self.open()
        target, stamp = self.target(sink), batch.stamp
        target.require_not_gone(record)
        if batch.quarantined:
            sink.quarantine().append(self.quarantine_rows(batch.quarantined, batch.number), stamp, "quarantine")
        if target.exists():
            target.trust(record, batch.number)
            if batch.evolution:
                target.evolve(batch.evolution, stamp)
        with target.commit(stamp) as writer:
            if batch.changes is not None:
                writer.put(self.winners(batch))
            writer.restamp(replace(stamp, progress={"rows": batch.number, "settled": True}))
            if batch.floor is not None:
                writer.delete_between({TABLE: (NOTHING, at(batch.floor))})
            if batch.due:
                writer.sweep({TABLE: batch.due})
        wrote = target.has_commit(batch.number)
        if batch.compacts:
            target.compact(stamp)
        sink.states().save(batch.number, f"state of {batch.number}")
        return replace(record, last_commit=batch.number) if wrote else record

    def quarantine_rows(self, offsets: Sequence[int], batch_id: int) -> Any:
        columns = (("topic", T.StringType()), ("partition", T.IntegerType()), ("offset", T.LongType()), ("batch_id", T.LongType()))
        return self.frame([("t", 0, offset, batch_id) for offset in offsets], columns)

    def coordinates(self, *offsets: int) -> Any:
        columns = (("topic", T.StringType()), ("partition", T.IntegerType()), ("offset", T.LongType()))
        return self.frame([("t", 0, offset) for offset in offsets], columns)

    def values(self) -> Rows:
        """The rows without the position, by key."""
        return {row["id"]: {name: value for name, value in row.items() if name not in ("id", POSITION)} for row in self.rows()}

    def amounts(self) -> dict[int, int | None]:
        return {row["id"]: row["Amount"] for row in self.rows()}


FIRST = Batch(0, [change(1, 100, 1), change(2, 100, 2), change(3, 100, 3)])
FILL = Evolution((("five", T.IntegerType(), 5), ("maybe", T.StringType(), None)), (("Amount", T.LongType()),))
WIDER: Columns = (ID, ("Amount", T.LongType()), ("five", T.IntegerType()), ("maybe", T.StringType()))
SWEEP_TWO = DueSweep(Sweep(("AMOUNT",), frozenset({("20",)})), at(300))
WHOLE = Batch(
    1,
    [change(1, 200, 10, five=6, maybe="x"), delete(2, 200), change(4, 200, 20, five=7), change(5, 400, 20, five=8)],
    WIDER,
    FILL,
    floor=150,
    due=(SWEEP_TWO,),
    compacts=True,
    quarantined=(7, 8),
)
EFFECTIVE_STEPS = 4  # evolve, put, delete_between, sweep
AFTER_WHOLE = {1: {"Amount": 10, "five": 6, "maybe": "x"}, 5: {"Amount": 20, "five": 8, "maybe": None}}


class SinkBehaviour:
    """The suite."""

    crash_points: ClassVar[tuple[str, ...]] = ALL_POINTS

    # ── put ────────────────────

    def test_the_first_rows_make_the_target(self, lab: Lab) -> None:
        assert not lab.target(lab.open()).exists()
        assert lab.target(lab.open()).columns() is None
        record = lab.play(replace(FIRST, changes=[*(FIRST.changes or ()), delete(9, 100)]))
        assert lab.amounts() == {1: 1, 2: 2, 3: 3}
        assert list(lab.target(lab.open()).columns() or ()) == list(COLUMNS), "without the sink's own columns"
        assert {row[POSITION] for row in lab.rows()} == {at(100)}
        assert record.last_commit == 0

    def test_no_rows_at_all_make_an_empty_target(self, lab: Lab) -> None:
        lab.play(Batch(0, []))
        assert lab.rows() == []
        assert lab.target(lab.open()).exists()

    def test_only_a_newer_row_changes_what_is_there(self, lab: Lab) -> None:
        record = lab.play(FIRST)
        newer = [change(1, 200, 10), change(2, 50, 0), change(3, 100, 0), change(4, 10, 4)]
        lab.play(Batch(1, newer), record)
        assert lab.amounts() == {1: 10, 2: 2, 3: 3, 4: 4}

    def test_only_a_newer_delete_deletes_and_leaves_nothing(self, lab: Lab) -> None:
        record = lab.play(FIRST)
        record = lab.play(Batch(1, [delete(1, 200), delete(2, 50), delete(3, 100), delete(9, 200)]), record)
        assert lab.amounts() == {2: 2, 3: 3}
        lab.play(Batch(2, [change(1, 150, 11)]), record)
        assert lab.amounts() == {1: 11, 2: 2, 3: 3}, "what a tombstone must stop is up to the merge"

    def test_rows_whose_keys_are_all_new_are_put_once(self, lab: Lab) -> None:
        record = lab.play(FIRST)
        more = Batch(1, [change(7, 200, 7), delete(8, 200)], batch_range=(7, 8), target_range=(1, 3))
        again = lab.play(more, record)
        assert lab.play(more, record) == again
        assert lab.amounts() == {1: 1, 2: 2, 3: 3, 7: 7}
        assert len(lab.rows()) == 4

    def test_values_of_a_range_of_keys_are_a_hint_and_change_nothing(self, lab: Lab) -> None:
        low, high = 10, 10_000_000
        record = lab.play(Batch(0, [change(low, 100, 1), change(high, 100, 2)]))
        lab.play(Batch(1, [change(low, 200, 3)], batch_range=(low, low), target_range=(low, high)), record)
        assert lab.amounts() == {low: 3, high: 2}

    # ── floors and sweeps ────────────────────

    def test_a_floor_deletes_what_is_below_it_and_nothing_else(self, lab: Lab) -> None:
        record = lab.play(Batch(0, [change(1, 100), change(2, 200), change(3, 201)]))
        lab.play(Batch(1, floor=200), record)
        assert set(lab.amounts()) == {2, 3}

    def test_a_sweep_takes_rows_of_composite_values_below_its_bound(self, lab: Lab) -> None:
        columns: Columns = (ID, ("big", T.DecimalType(20, 0)), ("bytes", T.BinaryType()), ("name", T.StringType()))
        big, other = Decimal(2**64 - 1), Decimal(1)
        kinds = [(big, b"\0\xff"), (big, b"\0\xfe"), (other, b"\0\xff"), (big, None), (big, b"\0\xff"), (None, b"\0\xfe")]
        rows = [
            Change(key, 500 if key == 5 else 100, {"big": number, "bytes": value, "name": str(key)})
            for key, (number, value) in enumerate(kinds, start=1)
        ]
        record = lab.play(Batch(0, rows, columns))
        values = frozenset({(str(2**64 - 1), "00FF"), ("7", "0000"), ("no number", "00FE")})
        one = DueSweep(Sweep(("BIG", "bytes"), values), at(300))
        two = DueSweep(Sweep(("name",), frozenset({("2",), ("5",)})), at(100))
        record = lab.play(Batch(1, columns=columns, due=[one, two]), record)
        assert set(lab.values()) == {2, 3, 4, 5, 6}, "a value that the type does not have takes no NULL"
        lab.play(Batch(2, columns=columns, due=[replace(two, below=at(101))]), record)
        assert set(lab.values()) == {3, 4, 5, 6}

    def test_floors_and_sweeps_of_a_table_that_does_not_feed_the_target_are_refused(self, lab: Lab) -> None:
        lab.play(FIRST)
        other = SourceTable.of(SourceId("other"), "shop", "orders")
        target = lab.target(lab.open())
        with target.commit(Batch(1).stamp) as writer:
            with pytest.raises(SinkError, match=r"no rows of other:shop\.orders"):
                writer.delete_between({TABLE: (NOTHING, at(1)), other: (NOTHING, at(500))})
            with pytest.raises(SinkError, match=r"no rows of other:shop\.orders"):
                writer.sweep({other: [SWEEP_TWO]})
        assert set(lab.amounts()) == {1, 2, 3}

    # ── columns ────────────────────

    def test_columns_come_with_their_fill_and_types_change_for_all_rows(self, lab: Lab) -> None:
        record = lab.play(FIRST)
        changed = Batch(1, [change(4, 200, 2**40, five=4)], WIDER, FILL)
        lab.play(changed, record)
        filled = {key: {"Amount": key, "five": 5, "maybe": None} for key in (1, 2, 3)}
        assert lab.values() == filled | {4: {"Amount": 2**40, "five": 4, "maybe": None}}
        assert list(lab.target(lab.open()).columns() or ()) == list(WIDER)

    def test_a_column_without_a_fill_is_null_in_the_rows_that_are_there(self, lab: Lab) -> None:
        record = lab.play(FIRST)
        added = Evolution((("maybe", T.StringType(), None),), ())
        lab.play(Batch(1, columns=(*COLUMNS, ("maybe", T.StringType())), evolution=added), record)
        assert {row["maybe"] for row in lab.values().values()} == {None}

    def test_a_narrower_type_fits_where_it_has_every_value(self, lab: Lab) -> None:
        columns: Columns = (ID, ("small", T.LongType()), ("large", T.LongType()), ("none", T.LongType()))
        lab.play(Batch(0, [Change(1, 100, {"small": 7, "large": 2**40}), Change(2, 100, {"small": -7, "large": 1})], columns))
        wanted = [(name, T.IntegerType()) for name in ("small", "large", "none")]
        assert [name for name, _ in lab.target(lab.open()).fitting(wanted)] == ["small", "none"]

    # ── trust ────────────────────

    def test_a_target_that_this_query_left_is_trusted_also_after_an_attempt_at_the_batch(self, lab: Lab) -> None:
        record = lab.play(FIRST)
        lab.target(lab.open()).trust(record, 1)
        lab.play(Batch(1, [change(1, 200, 9)]), record)
        lab.target(lab.open()).trust(record, 1)

    def test_what_others_do_without_replacing_it_is_accepted(self, lab: Lab) -> None:
        sink = lab.open()
        record = lab.play(FIRST, sink=sink)
        lab.meddle()
        record = lab.play(Batch(1, [change(1, 200, 9)]), record, sink)
        lab.meddle()
        lab.play(Batch(2, [change(2, 300, 9)]), record)
        assert lab.amounts() == {1: 9, 2: 9, 3: 3}

    def test_a_target_of_another_query_is_refused(self, lab: Lab) -> None:
        record = lab.play(FIRST)
        with pytest.raises(SinkError, match="was last written by batch 0 of query"):
            lab.target(lab.open(query="another")).trust(record, 1)

    def test_a_target_that_no_merge_job_has_made_is_refused(self, lab: Lab) -> None:
        lab.make_foreign()
        with pytest.raises(SinkError, match="there is a table at"):
            lab.target(lab.open()).trust(TargetRecord(), 0)

    def test_a_target_that_was_removed_is_made_again_from_nothing(self, lab: Lab) -> None:
        lab.play(Batch(1, [change(9, 200, 9)]), lab.play(FIRST))
        sink = lab.open()
        sink.remove(NAME)
        sink.remove(NAME)
        assert not lab.target(lab.open()).exists()
        record = lab.play(Batch(2, [change(1, 50, 5)]))
        assert lab.amounts() == {1: 5}
        lab.target(lab.open()).trust(record, 3)

    def test_a_target_that_is_gone_is_refused_once_it_was_written_to(self, lab: Lab) -> None:
        record = lab.play(FIRST)
        lab.remove()
        lab.target(lab.open()).require_not_gone(TargetRecord())
        with pytest.raises(SinkError, match="was written up to batch 0 and is gone"):
            lab.target(lab.open()).require_not_gone(record)

    @pytest.mark.parametrize("running", [False, True], ids=["at the start", "while the job runs"])
    @pytest.mark.parametrize("how", ["put back", "replaced"])
    def test_a_target_that_was_put_back_or_replaced_is_refused(self, lab: Lab, how: str, running: bool) -> None:
        sink = lab.open()
        record = lab.play(FIRST, sink=sink)
        lab.keep_copy()
        record = lab.play(Batch(1, [change(1, 200, 9)]), record, sink)
        if how == "put back":
            lab.put_back()
        else:
            lab.replace()
        with pytest.raises(SinkError, match=r"(no longer fit together|replaced the table).*sinks\.path, of a database sinks\.work"):
            lab.target(sink if running else lab.open()).trust(record, 2)

    def test_a_target_that_is_replaced_between_two_steps_of_a_batch_is_refused(self, lab: Lab) -> None:
        record = lab.play(FIRST)
        target = lab.target(lab.open())
        target.trust(record, 1)
        with pytest.raises(SinkError, match="replaced the table"), target.commit(Batch(1).stamp) as writer:  # noqa: PT012
            writer.put(lab.winners(Batch(1, [change(1, 200, 9)])))
            lab.replace()
            writer.delete_between({TABLE: (NOTHING, at(1))})

    # ── stamps ────────────────────

    def test_each_step_is_durable_with_its_stamp(self, lab: Lab) -> None:
        record = lab.play(FIRST)
        lab.play(Batch(1, [change(1, 200, 9)], floor=150), record)
        found = [(one["query_id"], one["batch_id"], one["rows"], one.get("settled")) for one in lab.stamps()]
        assert found == [(QUERY, 0, 0, None), (QUERY, 1, 1, None), (QUERY, 1, 1, True)]

    def test_a_batch_has_a_commit_once_a_step_of_it_took_effect(self, lab: Lab) -> None:
        record = lab.play(FIRST)
        assert [lab.target(lab.open()).has_commit(number) for number in (0, 1)] == [True, False]
        lab.play(Batch(1, [change(1, 200, 9)]), record)
        assert lab.target(lab.open()).has_commit(1)

    def test_a_write_between_two_batches_is_none_of_a_batch_and_does_not_stop_the_next(self, lab: Lab) -> None:
        record = lab.play(FIRST)
        repair = Batch(2, [change(1, 150, 9)], redrive="first")
        assert lab.play(repair, record) == record
        lab.play(repair, record)
        lab.play(Batch(2, [change(2, 150, 9)], redrive="second"), record)
        assert lab.amounts() == {1: 9, 2: 9, 3: 3}
        record = lab.play(Batch(3, [change(3, 200, 9)]), record)
        assert (lab.amounts(), record.last_commit) == ({1: 9, 2: 9, 3: 9}, 3)

    # ── crashes ────────────────────

    def test_a_batch_that_is_repeated_after_a_crash_takes_effect_once(self, lab: Lab, crash_point: str) -> None:
        record = lab.play(FIRST)
        faults = Faults()
        faults.crash_at(crash_point)
        with pytest.raises(InjectedCrashError):
            lab.play(WHOLE, record, lab.open(faults))
        seen = lab.values()
        news = [values for values in seen.values() if "five" in values]
        assert len(news) in (0, len(seen)), "no row under some of the new columns"
        assert all(seen[key]["five"] == 5 for key in (1, 2, 3) if key in seen and news and seen[key]["Amount"] == key)
        after = lab.play(WHOLE, record)
        assert lab.values() == AFTER_WHOLE
        assert sorted(lab.quarantined()) == [7, 8]
        assert lab.open().states().load(1) == "state of 1"
        steps = [one for one in lab.stamps() if one["batch_id"] == WHOLE.number]
        assert len(steps) == EFFECTIVE_STEPS, "each step took effect once"
        assert after.last_commit == 1

    def test_the_first_batch_that_is_repeated_after_a_crash_takes_effect_once(self, lab: Lab) -> None:
        """A target that the batch made is there when it is repeated: what its later steps deleted must not come back."""
        first = Batch(0, [change(1, 100, 1), change(2, 300, 20), change(3, 100, 3), change(4, 200, 20)], floor=150, due=(SWEEP_TWO,))
        faults = Faults()
        faults.crash_at("before save")
        with pytest.raises(InjectedCrashError):
            lab.play(first, sink=lab.open(faults))
        lab.play(first)
        assert lab.amounts() == {2: 20}

    # ── compaction ────────────────────

    def test_a_compaction_leaves_the_rows_and_one_that_fails_says_so(self, lab: Lab) -> None:
        record = lab.play(FIRST)
        record = lab.play(Batch(1, [change(4, 200, 4)], compacts=True), record)
        faults = Faults()
        faults.fail_at("before compact", CompactionError("no room"))
        sink = lab.open(faults)
        with pytest.raises(CompactionError, match="no room"):
            lab.target(sink).compact(Batch(1).stamp)
        lab.play(Batch(2, [change(5, 300, 5)]), record, sink)
        assert lab.amounts() == {1: 1, 2: 2, 3: 3, 4: 4, 5: 5}

    # ── quarantine, state, lock ────────────────────

    def test_a_record_is_quarantined_once_per_batch_and_step_and_can_be_removed(self, lab: Lab) -> None:
        quarantine = lab.open().quarantine()
        assert quarantine.records(lab.spark) is None
        assert not quarantine.has_commit(QUERY, 0)
        stamp = Batch(0).stamp
        for offsets, step in (((1, 2), "quarantine"), ((1, 2), "quarantine"), ((3,), "markers"), ((4,), "markers")):
            lab.open().quarantine().append(lab.quarantine_rows(offsets, 0), stamp, step)  # type: ignore[arg-type]
        other = replace(stamp, table="shop.other")
        lab.open().quarantine().append(lab.quarantine_rows((5,), 0), other, "quarantine")
        lab.open().quarantine().append(lab.quarantine_rows((6,), 1), Batch(1).stamp, "quarantine")
        assert sorted(lab.quarantined()) == [1, 2, 3, 5, 6]
        assert [quarantine.has_commit(QUERY, number) for number in (0, 1)] == [False, True]
        assert quarantine.remove(lab.coordinates(2, 5, 99)) == 2
        assert quarantine.remove(lab.coordinates(2, 5, 99)) == 0
        assert sorted(lab.quarantined()) == [1, 3, 6]

    def test_the_states_of_the_last_twenty_batches_are_kept(self, lab: Lab) -> None:
        states = lab.open().states()
        assert states.newest() == -1
        for number in range(25):
            states.save(number, f"first of {number}")
        states.save(24, "second")
        again = lab.open().states()
        assert (again.newest(), again.load(24), again.load(5)) == (24, "second", "first of 5")
        with pytest.raises(FileNotFoundError):
            again.load(25)

    def test_a_second_writer_is_refused_while_the_first_writes(self, lab: Lab) -> None:
        with (
            lab.open().exclusive(lab.spark, 1),
            pytest.raises(SinkError, match="another merge job writes"),
            lab.second_writer(),
        ):
            pass
        with lab.second_writer():
            pass

    def test_an_error_of_ours_is_no_reason_for_a_retry(self, lab: Lab) -> None:
        assert lab.open().passing(SinkError("wrong")) is None
