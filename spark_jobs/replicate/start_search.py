"""The start of a task within the changes of a source that Kafka has: behind transactions, at a position of the log, or at a time.

Positions and times are searched in the commit records, which have both in their order. GTIDs are in the records of rows and
statements alone, so all of these are read. The start is a commit record before which no transaction is open. Events behind it
that are before the `begin` of the state are passed over.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from itertools import groupby
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkaio.committed_reader import SOON, CommittedReader
from schemas.commit_records import CommitRecord, RowTimes
from schemas.errors import ConfigError
from schemas.gtid_sets import parse_gtid_set
from schemas.position import Position
from schemas.settings.text_forms import microseconds
from schemas.topics import commits_topic, schema_change_topic
from spark_jobs.replicate.loading import CommitStart
from spark_jobs.replicate.order.log_order import (
    PREFIX,
    LogOrder,
    PlacedRecord,
    StatementEvent,
    transaction_at,
)
from spark_jobs.replicate.order.stream_reader import StreamReader

if TYPE_CHECKING:
    from schemas.settings import KafkaSettings
    from schemas.settings.task_section import TaskStart
    from spark_jobs.replicate.rows.row_values import RowDecoder

_BEHIND: Final = 100
_BUFFER_BYTES: Final = 32 << 20
_MARIADB: Final = re.compile(r"\d+-\d+-\d+")


class _Seen(NamedTuple):
    """A transaction, its time, the record of one of its events, and the start before it."""

    position: Position
    us: int
    record: PlacedRecord
    start: CommitStart


class StartSearch:
    """The search in one source."""

    def __init__(self, kafka: KafkaSettings, source: str, group: str, decoder: RowDecoder) -> None:
        self._kafka = kafka
        self._source = source
        self._group = group
        self._decoder = decoder
        self._commits = commits_topic(source, kafka.topic_delimiter), 0

    def find(self, start: TaskStart, newest: CommitStart) -> CommitStart:
        """Return the start; `newest` is the one at the end. `ConfigError`: Kafka does not have it."""
        with closing(CommittedReader(self._kafka, self._group, SOON)) as reader:
            first = self._record(reader, reader.bounds([self._commits])[self._commits][0], newest.offset)
            if first is None:
                raise self._refused(start, "Kafka has no commit record before it")
            if start.position is not None:
                return self._at_position(reader, start, first, newest)
            if start.time is not None:
                return self._at_time(reader, start, first, newest)
            return self._behind_gtids(start, self._whole(reader, first[0], first), newest)

    def _refused(self, start: TaskStart, reason: str) -> ConfigError:
        (name,) = start.given
        return ConfigError(f"sources: {self._source}: start.{name} {getattr(start, name)!r}: {reason}")

    # ---- by commit records

    def _at_position(
        self, reader: CommittedReader, start: TaskStart, first: tuple[int, CommitRecord], newest: CommitStart
    ) -> CommitStart:
        file, offset = re.split(r"\.(?=\d+:)", start.position or "")[-1].split(":")
        end = Position.parse(newest.begin)
        at = Position(end.epoch, int(file), int(offset))
        if at > end:
            raise self._refused(start, f"is behind the end of the changes in Kafka ({end.text})")
        if at < first[1].begin:
            raise self._refused(start, f"Kafka has the changes from {first[1].begin.text} on only: begin there, or load the tables")
        if at == end:
            return newest
        covering = self._first(reader, first, newest.offset, lambda commit: commit.to > at)
        return self._whole(reader, covering[0], first)._replace(begin=at.text)

    def _at_time(
        self, reader: CommittedReader, start: TaskStart, first: tuple[int, CommitRecord], newest: CommitStart
    ) -> CommitStart:
        us = microseconds(start.time or "")
        is_known = first[1].since_us < us if first[1].n > 1 else first[1].promise_us <= us
        if not is_known:
            raise self._refused(start, "Kafka does not have all changes since then: take a later time, or load the tables")
        covering = self._first(reader, first, newest.offset, lambda commit: commit.promise_us >= us)
        if covering[1].promise_us < us:
            raise self._refused(start, "the source has not promised that time yet: it is behind the end of the changes in Kafka")
        with closing(self._transactions(self._whole(reader, covering[0], first), newest.offset)) as seen:
            return next((one.start._replace(begin=one.position.text) for one in seen if one.us >= us), newest)

    def _record(self, reader: CommittedReader, offset: int, end: int) -> tuple[int, CommitRecord] | None:
        """Return offset and content of the first commit record at an offset or behind it; None at the end."""
        reader.leave(self._commits)
        reader.begin({self._commits: offset})
        record = next(iter(reader.read_to({self._commits: end})), None)
        return None if record is None or record.offset >= end else (record.offset, CommitRecord.parse(record.value or b""))

    def _first(
        self, reader: CommittedReader, first: tuple[int, CommitRecord], end: int, holds: Callable[[CommitRecord], bool]
    ) -> tuple[int, CommitRecord]:
        """Return the first commit record that a condition holds for, as for all behind it; the last one without any."""
        low, high, last = first[0], end, first
        while low < high:
            middle = (low + high) // 2
            record = self._record(reader, middle, end)
            if record is None or holds(record[1]):
                last, high = record or last, middle
            else:
                last, low = record, record[0] + 1
        return self._record(reader, low, end) or last

    def _whole(self, reader: CommittedReader, before: int, first: tuple[int, CommitRecord]) -> CommitStart:
        """Return the last start before the record at an offset, or at it, behind which no transaction is open."""
        start = CommitStart(first[0], first[1].n, first[1].begin.text, first[1].server)
        back = _BEHIND
        while True:
            reader.leave(self._commits)
            reader.begin({self._commits: max(first[0], before - back)})
            opened, whole = None, None
            for record in reader.read_to({self._commits: before}):
                if record.offset >= before:
                    break
                commit = CommitRecord.parse(record.value or b"")
                opened = commit.open_behind(opened)
                if opened is None:
                    whole = CommitStart(record.offset + 1, commit.n + 1, commit.to.text, commit.server)
            if whole is not None or before - back <= first[0]:
                return whole or start
            back *= 10

    # ---- by transactions

    def _behind_gtids(self, start: TaskStart, whole: CommitStart, newest: CommitStart) -> CommitStart:
        text = start.gtid or ""
        try:
            gtids = parse_gtid_set(text, "mariadb" if _MARIADB.match(text) else "mysql")
        except ValueError as error:
            raise self._refused(start, f"is not a set of GTIDs: {error}") from error
        begin: _Seen | None = None
        last = ""
        for seen in self._transactions(whole, newest.offset):
            gtid = self._decoder.payload(seen.record.record.value or b"")["source"].get("gtid")
            if not gtid:
                raise self._refused(start, f"the transaction at {seen.position.text} has no GTID: give a position, or a time")
            if not gtids.contains(gtid):
                begin = begin or seen
            elif begin is not None:
                reason = f"it has {gtid}, and lacks the transaction at {begin.position.text}, which is before it"
                raise self._refused(start, f"is not the beginning of the log: {reason}")
            else:
                last = gtid
        if not last:
            raise self._refused(start, "Kafka has no transaction of it: changes behind it may be missing, so load the tables")
        if begin is None:
            raise self._refused(start, "Kafka has no transaction behind it: wait for one, or leave start out")
        return begin.start._replace(begin=begin.position.text)

    def _transactions(self, start: CommitStart, end: int) -> Generator[_Seen]:
        """Yield the transactions of commit records in the order of their ends."""
        opened: _Seen | None = None
        order = LogOrder(self._decoder, self._source, schema_change_topic(self._source))
        with closing(StreamReader(self._kafka, self._group, _BUFFER_BYTES)) as reader:
            reader.add(self._source, start.offset, start.n, end)
            whole = start
            while reader.read()[self._source] < end:
                transaction = reader.next(1.0)
                if transaction is None:
                    continue
                commit, time_of = transaction.commit, RowTimes(transaction.commit)
                for one in _firsts(order.placed(transaction)):
                    position = transaction_at(one.position[:PREFIX])
                    seen = _Seen(position, time_of(position, one.us), one, whole)
                    if commit.open is not None and position == commit.open.position:
                        opened = opened or seen
                    elif opened is None or position != opened.position:
                        yield seen
                if opened is not None and commit.open is None:
                    yield opened._replace(us=time_of(opened.position, opened.record.us))
                    opened = None
                if not transaction.open and commit.open is None:
                    whole = CommitStart(transaction.offset + 1, commit.n + 1, commit.to.text, commit.server)


def _firsts(placed: list[PlacedRecord]) -> Iterator[PlacedRecord]:
    """Yield one record of each transaction; rows of snapshots and descriptions of tables are of none."""

    def is_logged(one: PlacedRecord) -> bool:
        return one.chunk is None and not (isinstance(one.event, StatementEvent) and one.event.is_description)

    changes = filter(is_logged, placed)
    for _, group in groupby(changes, lambda one: one.position[:PREFIX]):
        yield next(group)
