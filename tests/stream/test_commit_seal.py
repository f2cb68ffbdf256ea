"""Commit records of random histories: the times that a reader computes are the running maximum of the log."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from itertools import pairwise
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from producer.kafka.span_publisher import WrittenSpans
from producer.snapshot.buffered_chunk import WrittenRows
from producer.snapshot.outbox import MarkerDraft
from producer.stream.handlers.commit_seal import MOST_LIFTS, CommitSeal
from producer.stream.offset import LogOffset
from producer.stream.ports import CheckpointWork
from producer.stream.transaction_times import TOLERANCE_US
from rowcodec.run_items import I_BEGAN, I_TABLE, I_TS_US, ITEM
from schemas.commit_records import CommitRecord, CompleteTable, Continued, OpenPart, RowTimes, StreamState
from schemas.markers import MarkerType
from schemas.position import Position

if TYPE_CHECKING:
    from collections.abc import Callable

NOON_US = 1_790_000_000_000_000
START = LogOffset(2, "binlog.000007", 100, "", "server")


class MemoryClock:
    """The memory twin of the source's clock: readings are given to it."""

    skew_us: int | None = None
    correction_us = 0

    def __init__(self) -> None:
        self.us = NOON_US
        self.readings: list[tuple[int, Position]] = []

    @property
    def is_waiting(self) -> bool:
        return bool(self.readings)

    def now_us(self) -> int:
        return self.us

    def ready_us(self, boundary: Position) -> int:
        return max((us for us, end in self.readings if end <= boundary), default=0)


class MemorySpans:
    """The memory twin of the publisher that knows its offsets: one topic, one partition."""

    def __init__(self) -> None:
        self.end = 0
        self.rows = 0

    def pop_spans(self) -> WrittenSpans:
        if not self.rows:
            return WrittenSpans({}, {})
        begin, self.end, rows = self.end, self.end + self.rows, self.rows
        self.rows = 0
        return WrittenSpans({"t": rows}, {"t": {0: (begin, self.end)}})


@dataclass
class Written:
    """A row of the change topic: the position of its transaction, and the time in its record."""

    position: Position
    ts_us: int
    expected_us: int


@dataclass
class Log:
    """A log that is written at random, the records that its reader writes, and the times to expect of the rows.

    `way` is how the reader gets it: "runs", "steps", or "parts". `unit_us` is what times are whole multiples of. `corrects`: the
    skew of the server's clock, which changes, is corrected.
    """

    seed: int
    way: str
    unit_us: int = 1
    corrects: bool = False
    records: list[CommitRecord] = field(default_factory=list)
    rows: list[list[Written]] = field(default_factory=list)  # by the record that has the end of their transaction

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.clock, self.spans = MemoryClock(), MemorySpans()
        self.offset = START
        self.commits = CommitSeal("commits", self.spans, self.clock, self.offset)
        self.maximum_us = 0
        self.pos = START.pos
        self.ended: list[tuple[Position, list[int]]] = []  # transactions of the next record

    def write(self, records: int) -> None:
        for _ in range(records):
            self.rows.append([])
            for _ in range(self.random.randrange(4)):
                {"runs": self.run, "steps": self.step, "parts": self.long}[self.way if self.random.random() < 0.8 else "steps"]()
            if self.random.random() < 0.3:
                self.clock.readings.append((self.clock.us + self.random.randrange(-2_000_000, 500_000), self.end()))
            self.seal(self.pos)
            steps = [1_000, 500_000, 3_000_000, -3_600_000_000]
            self.clock.us += self.random.choice(steps[:3] if self.corrects else steps)  # this machine's clock is not set back
            if self.random.random() < 0.2:
                self.restart()

    def time(self) -> int:
        """A time of a row: about the server's clock, sometimes one that a statement has set."""
        ahead = self.random.choice([0, 0, 0, -500_000, 1_500_000, -7_200_000_000, 90_000_000_000])
        self.set_clock()
        ahead += self.clock.correction_us
        return (self.clock.us + ahead + self.random.randrange(300_000)) // self.unit_us * self.unit_us

    def set_clock(self) -> None:
        """Set the server's clock now and then, if that is corrected."""
        if self.corrects and self.random.random() < 0.1:
            self.clock.correction_us = self.random.choice([0, 20_000, -1_000_000, 3_600_000_000, -3_600_000_000])

    def times(self) -> list[int]:
        """The times of a transaction's rows: most have one."""
        one = self.time()
        return [one] * self.random.randrange(1, 4) if self.random.random() < 0.8 else [one, self.time(), one]

    def begin(self) -> Position:
        position = Position(START.epoch, 7, self.pos)
        self.pos += 50
        return position

    def end(self) -> Position:
        return Position(START.epoch, 7, self.pos)

    def expect(self, position: Position, times: list[int]) -> None:
        """Note that the transaction has ended."""
        self.ended.append((position, times))

    def expect_times(self, record: CommitRecord) -> None:
        """Note the times to expect of the transactions of a record, by the server's clock of then."""
        for position, times in self.ended:
            most_us = max(times) - record.skew_us
            is_set = most_us > self.clock.us + TOLERANCE_US
            self.maximum_us = max(self.maximum_us, self.clock.us if is_set else most_us)
            self.rows[-1] += [Written(position, one, self.maximum_us) for one in times]
        self.ended = []

    def step(self) -> None:
        transaction, times = SimpleNamespace(position=self.begin()), self.times()
        for one in times:
            self.rows_event(transaction, one)
        self.expect(transaction.position, times)

    def rows_event(self, transaction: SimpleNamespace, ts_us: int, *, is_in_kafka: bool = False) -> None:
        event: Any = SimpleNamespace(transaction=transaction, context=SimpleNamespace(ts_us=ts_us), is_in_kafka=is_in_kafka)
        self.commits.rows(event)
        self.spans.rows += 1

    def long(self) -> None:
        """A transaction of which parts are committed before its end, maybe by another start."""
        transaction, times = SimpleNamespace(position=self.begin()), self.times()
        before = transaction.position.offset
        self.seal(before)  # everything before it is committed first
        self.rows.append([])
        for number, one in enumerate(times):
            self.rows_event(transaction, one)
            self.set_clock()
            if self.random.random() < 0.7:
                record = self.seal(before)
                assert record.open is not None
                assert record.open.position == transaction.position
                self.rows.append([])
                if self.random.random() < 0.3:
                    self.restart()
                    for again in times[: number + 1]:
                        self.rows_event(transaction, again, is_in_kafka=True)
                    self.spans.rows = 0  # they are in Kafka already
        self.expect(transaction.position, times)

    def run(self) -> None:
        """Some transactions at once, of two tables, and rows of a third one that is not captured."""
        items = []
        for _ in range(self.random.randrange(1, 30)):
            position, times = self.begin(), self.times()
            tables = [self.random.choice([0, 1, 1, 2]) for _ in times]
            for table, one in zip(tables, times, strict=True):
                items.append(np.zeros(ITEM, np.int64))
                items[-1][[I_TABLE, I_BEGAN, I_TS_US]] = table, position.offset, one
            written = [one for table, one in zip(tables, times, strict=True) if table != 2]
            if written:
                self.expect(position, written)
                self.spans.rows += len(written)
        if all(item[I_TABLE] == 2 for item in items):
            return
        memory, prefix = np.concatenate([*items, np.full(ITEM, -1)]), self.end().text[:16]
        for group in {int(item[I_TABLE]) for item in items} - {2}:
            rows = SimpleNamespace(
                items=memory, count=len(items), groups=np.array([0, 1, -1]), group=group, position_prefix=prefix
            )
            self.commits.run(SimpleNamespace(rows=rows))  # type: ignore[arg-type]
        memory[:] = -1  # it is used again

    def seal(self, pos: int) -> CommitRecord:
        self.offset, (sent,) = self.commits.seal(replace(self.offset, pos=pos), ())
        record = CommitRecord.parse(sent.value)
        self.records.append(record)
        self.expect_times(record)
        self.maximum_us = max(self.maximum_us, record.promise_us)
        return record

    def restart(self) -> None:
        """Continue as another process, from the offset."""
        self.offset = LogOffset.parse(self.offset.document(0))
        self.commits = CommitSeal("commits", self.spans, self.clock, self.offset)

    def wrong(self, seen: Callable[[CommitRecord], CommitRecord] = lambda record: record) -> list[Written]:
        """The rows whose time a reader computes otherwise, from records as `seen` shows them."""
        others: list[Written] = []
        for record, rows in zip(self.records, self.rows, strict=True):
            time_of = RowTimes(seen(record))
            others += [one for one in rows if time_of(replace(one.position, ordinal=3), one.ts_us) != one.expected_us]
        return others


def history(seed: int, way: str, unit_us: int = 1, *, corrects: bool = False) -> Log:
    log = Log(seed, way, unit_us, corrects)
    log.write(records=12)
    return log


WAYS = ["runs", "steps", "parts"]


@pytest.mark.parametrize("corrects", [False, True], ids=["", "skew is corrected"])
@pytest.mark.parametrize("unit_us", [1, 1_000_000], ids=["microseconds", "whole seconds"])
@pytest.mark.parametrize("way", WAYS)
def test_the_times_that_a_reader_computes_are_the_running_maximum(way: str, unit_us: int, corrects: bool) -> None:
    for seed in range(150):
        log = history(seed, way, unit_us, corrects=corrects)
        assert not log.wrong(), f"seed {seed}"
        times = [one.expected_us for rows in log.rows for one in rows]
        assert times == sorted(times)
        for record, later in zip(log.records, log.rows[1:], strict=False):
            assert all(one.expected_us >= record.promise_us for one in later), f"seed {seed}: a promise was not kept"


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("without", ["since_us", "lifts", "caps", "skew_us"])
def test_without_one_of_them_times_are_wrong(way: str, without: str) -> None:
    """Else a mistake in it would pass the test above."""

    nothing: dict[str, Any] = {"since_us": 0, "lifts": (), "caps": (), "skew_us": 0}

    def seen(record: CommitRecord) -> CommitRecord:
        return replace(record, **{without: nothing[without]})

    assert any(history(seed, way, corrects=without == "skew_us").wrong(seen) for seed in range(20))


def test_records_are_a_chain_through_restarts() -> None:
    for seed in range(20):
        records = history(seed, "parts").records
        assert [one.n for one in records] == list(range(1, len(records) + 1))
        for one, other in pairwise(records):
            assert (other.begin, other.since_us) == (one.to, one.promise_us)
            if one.spans and other.spans:
                assert other.spans["t"][0][0] == one.spans["t"][0][1]


def test_a_run_without_anything_unusual_costs_no_lift() -> None:
    log = Log(1, "steps")
    log.rows.append([])
    for number in range(100):
        position = log.begin()
        log.rows_event(SimpleNamespace(position=position), NOON_US + number)
        log.expect(position, [NOON_US + number])
    record = log.seal(log.pos)
    assert (record.lifts, record.caps, record.rows) == ((), (), {"t": 100})
    assert record.promise_us == NOON_US + 99
    assert not log.wrong()


# ---- when


def test_a_reading_of_the_clock_is_promised_when_the_log_is_read_up_to_its_end() -> None:
    log = Log(1, "steps")
    log.seal(START.pos)
    log.clock.readings = [(NOON_US + 5, Position(2, 7, 300))]
    commits = log.commits
    assert commits.is_due(None, 0.0)
    assert not commits.is_due(lambda: Position(2, 7, 299), 0.0)
    assert commits.is_due(lambda: Position(2, 7, 300), 0.0)
    assert log.seal(250).promise_us == 0
    assert log.seal(300).promise_us == NOON_US + 5
    assert not commits.is_wanted(Position(2, 7, 300))


def test_a_transaction_of_which_a_part_is_published_is_all_that_is_promised() -> None:
    log = Log(1, "steps")
    log.pos = 500
    transaction = SimpleNamespace(position=log.begin())
    log.rows_event(transaction, NOON_US - 10_000_000)
    log.clock.readings = [(NOON_US, Position(2, 7, 400))]
    record = log.seal(500)
    assert record.open is not None
    assert (record.open.us, record.promise_us) == (NOON_US - 10_000_000, NOON_US - 10_000_000)
    assert (record.begin, record.to) == (START.position, transaction.position)


def test_a_transaction_published_in_part_is_named_again_when_the_rest_comes_from_another_server() -> None:
    log = Log(1, "steps")
    before = SimpleNamespace(position=log.begin())
    log.rows_event(before, NOON_US)
    assert log.seal(START.pos).open is not None
    log.offset = replace(LogOffset.parse(log.offset.document(0)), epoch=3, pos=40)
    log.commits = CommitSeal("commits", log.spans, log.clock, log.offset)
    log.rows_event(SimpleNamespace(position=Position(3, 7, 50)), NOON_US)
    others = log.seal(100)
    after = SimpleNamespace(position=Position(3, 7, 100))
    log.rows_event(after, NOON_US, is_in_kafka=True)
    part = log.seal(100)
    log.rows_event(after, NOON_US)
    end = log.seal(200)
    assert [one.continues for one in (others, part, end)] == [None, Continued(before.position, after.position), None]
    assert part.open == OpenPart(after.position, NOON_US)
    assert [one.stream.open for one in (log.offset,) if one.stream is not None] == [None]


def test_a_record_with_many_lifts_does_not_wait_for_the_interval() -> None:
    log = Log(1, "steps")
    for number in range(2 * MOST_LIFTS + 2):
        if number == 2 * MOST_LIFTS - 2:
            assert not log.commits.is_due(log.end, 0.0)
        late = number % 2 == 0
        log.rows_event(SimpleNamespace(position=log.begin()), NOON_US - 3_600_000_000 + number - (0 if late else 20))
    assert log.commits.is_due(log.end, 0.0)


# ---- snapshots


def test_rows_of_chunks_have_the_time_of_the_transaction_that_closed_them() -> None:
    log = Log(1, "steps")
    transaction = SimpleNamespace(position=log.begin())
    log.rows_event(SimpleNamespace(position=replace(transaction.position, offset=99)), NOON_US)
    log.commits.snapshot_rows(WrittenRows("r", "d.t", "binlog.000007", 120, transaction.position, NOON_US - 5, 2))
    log.commits.snapshot_rows(WrittenRows("r", "d.t", "binlog.000007", 120, transaction.position, NOON_US - 5, 3))
    log.rows_event(transaction, NOON_US - 5)
    log.commits.snapshot_rows(WrittenRows("r", "d.u", "binlog.000007", 90, log.end(), None, 1))
    fields = {"request": "r"}
    works = [CheckpointWork(markers=[MarkerDraft("d.t", MarkerType.COMPLETE, fields), MarkerDraft("d.u", MarkerType.OPEN, fields)])]
    offset, (sent,) = log.commits.seal(replace(log.offset, pos=log.pos), works)
    record = CommitRecord.parse(sent.value)
    assert [(one.table, one.pos, one.at, one.us, one.rows) for one in record.chunks] == [
        ("d.t", 120, transaction.position, NOON_US, 5),
        ("d.u", 90, log.end(), NOON_US, 1),
    ]
    assert record.complete == (CompleteTable("r", "d.t"),)
    assert offset.stream == StreamState(1, NOON_US)


def test_a_log_that_was_lost_is_named_in_the_first_record_alone() -> None:
    spans, clock = MemorySpans(), MemoryClock()
    commits = CommitSeal("commits", spans, clock, START.sealed(StreamState(7, NOON_US)), "the log is gone")
    offset, (first,) = commits.seal(START, ())
    _, (second,) = commits.seal(offset, ())
    records = [CommitRecord.parse(one.value) for one in (first, second)]
    assert [(one.n, one.reset, one.since_us) for one in records] == [(8, "the log is gone", NOON_US), (9, "", NOON_US)]
