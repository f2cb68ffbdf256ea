"""Servers, one pipeline whose jobs have ways of their own to source and broker, a slow load, and the readers."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, Self

from deltalake import DeltaTable

from devservers import Database, Registry, start_database, start_registry
from devservers.processes import GuardedProcess, free_port
from schemas import topics
from schemas.overriding import override
from tests.chaos.proxy import Proxy
from tests.e2e.pipeline import Pipeline, create_signal_table
from tests.truth import allowances, shown
from tests.truth.fault_spans import FaultSpan, FaultSpans
from tests.truth.known_rows import KnownRows, Row
from tests.truth.readers import CommandReader, HttpReader, Reader, Samples
from tests.truth.row_arrivals import KafkaArrivals, LakeArrivals
from tests.truth.split_kafka import JOBS, SplitKafka

TABLES: Final = ("items", "orders")
SNAPSHOT_ROWS: Final = 3_000
ROWS_PER_S: Final = 60
_FIRST_START_S: Final = 600.0
"""A checkout whose kernels are not compiled yet takes minutes."""


class TruthError(AssertionError):
    """The pipeline did not recover, or the harness failed: nothing can be said of the words."""


class SplitPipeline(Pipeline):
    """Each job has a configuration file of its own, which differs in where source and broker are; the readers have the true one."""

    def __init__(self, *arguments: Any, ways: Mapping[str, Mapping[str, Mapping[str, Any]]], **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._paths: dict[str, Path] = {}
        document = json.loads(self.config_path.read_text("utf-8"))
        for verb, sections in ways.items():
            changed = {**document, **{name: {**document[name], **keys} for name, keys in sections.items()}}
            self._paths[verb] = self.folder / f"tidemark-{verb}.yaml"
            self._paths[verb].write_text(json.dumps(changed), encoding="utf-8")

    @override
    def spawn(self, verb: str, log_path: Path, *arguments: str) -> GuardedProcess:
        true_path = self.config_path
        try:
            self.config_path = self._paths.get(verb, true_path)
            return super().spawn(verb, log_path, *arguments)
        finally:
            self.config_path = true_path


class World:
    """Everything of a run; a context manager. `say` prints a line."""

    def __init__(self, folder: Path, rng: random.Random, say: Callable[[str], None]) -> None:
        self.folder, self.rng, self.say = folder, rng, say
        self._stack = ExitStack()
        self.rows, self.spans, self.samples = KnownRows(), FaultSpans(), Samples()
        self.tables: list[str] = [*TABLES, "odd"]
        self.readers: list[Reader] = []
        self._writes = threading.Event()
        self._ended = threading.Event()
        self._number = 0
        self._write_lock = threading.Lock()
        self._failure: BaseException | None = None

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._enter(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._stack.close()

    def _enter(self, stack: ExitStack) -> None:
        self.database_server: Database = stack.enter_context(start_database("mysql80", self.folder))
        self.kafka = stack.enter_context(SplitKafka(self.folder).start())
        self.registry: Registry = stack.enter_context(start_registry(self.folder))
        self.source_proxy = stack.enter_context(Proxy(self.database_server.port))
        self.database = "truth"
        self.ports = {name: free_port() for name in ("port", "merge_port", "page_port")}
        self._make_tables()
        self.pipeline = stack.enter_context(
            SplitPipeline(
                "truth", self.folder / "pipeline", self.database_server, self.database, self.kafka, self.registry,
                {"service": self.ports, "snapshot": {"mode": "never", "chunk_rows": 100, "readers": 1, "max_rows_per_s": ROWS_PER_S}},
                ways={
                    "run": {"source": {"port": self.source_proxy.port}, "kafka": {"bootstrap_servers": self.kafka.of_job("run")}},
                    "merge": {"kafka": {"bootstrap_servers": self.kafka.of_job("merge")}},
                },
            )
        )  # fmt: skip
        self.kafka_arrivals = KafkaArrivals(self.kafka.bootstrap_servers, {}, self.rows)
        for table in (*self.tables, "large"):
            self.watch_table(table)
        stack.enter_context(self.kafka_arrivals)
        lake = self.pipeline.folder / "lake" / self.database
        self.lake_arrivals = stack.enter_context(LakeArrivals(lake, lambda: list(self.tables), self.rows))
        self._thread = threading.Thread(target=self._guarded_load, name="load", daemon=True)
        self._thread.start()
        stack.callback(self._thread.join, 60)
        stack.callback(self._ended.set)
        stack.callback(self.heal)

    def _make_tables(self) -> None:
        with self.database_server.connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {self.database}")
        with self.database_server.connect(database=self.database) as connection, connection.cursor() as cursor:
            create_signal_table(connection)
            for table in (*TABLES, "odd"):
                cursor.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY, n INT)")
            cursor.execute("CREATE TABLE large (id INT PRIMARY KEY, note VARCHAR(40))")
            cursor.execute(f"SET cte_max_recursion_depth = {2 * SNAPSHOT_ROWS}")
            numbers = f"WITH RECURSIVE n AS (SELECT 1 i UNION ALL SELECT i + 1 FROM n WHERE i < {SNAPSHOT_ROWS})"
            cursor.execute(f"INSERT INTO large {numbers} SELECT i, 'a row to be read' FROM n")

    def watch_table(self, table: str) -> None:
        """Look for a table's records in Kafka from now on; one that is new to the load is added there by the episode."""
        for topic in (topics.change_topic("truth", self.database, table), topics.snapshot_topic("truth", self.database, table)):
            self.kafka_arrivals.topics[topic] = table

    # --- processes and readers

    def start(self) -> None:
        """Start the pipeline, wait until it is well, then start the readers."""
        self.pipeline.start("run")
        log_path = self.pipeline.log_path("run")
        self.wait("the producer to start", lambda: "producer.started" in log_path.read_text("utf-8", "replace"), _FIRST_START_S)
        self.pipeline.start("merge", "page")
        self._writes.set()
        self.wait("the first rows in the sink", lambda: any(row.in_sink_s < float("inf") for row in self.rows.all()), _FIRST_START_S)
        self.recover(time.time())

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Let all readers ask."""
        at = "http://127.0.0.1:"
        page = f"{at}{self.ports['page_port']}"
        spawn, folder = self.pipeline.spawn, self.folder
        self.readers = [
            *(CommandReader(verb, self.samples, spawn, folder, is_fresh=fresh) for verb in ("lag", "status") for fresh in (False, True)),
            HttpReader("producer metrics", self.samples, f"{at}{self.ports['port']}/metrics", shown.of_producer_metrics),
            HttpReader("merge metrics", self.samples, f"{at}{self.ports['merge_port']}/metrics", shown.of_merge_metrics),
            HttpReader("page json", self.samples, f"{page}/api/v1/overview", lambda a, b, text: shown.of_page_json(a, b, json.loads(text))),
            HttpReader("page html", self.samples, f"{page}/", shown.of_page_html),
        ]
        with ExitStack() as stack:
            for reader in self.readers:
                stack.enter_context(reader)
            yield

    def heal(self) -> None:
        """Let everything reach everything."""
        for proxy in (self.source_proxy, *(self.kafka.proxies[job] for job in JOBS)):
            proxy.heal()

    def check(self) -> None:
        """Fail where a thread of the harness has failed."""
        failures = [self._failure, self.kafka_arrivals.failure, self.lake_arrivals.failure, *(one.failure for one in self.readers)]
        failure = next((one for one in failures if one is not None), None)
        if failure is not None:
            raise TruthError(f"the harness failed: {failure!r}") from failure

    # --- the load

    def _guarded_load(self) -> None:
        try:
            with self.pipeline.connect() as connection, connection.cursor() as cursor:
                while not self._ended.is_set():
                    if self._writes.wait(0.2):
                        with self._write_lock:
                            self._write(cursor, self.rng.choice(self.written))
                        self._ended.wait(self.rng.uniform(0.6, 1.8))
        except BaseException as error:  # noqa: BLE001 - raised in the main thread
            if not self._ended.is_set():
                self._failure = error

    @property
    def written(self) -> list[str]:
        """The tables that the load writes to."""
        return [table for table in self.tables if table != "odd"]

    def _write(self, cursor: Any, table: str, *, kept_out: bool = False) -> Row:
        self._number += 1
        row = Row(table, self._number, time.time(), kept_out=kept_out)
        self.rows.add(row)
        cursor.execute(f"INSERT INTO {table} (id, n) VALUES ({row.number}, 0)")
        row.committed_s = time.time()
        return row

    def write(self, table: str, *, kept_out: bool = False) -> Row:
        """Insert a row now."""
        with self._write_lock, self.pipeline.connect() as connection, connection.cursor() as cursor:
            return self._write(cursor, table, kept_out=kept_out)

    @contextmanager
    def paused_load(self) -> Iterator[None]:
        """Write nothing meanwhile."""
        self._writes.clear()
        with self._write_lock:
            pass
        try:
            yield
        finally:
            self._writes.set()

    # --- waiting

    def rest(self, seconds: float) -> None:
        """Let things run."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.check()
            time.sleep(0.2)

    def wait(self, what: str, until: Callable[[], object], seconds: float = allowances.RECOVERS_S) -> None:
        deadline = time.monotonic() + seconds
        while not until():
            self.check()
            if time.monotonic() > deadline:
                logs = "".join(f"\n--- {verb}\n{self.pipeline.log_tail(verb)}" for verb in ("run", "merge"))
                raise TruthError(f"waited {seconds:.0f} s for {what}{logs}")
            time.sleep(0.2)

    def recover(self, since_s: float, jobs: tuple[str, ...] = ("run", "merge", "page")) -> float:
        """Wait until all rows have arrived, one of after `since_s` among them; processes that ended are started. Returns when."""

        def is_well() -> bool:
            for verb in jobs:
                if not self.pipeline.running(verb):
                    self.start_again(verb)
            rows = self.rows.all()
            late = [row for row in self.rows.not_in_sink() if row.written_s < time.time() - allowances.HEALTHY_S / 2]
            arrived = [row for row in rows if row.committed_s > since_s and row.in_sink_s < float("inf")]
            return not late and len(arrived) >= 2

        self.wait("all rows to arrive", is_well)
        return time.time()

    def require_all_in_sink(self, table: str) -> None:
        """Fail where the Delta table, read as a whole, has other rows than the harness saw come."""
        with self.paused_load():
            self.wait("all rows to arrive", lambda: not self.rows.not_in_sink())
            found = DeltaTable(self.pipeline.folder / "lake" / self.database / table).to_pyarrow_table(columns=["id"])
            known = {row.number for row in self.rows.all() if row.table == table}
            if set(found["id"].to_pylist()) != known:
                raise TruthError(f"{table} in the sink has {found.num_rows} rows, and {len(known)} were written")

    def start_again(self, verb: str) -> None:
        """Start a process that has ended by itself, as a supervisor does."""
        if verb in self.pipeline._children:
            self.say(f"  {verb} ended by itself; it is started again")
            self.pipeline._killed.append(self.pipeline._children.pop(verb))
        self.pipeline.start(verb)

    @contextmanager
    def fault(self, span: FaultSpan, *, waits: bool = True) -> Iterator[FaultSpan]:
        """A fault from now until the body ends; then wait until all is well."""
        self.spans.add(span)
        span.began_s = time.time()
        yield span
        span.ended_s = time.time()
        if waits:
            span.well_s = self.recover(span.ended_s)
