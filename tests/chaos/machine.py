"""What machines do: disks fill up, clocks are stepped, workers of a cluster vanish, nothing happens for a while."""

from __future__ import annotations

import os
import resource
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from devservers._guard import children_of
from tests.chaos.world import MERGE, RUN, World

_FULL_AFTER: Final = (0, 1_000, 20_000, 200_000)
_COMMIT_PATIENCE_S: Final = 20.0
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


def kill_merge_after_a_commit(world: World) -> None:
    """Killed as soon as a Delta table has a new commit: the batch that made it has not ended."""
    before = _newest_commits(world)
    deadline = time.monotonic() + _COMMIT_PATIENCE_S
    while _newest_commits(world) == before and time.monotonic() < deadline:
        world.pipeline.check()
        time.sleep(0.002)
    world.pipeline.kill(MERGE)
    world.kills += 1
    world.pause(0, 1)
    world.pipeline.start(MERGE)


def kill_python_worker(world: World) -> None:
    """Spark runs its task again, or the batch ends without workers."""
    world.shaken.add("worker")
    deadline = time.monotonic() + _COMMIT_PATIENCE_S
    while not (workers := _python_workers(world.pipeline.pid_of(MERGE))) and time.monotonic() < deadline:
        time.sleep(0.05)
    for pid in world.rng.sample(workers, min(len(workers), world.rng.randint(1, 2))):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            world.kills += 1
        world.pause(0, 2)


def _newest_commits(world: World) -> list[str]:
    """The newest commit of each table of the lake."""
    logs = sorted(Path(world.pipeline.settings.sink.path).glob("*/*/_delta_log"))
    return [max((path.name for path in log.glob("*.json")), default="") for log in logs]


def _python_workers(merge: int) -> list[int]:
    """The processes that Spark's daemon has forked."""

    daemons = [pid for pid in _family(merge) if is_worker_daemon(pid)]
    return sorted({pid for daemon in daemons for pid in children_of(daemon)})


def is_worker_daemon(pid: int) -> bool:
    """Whether a process is Spark's daemon for Python workers. The launcher of the JVM has the daemon's name among its settings, too."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return words[1:2] == [b"-m"] and words[2].endswith(b"worker_daemon")


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
WITH_WRITER: Final[Mapping[str, Fault]] = {
    "kill merge after a commit": kill_merge_after_a_commit,
    "kill python worker": kill_python_worker,
}
