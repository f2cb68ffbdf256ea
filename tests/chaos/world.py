"""What a round runs in: the servers, one pipeline, and a supervisor that starts again what has ended."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from devservers import Database, Kafka, Registry
from schemas.errors import PublishError, StateError
from tests.chaos.load import Load
from tests.chaos.log import CommittedChanges
from tests.chaos.proxy import Proxy
from tests.chaos.replicated import ReplicatedDatabase
from tests.chaos.truth import StatusTruth, standings
from tests.e2e.pipeline import Pipeline
from tests.support.clock import Clock
from tests.support.spark_cluster import SparkCluster
from tidemark.api.observe import Status

RUN, MERGE = "run", "merge"


class ChaosError(AssertionError):
    """A round found something that must not be."""


@dataclass(slots=True)
class Servers:
    """Servers that rounds share."""

    database: Database | ReplicatedDatabase
    kafka: Kafka
    registry: Registry
    cluster: SparkCluster | None = None


class SupervisedPipeline(Pipeline):
    """A pipeline under a supervisor: what ended by itself is started again, if `excuse` has a reason for it."""

    def __init__(self, *arguments: object, **options: object) -> None:
        super().__init__(*arguments, **options)  # type: ignore[arg-type]
        self.excuse: Callable[[str, str], str | None] = lambda _verb, _tail: None
        self.ends: Counter[str] = Counter()
        self.moved_back: list[str] = []
        self.truth = StatusTruth()
        self._last: Status | None = None

    def check(self) -> None:
        for verb in (RUN, MERGE):
            child = self._children.get(verb)
            if child is None or child.status is None:
                continue
            tail = self.log_tail(verb)
            reason = self.excuse(verb, tail)
            if reason is None:
                raise ChaosError(f"{verb} ended by itself with {child.status}:\n{tail}")
            self.ends[f"{verb}: {reason}"] += 1
            self._killed.append(self._children.pop(verb))
            self.start(verb)

    def start(self, *verbs: str) -> None:
        super().start(*verbs)
        for verb in verbs:
            self.truth.up(verb)

    def kill(self, verb: str) -> None:
        super().kill(verb)
        self.truth.down(verb)

    def stop(self, verb: str) -> int | None:
        self.truth.down(verb)
        return super().stop(verb)

    def status(self) -> Status:
        asked_s = time.monotonic()
        status = super().status()
        self.truth.compare(asked_s, standings(status))
        if self._last is not None:
            self._compare(self._last, status)
        self._last = status
        return status

    def _compare(self, before: Status, now: Status) -> None:
        """Nothing that was reached is given up again."""
        if before.log and now.log and now.log.position < before.log.position:
            self.moved_back.append(f"log offset from {before.log.position.text} to {now.log.position.text}")
        known = {table.table: table for table in before.tables}
        for table in now.tables:
            old = known.get(table.table)
            if old and old.applied and (table.applied is None or table.applied < old.applied):
                self.moved_back.append(f"{table.table} in the sink from {old.applied} to {table.applied}")

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

    def excuse(self, verb: str, tail: str) -> str | None:
        """Why a process may have ended by itself: the merge job is a Spark driver, made to be started again."""
        if verb == MERGE and self.shaken & {"kafka", "registry"}:
            return "a server it needs was down"
        if verb == MERGE and self.shaken & {"sink", "cluster"}:
            return "its disk was full, or its executors were killed"
        if verb == RUN and "producer" in self.shaken:
            return "its disk was full"  # which is where its log is, too: it may not say so
        if verb == RUN and "FencedError" in tail and "second" in self.shaken:
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
