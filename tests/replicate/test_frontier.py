"""The merge of sources: which events are released, in which order, and which wait."""

from __future__ import annotations

from typing import Any

import pytest

from schemas.commit_records import ChunkRows, CommitRecord, Continued, OpenPart
from schemas.errors import StateError
from schemas.json_codec import decode, encode
from schemas.position import Position
from schemas.stream_order import StreamPosition
from spark_jobs.replicate.order.frontier import LoggedEvents, SourceCursor, StreamMerge


def at(offset: int, epoch: int = 0) -> Position:
    return Position(epoch, 1, offset)


class Stream:
    """A source that publishes one commit record after the other."""

    def __init__(self, merge: StreamMerge[str], name: str, number: int, epoch: int = 0) -> None:
        self.merge, self.name, self.number = merge, name, number
        self.offset, self.epoch, self.promise_us, self.to = 0, epoch, 0, 0
        merge.admit(name, number, 0)

    def publish(self, *transactions: tuple[int, int, str], promise: int, to: int | None = None, **fields: Any) -> CommitRecord:
        """Publish transactions (offset, time, event)."""
        end = to if to is not None else max([self.to, *(one[0] + 1 for one in transactions)])
        commit = CommitRecord(
            n=self.offset + 1,
            begin=at(self.to, self.epoch),
            to=at(end, self.epoch),
            since_us=self.promise_us,
            promise_us=promise,
            **fields,
        )
        logged = [LoggedEvents(at(offset, self.epoch), us, [event]) for offset, us, event in transactions]
        logged += [LoggedEvents(one.at, 0, [one.request], one) for one in commit.chunks]
        self.merge.note(self.name, self.offset, commit, logged)
        self.offset, self.to, self.promise_us = self.offset + 1, end, promise
        return commit


def released(merge: StreamMerge[str], most: int | None = None) -> list[str]:
    return [event for one in merge.release(most) for event in one.events]


def two() -> tuple[StreamMerge[str], Stream, Stream]:
    merge: StreamMerge[str] = StreamMerge()
    return merge, Stream(merge, "a", 3), Stream(merge, "b", 7)


def test_a_third_source_joins_without_loss() -> None:
    merge, a, b = two()
    a.publish(*[(us, us, str(us)) for us in (1, 3, 5, 7)], promise=7)
    b.publish(*[(us, us, str(us)) for us in (2, 4, 6)], promise=8)
    assert released(merge) == [*"1234567"]
    c = Stream(merge, "c", 9)
    assert merge.frontier == StreamPosition(7, 3, at(8))
    a.publish((9, 9, "9"), promise=9)
    b.publish((10, 10, "10"), promise=10)
    assert (released(merge), merge.blocked_by) == ([], "c")
    c.promise_us = merge.frontier.us + 1
    c.publish((8, 8, "8"), (12, 12, "12"), promise=12)
    assert (released(merge), merge.blocked_by) == (["8", "9"], "a")


def test_equal_times_are_released_by_the_number_of_the_source() -> None:
    merge, a, b = two()
    b.publish((5, 100, "b"), promise=100)
    a.publish((9, 100, "a"), promise=100)
    assert released(merge) == ["a"]
    a.publish(promise=101)
    assert released(merge) == ["b"]


def test_a_source_without_anything_new_holds_the_others_until_it_promises() -> None:
    merge, a, b = two()
    a.publish((1, 50, "a"), promise=50)
    assert (released(merge), merge.blocked_by) == ([], "b")
    b.publish(promise=51)
    assert released(merge) == ["a"]
    merge.end("b")
    a.publish((2, 90, "c"), promise=90)
    merge.end("a")
    assert released(merge) == ["c"]


def test_parts_wait_for_the_record_with_the_end_of_their_transaction() -> None:
    merge, a, b = two()
    b.publish(promise=1_000)
    a.publish((5, 50, "part"), promise=50, to=5, open=OpenPart(at(5), 50))
    assert released(merge) == []
    a.publish((5, 60, "rest"), (6, 70, "next"), promise=70, to=7, lifts=((at(5), 60),))
    assert [(one.at.us, *one.events) for one in merge.release()] == [(60, "part"), (60, "rest"), (70, "next")]


def test_parts_are_continued_in_the_log_of_another_server() -> None:
    merge, a, b = two()
    b.publish(promise=1_000)
    a.publish((5, 50, "part"), promise=50, to=5, open=OpenPart(at(5), 50))
    a.epoch = 1
    a.to = 0
    a.publish((8, 55, "of the new server"), promise=55, to=10)
    a.publish((20, 50, "rest"), promise=60, to=21, continues=Continued(at(5), at(20, 1)))
    assert released(merge) == ["of the new server", "part", "rest"]


def test_parts_without_an_end_are_given_up_when_reading_does_not_resume_behind_them() -> None:
    merge, a, b = two()
    b.publish(promise=1_000)
    a.publish((5, 50, "part"), promise=50, to=5, open=OpenPart(at(5), 50))
    a.publish((30, 90, "behind"), promise=100, reset="the log is gone")
    assert released(merge) == ["behind"]


def test_rows_of_a_chunk_come_before_the_transaction_at_their_position() -> None:
    merge, a, b = two()
    chunk = ChunkRows(request="rows", table="t", file="f", pos=1, at=at(5), us=50, rows=1)
    a.publish((4, 40, "before"), (5, 50, "at"), promise=60, chunks=(chunk,))
    b.publish(promise=100)
    assert released(merge) == ["before", "rows", "at"]


def test_a_source_that_publishes_below_its_promise_is_an_error() -> None:
    merge, a, b = two()
    b.publish((1, 30, "b"), promise=100)
    a.publish(promise=50)
    assert released(merge) == ["b"]
    a.promise_us = 0
    with pytest.raises(StateError, match=r"source a, commit record 2 at offset 1: the transaction at .* has the time 20"):
        a.publish((1, 20, "late"), promise=50)


def test_a_source_that_publishes_behind_its_promise_is_an_error() -> None:
    """What it publishes next would come before it, and be released behind it."""
    _, a, _ = two()
    with pytest.raises(StateError, match=r"source a, commit record 1 at offset 0: the transaction at .* has the time 60, and .* 50"):
        a.publish((1, 60, "early"), promise=50)


def test_a_prefix_is_released_without_dividing_a_position() -> None:
    merge, a, b = two()
    a.publish((1, 10, "1"), (2, 20, "2"), (3, 30, "3"), promise=40)
    b.publish((1, 20, "b"), promise=40)
    assert released(merge, 2) == ["1", "2"]
    assert merge.released == StreamPosition(20, 7, at(1))
    assert released(merge) == ["b", "3"]


def test_a_start_continues_at_the_cursors_and_releases_nothing_twice() -> None:
    merge, a, b = two()
    first = a.publish((1, 10, "1"), (2, 60, "2"), promise=60)
    second = a.publish((3, 70, "3"), promise=70)
    b.publish(promise=50)
    assert released(merge) == ["1"]
    cursors = {name: decode(SourceCursor, encode(one)) for name, one in merge.cursors().items()}
    assert (cursors["a"].offset, cursors["a"].n, cursors["a"].read, cursors["b"].offset) == (0, 1, 2, 1)
    again: StreamMerge[str] = StreamMerge(merge.released, cursors)
    assert again.frontier == merge.frontier
    for offset, (commit, logged) in enumerate(
        [
            (first, [LoggedEvents(at(1), 10, ["1"]), LoggedEvents(at(2), 60, ["2"])]),
            (second, [LoggedEvents(at(3), 70, ["3"])]),
        ]
    ):
        assert released(again) == []
        again.note("a", offset, commit, logged)
    again.end("b")
    assert released(again) == ["2", "3"]
