"""One round: a seed and the servers enter, counts or a `ChaosError` leave."""

from __future__ import annotations

import json
import random
import shutil
import time
from collections import defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.chaos.faults import ALL, EVENTS, FAULTS, KILLS, NOT_WITH_XA, WITH_REPLICA
from tests.chaos.load import KEYS, TABLES, TOLD_BY, Load, create_tables
from tests.chaos.log import committed_changes
from tests.chaos.proxy import Proxy
from tests.chaos.replicated import ReplicatedDatabase
from tests.chaos.world import MERGE, RUN, ChaosError, Servers, SupervisedPipeline, World
from tests.e2e.topics import RecordReader, plain
from tidemark.embedded import Database
from tidemark.observe import Status

SHOWN = 3


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

    @property
    def good(self) -> bool:
        return not (self.lost or self.duplicated or self.differing or self.wrong)

    def document(self) -> dict[str, Any]:
        return asdict(self)


def plan(seed: int, only: tuple[str, ...] = (), *, replica: bool = False) -> tuple[bool, list[str]]:
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
    rng.shuffle(drawn)
    return xa, [name for name in drawn if not (xa and name in NOT_WITH_XA)]


def play(servers: Servers, seed: int, folder: Path, *, only: tuple[str, ...] = ()) -> Outcome:
    """Play the round of a seed; its folder is removed unless something was wrong."""
    started = time.monotonic()
    rng = random.Random(seed)
    xa, names = plan(seed, only, replica=isinstance(servers.database, ReplicatedDatabase))
    database = f"chaos_{seed}_{rng.randrange(16**4):04x}_{int(time.time()) % 100_000}"
    create_tables(servers.database, database, rng, rng.choice((400, 2_000, 6_000)))
    starts = _ends_of_logs(servers.database)
    initial = rng.random() < 0.5
    with Proxy(servers.database.port) as proxy:
        more = {
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
            world = World(servers, pipeline, proxy, load, rng, database)
            pipeline.excuse = world.excuse
            wrong = _disturbed(world, names, initial=initial)
            outcome = _judged(world, starts[servers.database.port], wrong, time.monotonic() - started)
    if outcome.good:
        shutil.rmtree(folder, ignore_errors=True)
        with servers.database.connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"DROP DATABASE {database}")
    return outcome


def _ends_of_logs(database: Database | ReplicatedDatabase) -> dict[int, tuple[str, int]]:
    """Where the log of each server ends now, by the server's port."""
    if isinstance(database, ReplicatedDatabase):
        database.wait_for_replica()
    ends = {}
    for server in database.servers if isinstance(database, ReplicatedDatabase) else (database,):
        with server.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SHOW MASTER STATUS")
            file, pos = cursor.fetchone()[:2]
            ends[server.port] = (str(file), int(pos))
    return ends


def _disturbed(world: World, names: list[str], *, initial: bool) -> str:
    """Load, snapshot and faults, until everything is quiet again; what went wrong on the way."""
    pipeline = world.pipeline
    pipeline.start(RUN, MERGE)
    pipeline.wait("the producer", lambda status: status.log is not None)
    world.load.start()
    try:
        if not initial:
            pipeline.request_snapshot(".*")
        for name in names:
            world.pause(0.3, 4)
            ALL[name](world)
            world.faults += name in FAULTS or name in WITH_REPLICA
        world.pause(0.5, 2)
    finally:
        world.proxy.heal()
        world.load.stop()
    tables = sorted(TABLES)
    pipeline.wait("the snapshots", lambda status: _all_done(status, world.database))
    pipeline.wait_for_sink(*tables)
    return "; ".join(pipeline.moved_back)


def _all_done(status: Status, database: str) -> bool:
    wanted = {f"{database}.{table}" for table in TABLES}
    states = {table.table: table for table in status.tables if table.table in wanted}
    failed = [table for table in states.values() if table.snapshot == "failed"]
    if failed:
        raise ChaosError(f"a snapshot failed: {failed}")
    return len(states) == len(wanted) and all(table.snapshot == "done" for table in states.values())


def _judged(world: World, start: tuple[Any, ...], wrong: str, seconds: float) -> Outcome:
    report = world.pipeline.verify()
    differing = sum(table.differing for table in report.tables)
    if not report.ok:
        wrong = f"{wrong} {report.to_text()}"
    events, lost, doubled, shown = _compared(world, start)
    quarantined = sum(table.quarantined for table in world.pipeline.status().tables)
    if quarantined:
        wrong = f"{wrong} {quarantined} records in quarantine"
    return Outcome(
        kills=world.kills,
        faults=world.faults,
        events=events,
        lost=lost,
        duplicated=doubled,
        differing=differing,
        rows=report.rows,
        seconds=round(seconds, 1),
        ends=dict(world.pipeline.ends),
        wrong=f"{wrong} {shown}".strip(),
    )


def _compared(world: World, start: tuple[Any, ...]) -> tuple[int, int, int, str]:
    """Events in the log, changes lost, changes doubled, and the keys whose changes are not the log's, in words."""
    world.pipeline.wait_for_log()
    logged: dict[tuple[Any, ...], list[Any]] = defaultdict(list)
    events = 0
    for change in committed_changes(world.servers.database, world.database, KEYS, start):
        events += 1
        told = change.after and tuple(plain(change.after[name]) for name in TOLD_BY[change.table])
        logged[change.table, *map(plain, change.key)].append((change.op, told))
    published: dict[tuple[Any, ...], list[Any]] = defaultdict(list)
    reader = RecordReader(world.pipeline.settings)
    doubled = 0
    for table, names in KEYS.items():
        changes = reader.changes(world.database, table)
        doubled += len(changes) - len({(change.op, change.position) for change in changes})
        for change in changes:
            assert change.key is not None
            told = change.after and tuple(plain(change.after[name]) for name in TOLD_BY[table])
            published[table, *(plain(change.key[name]) for name in names)].append((change.op, told))
    wrong = {
        key: (logged.get(key, []), published.get(key, []))
        for key in logged.keys() | published.keys()
        if logged.get(key) != published.get(key)
    }
    lost = sum(max(0, len(log) - len(topic)) for log, topic in wrong.values())
    shown = f"{len(wrong)} keys: {json.dumps(str(dict(list(wrong.items())[:SHOWN])))}" if wrong else ""
    return events, lost, doubled, shown
