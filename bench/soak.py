"""The soak: 30 minutes of a mixed load over 20 tables through producer and merge job; memory must stay flat, the lake exact.

About 1,000 changes a second: inserts, updates and deletes in transactions of ten rows, so that tables keep their size. Every ten
seconds the resident memory of the producer, of the largest Python worker of the merge job and of its JVM is noted, and now and then
what is alive in the JVM's heap after a collection. The medians of the second and the last third are compared. The resident memory
of the JVM is not: it takes the heap that it was given (`spark.driver_memory`) when it likes to, and a leak shows in what is alive.
Then source and lake are compared by `tidemark verify`.
"""

from __future__ import annotations

import json
import os
import random
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from bench.bench_figures import OURS, Figure, Found
from bench.bench_tools import ROOT
from bench.cost import Cost, CostMeter, java_of, resident_mib
from bench.scene import BenchError, Scene
from bench.workload_context import Context
from devservers.processes import GuardedProcess

TABLES = 20
CHANGES_PER_S = 1_000
_BATCH = 10
_EVERY_S = 10.0
_ROWS = 2_000
_DATABASE = "soak"
_WORKERS = ("pyspark.daemon", "pyspark/daemon", "worker_daemon")
_GROWTH, _GROWTH_MIB = 1.05, 16.0
_SIGNALS = "id VARCHAR(42) PRIMARY KEY, type VARCHAR(32) NOT NULL, data VARCHAR(2048)"
_COLUMNS = "id BIGINT PRIMARY KEY, name VARCHAR(64), amount DECIMAL(12,2), e TEXT, changed DATETIME(6)"
_VERIFY_S = 900.0
_LOOKS_INTO_HEAP = 18
_SHOWN = 20
_JCMD = "jcmd"


def soak(context: Context) -> Found:
    """Run the load for `--minutes`; what is not flat, or not equal at the end, is a failure of the run."""
    with ExitStack() as stack:
        jobs = stack.enter_context(_Jobs(context.scene, context.folder / "soak"))
        jobs.create_tables()
        for verb in ("run", "merge"):
            jobs.start(verb)
        load = stack.enter_context(_Load(context.scene))
        begun = time.monotonic()
        samples = jobs.sampled(context.minutes * 60.0, load)
        seconds = time.monotonic() - begun
        changes = load.stop()
        jobs.verify()
        costs = jobs.costs()
    print("\n".join(_courses(samples)), flush=True)
    thirds = {name: thirds_of([sample[name] for sample in samples]) for name in samples[0]}
    context.failures.extend(not_flat({name: both for name, both in thirds.items() if name != "jvm"}))
    extra: dict[str, float] = {}
    for name, (first, last) in thirds.items():
        extra |= {f"{name}_middle_mib": first, f"{name}_last_mib": last}
    cpu = {verb: cost.cpu_s for verb, cost in costs.items()}
    peak = max(cost.peak_mib for cost in costs.values())
    return {
        OURS: [Figure(changes, seconds, sum(cpu.values()), peak, extra, "start-up and verification included")],
        "tidemark run": [Figure(changes, seconds, cpu["run"], costs["run"].peak_mib)],
        "tidemark merge": [Figure(changes, seconds, cpu["merge"], costs["merge"].peak_mib)],
    }


def _courses(samples: Sequence[Mapping[str, float]]) -> list[str]:
    """Return a line for each process with its memory over time, so that a slow growth is seen."""
    shown = samples[:: max(1, len(samples) // _SHOWN)]
    return [f"  {name} MiB: {' '.join(f'{sample[name]:,.0f}' for sample in shown)}" for name in samples[0]]


def thirds_of(values: Sequence[float]) -> tuple[float, float]:
    """Return the medians of the second third and of the last."""
    share = max(1, len(values) // 3)
    return statistics.median(values[-2 * share : -share] or values), statistics.median(values[-share:])


def largest(memory: Sequence[tuple[str, float]]) -> dict[str, float]:
    """Return the memory of the largest JVM and of the largest Python worker among the processes of a merge job."""
    found = {"jvm": 0.0, "worker": 0.0}
    for command, size in memory:
        if command.partition(" ")[0].endswith("java"):
            kind = "jvm"
        elif any(word in command for word in _WORKERS):
            kind = "worker"
        else:
            continue
        found[kind] = max(found[kind], size)
    return found


def alive_mib(java: int) -> float | None:
    """Return what is alive in the heap of a JVM, after a full collection; the development kit has the tool for that.

    None where that process has ended, as the one that starts Spark's JVM does when a merge job starts.
    """
    done = subprocess.run([_JCMD, str(java), "GC.class_histogram"], capture_output=True, text=True, check=False, timeout=120)
    total = done.stdout.rstrip().rpartition("\n")[2].split()
    if done.returncode and not Path(f"/proc/{java}").exists():
        return None
    if done.returncode or len(total) != 3 or total[0] != "Total":
        message = f"{_JCMD} cannot look into the JVM {java}: {(done.stderr or done.stdout)[-500:]}"
        raise BenchError(message)
    return int(total[2]) / (1 << 20)


def not_flat(thirds: Mapping[str, tuple[float, float]]) -> list[str]:
    """Return a sentence for each process whose memory grew by more than 5 % and 16 MiB."""
    return [
        f"soak-30m: the memory of {name} is not flat: {first:,.0f} MiB in the second third, {last:,.0f} MiB in the last"
        for name, (first, last) in thirds.items()
        if last > first * _GROWTH + _GROWTH_MIB
    ]


class _Load:
    """A thread that changes rows of all tables at a fixed rate."""

    def __init__(self, scene: Scene) -> None:
        self._connection = scene.database.connect(database=_DATABASE)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="soak-load")
        self._random = random.Random(15)
        self._keys = [(0, 0)] * TABLES
        self._error: Exception | None = None
        self.changes = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join()
        self._connection.close()

    def stop(self) -> int:
        """End it; return how many rows were changed."""
        self._stop.set()
        self._thread.join()
        self.check()
        return self.changes

    def check(self) -> None:
        """Raise what ended the load before its time."""
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        begun = time.monotonic()
        try:
            with self._connection.cursor() as cursor:
                while not self._stop.is_set():
                    self.changes += self._transaction(cursor)
                    time.sleep(max(0.0, self.changes / CHANGES_PER_S - (time.monotonic() - begun)))
        except Exception as error:  # noqa: BLE001 - raised by the thread that waits
            self._error = error

    def _transaction(self, cursor: Any) -> int:
        """Change ten rows of a table: insert while it is small, then insert, update or delete."""
        number = self._random.randrange(TABLES)
        low, high = self._keys[number]
        kind = self._random.choice(("insert", "update", "delete")) if high - low >= _ROWS else "insert"
        if kind == "insert":
            rows = ", ".join(f"({key}, 'name {key}', {key} / 4, REPEAT('x', 80), NOW(6))" for key in range(high, high + _BATCH))
            cursor.execute(f"INSERT INTO t{number} VALUES {rows}")
            self._keys[number] = (low, high + _BATCH)
        elif kind == "update":
            key = self._random.randrange(low, high - _BATCH)
            end = key + _BATCH - 1
            cursor.execute(f"UPDATE t{number} SET amount = amount + 1, changed = NOW(6) WHERE id BETWEEN {key} AND {end}")
        else:
            cursor.execute(f"DELETE FROM t{number} WHERE id BETWEEN {low} AND {low + _BATCH - 1}")
            self._keys[number] = (low + _BATCH, high)
        return _BATCH


class _Jobs:
    """The producer and the merge job of the soak."""

    def __init__(self, scene: Scene, folder: Path) -> None:
        self._scene, self._folder = scene, folder
        folder.mkdir()
        self._config = folder / "tidemark.yaml"
        self._config.write_text(json.dumps(self._document()), encoding="utf-8")
        self._children: dict[str, GuardedProcess] = {}
        self._meters: dict[str, CostMeter] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for child in self._children.values():
            child.signal(signal.SIGTERM)
        for child in self._children.values():
            child.wait(60)
            child.kill()

    def create_tables(self) -> None:
        """Create the tables, and the table of signals."""
        with self._scene.database.connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {_DATABASE}")
            cursor.execute(f"USE {_DATABASE}")
            cursor.execute(f"CREATE TABLE tidemark_signal ({_SIGNALS})")
            for number in range(TABLES):
                cursor.execute(f"CREATE TABLE t{number} ({_COLUMNS})")

    def start(self, verb: str) -> None:
        """Start a verb of the command."""
        child = GuardedProcess.spawn(self._command(verb), self._log(verb), cwd=self._folder, env=self._environment())
        self._children[verb] = child
        self._meters[verb] = CostMeter(child.pid)

    def pid(self, verb: str) -> int:
        """Return the process of a verb."""
        return self._children[verb].pid

    def costs(self) -> dict[str, Cost]:
        """Return what each verb has cost since its start."""
        return {verb: meter.cost() for verb, meter in self._meters.items()}

    def sampled(self, seconds: float, load: _Load) -> list[dict[str, float]]:
        """Wait so long; return the memory of producer, JVM, its heap and the largest worker, every ten seconds."""
        samples: list[dict[str, float]] = []
        begun = time.monotonic()
        heap_mib, looked = 0.0, float("-inf")
        while time.monotonic() - begun < seconds:
            time.sleep(min(_EVERY_S, max(1.0, seconds / 12)))
            load.check()
            self._check()
            self._meters["merge"].look()
            memory = resident_mib(self.pid("merge"))
            producer = sum(size for _, size in resident_mib(self.pid("run")))
            if time.monotonic() - looked > seconds / _LOOKS_INTO_HEAP and (java := java_of(self.pid("merge"))):
                alive = alive_mib(java)
                if alive is not None:
                    heap_mib, looked = alive, time.monotonic()
            samples.append({"producer": producer, **largest(memory), "jvm_heap": heap_mib})
        return samples

    def verify(self) -> None:
        """Compare source and lake, which waits for what is on its way; `BenchError` where they differ."""
        command = self._command("verify")
        done = subprocess.run(
            command, cwd=self._folder, env=self._environment(), capture_output=True, text=True, check=False, timeout=_VERIFY_S
        )
        print("\n".join(f"  verify: {line}" for line in done.stdout.splitlines()[-3:]), flush=True)
        if done.returncode:
            message = f"source and lake differ:\n{done.stdout[-3000:]}\n{done.stderr[-2000:]}"
            raise BenchError(message)

    def _check(self) -> None:
        for verb, child in self._children.items():
            if child.status is not None:
                message = f"{verb} ended during the soak:\n{self._log(verb).read_text(encoding='utf-8', errors='replace')[-3000:]}"
                raise BenchError(message)

    def _command(self, verb: str) -> list[str]:
        return [sys.executable, "-m", "tidemark", verb, "--config", str(self._config)]

    def _environment(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": str(ROOT)}

    def _log(self, verb: str) -> Path:
        return self._folder / f"{verb}.log"

    def _document(self) -> dict[str, Any]:
        database = self._scene.database
        return {
            "name": _DATABASE,
            "source": {
                "host": database.host,
                "port": database.port,
                "user": database.user,
                "password": database.password,
                "tables": [rf"{_DATABASE}\.t\d+"],
                "signal_table": f"{_DATABASE}.tidemark_signal",
            },
            "kafka": {"bootstrap_servers": self._scene.kafka.bootstrap_servers},
            "format": {"type": "avro", "registry": self._scene.registry.url},
            "snapshot": {"mode": "initial"},
            "sinks": [{"name": "lake", "type": "delta", "path": str(self._folder / "lake")}],
            "spark": {"master": "local[2]"},
        }
