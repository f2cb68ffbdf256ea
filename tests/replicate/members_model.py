"""A group of sources and readers as the memory has it: their steps come in any order, which a seed decides.

The log reader's commit records (`CommitSeal`, `SourceClock`), the members and their rules, and the merge of a reader are real. Servers
with their clocks and logs, Kafka, processes that die, and the target of a reader are simulated.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from schemas.commit_records import CommitRecord
from schemas.errors import StateError
from schemas.members import (
    MemberRecord,
    Members,
    MemberSource,
    ReaderEntry,
    ReaderPhase,
    parse,
    reader_key,
    to_bytes,
)
from schemas.overriding import override
from schemas.stream_order import StreamPosition
from spark_jobs.replicate.order.frontier import LoggedEvents, SourceCursor, StreamMerge
from spark_jobs.replicate.order.membership import Membership
from tests.replicate.model_source import NOON_US, SECOND_US, TICK_US, Event, ModelSource, WrongError


class WithoutAcknowledgement(Members):
    """Members whose sources wait for no reader."""

    @override
    def missing(self, source: MemberSource) -> tuple[str, ...]:
        return ()


class WithoutStopped(Members):
    """Members whose sources ignore the frontiers of stopped readers."""

    @override
    def floor_us(self, source: MemberSource) -> int:
        readers = self.readers
        self.readers = {name: one for name, one in readers.items() if one.record.state is ReaderPhase.RUNNING}
        floor_us = super().floor_us(source)
        self.readers = readers
        return floor_us


_MEMBERS: Mapping[str, type[Members]] = {"acknowledgement": WithoutAcknowledgement, "stopped_frontier": WithoutStopped}


class WithOtherNumbers(StreamMerge[Event]):
    """A merge that numbers the sources in another way."""

    @override
    def admit(self, source: str, number: int, first: int) -> None:
        super().admit(source, 500 - number, first)


class World:
    """Kafka and the time. `off` names the mechanism that is switched off."""

    def __init__(self, seed: int, off: str = "", steps: int = 400) -> None:
        self.random = random.Random(seed)
        self.off = off
        self.now_us = NOON_US
        self.topic: list[tuple[str, bytes]] = []
        self.counts: Counter[str] = Counter()
        chance = self.random
        self.sources = [ModelSource(self, f"s{number}", chance) for number in range(chance.randrange(2, 5))]
        names = [one.name for one in self.sources]
        self.readers = [ModelReader(self, f"r{number}", frozenset(names)) for number in range(chance.randrange(1, 4))]
        if chance.random() < 0.3:
            self.readers.append(ModelReader(self, "part", frozenset(names[:-1])))
        self.steps = steps
        self.is_settling = False

    def run(self) -> None:
        """Run the history to its end, and check the promises. `WrongError`."""
        for _ in range(self.steps):
            self.now_us += TICK_US * self.random.choice([0, 0, 0, 1, 1, 4])
            actors: Sequence[ModelSource | ModelReader] = self.sources if self.random.random() < 0.6 else self.readers
            self.random.choice(actors).step()
        self.settle()
        self.require_one_order()

    def settle(self) -> None:
        """Start dead processes, let all clocks run, and give everybody time to finish."""
        self.is_settling = True
        for number in range(60):
            self.now_us += 7 * SECOND_US
            for source in self.sources:
                source.settle()
            for reader in self.readers:
                reader.settle()
            if number > 8 and all(reader.is_lost or len(reader.released) == reader.published() for reader in self.readers):
                return

    def dies(self) -> bool:
        return not self.is_settling and self.random.random() < 0.05

    def append(self, key: str, record: MemberRecord) -> int:
        self.topic.append((key, to_bytes(record)))
        return len(self.topic) - 1

    def members(self) -> Members:
        """Return the members as a process reads them that starts now."""
        members = _MEMBERS.get(self.off, Members)(live_from=len(self.topic))
        for offset, key, value in self.compacted():
            members.note(offset, key, parse(key, value))
        return members

    def compacted(self) -> list[tuple[int, str, bytes]]:
        """The topic as a process reads it that starts now: of each key any records, and the last one."""
        last = {key: offset for offset, (key, _) in enumerate(self.topic)}
        kept = self.random.random()
        return [
            (offset, key, value)
            for offset, (key, value) in enumerate(self.topic)
            if last[key] == offset or self.random.random() < kept
        ]

    # ---- promises

    def require_one_order(self) -> None:
        whole = [reader for reader in self.readers if not reader.is_lost]
        for reader in self.readers:
            reader.require_ascending()
        for reader in whole:
            events = [event for _, event in reader.released]
            expected = [event for source in self.sources if source.name in reader.sources for event in source.published()]
            if sorted(events) != sorted(expected):
                lost = sorted(set(expected) - set(events))[:3]
                raise WrongError(f"{reader.name} released {len(events)} of {len(expected)} events, without {lost}")
            for source in self.sources:
                if source.name in reader.sources and [one for one in events if one[0] == source.name] != source.published():
                    raise WrongError(f"{reader.name} released {source.name} in another order than its log")
            others = [event for _, event in whole[0].released if event[0] in reader.sources]
            if [event for event in events if event[0] in whole[0].sources] != others:
                raise WrongError(f"{reader.name} and {whole[0].name} released different orders")
            for at, event in reader.released:
                source = next(one for one in self.sources if one.name == event[0])
                source.require_honest(at, event)


class ModelReader:
    """A reader and its target, which has `released` and the state of the merge."""

    def __init__(self, world: World, name: str, sources: frozenset[str]) -> None:
        self.world, self.name, self.sources, self.random = world, name, sources, world.random
        self.released: list[tuple[StreamPosition, Event]] = []
        self.state: tuple[StreamPosition, dict[str, SourceCursor]] = (StreamPosition.START, {})
        self.process: _Reading | None = None
        self.was_forced = self.is_lost = False

    def step(self) -> None:
        if self.is_lost:
            return
        action = self.random.choices(["start", "die", "stop", "force", "work"], [2, 0.1, 0.25, 0.03, 9])[0]
        if action == "start" and self.process is None:
            self.process = _Reading(self)
        elif action == "die":
            self.process = None
        elif action == "stop":
            if self.process is not None and self.process.membership is not None and self.process.has_begun:
                self.world.append(*self.process.membership.stopped())
                self.process = None
        elif action == "force" and any(key == reader_key(self.name) for key, _ in self.world.topic):
            self.world.append(reader_key(self.name), ReaderEntry(state=ReaderPhase.OFFLINE, sources=self.sources, by="somebody"))
            self.was_forced, self.process = True, None
        elif self.process is not None:
            self.work()

    def settle(self) -> None:
        if self.process is None and not self.is_lost:
            self.process = _Reading(self)
        for _ in range(30):
            if self.process is not None:
                self.work()

    def work(self) -> None:
        assert self.process is not None
        try:
            self.process.work()
        except StateError as error:
            if not self.was_forced:
                raise WrongError(f"{self.name}: {error}") from error
            self.is_lost, self.process = True, None
            self.world.counts["lost readers"] += 1

    def published(self) -> int:
        return sum(len(source.published()) for source in self.world.sources if source.name in self.sources)

    def require_ascending(self) -> None:
        keys = [at for at, _ in self.released]
        if keys != sorted(keys):
            raise WrongError(f"{self.name} released events in a wrong order")
        if len({event for _, event in self.released}) != len(keys):
            raise WrongError(f"{self.name} released an event twice")


class _Reading:
    """A process of a reader."""

    def __init__(self, reader: ModelReader) -> None:
        self.reader, self.world, self.random = reader, reader.world, reader.random
        self.members = self.world.members()
        self.seen = len(self.world.topic)
        kind = WithOtherNumbers if self.world.off == "equal_times" and reader.name == "r0" else StreamMerge
        self.merge: StreamMerge[Event] = kind(*reader.state)
        self.membership: Membership | None = None
        self.has_begun = False
        self.patience_s = 0.0

    def work(self) -> None:
        action = self.random.choice(["follow", "read", "read", "release"])
        if self.membership is None and self.random.random() < 0.5:
            return
        if self.membership is None:
            record = ReaderEntry(state=ReaderPhase.RUNNING, sources=self.reader.sources)
            self.epoch = self.world.append(reader_key(self.reader.name), record)
            self.membership = Membership(self.reader.name, self.epoch, self.reader.sources, self.members, self.merge)
        elif action == "follow" or not self.has_begun:
            self.follow()
        elif action == "read":
            self.read()
        else:
            self.release()

    def follow(self) -> None:
        topic = self.world.topic
        until = len(topic) if self.random.random() < 0.4 else min(len(topic), self.seen + 1)
        for offset in range(self.seen, until):
            key, value = topic[offset]
            self.members.note(offset, key, parse(key, value))
        self.seen = until
        assert self.membership is not None
        if self.seen <= self.epoch and self.world.off != "first_read":
            return
        self.patience_s += self.random.choice([0, 0, 0, 0, 0, 0, 25])
        records = self.membership.follow(self.patience_s, self.read_up_to())
        self.has_begun = True
        if self.world.dies():
            self.reader.process = None  # it dies before it has appended them
            return
        for key, record in records:
            self.world.append(key, record)
            self.world.counts[key.partition("/")[0]] += 1

    def read_up_to(self) -> dict[str, int]:
        return {one.name: at for one in self.world.sources if (at := self.merge.read(one.name)) is not None}

    def read(self) -> None:
        sources = [one for one in self.world.sources if self.merge.is_member(one.name)]
        if not sources:
            return
        source = self.random.choice(sources)
        offset = self.merge.read(source.name)
        assert offset is not None
        for at in range(offset, min(len(source.commits), offset + self.random.choice([1, 1, 5]))):
            commit, events = source.commits[at]
            logged = [LoggedEvents(position, ts_us, [event]) for position, ts_us, event in events]
            self.merge.note(source.name, at, self.as_read(commit), logged)

    def as_read(self, commit: CommitRecord) -> CommitRecord:
        if self.world.off == "since_us":
            return replace(commit, since_us=0)
        if self.world.off == "skew":
            return replace(commit, skew_us=0)
        return replace(commit, lifts=()) if self.world.off == "lifts" else commit

    def release(self) -> None:
        released = self.merge.release(self.random.choice([None, 3]))
        if self.world.dies():
            self.reader.process = None  # it dies before its target has them
            return
        self.reader.released += [(one.at, event) for one in released for event in one.events]
        self.keep()

    def keep(self) -> None:
        self.reader.state = self.merge.released, self.merge.cursors()
