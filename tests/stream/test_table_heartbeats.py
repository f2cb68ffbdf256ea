"""Which tables are told how far the log is: all of few, of thousands some at a time and each within bounds."""

from __future__ import annotations

from functools import partial

from producer.stream.handlers.table_heartbeats import LONGEST_INTERVAL_S, TABLES_AT_ONCE, HeartbeatSchedule
from schemas.position import Position


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def at(offset: int) -> Position:
    return Position(0, 1, offset)


def tables(count: int) -> list[tuple[str, str]]:
    return [("db", f"t{number:05d}") for number in range(count)]


def test_few_tables_are_all_told_every_second_while_anything_moves() -> None:
    clock = Clock()
    beats, few = HeartbeatSchedule(clock), tables(TABLES_AT_ONCE)
    assert beats.is_due(partial(at, 1))
    assert beats.choose(few, at(1), at(1)) == few
    beats.note_duration(0.01)
    clock.now += 0.9
    assert not beats.is_due(partial(at, 2))
    assert beats.choose(few, at(2), at(1)) == []
    clock.now += 0.2
    assert beats.is_due(partial(at, 2))
    assert beats.choose(few, at(2), at(1)) == few
    clock.now += 2
    assert beats.is_due(partial(at, 2)), "the horizon may still follow"
    assert beats.choose(few, at(2), at(1)) == [], "it has not yet"
    assert beats.choose(few, at(2), at(2)) == few
    clock.now += 2
    assert not beats.is_due(partial(at, 2))


def test_thousands_are_told_in_turns_those_that_changed_first_and_all_in_the_end() -> None:
    clock = Clock()
    beats, many = HeartbeatSchedule(clock), tables(20 * TABLES_AT_ONCE)
    busy = many[-3:]
    told_at: dict[tuple[str, str], list[int]] = {table: [] for table in many}
    for turn in range(1, 45):
        for table in busy:
            beats.changed.add(table)
        chosen = beats.choose(many, at(turn), at(turn))
        assert len(chosen) == TABLES_AT_ONCE
        for table in chosen:
            told_at[table].append(turn)
        assert beats.is_due(partial(at, turn)) is False, "not at once"
        clock.now += 1.1
        assert beats.is_due(partial(at, turn)), "others wait"
    assert all(len(told_at[table]) == 44 for table in busy)
    assert all(len(turns) >= 2 and turns[1] - turns[0] <= 21 for turns in told_at.values())
    told = dict.fromkeys(many, at(0))
    while beats.is_due(partial(at, 99)):  # nothing moves any more
        told.update(dict.fromkeys(beats.choose(many, at(99), at(99)), at(99)))
        clock.now += 1.1
    assert set(told.values()) == {at(99)}


def test_all_that_change_all_the_time_leave_the_others_their_turns() -> None:
    clock = Clock()
    beats, many = HeartbeatSchedule(clock), tables(4 * TABLES_AT_ONCE)
    told: set[tuple[str, str]] = set()
    for turn in range(1, 8):
        for table in many[: 2 * TABLES_AT_ONCE]:
            beats.changed.add(table)
        told.update(beats.choose(many, at(turn), at(turn)))
        clock.now += 1.1
    assert told == set(many)


def test_they_are_rarer_where_they_take_long() -> None:
    clock = Clock()
    beats = HeartbeatSchedule(clock)
    beats.choose(tables(1), at(1), at(1))
    beats.note_duration(0.2)
    clock.now += 3.9
    assert not beats.is_due(partial(at, 2))
    clock.now += 0.2
    assert beats.is_due(partial(at, 2))
    beats.choose(tables(1), at(2), at(2))
    beats.note_duration(60)
    clock.now += LONGEST_INTERVAL_S
    assert beats.is_due(partial(at, 3))
