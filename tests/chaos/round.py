"""One round: a seed and the servers enter, counts or a `ChaosError` leave."""

from __future__ import annotations

import json
import random
import shutil
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.chaos.faults import (
    ALL,
    EVENTS,
    FAULTS,
    KILLS,
    NOT_WITH_XA,
    WITH_CLOCK,
    WITH_CLUSTER,
    WITH_REPLICA,
    WITH_WRITER,
)
from tests.chaos.load import TABLES, Load, create_tables
from tests.chaos.log import CommittedChanges
from tests.chaos.proxy import Proxy
from tests.chaos.replicated import ReplicatedDatabase
from tests.chaos.truth import BELIEVED_S
from tests.chaos.world import MERGE, RUN, ChaosError, Laps, Servers, SupervisedPipeline, World
from tests.e2e.pipeline import spark_section
from tests.e2e.topics import RecordReader, plain
from tests.support import replication
from tests.support.clock import Clock
from tidemark.api.observe import Status

SHOWN = 3
_ENDS_DEAD = 0.3


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a round did and found."""

    kills: int
    faults: int
    events: int
    lost: int
    duplicated: int
    differing: int
    rows: int
    seconds: float
    ends: dict[str, int]
    wrong: str = ""
    laps: Mapping[str, float] = field(default_factory=dict)

    @property
    def good(self) -> bool:
        return not (self.lost or self.duplicated or self.differing or self.wrong)

    def document(self) -> dict[str, Any]:
        return asdict(self)


def plan(
    seed: int, only: tuple[str, ...] = (), *, replica: bool = False, cluster: bool = False, writer: str = ""
) -> tuple[bool, list[str]]:
    """Whether the load has XA, and which faults come in which order; with a replica there is no XA."""
    rng = random.Random(f"plan {seed}")
    xa = rng.random() < 0.4 and not replica
    if only:
        return xa, list(only)
    drawn = [rng.choice(list(KILLS)) for _ in range(rng.randint(1, 2))]
    drawn += [rng.choice(list(FAULTS)) for _ in range(rng.randint(0, 2))]
    drawn += [rng.choice(list(EVENTS)) for _ in range(rng.randint(1, 3))]
    if replica:
        drawn.append(rng.choice(list(WITH_REPLICA)))
    if cluster:
        drawn += [rng.choice(list(WITH_CLUSTER)) for _ in range(rng.randint(1, 2))]
    if writer:
        drawn += [rng.choice(list(WITH_WRITER)) for _ in range(rng.randint(1, 3))]
    rng.shuffle(drawn)
    return xa, [name for name in drawn if not (xa and name in NOT_WITH_XA)]


def play(
    servers: Servers, seed: int, folder: Path, *, only: tuple[str, ...] = (), compiled: bool = True, writer: str = ""
) -> Outcome:
    """Play the round of a seed; its folder is removed unless something was wrong.

    `compiled`: the merge job compiles its expressions, as it does for users. `writer`: that of the sink, with faults that aim at it.
    """
    laps = Laps()
    rng = random.Random(seed)
    replica = isinstance(servers.database, ReplicatedDatabase)
    xa, names = plan(seed, only, replica=replica, cluster=servers.cluster is not None, writer=writer)
    database = f"chaos_{seed}_{rng.randrange(16**4):04x}_{int(time.time()) % 100_000}"
    with laps("create"):
        create_tables(servers.database, database, rng, rng.choice((400, 2_000, 6_000)))
    logs = _logs(servers, database)
    initial = rng.random() < 0.5
    with Proxy(servers.database.port) as proxy:
        more: dict[str, Any] = {
            "source": {
                "host": "127.0.0.1",
                "port": proxy.port,
                "user": servers.database.user,
                "password": servers.database.password,
                "tables": [rf"{database}\..*"],
                "signal_table": f"{database}.tidemark_signal",
            },
            "snapshot": {
                "mode": "initial" if initial else "never",
                "readers": rng.choice((1, 2, 4)),
                "chunk_rows": rng.choice((50, 200, 1_000)),
            },
            "spark": spark_section(compiled=compiled),
        }
        if servers.cluster is not None:
            more["spark"] = servers.cluster.section
        if writer:
            more["sinks"] = [{"name": "lake", "type": "delta", "path": str(folder / "lake"), "writer": writer}]
        load = Load(servers.database, database, seed, rate=rng.choice((40, 120)), xa=xa)
        with SupervisedPipeline(
            database.replace("_", "-"),
            folder,
            servers.database,
            database,
            servers.kafka,
            servers.registry,
            more,
        ) as pipeline:
            world = World(servers, pipeline, proxy, load, rng, database, laps, logs)
            pipeline.excuse = world.excuse
            if WITH_CLOCK.keys() & set(names):
                world.clock = Clock(folder)
                pipeline.env = world.clock.environment
            wrong = _disturbed(world, names, initial=initial)
            outcome = _judged(world, wrong)
    if outcome.good:
        shutil.rmtree(folder, ignore_errors=True)
        with servers.database.connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"DROP DATABASE {database}")
    return outcome


def _logs(servers: Servers, database: str) -> dict[int, CommittedChanges]:
    """What is committed from now on at each server, by its port."""
    source = servers.database
    if isinstance(source, ReplicatedDatabase):
        source.wait_for_replica()
    all_of_them = source.servers if isinstance(source, ReplicatedDatabase) else (source,)
    keys = {name: table.key for name, table in TABLES.items()}
    return {
        server.port: CommittedChanges(server, database, keys, replication.end_of_log(server))
        for server in all_of_them
    }


def _disturbed(world: World, names: list[str], *, initial: bool) -> str:
    """Load, snapshot and faults, until everything is quiet again; what went wrong on the way."""
    pipeline = world.pipeline
    with world.laps("start"):
        pipeline.start(RUN, MERGE)
        pipeline.wait("the producer", lambda status: status.log is not None)
    world.load.start()
    try:
        if not initial:
            pipeline.request_snapshot(".*")
        for name in names:
            with world.laps("faults"):
                world.pause(0.3, 4)
                ALL[name](world)
            world.faults += name in FAULTS or name in WITH_REPLICA
        world.pause(0.5, 2)
    finally:
        world.proxy.heal()
        with world.laps("stop load"):
            world.load.stop()
    tables = sorted(TABLES)
    with world.laps("snapshots"):
        pipeline.wait("the snapshots", lambda status: _all_done(status, world.database))
    with world.laps("sink"):
        pipeline.wait_for_sink(*tables)
    return "; ".join(pipeline.moved_back)


def _all_done(status: Status, database: str) -> bool:
    wanted = {f"{database}.{table}" for table in TABLES}
    states = {table.table: table for table in status.tables if table.table in wanted}
    failed = [table for table in states.values() if table.snapshot == "failed"]
    if failed:
        raise ChaosError(f"a snapshot failed: {failed}")
    return len(states) == len(wanted) and all(
        table.snapshot == "done" and table.inexact is None for table in states.values()
    )


def _judged(world: World, wrong: str) -> Outcome:
    with world.laps("verify"):
        report = world.pipeline.verify()
    differing = sum(table.differing for table in report.tables)
    if not report.ok:
        wrong = f"{wrong} {report.to_text()}"
    with world.laps("compare"):
        events, lost, doubled, shown = _compared(world)
    quarantined = sum(table.quarantined for table in world.pipeline.status().tables)
    if quarantined:
        wrong = f"{wrong} {quarantined} records in quarantine"
    wrong = f"{wrong} {'; '.join(_false_words(world, report.ok))}".strip()
    return Outcome(
        kills=world.kills,
        faults=world.faults,
        events=events,
        lost=lost,
        duplicated=doubled,
        differing=differing,
        rows=report.rows,
        seconds=round(sum(world.laps.seconds.values()), 1),
        laps=dict(world.laps.seconds),
        ends=dict(world.pipeline.ends),
        wrong=f"{wrong} {shown}".strip(),
    )


def _false_words(world: World, equal: bool) -> list[str]:
    """What the status said, or says now, that is not so."""
    pipeline = world.pipeline
    pipeline.wait("the status to say that all is well", _all_is_well)
    if not equal:
        return [*pipeline.truth.contradictions, "the status says that all is well, and the sink differs"]
    if world.rng.random() < _ENDS_DEAD:
        with world.laps("dead"):
            if world.clock is not None:  # a liveness record from the future says nothing, and the status says so
                world.clock.step(0)
                world.pause(5, 6)
            for verb in (RUN, MERGE):
                pipeline.kill(verb)
            deadline = time.monotonic() + BELIEVED_S + 5
            while time.monotonic() < deadline:
                status = pipeline.status()
                if status.merge.alive is False and status.producer().alive is False:
                    break
                time.sleep(1)
            else:
                pipeline.truth.contradictions.append(f"dead for {BELIEVED_S:.0f} s, and the status does not say so: {status}")
    return pipeline.truth.contradictions


def _all_is_well(status: Status) -> bool:
    return bool(status.merge.caught_up and status.producer().alive) and all(table.is_consistent for table in status.tables)


def _compared(world: World) -> tuple[int, int, int, str]:
    """Events in the log, changes lost, changes doubled, and a sentence on the keys whose changes are not the log's."""
    world.pipeline.wait_for_log()
    logged: dict[tuple[Any, ...], list[Any]] = defaultdict(list)
    events = 0
    for change in world.logs[world.servers.database.port].read():
        events += 1
        reported = change.after and tuple(plain(change.after[name]) for name in TABLES[change.table].identified_by)
        logged[change.table, *map(plain, change.key)].append((change.op, reported))
    published: dict[tuple[Any, ...], list[Any]] = defaultdict(list)
    reader = RecordReader(world.pipeline.settings, kept=world.forgot)
    doubled = 0
    read = reader.changes_of_tables(world.database, TABLES)
    for table, changes in read.items():
        if world.forgot:  # a key with another id has other bytes, and may be in another partition than before
            changes.sort(key=lambda change: change.position)
        doubled += len(changes) - len({(change.op, change.position) for change in changes})
        for change in changes:
            assert change.key is not None
            reported = change.after and tuple(plain(change.after[name]) for name in TABLES[table].identified_by)
            published[table, *(plain(change.key[name]) for name in TABLES[table].key)].append((change.op, reported))
    wrong = {
        key: (logged.get(key, []), published.get(key, []))
        for key in logged.keys() | published.keys()
        if logged.get(key) != published.get(key)
    }
    lost = sum(max(0, len(log) - len(topic)) for log, topic in wrong.values())
    shown = f"{len(wrong)} keys: {json.dumps(str(dict(list(wrong.items())[:SHOWN])))}" if wrong else ""
    return events, lost, doubled, shown
