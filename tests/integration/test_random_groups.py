"""Random histories of a group on real servers: sources and readers start, stop, die and are forced offline; the order is one."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest

from kafkaio.shared_log import SharedLog
from schemas.errors import ConfigError, FencedError
from schemas.members import Members, SourcePhase
from schemas.signals import CLOSE_SOURCE, PAUSE_SOURCE, RESUME_SOURCE
from spark_jobs.replicate.order.frontier import StreamMerge
from tests.integration.group_scene import GroupScene, PlayedReader, RunningSource
from tidemark.api.group_members import GroupMembers, Operator

SERVERS = ("mysql80", "mariadb114", "mysql80")


class DiesError(BaseException):
    """The death of a process."""


@pytest.fixture
def scene(kafka, registry, fresh_database) -> Iterator[GroupScene]:
    with ExitStack() as stack:
        yield GroupScene(fresh_database, kafka.bootstrap_servers, registry.url, stack)


class History:
    def __init__(self, scene: GroupScene, seed: int) -> None:
        self.scene, self.chance = scene, random.Random(seed)
        self.sources = [scene.source(server) for server in SERVERS]
        self.readers = [scene.reader(name, *self.sources) for name in ("one", "other")]
        self.inserted = 0
        self.begun: set[str] = set()
        self.mortality = 0.15

    def append(self, real):
        """Appends that die before or behind the record, in threads of producers."""

        def append(log, key, value):
            dies = key.startswith(b"source/") and threading.current_thread().name == "producer" and self.chance.random()
            if dies and dies < self.mortality / 2:
                raise DiesError
            offset = real(log, key, value)
            if dies and dies < self.mortality:
                raise DiesError
            return offset

        return append

    def step(self) -> None:
        source = self.chance.choice(self.sources)
        name = self.chance.choices(
            ["insert", "start", "stop", "force", "close", "pause", "resume", "reader", "restart"], [8, 5, 1, 1, 1, 1, 1, 20, 1]
        )[0]
        if name == "insert" and source.name in self.begun:
            self.inserted += 1
            source.insert(self.inserted)
        elif name == "start" and not self.is_alive(source):
            source.start()
        elif name == "stop" and self.is_alive(source):
            source.end()
        elif name == "force" and source.name in self.begun:
            with suppress(FencedError, ConfigError):  # it was started meanwhile; it is offline already
                GroupMembers.of(source.settings).put_source_offline(source.name, Operator("a test", name))
        elif name in {"close", "pause", "resume"} and source.name in self.begun:
            source.signal({"close": CLOSE_SOURCE, "pause": PAUSE_SOURCE, "resume": RESUME_SOURCE}[name])
        elif name == "reader":
            self.chance.choice(self.readers).turn()
            reader = self.chance.choice(self.readers)
            reader.read(self.chance.choice(self.sources).name)
            reader.release()
        elif name == "restart":
            self.restart(self.chance.randrange(2))
        self.note_begun()

    def members(self) -> Members:
        return self.scene.members(self.sources[0])

    def is_alive(self, source: RunningSource) -> bool:
        return source.run is not None and source.run.thread.is_alive()

    def note_begun(self) -> None:
        """A source whose offset is durable publishes everything that comes then."""
        for source in self.sources:
            if source.name not in self.begun and source.run is not None and source.run.starts and source.commits():
                self.begun.add(source.name)
            if source.run is not None:
                assert all(isinstance(one, (DiesError, FencedError)) for one in source.run.failures), source.run.failures

    def restart(self, number: int) -> None:
        """Stop a reader or have it die, and start it again from its durable state."""
        old = self.readers[number]
        if self.chance.random() < 0.5:
            old.followed.append(*old.membership.stopped())
        new = self.scene.reader(("one", "other")[number], *self.sources, merge=StreamMerge(*old.durable))
        new.released = old.released
        self.readers[number] = new

    def settle(self) -> None:
        self.mortality = 0.0
        deadline = time.monotonic() + 90
        while not all(len(reader.released) == self.inserted for reader in self.readers):
            assert time.monotonic() < deadline, [(len(one.released), self.inserted, one.merge.blocked_by) for one in self.readers]
            for source in self.sources:
                if not self.is_alive(source):
                    source.start()
                if source.name in self.begun and self.members().sources[source.name].state is SourcePhase.PAUSED:
                    source.signal(RESUME_SOURCE)
            for reader in self.readers:
                self.advance(reader)
            self.note_begun()

    def advance(self, reader: PlayedReader) -> None:
        for _ in range(10):
            reader.turn()
            reader.read()
            reader.release()


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 12))])
def test_all_readers_have_one_order_through_deaths_and_force(scene, monkeypatch, seed):
    history = History(scene, seed)
    monkeypatch.setattr(SharedLog, "append", history.append(SharedLog.append))
    for source in history.sources[:2]:
        source.start()
    for _ in range(150):
        history.step()
        time.sleep(0.02)
    history.settle()
    one, other = (reader.released for reader in history.readers)
    assert one == other
    assert sorted(one) == list(range(1, history.inserted + 1))
