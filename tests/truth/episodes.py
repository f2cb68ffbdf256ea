"""The episodes: each makes a fault, says what may be said meanwhile, takes the fault back, and returns when all is well."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from devservers._guard import children_of
from schemas import signals, topics
from tests.chaos.proxy import Proxy
from tests.support.record_producer import RecordProducer
from tests.truth import allowances
from tests.truth.fault_spans import FaultSpan
from tests.truth.known_rows import NEVER
from tests.truth.world_of_truth import SNAPSHOT_ROWS, TruthError, World
from tidemark.status.lags import Word

Episode = Callable[[World], None]

LASTS_S: Final = 52.0
"""Of a fault that makes a job silent: each reader has seen it then for some questions (15 s, looks, 15 s of metrics)."""
BEHIND_LASTS_S: Final = 66.0
"""Of a fault that makes a lag grow above 30 s."""
_CLIENTS_S: Final = 25.0
PAGE: Final = frozenset({"page json", "page html"})
PRODUCER: Final = frozenset({"producer metrics"})
MERGE: Final = frozenset({"merge metrics"})
_DEAD: Final = frozenset({Word.DEAD})
_LATE: Final = frozenset({Word.STALLED, Word.BEHIND})
_UNKNOWN: Final = frozenset({Word.UNKNOWN})


@contextmanager
def frozen(*pids: int) -> Iterator[None]:
    """SIGSTOP, then SIGCONT."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


@contextmanager
def cut_off(proxy: Proxy, *, silent: bool) -> Iterator[None]:
    """Nothing goes through: connections stay and carry nothing, or are broken and refused."""
    if silent:
        proxy.stall()
    else:
        proxy.refusing = True
        proxy.disconnect()
    try:
        yield
    finally:
        proxy.heal()


def dead(name: str, job: str, sees_s: float, mute: frozenset[str]) -> FaultSpan:
    """A job that is not there. While it starts again it is behind, or waits for what it needs."""
    may = _DEAD | _UNKNOWN | {Word.STALLED}
    return FaultSpan(name=name, sees_s=sees_s, must=_DEAD, may=may, dead=frozenset({job}), mute=mute)


# --- the producer


def producer_killed(world: World) -> None:
    with world.fault(dead("producer killed", "producer", allowances.DEAD_AFTER_S, PRODUCER)):
        world.pipeline.kill("run")
        world.rest(LASTS_S)


def producer_frozen(world: World) -> None:
    with (
        world.fault(dead("producer frozen", "producer", allowances.DEAD_AFTER_S, PRODUCER)),
        frozen(world.pipeline.pid("run")),
    ):
        world.rest(LASTS_S)


def _producer_without_source(world: World, *, silent: bool) -> None:
    span = FaultSpan(
        name=f"source {'silent' if silent else 'refuses'} for the producer", sees_s=allowances.WAITING_AFTER_S, must=_LATE,
        may=_LATE | _UNKNOWN,
    )  # fmt: skip
    with world.fault(span), cut_off(world.source_proxy, silent=silent):
        world.rest(LASTS_S + 10)


def _producer_without_kafka(world: World, *, silent: bool) -> None:
    name = f"Kafka {'silent' if silent else 'refuses'} for the producer"
    span = dead(name, "producer", allowances.DEAD_AFTER_S, frozenset())
    span.mute = PRODUCER
    with world.fault(span), cut_off(world.kafka.proxies["run"], silent=silent):
        world.rest(LASTS_S)


# --- the merge job


def merge_killed(world: World) -> None:
    with world.fault(dead("merge job killed", "merge", allowances.LOCK_AFTER_S, MERGE)):
        world.pipeline.kill("merge")
        world.rest(LASTS_S - 15)


def merge_frozen(world: World) -> None:
    pid = world.pipeline.pid("merge")
    with (
        world.fault(dead("merge job frozen", "merge", allowances.DEAD_AFTER_S, MERGE)),
        frozen(pid, *children_of(pid)),
    ):
        world.rest(LASTS_S)


def merge_jvm_frozen(world: World) -> None:
    """Its batches stand still, and it lives."""
    may = _LATE | _UNKNOWN | _DEAD  # it may end when it continues
    span = FaultSpan(name="Spark's JVM frozen", sees_s=allowances.BEHIND_AFTER_S, must=_LATE, may=may, mute=MERGE)
    with world.fault(span), frozen(*children_of(world.pipeline.pid("merge"))):
        world.rest(BEHIND_LASTS_S)


def _merge_without_kafka(world: World, *, silent: bool) -> None:
    name = f"Kafka {'silent' if silent else 'refuses'} for the merge job"
    may = _LATE | _UNKNOWN | _DEAD  # it may end by itself
    span = FaultSpan(name=name, sees_s=allowances.BEHIND_AFTER_S, must=_LATE | _DEAD, may=may, mute=MERGE)
    with world.fault(span), cut_off(world.kafka.proxies["merge"], silent=silent):
        world.rest(BEHIND_LASTS_S)


# --- the page, and servers


def page_killed(world: World) -> None:
    """The others see that all is well."""
    with world.fault(FaultSpan(name="page killed", mute=PAGE, disturbs=False)):
        world.pipeline.kill("page")
        world.rest(_CLIENTS_S)
        world.pipeline.start("page")
        world.rest(_CLIENTS_S)


def kafka_frozen(world: World) -> None:
    """Nobody can know anything; afterwards each job's last sign is old until the next one comes."""
    span = FaultSpan(
        name="Kafka frozen", sees_s=allowances.UNREACHABLE_AFTER_S, must=_UNKNOWN, may=_UNKNOWN | _DEAD | _LATE, mute=PRODUCER | MERGE
    )
    with world.fault(span), frozen(world.kafka.pid):
        world.rest(LASTS_S)


def _without_registry(world: World, *, silent: bool) -> None:
    """Schemas that are known need no registry."""
    span = FaultSpan(name=f"registry {'silent' if silent else 'down'}", may=_LATE)
    with world.fault(span):
        if silent:
            with frozen(world.registry.pid):
                world.rest(_CLIENTS_S + 15)
        else:
            world.registry.kill()
            world.rest(_CLIENTS_S)
            world.registry.restart()


def source_frozen(world: World) -> None:
    span = FaultSpan(name="source frozen", sees_s=allowances.WAITING_AFTER_S, must=_LATE, may=_LATE | _UNKNOWN)
    with world.fault(span), frozen(world.database_server.pid):
        world.rest(LASTS_S + 10)


# --- tables


def table_created(world: World) -> None:
    """Its first rows are read as all others; until its topics are listed what it has there is unknown."""
    name = f"created{len(world.tables)}_{int(time.time())}"
    with world.fault(FaultSpan(name="table created", may=_UNKNOWN)):
        world.watch_table(name)
        world.pipeline.sql(f"CREATE TABLE {name} (id INT PRIMARY KEY, n INT)")
        world.tables.append(name)
        for _ in range(3):
            world.write(name)
            world.rest(3)


def table_dropped(world: World) -> None:
    """One that was created before, after all its rows have arrived; the sink keeps it."""
    if not any(table.startswith("created") for table in world.tables):
        table_created(world)
        world.rest(10)
    name = next(table for table in world.tables if table.startswith("created"))
    with world.fault(FaultSpan(name="table dropped")):
        with world.paused_load():
            world.wait("all rows of the table", lambda: not world.rows.not_in_sink())
            world.pipeline.sql(f"DROP TABLE {name}")
            world.tables.remove(name)
        world.rest(20)


def table_truncated(world: World) -> None:
    with world.fault(FaultSpan(name="table truncated")):
        with world.paused_load():
            world.wait("all rows of the table", lambda: not world.rows.not_in_sink())
            world.pipeline.sql("TRUNCATE TABLE orders")
        world.rest(20)


def idle(world: World) -> None:
    """Nothing is written for a minute: what is there stays there."""
    with world.paused_load():
        world.rest(60)


# --- snapshots


def _requested(world: World, span: FaultSpan) -> Callable[[], list[float]]:
    """Ask for a snapshot of the large table; return what gives the times of its records in Kafka."""
    topic = topics.snapshot_topic("truth", world.database, "large")
    before = len(world.kafka_arrivals.counted.get(topic, []))
    world.pipeline.send(signals.EXECUTE_SNAPSHOT, {"data-collections": [rf"{world.database}\.large"], "type": "INCREMENTAL"})

    def read() -> list[float]:
        return world.kafka_arrivals.counted.get(topic, [])[before:]

    world.wait("the first rows of the snapshot", read)
    return read


def snapshot(world: World) -> None:
    """It is being read from its first record in Kafka to its last one but a chunk."""
    may = frozenset({Word.SNAPSHOTTING})
    with world.fault(FaultSpan(name="snapshot asked for", may=may), waits=False) as asked:
        read = _requested(world, asked)
        with world.fault(FaultSpan(name="snapshot", sees_s=2.0, must=may, may=may), waits=False) as span:
            world.wait("most of the snapshot", lambda: len(read()) >= SNAPSHOT_ROWS * 8 // 10)
    world.wait("the rest of the snapshot", lambda: len(read()) >= SNAPSHOT_ROWS)
    world.rest(5)
    asked.well_s = span.well_s = world.recover(time.time())


def snapshot_paused(world: World) -> None:
    """It is not done while it is paused."""
    may = frozenset({Word.SNAPSHOTTING})
    with world.fault(FaultSpan(name="snapshot asked for", may=may), waits=False) as asked:
        read = _requested(world, asked)
        with world.fault(FaultSpan(name="snapshot paused", sees_s=2.0, must=may, may=may), waits=False) as span:
            world.pipeline.send(signals.PAUSE_SNAPSHOT, {})
            world.rest(30)
            world.pipeline.send(signals.RESUME_SNAPSHOT, {})
    world.wait("the rest of the snapshot", lambda: len(read()) >= SNAPSHOT_ROWS)
    world.rest(5)
    asked.well_s = span.well_s = world.recover(time.time())


# --- what needs a person


def quarantined(world: World) -> None:
    """A record that nobody can read: retried, which cannot help, then given up; the table is exact when it has been read again."""
    must = frozenset({Word.NEEDS_A_PERSON})
    may = must | {Word.SNAPSHOTTING}
    span = FaultSpan(
        name="a record in quarantine", sees_s=allowances.QUARANTINED_AFTER_S, must=must, may=may, counts={"quarantined": 1}
    )
    with world.fault(span, waits=False):
        client = RecordProducer({"bootstrap.servers": world.kafka.bootstrap_servers})
        client.produce(topics.change_topic("truth", world.database, "items"), b"no record of ours", b"no key")
        client.flush(30)
        world.rest(allowances.QUARANTINED_AFTER_S + 25)
        _quarantine(world, "retry")
        world.rest(25)
    _quarantine(world, "discard", "--yes")
    topic = topics.snapshot_topic("truth", world.database, "items")
    before, rows = len(world.kafka_arrivals.counted.get(topic, [])), sum(row.table == "items" for row in world.rows.all())
    world.pipeline.send(signals.EXECUTE_SNAPSHOT, {"data-collections": [rf"{world.database}\.items"], "type": "INCREMENTAL"})
    world.wait("the table to be read", lambda: len(world.kafka_arrivals.counted.get(topic, [])) - before >= rows - 10)  # rows of now come by the log alone
    world.rest(allowances.BATCH_LATE_S)
    span.well_s = world.recover(time.time())


def _quarantine(world: World, *arguments: str) -> None:
    """`tidemark quarantine …`, to its end, while the merge job is stopped; a batch that was cut off is finished first, as it says."""
    pipeline, log_path = world.pipeline, world.folder / "quarantine.log"
    stopped = FaultSpan(name="merge job stopped", may=_DEAD | _UNKNOWN | {Word.STALLED}, mute=MERGE)
    with world.fault(stopped):
        pipeline.stop("merge")
        for _ in range(3):
            begin = log_path.stat().st_size if log_path.exists() else 0
            _run(world, log_path, "quarantine", *arguments)
            if b"was cut off" not in log_path.read_bytes()[begin:]:
                break
            _run(world, log_path, "merge", "--until-caught-up")
        else:
            raise TruthError(f"quarantine {arguments[0]} was refused: {log_path.read_text('utf-8', 'replace')[-2000:]}")
        pipeline.start("merge")


def _run(world: World, log_path: Path, verb: str, *arguments: str) -> None:
    child = world.pipeline.spawn(verb, log_path, *arguments)
    try:
        world.wait(f"{verb} {arguments[0]}", lambda: child.status is not None)
    finally:
        child.kill()


def set_aside(world: World) -> None:
    """A table whose columns have one name in Avro; without one of them it is taken up, and read again."""
    must, may = frozenset({Word.NEEDS_A_PERSON}), frozenset({Word.NEEDS_A_PERSON, Word.SNAPSHOTTING, Word.UNKNOWN})
    span = FaultSpan(
        name="a table set aside", sees_s=allowances.SET_ASIDE_AFTER_S, must=must, may=may, counts={"set aside": 1}
    )
    with world.fault(span, waits=False):
        world.pipeline.sql("ALTER TABLE odd ADD COLUMN `a b` INT, ADD COLUMN a_b INT")
        row = world.write("odd", kept_out=True)
        world.rest(allowances.SET_ASIDE_AFTER_S + 30)
        world.pipeline.sql("ALTER TABLE odd DROP COLUMN a_b")
        world.write("odd", kept_out=True)
    world.wait("its rows in the sink", lambda: row.in_sink_s < NEVER)
    world.pipeline.sql("ALTER TABLE odd DROP COLUMN `a b`")
    span.well_s = world.recover(time.time())


EPISODES: Final[Mapping[str, Episode]] = {
    "producer killed": producer_killed,
    "producer frozen": producer_frozen,
    "source silent for the producer": lambda world: _producer_without_source(world, silent=True),
    "source refuses the producer": lambda world: _producer_without_source(world, silent=False),
    "Kafka silent for the producer": lambda world: _producer_without_kafka(world, silent=True),
    "Kafka refuses the producer": lambda world: _producer_without_kafka(world, silent=False),
    "merge job killed": merge_killed,
    "merge job frozen": merge_frozen,
    "Spark's JVM frozen": merge_jvm_frozen,
    "Kafka silent for the merge job": lambda world: _merge_without_kafka(world, silent=True),
    "Kafka refuses the merge job": lambda world: _merge_without_kafka(world, silent=False),
    "page killed": page_killed,
    "Kafka frozen": kafka_frozen,
    "registry silent": lambda world: _without_registry(world, silent=True),
    "registry down": lambda world: _without_registry(world, silent=False),
    "source frozen": source_frozen,
    "table created": table_created,
    "table dropped": table_dropped,
    "table truncated": table_truncated,
    "idle": idle,
    "snapshot": snapshot,
    "snapshot paused": snapshot_paused,
    "quarantine": quarantined,
    "table set aside": set_aside,
}
