"""What machines do: disks fill up, clocks are stepped, workers of a cluster vanish, nothing happens for a while."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from devservers._guard import children_of
from tests.chaos.world import MERGE, RUN, World

_FULL_AFTER: Final = (0, 1_000, 20_000, 200_000)
_HOUR_S: Final = 3_000
"""Kafka refuses records that are more than an hour ahead of its own clock."""


@contextmanager
def full_disk(pids: Iterator[int], limit: int) -> Iterator[None]:
    """No file of these processes may grow beyond `limit` bytes: as on a full disk, what fits is written."""
    limited = []
    for pid in pids:
        limited.append((pid, resource.prlimit(pid, resource.RLIMIT_FSIZE)))
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (limit, limited[-1][1][1]))
    try:
        yield
    finally:
        for pid, before in limited:
            try:
                resource.prlimit(pid, resource.RLIMIT_FSIZE, before)
            except ProcessLookupError:
                continue


def fill_disk_of_kafka(world: World) -> None:
    """A broker that cannot write to its only folder ends."""
    world.shaken.add("kafka")
    kafka = world.servers.kafka
    with full_disk(iter([kafka.pid]), world.rng.choice(_FULL_AFTER)):
        world.wait(2, 8)
        kafka.kill()  # where it did not end by itself
    kafka.restart()


def fill_disk_of_sink(world: World) -> None:
    """The merge job ends, and is started again while the disk is full or afterwards."""
    world.shaken.add("sink")
    with full_disk(_family(world.pipeline.pid_of(MERGE)), world.rng.choice(_FULL_AFTER)):
        world.pause(2, 10)


def fill_disk_of_producer(world: World) -> None:
    """What it spills does not fit."""
    world.shaken.add("producer")
    with full_disk(_family(world.pipeline.pid_of(RUN)), world.rng.choice(_FULL_AFTER)):
        world.pause(2, 8)


def _family(pid: int) -> Iterator[int]:
    """A process and all below it."""
    yield pid
    for child in children_of(pid):
        yield from _family(child)


def step_clock(world: World) -> None:
    """The clock of producer and merge job jumps, and jumps back."""
    clock = world.clock
    assert clock is not None, "the round was not begun with a clock of its own"
    for _ in range(world.rng.randint(1, 3)):
        clock.step(world.rng.choice((-_HOUR_S, -90, -5, 5, 90, _HOUR_S)))
        world.pause(1, 5)


def kill_executor(world: World) -> None:
    """Spark has another one started; what the killed one held is gone."""
    world.shaken.add("cluster")
    cluster = world.servers.cluster
    assert cluster is not None, "needs --cluster"
    for _ in range(world.rng.randint(1, 3)):
        cluster.kill_executor(world.rng.randrange(2))
        world.kills += 1
        world.pause(0, 4)


def kill_worker(world: World) -> None:
    """Its executors go with it."""
    world.shaken.add("cluster")
    cluster = world.servers.cluster
    assert cluster is not None, "needs --cluster"
    worker = world.rng.choice(cluster.workers)
    worker.kill()
    world.kills += 1
    world.pause(0, 5)
    worker.restart()


def idle(world: World) -> None:
    """Nobody writes."""
    with world.load.silence():
        world.pause(4, 15)


Fault = Callable[[World], None]
ON_MACHINES: Final[Mapping[str, Fault]] = {
    "fill disk of kafka": fill_disk_of_kafka,
    "fill disk of sink": fill_disk_of_sink,
    "fill disk of producer": fill_disk_of_producer,
}
WITH_CLOCK: Final[Mapping[str, Fault]] = {"step clock": step_clock}
WITH_CLUSTER: Final[Mapping[str, Fault]] = {"kill executor": kill_executor, "kill worker": kill_worker}
