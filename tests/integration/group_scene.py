"""A group on real servers: producers in threads, and a reader that a test drives step by step; it has no target."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import Any

from kafkaio.committed_reader import SOON, CommittedReader
from kafkaio.shared_log import SharedLog
from kafkaio.slices import Slice
from kafkaio.topic_admin import TopicAdmin
from producer.group.joined_source import waits_in_group
from schemas.commit_records import CommitRecord
from schemas.member_log import MEMBERS_CONFIG, FollowedMembers
from schemas.members import Members, ReaderEntry, ReaderPhase, reader_key, reader_writer
from schemas.position import Position
from schemas.settings import Settings, from_mapping
from schemas.topics import commits_topic, members_topic
from spark_jobs.replicate.order.frontier import LoggedEvents, StreamMerge
from spark_jobs.replicate.order.membership import Membership
from tests.e2e.topics import Notifications, RecordReader
from tests.support.producers import SIGNAL, Source
from tests.support.producing import RunningProducer
from tests.support.servers import database, unique_name
from tidemark.api.sending import produce

PATIENCE_S = 60.0


class RunningSource:
    """A source with a table `t`, and its producer in a thread, as the command runs it."""

    def __init__(self, source: Source, group: str, registry: str) -> None:
        self.source = source
        self.mapping = {
            **source.mapping(),
            "format": {"type": "avro", "registry": registry},
            "snapshot": {"mode": "never", "readers": 1},
            "order": {"group": group, "heartbeat_ms": 100},
        }
        self.settings = from_mapping(self.mapping)
        source.execute(SIGNAL, "CREATE TABLE t (id INT PRIMARY KEY)")
        self.name = source.name
        self.run: RunningProducer | None = None

    def start(self) -> RunningProducer:
        self.run = RunningProducer(self.settings).__enter__()
        return self.run

    @property
    def is_admitted(self) -> bool:
        self.run.check()
        return bool(self.run.starts)

    def end(self) -> None:
        if self.run is not None:
            self.run.stop.set()
            self.run.thread.join(PATIENCE_S)
            assert not self.run.thread.is_alive()

    def insert(self, *ids: int) -> None:
        for one in ids:
            self.source.execute(f"INSERT INTO t VALUES ({one})")

    def signal(self, kind: str, data: dict[str, str] | None = None) -> None:
        produce(self.settings, unique_name("signal"), kind, json.dumps(data or {}))

    def answers(self) -> list[tuple[str, str]]:
        """Type and reason of the answers to signals."""
        return [(one.type, one.data.get("reason", "")) for one in Notifications(self.settings).read()]

    def commits(self) -> list[tuple[int, CommitRecord]]:
        """The commit records, with their offsets."""
        return commit_records_of(self.settings, 0)

    def join(self) -> int | None:
        """The join of the committed offset."""
        stream = self.run.starts[-1].reader.committed.stream
        return None if stream is None else stream.join


def commit_records_of(settings: Settings, begin: int) -> list[tuple[int, CommitRecord]]:
    records = records_of(settings, commits_topic(settings.name), {0: (begin, None)})
    return [(one.offset, CommitRecord.parse(one.value)) for one in records]


def records_of(settings: Settings, topic: str, spans: dict[int, tuple[int, int | None]]) -> list[Any]:
    with CommittedReader(settings.kafka, "played", SOON) as reader:
        if not reader.partitions(topic):
            return []
        ends = reader.ends([(topic, partition) for partition in spans])
        slices = [
            Slice(topic, partition, first, ends[topic, partition] if end is None else end)
            for partition, (first, end) in spans.items()
        ]
        return list(reader.read_slices([one for one in slices if one.start < one.end]))


class PlayedReader:
    """A reader of a group whose target is a list. Each of its steps is the test's."""

    def __init__(self, group: str, name: str, sources: Iterable[RunningSource], merge: StreamMerge[int] | None = None) -> None:
        self.sources = {one.name: one for one in sources}
        kafka = next(iter(self.sources.values())).settings.kafka
        topic = members_topic(group)
        TopicAdmin(kafka).ensure_single(topic, MEMBERS_CONFIG)
        self.log = SharedLog(kafka, topic, reader_writer(name))
        self.log.fence()
        self.followed = FollowedMembers(self.log)
        self.merge: StreamMerge[int] = merge or StreamMerge()
        self.durable = self.merge.released, self.merge.cursors()
        self.names = frozenset(self.sources)
        epoch = self.followed.append(reader_key(name), ReaderEntry(state=ReaderPhase.RUNNING, sources=self.names))
        self.membership = Membership(name, epoch, self.names, self.followed.members, self.merge)
        self.released: list[int] = []
        self.turn()

    @property
    def members(self) -> Members:
        return self.followed.members

    def turn(self) -> None:
        """Follow the members, and append the answers."""
        self.followed.follow()
        read = {name: offset for name in self.names if (offset := self.merge.read(name)) is not None}
        for key, record in self.membership.follow(time.monotonic(), read):
            self.followed.append(key, record)

    def read(self, *names: str) -> None:
        """Read the commit records of these sources, of all by default, with the rows of their spans."""
        for name in names or self.names:
            if self.merge.is_member(name):
                one = self.sources[name]
                for offset, commit in commit_records_of(one.settings, self.merge.read(name) or 0):
                    if self.merge.is_member(name):
                        self.merge.note(name, offset, commit, self._events(one, commit))

    def _events(self, one: RunningSource, commit: CommitRecord) -> list[LoggedEvents[int]]:
        reader, events = RecordReader(one.settings), []
        for topic, spans in commit.spans.items():
            if topic.endswith(".t"):
                for record in records_of(one.settings, topic, dict(spans)):
                    value = reader.decode(record.value)
                    block = value["source"]
                    position = replace(Position.parse(block["sequence"]), ordinal=0)
                    events.append(LoggedEvents(position, block["ts_us"], [value["after"]["id"]]))
        return sorted(events, key=lambda event: event.position)

    def release(self) -> list[int]:
        """Release events; return all that were released."""
        self.released += [event for one in self.merge.release() for event in one.events]
        self.durable = self.merge.released, self.merge.cursors()
        return self.released

    def follow_until(self, condition: Callable[[], bool]) -> None:
        """Do everything again and again."""
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, (self.released, self.merge.blocked_by, self.merge.frontier)
            self.turn()
            self.read()
            self.release()


class GroupScene:
    """A group of its own, and everything that is ended with the test."""

    def __init__(self, fresh_database: Callable[[Any], str], bootstrap_servers: str, registry: str, stack: ExitStack) -> None:
        self.fresh_database, self.bootstrap_servers, self.registry, self.stack = fresh_database, bootstrap_servers, registry, stack
        self.group = unique_name("group")

    def source(self, server: str) -> RunningSource:
        base = database(server)
        one = Source(base, self.fresh_database(base), self.bootstrap_servers)
        self.stack.callback(one.connection.close)
        running = RunningSource(one, self.group, self.registry)
        self.stack.callback(running.end)
        return running

    def reader(self, name: str, *sources: RunningSource, merge: StreamMerge[int] | None = None) -> PlayedReader:
        one = PlayedReader(self.group, name, sources, merge)
        self.stack.enter_context(closing(one.log))
        return one

    def members(self, one: RunningSource) -> Members:
        """The members as a process sees them that comes now."""
        with closing(SharedLog(one.settings.kafka, members_topic(self.group), "test")) as log:
            return FollowedMembers(log).follow()


def started(*sources: RunningSource) -> None:
    for one in sources:
        one.start()
    until(lambda: all(one.is_admitted for one in sources), "the sources have joined")


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"not within {PATIENCE_S:.0f} s: {what} ({waits_in_group()})"
        time.sleep(0.02)
