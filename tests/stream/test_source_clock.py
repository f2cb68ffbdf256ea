"""The clock of a real server, and which of its times may be promised."""

from __future__ import annotations

import time

import pytest

from producer.source.source_clock import ClockReading, SourceClock
from schemas.errors import RetriableSourceError, SourceError
from schemas.position import Position


def at(pos: int) -> Position:
    return Position(0, 3, pos)


def clock_of(now_s: float = 50.0) -> SourceClock:
    def connect():
        raise AssertionError("no server is asked")

    return SourceClock(connect, 0, 1.0, lambda: now_s)


def test_a_time_may_be_promised_when_the_log_is_read_up_to_the_end_that_was_read_after_it() -> None:
    clock = clock_of()
    assert (clock.is_waiting, clock.ready_us(at(1_000))) == (False, 0)
    clock.note(ClockReading(7_000, at(300)), 50.0)
    assert (clock.is_waiting, clock.ready_us(at(299))) == (True, 0)
    assert (clock.ready_us(at(300)), clock.is_waiting) == (7_000, False)
    assert clock.ready_us(at(301)) == 7_000


def test_a_log_reader_that_is_behind_comes_to_the_oldest_reading_though_newer_ones_follow() -> None:
    clock = clock_of()
    for number in range(1, 6):
        clock.note(ClockReading(number * 1_000, at(number * 100)), 50.0)
        assert clock.ready_us(at(number * 10)) == 0
    assert clock.ready_us(at(100)) == 1_000
    assert clock.ready_us(at(499)) == 1_000
    assert clock.ready_us(at(500)) == 5_000


def test_a_clock_that_is_set_back_promises_nothing_earlier() -> None:
    clock = clock_of()
    for us in (9_000, 2_000):
        clock.note(ClockReading(us, at(100)), 50.0)
        assert clock.ready_us(at(100)) == 9_000


def test_between_two_readings_the_clock_advances_with_that_of_the_process() -> None:
    clock = clock_of(now_s=52.5)
    clock.note(ClockReading(1_000_000, at(100)), 50.0)
    assert clock.now_us() == 3_500_000


def test_the_clock_and_the_end_of_the_log_of_a_server_are_read_again_and_again(source) -> None:
    clock = SourceClock(source.server.connect, 4, 0.05)
    source.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    clock.start()
    try:
        end, first = Position(5, 0, 0), clock.ready_us(Position(5, 0, 0))
        assert abs(first - time.time_ns() // 1000) < 5_000_000
        assert abs(clock.now_us() - time.time_ns() // 1000) < 5_000_000
        deadline = time.monotonic() + 60
        while clock.ready_us(end) <= first:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        clock.stop()


@pytest.mark.parametrize("ahead_s", [3600, -3600])
def test_how_far_the_clock_of_a_server_is_ahead_is_known(source, ahead_s) -> None:
    clock = SourceClock(source.server.connect, 4, 60.0, wall_ns=lambda: time.time_ns() - ahead_s * 1_000_000_000)
    assert clock.skew_us is None
    clock.start()
    clock.stop()
    assert abs(clock.skew_us - ahead_s * 1_000_000) < 60_000_000


def test_a_connection_that_broke_is_opened_again_and_a_refusal_is_raised_to_the_log_reader(source) -> None:
    errors = [RetriableSourceError("the connection broke (on purpose)"), OSError("and again"), SourceError("no right (on purpose)")]
    tried = []

    def connect():
        tried.append(1)
        if len(tried) > 1:
            raise errors.pop(0)
        return source.server.connect()

    clock = SourceClock(connect, 0, 0.01)
    clock.start()
    assert clock._connection is not None
    clock._connection.close()  # its next question fails
    try:
        with pytest.raises(SourceError, match="no right"):
            ask_until_refused(clock)
    finally:
        clock.stop()
    assert not errors


def test_a_skew_is_subtracted_if_it_is_corrected_and_more_than_the_answer_leaves_open() -> None:
    def connect():
        raise AssertionError("no server is asked")

    clock = SourceClock(connect, 0, 1.0, corrects=True)
    shown = [
        (clock.corrected_us(server_us, asked_us * 1000, answered_us * 1000), clock.correction_us, clock.skew_us)
        for server_us, asked_us, answered_us in [
            (1_000_000, 1_000_000, 1_000_000),
            (1_009_000, 1_000_000, 1_000_000),  # as good as equal
            (4_600_000, 1_000_000, 1_000_000),
            (4_640_000, 1_000_000, 1_080_000),  # no other: the answer took 80 ms
            (4_800_000, 1_000_000, 1_100_000),
            (1_000_000, 3_000_000, 3_000_000),  # it was set back
        ]
    ]
    assert shown == [
        (1_000_000, 0, 0),
        (1_009_000, 0, 9_000),
        (1_000_000, 3_600_000, 3_600_000),
        (1_040_000, 3_600_000, 3_600_000),
        (1_050_000, 3_750_000, 3_750_000),
        (3_000_000, -2_000_000, -2_000_000),
    ]
    other = SourceClock(connect, 0, 1.0)
    assert (other.corrected_us(4_600_000, 0, 0), other.correction_us, other.skew_us) == (4_600_000, 0, 4_600_000)


def ask_until_refused(clock: SourceClock) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        clock.ready_us(at(4))
        time.sleep(0.01)
