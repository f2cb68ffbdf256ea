"""Commit records: the offsets that one Kafka transaction of a log reader has, and the times of its rows (topic `<name>.commits`).

With `order.group` there is one in each Kafka transaction of the log reader, in one partition. A reader of many sources orders their
transactions by these records alone. Positions are texts of `schemas.position`; times are microseconds since 1970.

    n, from, to      number of the record, and its part of the log: transactions that begin at `from` or later, before `to`
    since_us         the promise of the record before: no transaction of this record is earlier
    promise_us       no transaction of a later record is earlier
    skew_us          is subtracted from the times in change records: the clock of the server is so far ahead (`order.correct_skew`)
    lifts, caps      times that replace those in change records, or are added to them (`RowTimes`)
    rows             records per topic that the spans have, tombstones, statements and rows of chunks included
    spans            per topic and partition: the first offset, and the one behind the last
    open             a transaction of which the spans have a part; `to` is before it, and the record of its end comes later
    continues        after a failover: the position of the open transaction in the log of the new server
    chunks           rows of snapshots among the rows of the spans (`snapshot.merge: producer`)
    complete         tables of snapshot requests of which all rows are in this record or an earlier one
    signals          the topic of the signal table, if the spans have it: its rows are for the producer, and for no target
    server           the server whose log was read: its UUID, or `server_id=<n>` of a MariaDB
    reset            why reading did not resume at the last offset: the log between was not published
    end              the source is closed: no record follows before it joins again

What is promised:

* Cover: in each partition of a change topic, and of the schema-change topic, the spans of all records follow each other. Between
  two of them is nothing that a reader of committed records gets. With the spans of all records up to this one a reader has what
  the log has up to `to`, and of the `open` transaction its first rows.
* Numbers follow each other without a gap. A number that does not means that rows were published without records: start over.
* Times never decrease along the log, and follow from a change record and the record that has the end of its transaction.

A span may have offsets that no reader gets: the marker that ends an earlier Kafka transaction is written when the broker comes to
it. So the spans of a topic are read when `rows` records of it are.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar, Final, NoReturn

from schemas.errors import DecodeError
from schemas.json_codec import Form, decode, encode, json_field
from schemas.position import Position

_STRICT: Final = Form(refuses_unknown=True)
Moment = tuple[Position, int]
"""The position of a transaction, and a time."""
Spans = Mapping[str, Mapping[int, tuple[int, int]]]
"""Per topic and partition: the first offset, and the one behind the last."""


@dataclass(frozen=True, slots=True)
class StreamState:
    """What the log reader keeps for its next record: the number and the promise of the last one, and its open transaction.

    `join` is the one by which the source is a member of its group (`schemas.members`).
    """

    n: int = 0
    promise_us: int = 0
    open: Position | None = json_field(None, omits_default=True)
    join: int | None = json_field(None, omits_default=True)


@dataclass(frozen=True, slots=True)
class OpenPart:
    """A transaction of which a part was published: its position, and the time that it has at least."""

    JSON: ClassVar = _STRICT

    position: Position
    us: int


@dataclass(frozen=True, slots=True)
class Continued:
    """An open transaction that is published further from the log of another server: its position in records before, and there.

    The position of its first rows is in the old log. A reader places them at the new one.
    """

    JSON: ClassVar = _STRICT

    open: Position
    position: Position


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkRows:
    """Rows of a snapshot in a change topic: those with `op` r and this `file` and `pos` in their source block.

    `at` and `us` are their position and time in the stream: at the transaction, or the transaction boundary, that closed the chunk.
    """

    JSON: ClassVar = _STRICT

    request: str
    table: str
    file: str
    pos: int
    at: Position
    us: int
    rows: int


@dataclass(frozen=True, slots=True)
class CompleteTable:
    """A table of a snapshot request of which every row was published."""

    JSON: ClassVar = _STRICT

    request: str
    table: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRecord:
    """See the module. `begin` and `is_last` are `from` and `end` in JSON. `ValueError` if parts of it contradict each other."""

    JSON: ClassVar = _STRICT

    n: int
    begin: Position = json_field(name="from")
    to: Position
    since_us: int
    promise_us: int
    skew_us: int = json_field(0, omits_default=True)
    lifts: tuple[Moment, ...] = json_field((), required=True)
    caps: tuple[Moment, ...] = json_field((), required=True)
    rows: Mapping[str, int] = json_field(factory=dict, required=True)
    spans: Spans = json_field(factory=dict, required=True)
    open: OpenPart | None = json_field(None, omits_default=True)
    continues: Continued | None = json_field(None, omits_default=True)
    chunks: tuple[ChunkRows, ...] = json_field((), required=True)
    complete: tuple[CompleteTable, ...] = json_field((), required=True)
    signals: str = json_field("", omits_default=True)
    server: str = json_field("", omits_default=True)
    reset: str = json_field("", omits_default=True)
    is_last: bool = json_field(default=False, name="end", omits_default=True)

    def __post_init__(self) -> None:
        if self.n < 1 or self.begin > self.to or not 0 <= self.since_us <= self.promise_us:
            _refuse(self.n, "its number, its part of the log or its promise cannot be")
        if self.rows.keys() != self.spans.keys() or any(count < 1 for count in self.rows.values()):
            _refuse(self.n, "rows and spans are of other topics")
        if self.signals and self.signals not in self.rows:
            _refuse(self.n, "the topic of signals is not among those that have rows")
        if any(not 0 <= first <= end for spans in self.spans.values() for first, end in spans.values()):
            _refuse(self.n, "a span ends before it begins")
        if any(count > sum(end - first for first, end in self.spans[topic].values()) for topic, count in self.rows.items()):
            _refuse(self.n, "a topic has more rows than its spans have offsets")
        for moments in (self.lifts, self.caps):
            if any(one[0] >= other[0] for one, other in pairwise(moments)):
                _refuse(self.n, "lifts or caps are not in the order of the log")
            if any(not self.begin <= position < self.to or position.ordinal for position, _ in moments):
                _refuse(self.n, "a lift or a cap is of another record")
        times = [self.since_us, *(us for _, us in self.lifts)]
        if any(one >= other for one, other in pairwise(times)) or times[-1] > self.promise_us:
            _refuse(self.n, "lifts do not increase, or pass the promise")
        if self.open is not None and (self.open.position < self.to or self.open.us < self.promise_us):
            _refuse(self.n, "the open transaction is before its end, or earlier than its promise")

    def open_behind(self, before: Position | None) -> Position | None:
        """Return the transaction that is open behind the record; `before` was before it. On another server others may end first."""
        if self.open is not None:
            return self.open.position
        has_ended = before is None or self.continues is not None or (before.epoch == self.to.epoch and before < self.to)
        return None if has_ended else before

    def to_bytes(self) -> bytes:
        """Return the record's value: UTF-8 JSON, keys in a fixed order."""
        return json.dumps(encode(self), ensure_ascii=False, separators=(",", ":")).encode()

    @staticmethod
    def parse(value: bytes) -> CommitRecord:
        """Return the record of a value; `DecodeError` for other bytes, and for an unknown field."""
        try:
            document: Any = json.loads(value)
            return decode(CommitRecord, document)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            message = f"not a commit record, or one of a newer version: {type(error).__name__} {error}"
            raise DecodeError(message) from error


class RowTimes:
    """The times of the rows of a record's transactions (pure). The record is the one with the end of the transaction."""

    def __init__(self, record: CommitRecord) -> None:
        self._since_us, self._skew_us = record.since_us, record.skew_us
        self._lifted, self._lifts = _split(record.lifts)
        self._caps = dict(record.caps)

    def __call__(self, position: Position, ts_us: int) -> int:
        """Return the time of a row at `position` (any ordinal) whose change record has the time `ts_us` (`source.ts_us`).

        It is the largest of the promise before the record, the last lift at the row's position or before it, and the time of the
        change record without the skew, or the cap of its transaction.
        """
        at = replace(position, ordinal=0) if position.ordinal else position
        last = bisect_right(self._lifted, at)
        lift = self._lifts[last - 1] if last else self._since_us
        return max(self._since_us, lift, self._caps.get(at, ts_us - self._skew_us))


def _split(moments: Iterable[Moment]) -> tuple[list[Position], list[int]]:
    return [position for position, _ in moments], [us for _, us in moments]


def _refuse(number: int, reason: str) -> NoReturn:
    message = f"commit record {number}: {reason}"
    raise ValueError(message)
