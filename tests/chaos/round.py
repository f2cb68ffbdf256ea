"""One round: a seed and the servers enter, counts or a `ChaosError` leave."""

from __future__ import annotations

import json
import random
import re
import shutil
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.chaos.changed_world import add_secrets, changes_of, leaked, read_from_quarantine
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
from tests.chaos.sink_faults import with_kinds
from tests.chaos.sink_judgement import Judgement, judged
from tests.chaos.sink_plans import RELATIONAL, SCHEMAS, SECRETS, SinkPlan, plans_of
from tests.chaos.sink_servers import SinkHost, drop
from tests.chaos.truth import BELIEVED_S
from tests.chaos.world import MERGE, RUN, ChaosError, Laps, Servers, SupervisedPipeline, World
from tests.e2e.pipeline import spark_section
from tests.e2e.topics import Change, RecordReader, plain
from tests.support import replication
from tests.support.clock import Clock
from tidemark.status.status_tree import Status

Look = Callable[[World, Sequence[SinkPlan]], None]
SHOWN = 3
_TWO_CHANGES: Final = 0.4
"""The share of rounds in which two batches are repeated in another world."""
_ENDS_DEAD = 0.3
_DROPPED: Final = ("cleared was dropped while it was read", "cleared does not exist")
"""`drop and create` drops this table alone."""
_AFTER_A_BATCH: Final = 0.6
"""The share of rounds with several sinks whose faults come when each has merged a batch; the first one takes the longest."""
SPARK_OF_SINKS: Final = {"driver_memory": "1500m", "trigger_s": 4}
"""Several sinks share the two cores of a driver."""
PATIENCE_OF_SINKS: Final = 2.0
"""How many times as long everything takes."""


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
    leaked: int = 0
    refusals: int = 0
    sinks: tuple[str, ...] = ()
    out_of_order: int = 0

    @property
    def good(self) -> bool:
        return not (self.lost or self.duplicated or self.differing or self.leaked or self.out_of_order or self.wrong)

    def document(self) -> dict[str, Any]:
        return asdict(self)


def plan(
    seed: int, only: tuple[str, ...] = (), *, replica: bool = False, cluster: bool = False, writer: str = "", kinds: Sequence[str] = ()
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
    changes = list(changes_of(kinds))
    drawn.append(changes[seed % len(changes)])
    if rng.random() < _TWO_CHANGES:
        drawn.append(rng.choice(changes))
    if kinds:
        drawn += [rng.choice(list(with_kinds(kinds))) for _ in range(rng.randint(1, 3))]
    rng.shuffle(drawn)
    return xa, [name for name in drawn if not (xa and name in NOT_WITH_XA)]


def play(
    servers: Servers,
    seed: int,
    folder: Path,
    *,
    only: tuple[str, ...] = (),
    compiled: bool = True,
    writer: str = "",
    kinds: Sequence[str] = (),
    look: Look = lambda _world, _plans: None,
) -> Outcome:
    """Play the round of a seed; its folder is removed unless something was wrong.

    `compiled`: the merge job compiles its expressions, as it does for users. `writer`: that of the sink, with faults that aim at it.
    `kinds`: the types of sinks that the one merge job writes, with routes and transforms, instead of one lake. `look` is called
    when all was judged, while everything still runs.
    """
    laps = Laps()
    rng = random.Random(seed)
    replica = isinstance(servers.database, ReplicatedDatabase)
    plans = plans_of(seed, kinds) if kinds else ()
    xa, names = plan(seed, only, replica=replica, cluster=servers.cluster is not None, writer=writer, kinds=kinds)
    database = f"chaos_{seed}_{rng.randrange(16**4):04x}_{int(time.time()) % 100_000}"
    with laps("create"):
        create_tables(servers.database, database, rng, rng.choice((200, 400, 2_000) if kinds else (400, 2_000, 6_000)))
    logs = _logs(servers, database)
    initial = rng.random() < 0.5
    with ExitStack() as stack:
        proxy = stack.enter_context(Proxy(servers.database.port))
        hosts = _hosts(servers, plans, stack)
        more = _settings(servers, proxy, database, rng, initial=initial)
        more["spark"] = servers.cluster.section if servers.cluster is not None else spark_section(compiled=compiled)
        if writer:
            more["sinks"] = [{"name": "lake", "type": "delta", "path": str(folder / "lake"), "writer": writer}]
        if plans:
            reached = {host.kind: host.settings for host in hosts}
            more["sinks"] = [one.settings(database, folder, reached.get(one.kind, {})) for one in plans]
            more["spark"] |= SPARK_OF_SINKS
        load = Load(servers.database, database, seed, rate=rng.choice((25, 60) if kinds else (40, 120)), xa=xa)
        pipeline = stack.enter_context(
            SupervisedPipeline(
                database.replace("_", "-"), folder, servers.database, database, servers.kafka, servers.registry, more
            )
        )  # fmt: skip
        world = World(servers, pipeline, proxy, load, rng, database, laps, logs)
        _prepare(world, names, plans, hosts)
        wrong = _disturbed(world, names, initial=initial)
        outcome = _judged(world, wrong, plans, look)
    if outcome.good:
        _clear(servers, database, folder, hosts)
    return outcome


def _settings(servers: Servers, proxy: Proxy, database: str, rng: random.Random, *, initial: bool) -> dict[str, Any]:
    """The sections of a round that no sink changes."""
    return {
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
    }


def _hosts(servers: Servers, plans: Sequence[SinkPlan], stack: ExitStack) -> tuple[SinkHost, ...]:
    """The servers of relational sinks, each behind a proxy of this round."""
    found = []
    for one in plans:
        if one.kind in RELATIONAL:
            assert servers.sinks is not None, "needs the servers of sinks"
            server = servers.sinks.of(one.kind)
            found.append(SinkHost(one.kind, server, stack.enter_context(Proxy(server.port))))
    return tuple(found)


def _prepare(world: World, names: Sequence[str], plans: Sequence[SinkPlan], hosts: tuple[SinkHost, ...]) -> None:
    """Give the supervisor what it needs to know of the round."""
    pipeline = world.pipeline
    pipeline.excuse = world.excuse
    if plans:
        pipeline.takes = {one.name(world.database): one.tables for one in plans}
        pipeline.patience = PATIENCE_OF_SINKS
        world.hosts, world.large_rows = hosts, (3_000, 10_000, 40_000)
    if "change masks" in names:
        add_secrets(pipeline)
    if WITH_CLOCK.keys() & set(names):
        world.clock = Clock(pipeline.folder)
        pipeline.env = world.clock.environment


def _clear(servers: Servers, database: str, folder: Path, hosts: Sequence[SinkHost]) -> None:
    """Remove what a round has left."""
    shutil.rmtree(folder, ignore_errors=True)
    with servers.database.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"DROP DATABASE {database}")
    for host in hosts:
        drop(host.server, [f"{schema}_{database}" for schema in SCHEMAS])


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
        if pipeline.takes and world.rng.random() < _AFTER_A_BATCH:
            with world.laps("first batch"):
                pipeline.wait("the first batch of each sink", lambda status: status.sink_updated_ms is not None)
        for name in names:
            with world.laps("faults"):
                world.pause(0.3, 4)
                ALL[name](world)
            world.faults += name in FAULTS or name in WITH_REPLICA
        world.pause(0.5, 2)
    finally:
        world.heal()
        with world.laps("stop load"):
            world.load.stop()
    tables = sorted(TABLES)
    if world.unread:
        with world.laps("quarantine"):
            read_from_quarantine(world)
    with world.laps("snapshots"):
        wait_for_snapshots(world, drops="drop and create" in names)
    if world.masked:
        with world.laps("masked"):
            pipeline.wait_for_log()
            pipeline.wait_for_snapshot(SECRETS)
            tables.append(SECRETS)
    with world.laps("sink"):
        pipeline.wait_for_sink(*tables)
    return "; ".join(pipeline.moved_back)


def wait_for_snapshots(world: World, *, drops: bool) -> None:
    """Wait until every table is read. One that was dropped meanwhile is asked for once more, as a person would do."""
    asked_twice: set[str] = set()

    def all_done(status: Status) -> bool:
        states = {one.table: one for one in status.tables if one.table.removeprefix(f"{world.database}.") in TABLES}
        failed = [one for one in states.values() if one.snapshot == "failed"]
        if wrong := [one for one in failed if not (drops and (one.error or "").endswith(_DROPPED))]:
            raise ChaosError(f"a snapshot failed: {wrong}")
        for one in failed:
            if one.table not in asked_twice:
                asked_twice.add(one.table)
                world.pipeline.request_snapshot(re.escape(one.table.removeprefix(f"{world.database}.")))
        return len(states) == len(TABLES) and all(one.snapshot == "done" and one.inexact is None for one in states.values())

    world.pipeline.wait("the snapshots", all_done)


def _judged(world: World, wrong: str, plans: Sequence[SinkPlan], look: Look) -> Outcome:
    with world.laps("compare"):
        compared = _compared(world)
    clear = leaked(world) if world.masked else 0
    with world.laps("verify"):
        found = _of_sinks(world, plans, compared.published) if plans else _of_lake(world)
    quarantined = sum(table.quarantined for status in world.pipeline.statuses().values() for table in status.tables)
    if quarantined:
        found.wrong.append(f"{quarantined} records in quarantine")
    world.pipeline.wait_each("the status to say that all is well", lambda name, status: _all_is_well(world, name, status))
    look(world, plans)
    words = [wrong, *found.wrong, *_false_words(world, equal=not found.wrong), compared.shown]
    return Outcome(
        kills=world.kills,
        faults=world.faults,
        events=compared.events,
        lost=compared.lost + found.lost,
        duplicated=compared.doubled + found.duplicated,
        differing=found.differing,
        rows=found.rows,
        seconds=round(sum(world.laps.seconds.values()), 1),
        laps=dict(world.laps.seconds),
        leaked=clear,
        refusals=world.refusals,
        ends=dict(world.pipeline.ends),
        wrong="; ".join(filter(None, words)),
        sinks=tuple(one.kind for one in plans),
    )


def _of_lake(world: World) -> Judgement:
    """What `tidemark verify` reports of the only sink."""
    report = world.pipeline.verify(*map(re.escape, TABLES))
    differing = sum(table.differing for table in report.tables)
    return Judgement(rows=report.rows, differing=differing, wrong=[] if report.ok else [report.to_text()])


def _of_sinks(world: World, plans: Sequence[SinkPlan], published: Mapping[str, Sequence[Change]]) -> Judgement:
    found = Judgement()
    for one in plans:
        found.add(judged(world.pipeline, one, published))
    return found


def _false_words(world: World, *, equal: bool) -> list[str]:
    """What the status said, or says now, that is not so."""
    pipeline = world.pipeline
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
                found = pipeline.statuses()
                if all(status.merge.alive is False and status.producer().alive is False for status in found.values()):
                    break
                time.sleep(1)
            else:
                pipeline.truth.contradictions.append(f"dead for {BELIEVED_S:.0f} s, and the status does not say so: {found}")
    return pipeline.truth.contradictions


def _all_is_well(world: World, name: str, status: Status) -> bool:
    taken = {f"{world.database}.{table}" for table in world.pipeline.takes.get(name, frozenset(TABLES))}
    return bool(status.merge.caught_up and status.producer().alive) and all(
        table.is_consistent for table in status.tables if table.table in taken
    )


@dataclass(frozen=True, slots=True)
class Compared:
    """The log and the topics: events in the log, changes that are lost or doubled, a sentence on the keys that differ."""

    events: int
    lost: int
    doubled: int
    shown: str
    published: Mapping[str, Sequence[Change]]


def _compared(world: World) -> Compared:
    """Compare the changes in the log with those in the topics, key by key."""
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
        if logged.get(key) != published.get(key) and key[0] not in world.recreated  # of a deleted topic nothing is there to compare
    }
    lost = sum(max(0, len(log) - len(topic)) for log, topic in wrong.values())
    shown = f"{len(wrong)} keys: {json.dumps(str(dict(list(wrong.items())[:SHOWN])))}" if wrong else ""
    return Compared(events, lost, doubled, shown, read)
