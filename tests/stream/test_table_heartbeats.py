"""The tables that have a heartbeat, which says how far the log is: all of few, of thousands some at a time and each within bounds."""

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


def test_few_tables_all_have_a_heartbeat_every_second_while_anything_moves() -> None:
    clock = Clock()
    schedule, few = HeartbeatSchedule(clock), tables(TABLES_AT_ONCE)
    assert schedule.is_due(partial(at, 1))
    assert schedule.choose(few, at(1), at(1)) == few
    schedule.note_duration(0.01)
    clock.now += 0.9
    assert not schedule.is_due(partial(at, 2))
    assert schedule.choose(few, at(2), at(1)) == []
    clock.now += 0.2
    assert schedule.is_due(partial(at, 2))
    assert schedule.choose(few, at(2), at(1)) == few
    clock.now += 2
    assert schedule.is_due(partial(at, 2)), "the horizon may still follow"
    assert schedule.choose(few, at(2), at(1)) == [], "it has not yet"
    assert schedule.choose(few, at(2), at(2)) == few
    clock.now += 2
    assert not schedule.is_due(partial(at, 2))


def test_thousands_have_heartbeats_in_turns_those_that_changed_first_and_all_in_the_end() -> None:
    clock = Clock()
    schedule, many = HeartbeatSchedule(clock), tables(20 * TABLES_AT_ONCE)
    busy = many[-3:]
    sent_at: dict[tuple[str, str], list[int]] = {table: [] for table in many}
    for turn in range(1, 45):
        for table in busy:
            schedule.changed.add(table)
        chosen = schedule.choose(many, at(turn), at(turn))
        assert len(chosen) == TABLES_AT_ONCE
        for table in chosen:
            sent_at[table].append(turn)
        assert schedule.is_due(partial(at, turn)) is False, "not at once"
        clock.now += 1.1
        assert schedule.is_due(partial(at, turn)), "others wait"
    assert all(len(sent_at[table]) == 44 for table in busy)
    assert all(len(turns) >= 2 and turns[1] - turns[0] <= 21 for turns in sent_at.values())
    sent = dict.fromkeys(many, at(0))
    while schedule.is_due(partial(at, 99)):  # nothing moves any more
        sent.update(dict.fromkeys(schedule.choose(many, at(99), at(99)), at(99)))
        clock.now += 1.1
    assert set(sent.values()) == {at(99)}


def test_all_that_change_all_the_time_leave_the_others_their_turns() -> None:
    clock = Clock()
    schedule, many = HeartbeatSchedule(clock), tables(4 * TABLES_AT_ONCE)
    sent: set[tuple[str, str]] = set()
    for turn in range(1, 8):
        for table in many[: 2 * TABLES_AT_ONCE]:
            schedule.changed.add(table)
        sent.update(schedule.choose(many, at(turn), at(turn)))
        clock.now += 1.1
    assert sent == set(many)


def test_they_are_rarer_where_they_take_long() -> None:
    clock = Clock()
    schedule = HeartbeatSchedule(clock)
    schedule.choose(tables(1), at(1), at(1))
    schedule.note_duration(0.2)
    clock.now += 3.9
    assert not schedule.is_due(partial(at, 2))
    clock.now += 0.2
    assert schedule.is_due(partial(at, 2))
    schedule.choose(tables(1), at(2), at(2))
    schedule.note_duration(60)
    clock.now += LONGEST_INTERVAL_S
    assert schedule.is_due(partial(at, 3))
