"""Servers whose clocks are wrong, or are set while they run: nothing is lost, one order is applied, and the right source is named."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from devservers import Database
from producer.sign import LivenessWriter
from schemas.overriding import override
from schemas.settings import from_mapping
from tests.integration.group_scene import until
from tests.integration.test_ordered_stream import mapping_of
from tests.replicate.task_scene import catch_up, rows_of, task_of
from tests.replicate.test_many_sources import (
    alternating,
    end_of_log,
    have_all,
    numbers_in_order,
)
from tests.replicate.test_task_pause import RunningTask
from tests.support.clock import Clock
from tests.support.producers import SIGNAL, Source
from tests.support.producing import RunningProducer
from tests.support.servers import database, new_database, unique_name
from tidemark.api.group_members import GroupMembers
from tidemark.api.producer_metrics import producer_families
from tidemark.status.metrics import exposition
from tidemark.status.replication_status import ReplicationStatus

pytestmark = pytest.mark.filterwarnings("ignore:'(db|passwd)' is deprecated:DeprecationWarning")  # of mysql-replication

HOUR_S = 3600
PAUSE_S = 1.2
"""Between two phases: servers whose log has whole seconds do not mix them."""


class ClockedDatabase(Database):
    """A server that lives by a clock of its own."""

    def __init__(self, name: str, folder: Path) -> None:
        super().__init__(name, folder, {"server_id": "77"})  # MariaDB's name of a server: the target has another one
        self.clock = Clock(folder)

    @override
    def _environment(self) -> dict[str, str]:
        return {**super()._environment(), **self.clock.environment}


class ClockedSource:
    """A source on such a server, and its producer with its liveness record."""

    def __init__(self, server: ClockedDatabase, kafka: Any) -> None:
        self.clock = server.clock
        self.source = Source(server, new_database(server), kafka.bootstrap_servers)
        self.source.execute(SIGNAL, "CREATE TABLE numbers (n INT PRIMARY KEY)")
        self.name = self.source.name
        self.ended = ExitStack()
        self.run: RunningProducer

    def start(self, registry: Any, group: str, **order: Any) -> None:
        mapping = mapping_of(self.source, registry.url, group=group)
        self.settings = from_mapping({**mapping, "order": {**mapping["order"], **order}})
        self.run = self.ended.enter_context(RunningProducer(self.settings))
        self.run.wait_until("it publishes", lambda start: start.reader is not None)
        self.ended.enter_context(LivenessWriter(self.settings)).watch(self.run.starts[-1])

    @property
    def skew_s(self) -> float | None:
        """The figure of its metrics."""
        families = producer_families(self.run.starts[-1], is_ready=True, failures=0, in_kafka_ms=0)
        shown = re.search(r"^tidemark_clock_skew_ms (\S+)$", exposition(families), re.MULTILINE)
        return None if shown is None else float(shown[1]) / 1000

    def has_skew(self, hours: int) -> bool:
        return self.skew_s is not None and abs(self.skew_s - hours * HOUR_S) < HOUR_S / 10


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def sources_of(stack: ExitStack, folder: Path, kafka: Any, *names: str) -> list[ClockedSource]:
    made = []
    for number, name in enumerate(names):
        (folder / str(number)).mkdir()
        server = ClockedDatabase(name, folder / str(number))
        server.start()
        stack.callback(server.close)
        stack.callback(server.kill)
        source = ClockedSource(server, kafka)
        stack.callback(source.source.connection.close)
        stack.enter_context(source.ended)
        made.append(source)
    return made


class SkewScene:
    """Two such sources of a group, and a task with one order that has loaded them. Numbers are written by turns."""

    def __init__(self, stack: ExitStack, folder: Path, kafka: Any, registry: Any, *names: str) -> None:
        self.stack, self.registry, self.group, self.target = stack, registry, unique_name("group"), database("mariadb114")
        self.sources = sources_of(stack, folder, kafka, *names)
        one, other = (each.source for each in self.sources)
        apply = {"compact": False}
        self.task = task_of(one, registry.url, self.target, other, order="global", group=self.group, apply=apply)
        self.count = [0]

    def start(self, **order: Any) -> RunningTask:
        for source in self.sources:
            source.start(self.registry, self.group, **order)
        catch_up(self.task)
        self.begin = end_of_log(self.target)
        return self.stack.enter_context(RunningTask(self.task))

    def write(self) -> list[int]:
        """Write numbers at both sources; return them."""
        time.sleep(PAUSE_S)
        first = self.count[0]
        with alternating(*(each.source for each in self.sources), count=self.count, pause_s=0.01):
            time.sleep(2)
        time.sleep(PAUSE_S)
        return list(range(first, self.count[0]))

    def own(self, source: ClockedSource, numbers: list[int]) -> list[int]:
        there = {n for (n,) in rows_of(source.source.server, source.source.schema, "numbers")}
        return [n for n in numbers if n in there]

    def applied(self) -> list[int]:
        """The numbers in the order in which the target has them, when all are there."""
        of = tuple(each.source for each in self.sources)
        until(lambda: have_all(self.target, of, self.count[0]), "all is applied")
        return numbers_in_order(self.target, of, self.begin)

    def concerns(self) -> str:
        group = GroupMembers.read_status(self.sources[0].settings.kafka, self.group)
        return "\n".join(one.text for one in ReplicationStatus((group,)).concerns())

    def require_named(self, hours: int) -> None:
        """The first source is named, by metrics and status, and the other one is not."""
        one, other = self.sources
        until(lambda: one.has_skew(hours) and other.has_skew(0), "the metrics have the skew")
        side = "ahead of" if hours > 0 else "behind"
        until(lambda: f" s {side} the clock of its producer" in self.concerns(), "the status has the skew")
        assert f"source {one.name}: the clock of its server is 3," in self.concerns()
        assert f"source {other.name}: the clock" not in self.concerns()


@pytest.mark.parametrize("name", ["mysql80", "mariadb114"])
@pytest.mark.parametrize("hours", [1, -1], ids=["an hour ahead", "set back by an hour"])
def test_a_clock_that_is_set_loses_nothing_and_is_named(hours, name, stack, tmp_path, kafka, registry):
    """Transactions of the source that is ahead are late, and the ones of the other source if it is behind."""
    scene = SkewScene(stack, tmp_path, kafka, registry, name, "mysql80")
    one, other = scene.sources
    task = scene.start()
    before = scene.write()
    one.clock.step(hours * HOUR_S)
    scene.require_named(hours)
    skewed = scene.write()
    blocking = other if hours > 0 else one
    until(lambda: f'tidemark_merge_blocked_by{{source="{blocking.name}"}} 1' in task.metrics, "the one behind is waited for")
    waiting = one if hours > 0 else other
    target_rows = rows_of(scene.target, waiting.source.schema, "numbers")
    assert not {(n,) for n in scene.own(waiting, skewed)} & set(target_rows)
    (other if hours > 0 else one).clock.step(max(hours, 0) * HOUR_S)
    after = scene.write()
    numbers = scene.applied()
    first, second = (other, one) if hours > 0 else (one, other)
    expected = [*scene.own(first, skewed), *scene.own(second, skewed)]
    assert sorted(numbers) == list(range(scene.count[0])), "each once"
    assert numbers[len(before) : len(before) + len(skewed)] == expected, "by the time of their servers"
    for source in scene.sources:
        assert scene.own(source, numbers) == sorted(scene.own(source, numbers)), "in the order of its log"
    if name == "mysql80":
        assert [numbers[: len(before)], numbers[-len(after) :]] == [before, after]


@pytest.mark.parametrize("name", ["mysql80", "mariadb114"])
def test_a_clock_is_corrected_while_it_is_set_and_by_a_restart(name, stack, tmp_path, kafka, registry):
    scene = SkewScene(stack, tmp_path, kafka, registry, name, "mysql80")
    one, _ = scene.sources
    one.clock.step(HOUR_S)
    scene.start(correct_skew=True)
    scene.require_named(1)
    phases = [scene.write()]
    one.clock.step(-HOUR_S)
    scene.require_named(-1)
    phases.append(scene.write())
    one.ended.close()
    one.start(scene.registry, scene.group, correct_skew=True)
    phases.append(scene.write())
    one.clock.step(0)
    until(lambda: one.has_skew(0), "it is set")
    phases.append(scene.write())
    numbers = scene.applied()
    assert sorted(numbers) == list(range(scene.count[0])), "each once"
    for phase in phases:
        assert sorted(numbers[: len(phase)]) == phase, "nothing of a later phase is before it"
        numbers = numbers[len(phase) :]
