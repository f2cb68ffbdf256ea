"""One round of a replication task: a seed and the servers enter, an `Outcome` leaves."""

from __future__ import annotations

import json
import random
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from devservers import Database, Registry, start_database, start_registry
from tests.chaos.load import Load, create_tables
from tests.chaos.log import CommittedChanges
from tests.chaos.machine import WITH_CLOCK
from tests.chaos.proxy import Proxy
from tests.chaos.round import Outcome
from tests.chaos.sink_judgement import Judgement
from tests.chaos.task_faults import ALL, EVENTS, FAULTS, KILLS, MEMBERS
from tests.chaos.task_judgement import KEYS, judged
from tests.chaos.task_world import (
    AT_COMMIT,
    JOBS,
    TASK,
    Member,
    TaskProcesses,
    TaskScene,
    TaskTarget,
    create_journal,
)
from tests.chaos.world import RUN, Laps, Servers, SupervisedPipeline
from tests.e2e.pipeline import SIGNAL_TABLE
from tests.support import replication
from tests.support.clock import Clock
from tests.truth.split_kafka import SplitKafka

Look = Callable[[TaskScene, Callable[[], Judgement]], None]
TARGETS: Final = ("mysql80", "mariadb114")
_PAIRS: Final = (("mysql80", "mariadb114"), ("mysql80", "mysql80"), ("mariadb114", "mysql80"))
_WORKERS: Final = 0.4
"""The share of rounds whose batches are applied by workers, in any order."""
_SMALL: Final = {"innodb_buffer_pool_size": "64M"}
_NOT_WITH_A_THIRD: Final = frozenset({"purge logs"})
"""Two sources share a server, and the harness would purge files that one of them has not read."""
_NOT_WITH_XA: Final = frozenset({"kill database"})


@dataclass(frozen=True, slots=True)
class TaskPlan:
    """A round as its seed draws it."""

    kinds: tuple[str, str]
    order: str
    xa: bool
    is_compacted: bool
    has_spare: bool
    has_third: bool
    has_workers: bool
    names: list[str]

    def flavour(self, target: str) -> str:
        """Return the name of rounds like this one."""
        return f"{'+'.join(self.kinds)}>{target}:{self.order}{'+workers' if self.has_workers else ''}"


def plan(seed: int, only: Sequence[str] = ()) -> TaskPlan:
    """Return the plan of a seed: each second round has one order of all sources. With `only` the faults are these."""
    rng = random.Random(f"task {seed}")
    xa, is_compacted, has_spare, has_third = (rng.random() < share for share in (0.3, 0.7, 0.3, 0.5))
    drawn = [list(KILLS)[seed // 2 % len(KILLS)], rng.choice(("kill task", "kill task twice", *KILLS)), list(FAULTS)[seed // 2 % len(FAULTS)]]
    drawn += rng.sample(list(FAULTS), rng.randint(0, 1)) + rng.sample(list(EVENTS), rng.randint(1, 3))
    drawn += rng.sample([name for name in MEMBERS if name != "join"], rng.choice((0, 1, 1)))
    order = "global" if seed % 2 else "source"
    drawn += ["join"] if has_third and order == "global" else []  # without an order a source has to be there when the task starts
    rng.shuffle(drawn)
    left_out = (_NOT_WITH_A_THIRD if "join" in drawn else frozenset()) | (_NOT_WITH_XA if xa else frozenset())
    names = list(only) or [name for name in drawn if name not in left_out]
    return TaskPlan(
        kinds=rng.choice(_PAIRS), order=order, xa=xa, is_compacted=is_compacted, has_spare=has_spare,
        has_third="join" in names, has_workers=random.Random(f"workers {seed}").random() < _WORKERS, names=names,
    )  # fmt: skip


class TaskServers:
    """Servers that rounds share: broker, registry, the target, and the sources, started when a round needs them."""

    def __init__(self, folder: Path, target: str) -> None:
        self._folder, self.kind = folder, target
        self._stack = ExitStack()
        self._sources: dict[tuple[str, int], Database] = {}
        self.kafka: SplitKafka
        self.registry: Registry
        self.target: TaskTarget

    def __enter__(self) -> Self:
        enter = self._stack.enter_context
        self.kafka = enter(SplitKafka(self._folder, JOBS, session_s=9).start())
        self.registry = enter(start_registry(self._folder))
        self.target = TaskTarget(self._started(self.kind, "target", 99), self._folder / "target")
        self._stack.callback(self.target.close)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for server in self._databases():
            server.kill()  # its data go with the folder
        self._stack.close()

    def _databases(self) -> Iterator[Database]:
        yield from (self.target.server, *self._sources.values())

    def sources(self, kinds: Sequence[str]) -> list[Database]:
        """Return servers of these kinds, each another one; they run."""
        wanted = [(kind, kinds[:number].count(kind)) for number, kind in enumerate(kinds)]
        for key in wanted:
            if key not in self._sources:
                self._sources[key] = self._started(key[0], f"source-{len(self._sources)}", len(self._sources) + 1)
        return [self._sources[key] for key in wanted]

    def _started(self, kind: str, name: str, server_id: int) -> Database:
        folder = self._folder / name
        folder.mkdir(parents=True, exist_ok=True)
        return self._stack.enter_context(start_database(kind, folder, {**_SMALL, "server_id": str(server_id)}))

    def restart(self) -> None:
        """Start servers that a round has left dead."""
        for server in (*self._databases(), self.kafka, self.registry):
            if not server.running:
                server.restart()


def play(servers: TaskServers, seed: int, folder: Path, *, only: Sequence[str] = (), look: Look = lambda *_: None) -> Outcome:
    """Play the round of a seed; its folder and databases are removed unless something was wrong.

    `look` is called when all was judged, with a function that judges again.
    """
    drawn, rng = plan(seed, only), random.Random(seed)
    name = f"tasks-{seed}-{rng.randrange(16**4):04x}-{int(time.time()) % 100_000}"
    with ExitStack() as stack:
        scene = _Stage(servers, drawn, rng, folder, name, stack).scene()
        databases = [member.database for member in scene.members]
        servers.target.observe(databases)
        start = replication.end_of_log(servers.target.server)
        _disturb(scene, drawn)
        with scene.laps("compare"):
            logged = {member.database: member.logs[member.servers.database.port].read() for member in scene.members}
            judge = partial(judged, scene, logged, is_compacted=drawn.is_compacted, start=start)
            outcome = _outcome(scene, judge(), sum(map(len, logged.values())))
        look(scene, judge)
    if outcome.good:
        shutil.rmtree(folder, ignore_errors=True)
        servers.target.forget(databases)
        for member in scene.members:
            with member.servers.database.connect() as connection, connection.cursor() as cursor:
                cursor.execute(f"DROP DATABASE {member.database}")
    return outcome


def _outcome(scene: TaskScene, judgement: Judgement, events: int) -> Outcome:
    pipelines = [member.pipeline for member in scene.members]
    said = [sentence for one in pipelines for sentence in (*one.truth.contradictions, *one.moved_back)]
    ends = sum((one.ends for one in pipelines), start=scene.task.ends)
    return Outcome(
        kills=scene.kills + sum(member.kills for member in scene.members),
        faults=scene.faults,
        events=events,
        lost=judgement.lost,
        duplicated=judgement.duplicated,
        differing=judgement.differing,
        out_of_order=judgement.out_of_order,
        rows=judgement.rows,
        seconds=round(sum(scene.laps.seconds.values()), 1),
        laps=dict(scene.laps.seconds),
        ends=dict(ends),
        wrong="; ".join([*judgement.wrong, *said]),
    )


@dataclass(frozen=True, slots=True)
class _Stage:
    """The parts that the scene of a round is made of."""

    servers: TaskServers
    drawn: TaskPlan
    rng: random.Random
    folder: Path
    name: str
    stack: ExitStack

    def scene(self) -> TaskScene:
        """Return the scene; nothing of ours runs yet."""
        drawn, servers, laps = self.drawn, self.servers, Laps()
        bases = servers.sources(drawn.kinds)
        with laps("create"):
            members = [self._member(job, base, laps) for job, base in zip(JOBS, [*bases, *bases[: drawn.has_third]], strict=False)]
        task = self.stack.enter_context(TaskProcesses(self.folder / TASK, self._task(members), has_spare=drawn.has_spare))
        scene = TaskScene(members, task, servers.target, servers.kafka, self.rng, laps, self.name, drawn.order, not drawn.has_workers)
        task.excuse = scene.excuse
        clock = Clock(self.folder) if WITH_CLOCK.keys() & set(drawn.names) else None
        for member in members:
            base = member.servers.database
            member.logs = {base.port: CommittedChanges(base, member.database, KEYS, replication.end_of_log(base))}
            member.scene, member.shaken, member.clock, member.pipeline.excuse = scene, scene.shaken, clock, member.excuse
        for one in (task, *(member.pipeline for member in members)):
            one.env = clock.environment if clock is not None else {}
        return scene

    def _task(self, members: Sequence[Member]) -> dict[str, Any]:
        drawn, server = self.drawn, self.servers.target.server
        account: dict[str, Any] = {"user": server.user, "password": server.password, "tls": {"mode": "disabled"}}
        more: dict[str, int] = {}
        if drawn.has_workers:
            account["consistency"] = "eventual"
            more = {"workers": 4, "driver_rows": 20, "txn_rows": self.rng.choice((10, 100))}
        return {
            "task": self.name,
            "order": drawn.order,
            "sources": [{"name": member.pipeline.name, "exclude_tables": [f".*{SIGNAL_TABLE}"]} for member in members],
            "kafka": {"bootstrap_servers": self.servers.kafka.of_job(TASK)},
            "format": {"registry": self.servers.registry.url},
            "target": {"type": server.flavour, "host": server.host, "port": self.servers.target.proxy.port, **account},
            "apply": {"driver_rows": self.rng.choice((50, 500, 2_000)), "compact": drawn.is_compacted, **more},
            **({"group": self.name} if drawn.order == "global" else {}),
        }

    def _member(self, job: str, base: Database, laps: Laps) -> Member:
        servers, rng, name = self.servers, self.rng, f"{self.name}-{job}"
        database = name.replace("-", "_")
        create_tables(base, database, rng, rng.choice((200, 1_000, 4_000)))
        create_journal(base, database)
        proxy = self.stack.enter_context(Proxy(base.port))
        source = {
            "host": base.host, "port": proxy.port, "user": base.user, "password": base.password, "tables": [rf"{database}\..*"],
            "signal_table": f"{database}.{SIGNAL_TABLE}",
        }  # fmt: skip
        snapshot = {"mode": "never", "merge": "producer", "readers": rng.choice((1, 2)), "chunk_rows": rng.choice((50, 200, 1_000))}
        more = {"source": source, "snapshot": snapshot, "order": {"group": self.name}, "sinks": []}
        pipeline = self.stack.enter_context(
            SupervisedPipeline(name, self.folder / job, base, database, servers.kafka, servers.registry, more)
        )
        document = {**pipeline.document(), "kafka": {"bootstrap_servers": servers.kafka.of_job(job)}}
        pipeline.config_of_all = pipeline.folder / "processes.yaml"
        pipeline.config_of_all.write_text(json.dumps(document), encoding="utf-8")
        load = Load(base, database, rng.randrange(1 << 30), rate=rng.choice((15, 40)), workers=2, xa=self.drawn.xa, at_commit=AT_COMMIT)
        load.changes_owners = False  # foreign keys are followed in tables that are loaded (docs/replicate.md)
        own = Servers(base, servers.kafka, servers.registry)
        return Member(own, pipeline, proxy, load, rng, database, laps, {}, large_rows=(1_000, 5_000, 20_000), job=job)


def _disturb(scene: TaskScene, drawn: TaskPlan) -> None:
    """Load and faults, until the target has everything."""
    with ExitStack() as loads:
        with scene.laps("start"):
            for member in scene.members[: len(drawn.kinds)]:
                member.pipeline.start(RUN)
            if drawn.order == "source":  # without a group a task does not wait for long until a source publishes
                for member in scene.members:
                    member.pipeline.wait("the producer", lambda status: status.log is not None)
            scene.task.start(*scene.task.verbs)
            for member in scene.members:
                member.load.start()
                loads.callback(member.load.stop)
        for name in drawn.names:
            with scene.laps("faults"):
                scene.pause(0.3, 6)
                ALL[name](scene)
            scene.faults += name in FAULTS
        scene.heal()
        for member in scene.members:
            if not member.is_running:
                member.pipeline.start(RUN)
        with scene.laps("arrive"):
            scene.wait_until_loaded(*scene.members)
            scene.pause(2, 4)  # so that some changes are followed in any case
    with scene.laps("arrive"):
        scene.wait_for_all()
