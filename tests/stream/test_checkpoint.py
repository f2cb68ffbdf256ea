"""Checkpoints without servers: in which order things are written, and that a failure anywhere leaves nothing visible."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from producer.catalog.effects import changes_of
from producer.catalog.statements import parse_statement
from producer.source.begun import Begun
from producer.stream.checkpoint import BYTES_AT_MOST, INTERVAL_S, RECORDS_AT_MOST, Checkpoints
from producer.stream.handlers.ddl_effects import FloorsAndSnapshots
from producer.stream.handlers.snapshot_markers import SnapshotMarkers
from producer.stream.handlers.state_keepers import StartDocuments
from producer.stream.handlers.table_heartbeats import HeartbeatSchedule
from producer.stream.offset import LogOffset, Part
from producer.stream.ports import CheckpointParticipant, CheckpointWork, LoggedStatement, OutgoingRecord
from producer.stream.reader_progress import LogProgress
from rowcodec import Records
from schemas.errors import PublishError
from schemas.identity import SourceId
from schemas.markers import MARKER_KEY, FloorMarker, parse_marker
from schemas.position import Position
from schemas.schema_changes import StatementSession
from tests.support.log_handlers import MemoryParticipant, MemoryPublisher, MemoryStore

START = LogOffset(0, "binlog.000001", 4, "", "server")
NEXT = replace(START, pos=900)


class MemoryTopics:
    """The marker topics of one table, of two partitions."""

    source = SourceId("srv")

    def tables(self):
        return {"d.t": ("d", "t")}

    def captured(self):
        return {("d", "t")}

    def snapshot_topic(self, table):
        return "snapshot." + ".".join(table)

    def partitions(self, topic):
        return 2

    def change_offsets(self, tables):
        return {table: {0: 7, 1: 8} for table in tables}


class NothingAside:
    tables = frozenset[tuple[str, str]]()


class Keeper(MemoryParticipant):
    """A participant that can be due, and that has documents even for a part."""

    due = False

    def is_due(self, boundary, now_s):
        return self.due

    def prepare_part(self, now_s):
        return {f"{self.name}/part": {"now": now_s}}


class Scene:
    def __init__(
        self,
        fault: Callable[[str], None] = lambda _step: None,
        interval_s: float = INTERVAL_S,
        more: Sequence[CheckpointParticipant] = (),
    ) -> None:
        self.now = 100.0
        self.publisher = MemoryPublisher(fault)
        self.calls: list[tuple[str, str]] = []
        self.first = Keeper("first", self.calls, fault=fault)
        self.last = MemoryParticipant("last", self.calls, fault=fault)
        schedule = HeartbeatSchedule(lambda: self.now)
        markers = SnapshotMarkers(self.publisher, MemoryTopics(), schedule, NothingAside(), lambda: self.now)
        self.checkpoints = Checkpoints(
            START, self.publisher, MemoryStore(), markers, [self.first, self.last, *more],
            LogProgress(START.position), lambda: self.now, interval_s,
        )  # fmt: skip

    def give_work(self) -> None:
        self.first.work = CheckpointWork(rows=[("t", row())], documents={"first/a": {"v": 1}})
        record = OutgoingRecord("notifications", b"told", b"key")
        self.last.work = CheckpointWork(records=[record], documents={"last/b": None}, horizon=Position(0, 1, 4))

    def topics(self) -> list[tuple[str, bytes | None]]:
        return [(one.topic, one.key) for one in self.publisher.visible]


def row() -> Records:
    one = np.zeros(1, np.uint8)
    offsets = np.array([0, 1], np.int64)
    return Records(1, 1, b"v", offsets, one, b"k", offsets, True, one, np.full(1, -1, np.int32))


def test_rows_come_before_the_flush_and_markers_records_documents_and_the_offset_after_it() -> None:
    scene = Scene()
    scene.give_work()
    scene.checkpoints.commit(NEXT)
    assert scene.topics() == [
        ("t", b"k"),
        ("snapshot.d.t", MARKER_KEY),
        ("snapshot.d.t", MARKER_KEY),
        ("notifications", b"key"),
        ("state", b"first/a"),
        ("state", b"last/b"),
        ("state", b"offset"),
    ]
    assert scene.publisher.steps[:2] == ["write", "flush"]
    assert [one.partition for one in scene.publisher.visible[1:3]] == [0, 1]
    assert scene.calls == [("first", "prepare"), ("last", "prepare"), ("first", "committed"), ("last", "committed")]
    assert (scene.checkpoints.committed, scene.checkpoints.has_committed) == (NEXT, True)


def test_state_is_restored_in_the_reverse_order() -> None:
    scene = Scene()
    scene.checkpoints.restore({"first/a": {"v": 1}})
    assert scene.calls == [("last", "restore"), ("first", "restore")]
    assert scene.first.restored == {"first/a": {"v": 1}}


STEPS = ["first.prepare", "last.prepare", "write", "flush", "produce", "commit"]


@pytest.mark.parametrize("step", STEPS)
def test_a_failure_before_the_commit_leaves_nothing_visible_and_informs_no_participant(step: str) -> None:
    def fault(name: str) -> None:
        if name == step:
            message = f"broken at {step} (on purpose)"
            raise PublishError(message)

    scene = Scene(fault)
    scene.give_work()
    with pytest.raises(PublishError, match=step):
        scene.checkpoints.commit(NEXT)
    assert scene.topics() == []
    assert scene.checkpoints.committed == START
    assert ("last", "committed") not in scene.calls


def test_a_crash_behind_the_commit_loses_only_the_calls_of_the_participants() -> None:
    def fault(name: str) -> None:
        if name == "committed":
            message = "died (on purpose)"
            raise PublishError(message)

    scene = Scene(fault)
    scene.give_work()
    with pytest.raises(PublishError):
        scene.checkpoints.commit(NEXT)
    assert ("state", b"offset") in scene.topics()
    assert ("first", "committed") not in scene.calls


def test_a_part_has_the_documents_that_its_rows_need_and_does_not_move_the_boundary() -> None:
    scene = Scene()
    part = replace(START, part=Part(Begun("binlog.000001", 4, "u:1", None, 1), 5))
    scene.publisher.write("t", row())
    scene.checkpoints.commit_part(part)
    assert scene.topics() == [("t", b"k"), ("state", b"first/part"), ("state", b"offset")]
    assert scene.checkpoints.committed == part
    assert scene.calls == []
    assert not scene.checkpoints.has_committed


def test_nothing_new_is_no_transaction_of_kafka() -> None:
    scene = Scene()
    scene.checkpoints.commit(NEXT)
    seen = len(scene.publisher.visible)
    scene.checkpoints.commit(NEXT)
    assert len(scene.publisher.visible) == seen


def test_a_checkpoint_is_due_after_an_interval_with_news_or_at_once_where_a_participant_asks() -> None:
    scene = Scene()
    scene.checkpoints.commit(NEXT)
    boundary = lambda: NEXT.position  # noqa: E731
    assert not scene.checkpoints.is_due(boundary)
    scene.checkpoints.note_transaction()
    scene.now += INTERVAL_S / 2
    assert not scene.checkpoints.is_due(boundary)
    scene.first.due = True
    assert scene.checkpoints.is_due(boundary)
    scene.first.due = False
    scene.now += INTERVAL_S
    assert scene.checkpoints.is_due(boundary)
    assert scene.checkpoints.read_timeout() == 0.0


def test_what_a_start_reads_first_waits_for_no_interval() -> None:
    scene = Scene()
    boundary = lambda: NEXT.position  # noqa: E731
    scene.checkpoints.note_transaction()
    assert scene.checkpoints.read_timeout() == 0.0
    assert scene.checkpoints.is_due(boundary)
    scene.checkpoints.commit(NEXT)
    scene.checkpoints.note_transaction()
    assert not scene.checkpoints.is_due(boundary)


def test_with_a_shorter_interval_a_checkpoint_is_due_sooner_unless_a_backlog_is_read() -> None:
    scene = Scene(interval_s=0.005)
    scene.checkpoints.commit(NEXT)
    boundary = lambda: NEXT.position  # noqa: E731
    scene.checkpoints.note_transaction()
    assert 0 < scene.checkpoints.read_timeout() <= 0.005
    scene.now += 0.006
    assert scene.checkpoints.is_due(boundary)
    scene.checkpoints.is_behind = True
    assert not scene.checkpoints.is_due(boundary)
    scene.now += INTERVAL_S
    assert scene.checkpoints.is_due(boundary)


# ---- commits in the background

AFTER = replace(START, pos=1_300)


def later(scene: Scene, boundary: LogOffset = NEXT) -> None:
    """Begin to commit a checkpoint that has a row and the offset, behind one that has written the heartbeats."""
    if not scene.checkpoints.has_committed:
        scene.checkpoints.commit(replace(START, pos=500))
        del scene.publisher.steps[:], scene.calls[:], scene.publisher.visible[:]
    scene.publisher.write("t", row())
    scene.checkpoints.commit_later(boundary)


def test_a_commit_that_was_begun_is_durable_when_it_is_answered_and_no_sooner() -> None:
    scene = Scene()
    scene.publisher.answers_late = True
    later(scene)
    checkpoints, before = scene.checkpoints, replace(START, pos=500)
    assert not checkpoints.note_answer()
    assert (checkpoints.committed, checkpoints.progress.position) == (before, before.position)
    assert checkpoints.progress.checkpoints == 1
    assert scene.calls == [("first", "prepare"), ("last", "prepare")]
    assert scene.topics() == []
    scene.publisher.answers_late = False
    assert checkpoints.note_answer()
    assert (checkpoints.committed, checkpoints.progress.position) == (NEXT, NEXT.position)
    assert scene.calls == [("first", "prepare"), ("last", "prepare"), ("first", "committed"), ("last", "committed")]
    assert scene.topics() == [("t", b"k"), ("state", b"offset")]


def test_what_is_read_meanwhile_is_committed_behind_it() -> None:
    scene = Scene()
    scene.publisher.answers_late = True
    later(scene)
    later(scene, AFTER)
    assert scene.publisher.steps == ["write", "produce", "commit_later", "write", "settle", "produce", "commit_later"]
    assert scene.checkpoints.committed == NEXT
    assert scene.topics() == [("t", b"k"), ("state", b"offset")]
    scene.checkpoints.settle()
    assert scene.checkpoints.committed == AFTER
    assert scene.calls == 2 * [("first", "prepare"), ("last", "prepare"), ("first", "committed"), ("last", "committed")]


class Emptied:
    """A TRUNCATE of the captured table."""

    def __init__(self) -> None:
        topics = SimpleNamespace(known=lambda: {("d", "t")})
        captured = SimpleNamespace(holds_data=lambda *_table: True)
        self.participant = FloorsAndSnapshots(captured, None, topics, SimpleNamespace(has=lambda *_table: False))  # type: ignore[arg-type]

    def read(self) -> None:
        origin = SimpleNamespace(position=AFTER.position)
        parsed = parse_statement("TRUNCATE TABLE t", "d")
        changes = changes_of(parsed, "mysql")
        self.participant.statement(LoggedStatement(parsed, changes, origin, 0, is_unpublished=False, session=StatementSession()))  # type: ignore[arg-type]

    def written(self, scene: Scene) -> int:
        markers = [parse_marker(one.value) for one in scene.publisher.visible if one.key == MARKER_KEY]
        return sum(isinstance(one, FloorMarker) and one.position == AFTER.position for one in markers) // 2


class FoundOut:
    """A document that a change of the captured tables adds."""

    def __init__(self) -> None:
        self.participant = StartDocuments({})

    def read(self) -> None:
        self.participant.add({"coverage": {"v": 1}})

    def written(self, scene: Scene) -> int:
        return scene.topics().count(("state", b"coverage"))


@pytest.mark.parametrize("noted", [Emptied, FoundOut])
def test_what_is_noted_while_a_commit_is_on_its_way_is_written_once_with_the_next(noted: type[Emptied | FoundOut]) -> None:
    """A floor that was noted between a commit and its answer was forgotten with the answer: the rows of a TRUNCATE stayed."""
    one = noted()
    scene = Scene(more=[one.participant])
    scene.publisher.answers_late = True
    later(scene)
    one.read()
    later(scene, AFTER)
    later(scene, replace(AFTER, pos=1_500))
    scene.checkpoints.settle()
    assert one.written(scene) == 1


WORKS = {
    "rows": CheckpointWork(rows=iter([("t", row())])),
    "records": CheckpointWork(records=[OutgoingRecord("notifications", b"told", b"key")]),
    "documents": CheckpointWork(documents={"last/b": None}),
}


@pytest.mark.parametrize("kind", WORKS)
def test_what_participants_have_to_write_is_committed_before_the_reader_continues(kind: str) -> None:
    scene = Scene()
    scene.publisher.answers_late = True
    later(scene)
    scene.last.work = WORKS[kind]
    later(scene, AFTER)
    assert scene.checkpoints.committed == AFTER
    assert scene.publisher.is_answered
    assert scene.calls[-1] == ("last", "committed")
    assert "flush" not in scene.publisher.steps  # there are no markers, so no end offsets


def test_heartbeats_are_committed_before_the_reader_continues_and_have_final_end_offsets() -> None:
    scene = Scene()
    later(scene)
    scene.now += 10.0
    later(scene, AFTER)
    assert scene.checkpoints.committed == AFTER
    steps = scene.publisher.steps
    assert steps[steps.index("settle") + 1 :] == ["flush", "produce", "produce", "produce", "commit"]


@pytest.mark.parametrize("is_sent", [False, True])
def test_an_error_of_a_commit_that_was_begun_ends_all_that_follows_it(is_sent: bool) -> None:
    """Whether the brokers have it (`is_sent`) is known to the next start alone; what was read meanwhile is visible to nobody."""
    broken = "settled" if is_sent else "settle"
    failing = False

    def fault(name: str) -> None:
        if failing and name == broken:
            message = "the answer never came (on purpose)"
            raise PublishError(message)

    scene = Scene(fault)
    scene.publisher.answers_late = True
    later(scene)
    failing = True
    scene.publisher.write("t", row())
    with pytest.raises(PublishError):
        scene.checkpoints.commit_later(AFTER)
    assert scene.topics() == ([("t", b"k"), ("state", b"offset")] if is_sent else [])
    assert scene.checkpoints.committed == replace(START, pos=500)
    assert ("last", "committed") not in scene.calls
    if not is_sent:
        for call in (scene.checkpoints.abort, lambda: scene.checkpoints.commit(AFTER), scene.checkpoints.settle):
            with pytest.raises(PublishError):
                call()
        assert scene.topics() == []


@pytest.mark.parametrize("call", ["commit", "commit_part", "abort"])
def test_a_commit_that_was_begun_comes_before_whatever_else_ends_a_transaction(call: str) -> None:
    scene = Scene()
    scene.publisher.answers_late = True
    later(scene)
    scene.publisher.write("t", row())
    {"commit": scene.checkpoints.commit, "commit_part": scene.checkpoints.commit_part}.get(
        call, lambda _offset: scene.checkpoints.abort()
    )(AFTER)
    steps = scene.publisher.steps
    assert steps.index("settle") < steps.index("commit" if call != "abort" else "abort")
    assert scene.checkpoints.committed == (NEXT if call == "abort" else AFTER)
    assert len([topic for topic, _ in scene.topics() if topic == "t"]) == (1 if call == "abort" else 2)


def test_while_a_commit_is_on_its_way_the_next_is_not_due_and_its_answer_is_looked_for_often() -> None:
    scene = Scene(interval_s=0.005)
    scene.publisher.answers_late = True
    later(scene)
    boundary = lambda: AFTER.position  # noqa: E731
    scene.checkpoints.note_transaction()
    scene.now += 0.009
    assert not scene.checkpoints.is_due(boundary)
    assert 0 < scene.checkpoints.read_timeout() <= 0.003
    scene.publisher.answers_late = False
    assert scene.checkpoints.is_due(boundary)
    assert scene.checkpoints.committed == NEXT
    assert scene.checkpoints.read_timeout() == 0.0


def test_too_many_records_are_committed_even_where_that_means_to_wait_for_the_answer() -> None:
    scene = Scene()
    scene.publisher.answers_late = True
    later(scene)
    assert not scene.checkpoints.is_due(lambda: AFTER.position)
    for _ in range(RECORDS_AT_MOST):
        scene.publisher.produce("t", b"")
    assert scene.checkpoints.is_due(lambda: AFTER.position)


def test_too_many_bytes_are_committed_like_too_many_records() -> None:
    scene = Scene()
    scene.publisher.answers_late = True
    later(scene)
    scene.publisher.produce("t", bytes(BYTES_AT_MOST - 5), b"key!")
    assert not scene.checkpoints.is_due(lambda: AFTER.position)
    scene.publisher.produce("t", None, b"k")
    assert scene.checkpoints.is_due(lambda: AFTER.position)


def test_delays_are_those_of_the_commit_that_has_the_rows() -> None:
    scene = Scene()
    scene.publisher.answers_late = True
    delays = scene.checkpoints.progress.delays
    delays.note(("d", "t"), 1_000_001)
    later(scene)
    delays.note(("d", "u"), 1_000_001)
    scene.checkpoints.settle()
    assert set(delays.tables) == {("d", "t")}
    later(scene, AFTER)
    scene.checkpoints.settle()
    assert set(delays.tables) == {("d", "t"), ("d", "u")}
