"""What a round runs in: the servers, one pipeline, and a supervisor that starts again what has ended."""

from __future__ import annotations

import json
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from devservers import Database, Kafka, Registry
from devservers.processes import GuardedProcess
from schemas import signals
from schemas.errors import PublishError, StateError
from schemas.overriding import override
from tests.chaos.load import Load
from tests.chaos.log import CommittedChanges
from tests.chaos.proxy import Proxy
from tests.chaos.replicated import ReplicatedDatabase
from tests.chaos.sink_servers import SinkHost, SinkServers, restart
from tests.chaos.truth import StatusTruth, standings
from tests.e2e.child_processes import ChildProcesses
from tests.e2e.pipeline import PATIENCE_S, POLL_S, Pipeline
from tests.support.clock import Clock
from tests.support.spark_cluster import SparkCluster
from tidemark.status.status_tree import Status

RUN, MERGE = "run", "merge"
_ENDS_TOGETHER_S = 60.0


class ChaosError(AssertionError):
    """A round found something that must not be."""


@dataclass(slots=True)
class Servers:
    """Servers that rounds share."""

    database: Database | ReplicatedDatabase
    kafka: Kafka
    registry: Registry
    cluster: SparkCluster | None = None
    sinks: SinkServers | None = None


class Supervised(ChildProcesses):
    """Processes under a supervisor: one that ended by itself is started again, if `excuse` has a reason for it."""

    VERBS: ClassVar[tuple[str, ...]] = ()

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.excuse: Callable[[str, str], str | None] = lambda _verb, _tail: None
        self.ends: Counter[str] = Counter()
        self.truth = StatusTruth()

    @override
    def check(self) -> None:
        for verb in self.VERBS:
            child = self._children.get(verb)
            if child is None or child.status is None:
                continue
            tail = self.log_tail(verb)
            reason = self.excuse(verb, self.said(verb))
            if reason is None:
                raise ChaosError(f"{verb} ended by itself with {child.status}:\n{tail}")
            self.ends[f"{verb}: {reason}"] += 1
            self._killed.append(self._children.pop(verb))
            self.start(verb)

    def said(self, verb: str) -> str:
        """The log of a process since it was started last."""
        with self.log_path(verb).open("rb") as file:
            file.seek(self._log_begins.get(verb, 0))
            return file.read().decode("utf-8", "replace")

    @override
    def start(self, *verbs: str) -> None:
        super().start(*verbs)
        for verb in verbs:
            self.truth.up(verb)

    @override
    def kill(self, verb: str) -> None:
        super().kill(verb)
        self.truth.down(verb)

    @override
    def stop(self, verb: str) -> int | None:
        self.truth.down(verb)
        return super().stop(verb)

    def freeze(self, verb: str) -> None:
        """SIGSTOP."""
        self._children[verb].signal(signal.SIGSTOP)
        self.truth.down(verb)

    def thaw(self, verb: str) -> None:
        """SIGCONT."""
        self._children[verb].signal(signal.SIGCONT)
        self.truth.up(verb)

    def pid_of(self, verb: str) -> int:
        """Of the running process, started over if it has just ended."""
        self.check()
        return self._children[verb].pid

    def adopt(self, verb: str, other: str, ended: str) -> None:
        """Of the processes of these names one has ended; the one left is from now on the one of that verb."""
        self._killed.append(self._children.pop(ended))
        if ended == verb:
            self._children[verb] = self._children.pop(other)

    def start_second(self, verb: str, other: str) -> None:
        """Another process of the same verb and configuration, under another name of ours."""
        self._children[other] = self.spawn(verb, self.log_path(other))
        self.truth.up(verb)

    def wait_for_line(self, name: str, line: str, seconds: float) -> None:
        """Wait until a log has a line."""
        deadline = time.monotonic() + seconds
        while line not in self.log_path(name).read_text(encoding="utf-8", errors="replace"):
            if time.monotonic() > deadline:
                raise ChaosError(f"{name} has not said {line} in {seconds} s:\n{self.log_tail(name)}")
            time.sleep(0.1)

    def wait_until_one_ended(self, names: Sequence[str], seconds: float) -> str:
        """Which of these processes ended first; one must, by itself."""
        deadline = time.monotonic() + seconds
        while True:
            for name in names:
                if self._children[name].status is not None:
                    return name
            if time.monotonic() > deadline:
                tails = "\n".join(self.log_tail(name) for name in names)
                raise ChaosError(f"all of {', '.join(names)} still run after {seconds} s:\n{tails}")
            time.sleep(0.1)

class SupervisedPipeline(Supervised, Pipeline):
    """A pipeline under a supervisor.

    Of several sinks each has a status, and what is waited for is waited for in each. `takes` has the source tables of a sink that
    does not take all. A sink that ends alone ends the round, unless the merge job ends with it within `_ENDS_TOGETHER_S`. Processes
    have the settings of `config_of_all`, if there are other ones than those of the judgement, and those of a verb in `configs`.
    """

    VERBS = (RUN, MERGE)

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.moved_back: list[str] = []
        self.takes: Mapping[str, frozenset[str]] = {}
        self.patience = 1.0
        self.configs: dict[str, Path] = {}
        self.config_of_all: Path | None = None
        self._last: dict[str, Status] = {}
        self._read_to = 0
        self._alone: tuple[float, str] | None = None

    @override
    def check(self) -> None:
        super().check()
        if len(self.settings.sinks) > 1 and MERGE in self._children:
            self._check_sinks()

    @override
    def spawn(self, verb: str, log_path: Path, *arguments: str) -> GuardedProcess:
        return self.spawn_by(self.configs.get(verb), verb, log_path, *arguments)

    def spawn_by(self, config: Path | None, verb: str, log_path: Path, *arguments: str) -> GuardedProcess:
        """A process that this pipeline does not look after, by a file of settings; None for that of all."""
        used = config or self.config_of_all or self.config_path
        return self.spawn_command([verb, "--config", str(used), *arguments], log_path)

    def document(self) -> dict[str, Any]:
        """The settings of the processes, to be changed."""
        found: dict[str, Any] = json.loads((self.config_of_all or self.config_path).read_text(encoding="utf-8"))
        return found

    def reap(self, verb: str) -> None:
        """Forget a process that has ended, or is to end now."""
        if self._children[verb].status is None:
            self.kill(verb)
            return
        self._killed.append(self._children.pop(verb))
        self.truth.down(verb)

    def _check_sinks(self) -> None:
        """Fail where a sink has ended, and the merge job continues with the others: it wants a person."""
        with self.log_path(MERGE).open("rb") as file:
            file.seek(max(self._read_to, self._log_begins[MERGE]))
            for line in file:
                if not line.endswith(b"\n"):
                    break
                self._read_to = file.tell()
                if b'"merge.sink_ended"' in line:
                    with suppress(ValueError):  # cut off, where the disk was full
                        found = json.loads(line)
                        self._alone = self._alone or (time.monotonic(), f"sink {found['sink']} ended: {found['reason']}")
        if self._alone is not None and time.monotonic() - self._alone[0] > _ENDS_TOGETHER_S:
            raise ChaosError(f"{self._alone[1]}\n{self.log_tail(MERGE)}")

    @override
    def start(self, *verbs: str) -> None:
        super().start(*verbs)
        self._alone = None if MERGE in verbs else self._alone

    @override
    def status(self) -> Status:
        return next(iter(self.statuses().values()))

    def statuses(self) -> dict[str, Status]:
        """The status by the name of the sink."""
        asked_s = time.monotonic()
        found = self.observer.read_each()
        for name, status in found.items():
            self.truth.compare(asked_s, standings(status), name)
            if name in self._last:
                self._compare(self._last[name], status)
        self._last = found
        return found

    @override
    def wait(self, what: str, until: Callable[[Status], bool], seconds: float = PATIENCE_S) -> Status:
        return next(iter(self.wait_each(what, lambda _, status: until(status), seconds).values()))

    def wait_each(self, what: str, until: Callable[[str, Status], bool], seconds: float = PATIENCE_S) -> dict[str, Status]:
        """Wait until the status of every sink, given by its name, is as wanted. A broker that was disturbed may not answer yet."""
        deadline = time.monotonic() + seconds * self.patience
        while True:
            self.check()
            try:
                found = self.statuses()
            except (PublishError, StateError):
                if time.monotonic() > deadline:
                    raise
                time.sleep(POLL_S)
                continue
            if all(until(name, status) for name, status in found.items()):
                return found
            if time.monotonic() > deadline:
                lacking = {name: status for name, status in found.items() if not until(name, status)}
                logs = "".join(f"\n--- {verb}\n{self.log_tail(verb)}" for verb in self._children)
                raise ChaosError(f"waited {seconds * self.patience:.0f} s for {what}: {lacking}{logs}")
            time.sleep(POLL_S)

    @override
    def wait_for_sink(self, *tables: str, consistent: bool = True, seconds: float = PATIENCE_S) -> None:
        end = self.end_of_log()
        self.send(signals.LOG, {"message": "passed {}"})

        def arrived(name: str, status: Status) -> bool:
            return self._has_arrived(status, self.takes.get(name, frozenset(tables)), end, consistent=consistent)

        self.wait_each("everything to arrive", arrived, seconds)

    def _compare(self, before: Status, now: Status) -> None:
        """Nothing that was reached is given up again."""
        if before.log and now.log and now.log.position < before.log.position:
            self.moved_back.append(f"log offset from {before.log.position.text} to {now.log.position.text}")
        known = {table.table: table for table in before.tables}
        for table in now.tables:
            old = known.get(table.table)
            if old and old.applied and (table.applied is None or table.applied < old.applied):
                self.moved_back.append(f"{table.table} in the sink from {old.applied} to {table.applied}")


@dataclass(slots=True)
class Laps:
    """Seconds by what they were spent on."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0) + time.monotonic() - began


@dataclass(slots=True)
class World:
    """One round's surroundings, and what was done to them."""

    servers: Servers
    pipeline: SupervisedPipeline
    proxy: Proxy
    load: Load
    rng: random.Random
    database: str
    laps: Laps
    logs: dict[int, CommittedChanges]
    clock: Clock | None = None
    kills: int = 0
    faults: int = 0
    shaken: set[str] = field(default_factory=set)
    forgot: bool = False
    serial: int = 0
    refusals: int = 0
    recreated: set[str] = field(default_factory=set)
    masked: bool = False
    unread: bool = False
    hosts: tuple[SinkHost, ...] = ()
    large_rows: tuple[int, ...] = (3_000, 10_000, 200_000)

    def heal(self) -> None:
        """Let everything reach everything again."""
        self.proxy.heal()
        for host in self.hosts:
            host.proxy.heal()
            if not host.server.running:
                restart(host.server)

    def pause(self, low: float, high: float) -> None:
        """Let things run for a drawn time, watching."""
        deadline = time.monotonic() + self.rng.uniform(low, high)
        while time.monotonic() < deadline:
            self.pipeline.check()
            try:
                self.pipeline.status()
            except (PublishError, StateError):
                if "kafka" not in self.shaken:
                    raise
            time.sleep(0.1)

    def excuse(self, verb: str, said: str) -> str | None:
        """Why a process may have ended by itself: the merge job is a Spark driver, made to be started again."""
        if verb == MERGE and self.shaken & {"kafka", "registry"}:
            return "a server it needs was down"
        if verb == MERGE and "jvm" in self.shaken and "Spark's JVM ended" in said:
            return "its JVM was killed"
        if verb == MERGE and self.shaken & {"sink", "cluster"}:
            return "its disk was full, or its executors were killed"
        if verb == RUN and "producer" in self.shaken:
            return "its disk was full"  # which is where its log is, too: it may not say so
        if verb == RUN and "FencedError" in said and "second" in self.shaken:
            return "fenced"
        return None

    def wait(self, low: float, high: float) -> None:
        """As `pause`, while the broker is down and nobody can be asked."""
        time.sleep(self.rng.uniform(low, high))

    def execute(self, *statements: str) -> None:
        """Run on the source, as an administrator would."""
        self.pipeline.sql("SET SESSION lock_wait_timeout = 30", *statements)

    def signal(self, kind: str, data: object) -> None:
        """INSERT a signal."""
        self.pipeline.send(kind, data)
