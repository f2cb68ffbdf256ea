"""Faults that aim at sinks: their databases die, vanish and fall silent; Spark's JVM dies; the merge job dies inside a batch."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from devservers._guard import children_of
from tests.chaos.peers import silent
from tests.chaos.sink_plans import RELATIONAL
from tests.chaos.sink_servers import restart
from tests.chaos.world import MERGE, ChaosError, World

if TYPE_CHECKING:
    from tests.chaos.sink_servers import SinkHost

_JVM_STARTS_S: Final = 60.0
_JVM_IS_MISSED_S: Final = 120.0
_BATCH_PATIENCE_S: Final = 30.0


def kill_jvm(world: World) -> None:
    """kill -9 of Spark's JVM: the merge job says so and ends, and is started again."""
    world.shaken.add("jvm")
    deadline = time.monotonic() + _JVM_STARTS_S
    while not (jvms := _jvms(world.pipeline.pid_of(MERGE))) and time.monotonic() < deadline:
        time.sleep(0.1)
    merge = world.pipeline.pid_of(MERGE)
    for jvm in jvms:
        with suppress(ProcessLookupError):
            os.kill(jvm, signal.SIGKILL)
    world.kills += 1
    deadline = time.monotonic() + _JVM_IS_MISSED_S
    while world.pipeline.pid_of(MERGE) == merge:
        if time.monotonic() > deadline:
            raise ChaosError(f"merge still runs {_JVM_IS_MISSED_S:.0f} s after its JVM was killed:\n{world.pipeline.log_tail(MERGE)}")
        time.sleep(0.2)


def _jvms(merge: int) -> list[int]:
    """The JVM of Spark, if the merge job has started it: a start runs others before, which say what Java it is, and end."""
    found = []
    for pid in children_of(merge):
        with suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if b"java" in words[0] and b"org.apache.spark.deploy.SparkSubmit" in words and b"org.apache.spark.launcher.Main" not in words:
                found.append(pid)
    return found


def kill_merge_in_a_batch(world: World) -> None:
    """Killed while a batch of a sink has begun and not ended."""
    sink = world.rng.choice(world.pipeline.settings.sinks)
    checkpoint = Path(sink.service_path) / "checkpoint"
    deadline = time.monotonic() + _BATCH_PATIENCE_S
    while not _is_in_flight(checkpoint) and time.monotonic() < deadline:
        world.pipeline.check()
        time.sleep(0.01)
    time.sleep(world.rng.uniform(0, 2))
    world.pipeline.kill(MERGE)
    world.kills += 1
    world.pause(0, 1)
    world.pipeline.start(MERGE)


def _is_in_flight(checkpoint: Path) -> bool:
    begun, done = (len(list(checkpoint.glob(f"{kind}/[0-9]*"))) for kind in ("offsets", "commits"))
    return begun > done


def kill_sink_database(world: World) -> None:
    """The server dies; the merge job continues with its other sinks, and with this one when it is back."""
    host = _drawn(world)
    host.server.kill()
    world.kills += 1
    world.pause(0.3, 8)
    restart(host.server)


def refuse_sink_database(world: World) -> None:
    """Nobody answers at its address for a while."""
    host = _drawn(world)
    host.proxy.refusing = True
    host.proxy.disconnect()
    world.pause(2, 10)
    host.proxy.heal()


def stall_sink_database(world: World) -> None:
    """Connections stay, and nothing comes through."""
    host = _drawn(world)
    host.proxy.stall()
    world.pause(2, 20)
    host.proxy.heal()


def break_sink_database(world: World) -> None:
    """Connections break in the middle of what they carry."""
    host = _drawn(world)
    for _ in range(world.rng.randint(1, 4)):
        host.proxy.disconnect()
        world.pause(0, 3)


def silent_sink_database(world: World) -> None:
    """The server is stopped (SIGSTOP), and continues."""
    with silent(_drawn(world).server.pid):
        world.pause(2, 15)


def _drawn(world: World) -> SinkHost:
    return world.rng.choice(world.hosts)


Fault = Callable[[World], None]
ON_EVERY_SINK: Final[Mapping[str, Fault]] = {"kill jvm": kill_jvm, "kill merge in a batch": kill_merge_in_a_batch}
ON_DATABASES: Final[Mapping[str, Fault]] = {
    "kill sink database": kill_sink_database,
    "refuse sink database": refuse_sink_database,
    "stall sink database": stall_sink_database,
    "break sink database": break_sink_database,
    "silent sink database": silent_sink_database,
}
WITH_SINKS: Final[Mapping[str, Fault]] = {**ON_EVERY_SINK, **ON_DATABASES}


def with_kinds(kinds: Sequence[str]) -> dict[str, Fault]:
    """Return the faults that there are for sinks of these types."""
    return {**ON_EVERY_SINK, **(ON_DATABASES if RELATIONAL & set(kinds) else {})}
