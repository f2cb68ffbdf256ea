"""The members of a group: their records, and who may publish when."""

from __future__ import annotations

from typing import Any

import pytest

from schemas.errors import DecodeError
from schemas.members import (
    Acknowledgement,
    Admitted,
    MemberRecord,
    Members,
    ReaderEntry,
    ReaderPhase,
    Revocation,
    SourceEntry,
    SourcePhase,
    WaitFor,
    ack_key,
    closing_step,
    next_step,
    parse,
    reader_key,
    revoke_key,
    source_key,
    to_bytes,
)
from schemas.position import Position
from schemas.stream_order import StreamPosition

RUNNING = ReaderEntry(state=ReaderPhase.RUNNING, sources=frozenset({"a", "b"}))
JOINING = SourceEntry(state=SourcePhase.JOINING, first=3, end=3)


def at(us: int) -> StreamPosition:
    return StreamPosition(us, 0, Position.MINIMUM)


class Topic:
    """The topic of a group, and its fold."""

    def __init__(self) -> None:
        self.end = 0
        self.members = Members()

    def append(self, key: str, record: MemberRecord) -> int:
        assert parse(key, to_bytes(record)) == record
        self.members.note(self.end, key, record)
        self.end += 1
        return self.end - 1

    def run(self, reader: str, record: ReaderEntry = RUNNING) -> int:
        return self.append(reader_key(reader), record)

    def join(self, source: str) -> int:
        step = next_step(self.members, source, frozenset(), 3)
        assert isinstance(step, SourceEntry)
        assert step.state is SourcePhase.JOINING
        return self.append(source_key(source), step)

    def acknowledge(self, reader: str, source: str, us: int, **fields: Any) -> None:
        epoch, join = self.members.readers[reader].epoch, self.members.sources[source].join
        record = Acknowledgement(**{"join": join, "epoch": epoch, "frontier": at(us), **fields})
        self.append(ack_key(reader, source), record)

    def step(self, source: str, join: int) -> SourceEntry | WaitFor | Admitted:
        return next_step(self.members, source, frozenset({join}), 3)

    def online(self, source: str, join: int) -> Admitted:
        step = self.step(source, join)
        assert isinstance(step, SourceEntry)
        self.append(source_key(source), step)
        step = self.step(source, join)
        assert isinstance(step, Admitted)
        return step


def test_a_source_without_readers_is_online_at_once() -> None:
    topic = Topic()
    join = topic.join("a")
    assert topic.members.sources["a"].number == join
    assert topic.online("a", join) == Admitted(join, 1)


def test_a_source_waits_for_each_running_reader_that_lists_it() -> None:
    topic = Topic()
    topic.run("one")
    topic.run("two")
    topic.run("stopped", ReaderEntry(state=ReaderPhase.STOPPED, sources=frozenset({"a"}), frontier=at(90)))
    topic.run("other", ReaderEntry(state=ReaderPhase.RUNNING, sources=frozenset({"b"})))
    join = topic.join("a")
    assert topic.step("a", join) == WaitFor(("one", "two"))
    topic.acknowledge("one", "a", 70)
    assert topic.step("a", join) == WaitFor(("two",))
    topic.acknowledge("two", "a", 80)
    assert topic.online("a", join) == Admitted(join, 91)


def test_a_reader_put_offline_is_not_waited_for() -> None:
    topic = Topic()
    epoch = topic.run("one")
    join = topic.join("a")
    topic.run("one", ReaderEntry(state=ReaderPhase.OFFLINE, sources=frozenset({"a"}), by="me", reason="it is lost"))
    assert not topic.members.is_current("one", epoch)
    topic.online("a", join)


@pytest.mark.parametrize("change", ["revoked", "run again", "stopped further on"])
def test_a_join_is_not_valid_if_something_has_changed_before_its_record(change: str) -> None:
    topic = Topic()
    topic.run("one")
    join = topic.join("a")
    topic.acknowledge("one", "a", 70)
    online = topic.step("a", join)
    assert isinstance(online, SourceEntry)
    if change == "revoked":
        topic.append(revoke_key("one", "a"), Revocation(join))
    elif change == "run again":
        topic.run("one")
    else:
        topic.run("one", ReaderEntry(state=ReaderPhase.STOPPED, sources=frozenset({"a"}), frontier=at(75)))
    topic.append(source_key("a"), online)
    assert topic.members.sources["a"].is_void
    again = topic.step("a", join)
    assert again == SourceEntry(state=SourcePhase.JOINING, first=3, member=join, end=3)
    assert isinstance(again, SourceEntry)
    topic.append(source_key("a"), again)
    assert topic.members.sources["a"].number == join


def test_a_revocation_behind_the_record_comes_too_late() -> None:
    topic = Topic()
    topic.run("one")
    join = topic.join("a")
    topic.acknowledge("one", "a", 70)
    admission = topic.online("a", join)
    topic.append(revoke_key("one", "a"), Revocation(join))
    assert topic.step("a", join) == admission


def test_a_source_that_cannot_prove_its_join_joins_again() -> None:
    topic = Topic()
    join = topic.join("a")
    topic.online("a", join)
    step = next_step(topic.members, "a", frozenset(), 9)
    assert step == SourceEntry(state=SourcePhase.JOINING, first=3, member=join, end=9)


def test_an_online_before_the_start_is_taken_for_a_member_whatever_compaction_has_removed() -> None:
    members = Members(live_from=10)
    members.note(4, reader_key("one"), RUNNING)
    members.note(6, source_key("a"), JOINING)
    members.note(8, source_key("a"), SourceEntry(state=SourcePhase.ONLINE, first=3, member=6, join=6, floor_us=1))
    assert members.sources["a"].state is SourcePhase.ONLINE
    assert members.sources["a"].is_member(None)


def test_records_of_an_earlier_join_are_left_out() -> None:
    topic = Topic()
    first = topic.join("a")
    online = topic.step("a", first)
    assert isinstance(online, SourceEntry)
    second = topic.join("a")
    topic.append(source_key("a"), online)
    assert (topic.members.sources["a"].join, topic.members.sources["a"].state) == (second, SourcePhase.JOINING)


def test_a_paused_source_stays_a_member_and_resumes_without_readers() -> None:
    topic = Topic()
    join = topic.join("a")
    admission = topic.online("a", join)
    topic.run("one")
    topic.append(source_key("a"), topic.members.sources["a"].record_of(SourcePhase.PAUSED))
    assert topic.members.sources["a"].is_member(7)
    assert topic.online("a", join) == admission


def test_a_closing_source_is_offline_when_the_running_readers_have_everything() -> None:
    topic = Topic()
    topic.online("a", topic.join("a"))
    topic.run("one")
    for expected in ({"end": None}, {"end": 12}):
        step = closing_step(topic.members, "a", expected["end"])
        assert isinstance(step, SourceEntry)
        assert (step.state, step.end) == (SourcePhase.CLOSING, expected["end"])
        topic.append(source_key("a"), step)
        assert expected["end"] or closing_step(topic.members, "a", None) is None
    assert topic.members.sources["a"].is_member(11)
    assert not topic.members.sources["a"].is_member(12)
    assert closing_step(topic.members, "a", 12) == WaitFor(("one",))
    topic.acknowledge("one", "a", 0, is_drained=True)
    step = closing_step(topic.members, "a", 12)
    assert isinstance(step, SourceEntry)
    topic.append(source_key("a"), step)
    assert (topic.members.sources["a"].state, step.end) == (SourcePhase.OFFLINE, 12)
    assert closing_step(topic.members, "a", 12) is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("source/a", b""), ("source/a", b"[]"), ("source/a", b'{"state":"joining","first":0}'),
        ("source/a", b'{"state":"joining","first":0,"end":0,"later":1}'), ("source/a", b'{"state":"gone","first":0,"end":0}'),
        ("source/a", b'{"state":"online","first":0,"join":1}'), ("source/a", b'{"state":"joining","first":0,"end":0,"join":1}'),
        ("source/a", b'{"state":"offline","first":0,"member":1,"join":1}'), ("reader/r", b'{"state":"running"}'),
        ("ack/r/a", b'{"join":1,"epoch":2,"frontier":"1"}'), ("revoke/r/a", b'{"join":"1"}'), ("revoke/r", b'{"join":1}'),
        ("other/a", b"{}"), ("source/a/b", b'{"state":"joining","first":0,"end":0}'), ("source/", b'{"state":"joining","first":0,"end":0}'),
    ],
)  # fmt: skip
def test_other_records_are_refused(key: str, value: bytes) -> None:
    with pytest.raises(DecodeError, match="members of a group"):
        parse(key, value)
