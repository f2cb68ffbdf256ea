"""What can go wrong. Each fault returns when it is over, or leaves something for the supervisor to start again."""

from __future__ import annotations

import random
import re
import signal
from collections.abc import Callable, Mapping
from typing import Final, Protocol

import pymysql

from schemas import signals
from tests.chaos.changed_world import CHANGED
from tests.chaos.ddl import change_types
from tests.chaos.load import TABLES, large_transaction
from tests.chaos.machine import ON_MACHINES, WITH_CLOCK, WITH_CLUSTER, WITH_WRITER, idle
from tests.chaos.peers import WITH_SILENCE
from tests.chaos.proxy import Proxy
from tests.chaos.replicated import ReplicatedDatabase
from tests.chaos.sink_faults import WITH_SINKS
from tests.chaos.world import MERGE, RUN, World
from tidemark.status.status_tree import Status

Fault = Callable[[World], None]


class Line(Protocol):
    """A connection of which the proxy that it goes through can be disturbed."""

    @property
    def proxy(self) -> Proxy: ...
    @property
    def rng(self) -> random.Random: ...
    def pause(self, low: float, high: float) -> None:
        """Let things run for a drawn time."""


def kill_producer(world: World) -> None:
    world.pipeline.kill(RUN)
    world.kills += 1
    world.pause(0, 1.5)
    world.pipeline.start(RUN)


def kill_producer_twice(world: World) -> None:
    kill_producer(world)
    world.pause(0, 3)
    kill_producer(world)


def kill_merge(world: World) -> None:
    world.pipeline.kill(MERGE)
    world.kills += 1
    world.pause(0, 1)
    world.pipeline.start(MERGE)


def kill_both(world: World) -> None:
    for verb in (RUN, MERGE):
        world.pipeline.kill(verb)
    world.kills += 2
    world.pause(0, 1)
    world.pipeline.start(RUN, MERGE)


def stop_producer(world: World) -> None:
    status = world.pipeline.stop(RUN)
    before_it_listens = status == 128 + signal.SIGTERM and world.pipeline.is_silent(RUN)
    assert status == 0 or before_it_listens, f"the producer ended with {status} after SIGTERM:\n{world.pipeline.log_tail(RUN)}"
    world.pause(0, 1)
    world.pipeline.start(RUN)


def freeze_producer(world: World) -> None:
    world.pipeline.freeze(RUN)
    world.pause(2, 20)
    world.pipeline.thaw(RUN)


def freeze_merge(world: World) -> None:
    world.pipeline.freeze(MERGE)
    world.pause(2, 8)
    world.pipeline.thaw(MERGE)


def second_producer(world: World) -> None:
    """A second one takes over while the first is frozen: one of them must find itself fenced and end.

    As a rule that is the first. Frozen in the middle of its own start, it is the one that takes over when it continues.
    """
    world.shaken.add("second")
    pipeline = world.pipeline
    pipeline.freeze(RUN)
    world.serial += 1
    second = f"{RUN}{world.serial}"
    pipeline.start_second(RUN, second)
    pipeline.wait_for_line(second, "producer.started", 60)
    pipeline.thaw(RUN)
    ended = pipeline.wait_until_one_ended((RUN, second), 60)
    tail = pipeline.log_tail(ended)
    assert "another" in tail or "fenced" in tail.lower(), f"{ended} ended without saying why:\n{tail}"
    pipeline.adopt(RUN, second, ended)


def kill_kafka(world: World) -> None:
    world.shaken.add("kafka")
    world.servers.kafka.kill()
    world.kills += 1
    world.wait(0.2, 4)
    world.servers.kafka.restart()


def kill_database(world: World) -> None:
    world.servers.database.kill()
    world.kills += 1
    world.pause(0.2, 3)
    world.servers.database.restart()


def switch_over(world: World) -> None:
    """Another server behind the address of the source, with a log of other positions; writes continue there."""
    database = world.servers.database
    assert isinstance(database, ReplicatedDatabase), "needs --replica"
    crashes = world.rng.random() < 0.5
    database.switch(kill=crashes)
    world.kills += crashes
    world.proxy.lead_to(database.port)
    world.proxy.disconnect()
    pipeline = world.pipeline
    pipeline.epoch += 1
    pipeline.wait("the producer at the new server", lambda status: _epoch_of(status) == pipeline.epoch)


def _epoch_of(status: Status) -> int:
    return -1 if status.log is None else status.log.position.epoch


def switch_over_and_back(world: World) -> None:
    switch_over(world)
    world.pause(0, 4)
    switch_over(world)


def cut_connections(line: Line) -> None:
    for _ in range(line.rng.randint(1, 3)):
        line.proxy.disconnect()
        line.pause(0, 1)


def stall_connections(line: Line) -> None:
    line.proxy.stall()
    line.pause(1, 25)
    line.proxy.heal()


def slow_connections(line: Line) -> None:
    line.proxy.slow(0.02)
    line.pause(2, 6)
    line.proxy.heal()


def refuse_connections(line: Line) -> None:
    line.proxy.refusing = True
    line.proxy.disconnect()
    line.pause(1, 5)
    line.proxy.heal()


def registry_down(world: World) -> None:
    world.shaken.add("registry")
    world.servers.registry.kill()
    world.kills += 1
    world.pause(0.5, 4)
    world.servers.registry.restart()


def flush_logs(world: World) -> None:
    world.execute("FLUSH BINARY LOGS")


def purge_logs(world: World) -> None:
    """All files before the one the producer has committed."""
    log, database = world.pipeline.status().log, world.servers.database
    world.execute("FLUSH BINARY LOGS")
    if isinstance(database, ReplicatedDatabase):
        database.wait_for_replica()
    if log is not None:
        world.logs[database.port].read_before(log.file)
        world.execute(f"PURGE BINARY LOGS TO '{log.file}'")


def truncate(world: World) -> None:
    world.execute("TRUNCATE TABLE cleared")


def drop_and_create(world: World) -> None:
    world.execute(
        "DROP TABLE cleared", f"CREATE TABLE cleared {TABLES['cleared'].columns}", "INSERT INTO cleared VALUES (1, 1)"
    )


def alter(world: World) -> None:
    world.serial += 1
    number = world.serial
    world.execute(
        world.rng.choice(
            (
                f"ALTER TABLE hot ADD COLUMN more{number} INT NOT NULL DEFAULT {number}",
                f"ALTER TABLE words ADD COLUMN more{number} VARCHAR(20) DEFAULT 'd{number}', ADD INDEX (n)",
                "ALTER TABLE parts MODIFY pad VARCHAR(300)",
                "ALTER TABLE ledger MODIFY n DECIMAL(14,2) NOT NULL",
            )
        )
    )


def pause_and_resume(world: World) -> None:
    world.signal(signals.PAUSE_SNAPSHOT, {})
    world.pause(0.5, 3)
    world.signal(signals.RESUME_SNAPSHOT, {})


def snapshot_again(world: World) -> None:
    tables = world.rng.sample(sorted(TABLES), world.rng.randint(1, 3))
    collections = [rf"{world.database}\.{re.escape(table)}" for table in tables]
    world.signal(signals.EXECUTE_SNAPSHOT, {"data-collections": collections, "type": "INCREMENTAL"})


def stop_and_request_again(world: World) -> None:
    everything = [rf"{world.database}\..*"]
    world.signal(signals.STOP_SNAPSHOT, {"data-collections": everything, "type": "INCREMENTAL"})
    world.pause(0, 1)
    world.signal(signals.EXECUTE_SNAPSHOT, {"data-collections": everything, "type": "INCREMENTAL"})


def large(world: World) -> None:
    world.serial += 1
    rows = world.rng.choice(world.large_rows)
    try:
        large_transaction(world.servers.database, world.database, rows, world.serial)
    except pymysql.err.OperationalError as error:
        if error.args[0] not in (1205, 1213):
            raise


ON_LINES: Final[Mapping[str, Callable[[Line], None]]] = {
    "cut": cut_connections,
    "stall": stall_connections,
    "slow": slow_connections,
    "refuse": refuse_connections,
}
KILLS: Final[Mapping[str, Fault]] = {
    "kill producer": kill_producer,
    "kill producer twice": kill_producer_twice,
    "kill merge": kill_merge,
    "kill both": kill_both,
    "kill kafka": kill_kafka,
    "kill database": kill_database,
    "kill registry": registry_down,
}
FAULTS: Final[Mapping[str, Fault]] = {
    "stop producer": stop_producer,
    "freeze producer": freeze_producer,
    "freeze merge": freeze_merge,
    "second producer": second_producer,
    **{f"{name} connections": fault for name, fault in ON_LINES.items()},
    **ON_MACHINES,
    **WITH_CLOCK,
    **WITH_SILENCE,
}
WITH_REPLICA: Final[Mapping[str, Fault]] = {
    "switch over": switch_over,
    "switch over and back": switch_over_and_back,
}
EVENTS: Final[Mapping[str, Fault]] = {
    "flush logs": flush_logs,
    "purge logs": purge_logs,
    "truncate": truncate,
    "drop and create": drop_and_create,
    "alter": alter,
    "change types": change_types,
    "pause and resume": pause_and_resume,
    "snapshot again": snapshot_again,
    "stop and ask again": stop_and_request_again,
    "large transaction": large,
    "idle": idle,
}
"""Not faults: what people do at the same time."""
ALL: Final[Mapping[str, Fault]] = {**KILLS, **FAULTS, **EVENTS, **WITH_REPLICA, **WITH_CLUSTER, **WITH_WRITER, **WITH_SINKS, **CHANGED}
NOT_WITH_XA: Final = frozenset({"kill database", *WITH_REPLICA})
"""A server killed between its log and its engine does not always agree with itself about XA, or with its replica."""
