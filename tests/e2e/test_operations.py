"""A running pipeline and what is done to it: good and bad signals, DDL while rows flow, a second instance, a process that dies.

One pipeline on MariaDB serves all tests here, also those of the page: each view is compared with what the test knows. The other
whole pipeline of `make test` is on MySQL (`test_crashes`).
"""

from __future__ import annotations

import os
import signal
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import pytest
from deltalake import DeltaTable

from devservers import Database, Kafka, Registry
from schemas import signals
from schemas.batch_stages import STAGES
from schemas.delay_histogram import BOUNDS_S
from tests.e2e.conftest import MakePipeline
from tests.e2e.pipeline import Pipeline, spark_section
from tests.e2e.topics import RecordReader
from tests.support.clock import Clock
from tests.support.page_client import PageClient, page_of_log
from tests.support.servers import new_database, unique_name
from tidemark.status.status_tree import Status
from tidemark.verify import verify
from tidemark.verify.awaited import AwaitedRows

CHANGES = 40
LONG = 4_000
ROWS_PER_S = 600
"""A table of so many rows is not read before a signal about it comes, although its sender was kept waiting."""


@pytest.fixture(scope="module")
def clock(tmp_path_factory: pytest.TempPathFactory) -> Clock:
    """The clock of the merge job."""
    return Clock(tmp_path_factory.mktemp("clock"))


@pytest.fixture(scope="module")
def running(
    mariadb114: Database, kafka: Kafka, registry: Registry, tmp_path_factory: pytest.TempPathFactory, clock: Clock
) -> Iterator[Pipeline]:
    """Page, producer and merge job on a database of their own; small chunks, so that a snapshot takes its time."""
    name = unique_name("ops")
    snapshot = {"mode": "initial", "readers": 1, "chunk_rows": 100, "max_rows_per_s": ROWS_PER_S}
    more = {"snapshot": snapshot, "service": {"page_port": 0}, "spark": spark_section(compiled=True)}
    folder = tmp_path_factory.mktemp("ops")
    with Pipeline(name, folder, mariadb114, new_database(mariadb114), kafka, registry, more) as pipeline:
        fill(pipeline, "first", 10)
        pipeline.start("page")
        page = page_of_log(pipeline.log_path("page"))
        page.wait("the first look", "overview", lambda _: True)
        assert page.word() == "unknown"  # nothing was started
        pipeline.env = clock.environment
        pipeline.start("merge")
        pipeline.env = {}
        pipeline.start("run")
        pipeline.wait("the producer", lambda status: status.log is not None)
        yield pipeline
        assert pipeline.stop("page") == 0


@pytest.fixture(scope="module")
def page(running: Pipeline) -> PageClient:
    """The page of the pipeline."""
    return page_of_log(running.log_path("page"))


class Versions:
    """A reader that looks for new versions of a Delta table all the time, and reads afterwards what each had."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._seen: dict[int, float] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _look(self) -> None:
        is_last = False
        while not is_last:
            is_last = self._stop.wait(0.02)
            for file in self._path.glob("_delta_log/*.json"):
                if file.stem.isdigit():
                    self._seen.setdefault(int(file.stem), time.time())

    def readable(self) -> dict[int, float]:
        """When each id could be read first."""
        found: dict[int, float] = {}
        for version, at in sorted(self._seen.items()):
            ids = DeltaTable(str(self._path), version=version).to_pyarrow_table(columns=["id"])["id"]
            for number in ids.to_pylist():
                found.setdefault(number, at)
        return found


class Writer(threading.Thread):
    """Inserts row after row into a table until stopped; waits for a table that is gone for the moment."""

    def __init__(self, pipeline: Pipeline, table: str, first: int = 1) -> None:
        super().__init__(daemon=True)
        self._pipeline, self._table, self._next = pipeline, table, first
        self._stopped = threading.Event()
        self.written = 0
        self.start()

    def run(self) -> None:
        with self._pipeline.connect() as connection, connection.cursor() as cursor:
            while not self._stopped.wait(0.01):
                try:
                    cursor.execute(f"INSERT INTO {self._table} (id) VALUES ({self._next})")
                except Exception:  # noqa: BLE001, S112 - between DROP and CREATE, RENAME and RENAME
                    continue
                self._next += 1
                self.written += 1

    def stop(self) -> None:
        self._stopped.set()
        self.join()


def fill(pipeline: Pipeline, table: str, rows: int) -> None:
    values = ",".join(f"({number}, {number})" for number in range(rows))
    pipeline.sql(f"CREATE TABLE {table} (id INT PRIMARY KEY, v INT)", f"INSERT INTO {table} VALUES {values}")


@pytest.mark.parametrize(
    ("kind", "data", "reason"),
    [
        (signals.EXECUTE_SNAPSHOT, '{"data-collections": [', "JSON"),
        ("execute-snapshots", "{}", "execute-snapshot"),
        (
            signals.EXECUTE_SNAPSHOT,
            '{"data-collections": ["no.such_table"], "type": "INCREMENTAL"}',
            "no.such_table",
        ),
        (signals.EXECUTE_SNAPSHOT, '{"data-collections": "db.t"}', "data-collections"),
    ],
)
def test_a_bad_signal_is_answered_with_what_is_wrong_with_it(
    running: Pipeline, kind: str, data: str, reason: str
) -> None:
    ident = running.send(kind, data)
    answer = running.wait_for_answer(ident, lambda notification: notification.type == "REJECTED")
    assert reason in answer.data["reason"], answer
    assert running.running("run")


def test_the_first_start_reads_what_is_there_already(running: Pipeline) -> None:
    running.wait_for_snapshot("first")
    running.sql("INSERT INTO first VALUES (10, 10)", "DELETE FROM first WHERE id = 0")
    running.wait_for_sink("first")
    assert running.assert_equal("first").rows == 10


def test_a_clock_that_is_set_back_does_not_stop_the_merge_job(running: Pipeline, clock: Clock) -> None:
    """Spark waits for the time of its next trigger, which would come an hour later."""
    running.wait_for_sink("first")
    clock.step(-3600)
    running.sql("INSERT INTO first VALUES (11, 11)")
    running.wait_for_sink("first")
    assert running.settled().merge.alive, "its liveness records come, an hour old by their own time"
    clock.step(0)
    running.sql("INSERT INTO first VALUES (12, 12)")
    running.wait_for_sink("first")
    running.assert_equal("first")


def is_newest_of(table: str, column: str) -> Callable[[Any], bool]:
    """Return whether the newest change is one of that table and changes that column."""

    def is_newest(document: Any) -> bool:
        return any(
            one["table"] == table and column in [cell["name"] for cell in one["changed"]] for one in document["changes"][:1]
        )

    return is_newest


@pytest.mark.timeout(600)
def test_the_page_says_what_is_true_of_a_pipeline_and_starts_snapshots(running: Pipeline, page: PageClient) -> None:
    items = f"{running.database}.items"
    running.sql(
        "CREATE TABLE items (id INT PRIMARY KEY, name VARCHAR(40))",
        "INSERT INTO items WITH RECURSIVE n AS (SELECT 1 i UNION ALL SELECT i + 1 FROM n WHERE i < 400) SELECT i, 'one' FROM n",
        "CREATE TABLE others (id INT PRIMARY KEY)",
    )
    running.wait_for_log()
    running.sql("INSERT INTO others VALUES (1)", "UPDATE items SET name = 'two' WHERE id = 7")
    page.json("changes")
    batches = [one["number"] for one in page.json("sinks")[0]["batches"]]

    assert page.post("/snapshots/start", {"tables": items}).status == 401  # nobody has signed in
    assert page.sign_in().status == 303
    started = page.post("/snapshots/start", {"tables": items.replace(".", r"\.")})
    assert started.status == 303, started
    signal_id = started.headers["location"].partition("sent=")[2]

    def request(found: Any) -> Any:
        return next((one for one in found["requests"] if one["id"] == signal_id), None)

    found = page.wait("the snapshot", "snapshots", lambda found: (request(found) or {}).get("state") == "done")
    assert request(found)["rows_read"] == 400
    running.wait_for_sink("items")
    running.sql("ALTER TABLE items ADD COLUMN price INT", "UPDATE items SET price = 3, name = 'three' WHERE id = 7")
    running.wait_for_sink("items")
    page.wait_for_look()  # an older one is as well, and has not seen the last batch

    nothing_left = {"lag_s": 0.0, "records": 0, "unknown": None}
    overview = page.wait("all to be well", "overview", lambda found: found["sinks"][0]["to_sink"] == nothing_left)
    assert overview["sinks"][0]["word"] == "running"
    assert overview["tables"] == {"captured": 3, "consistent": 3, "snapshotting": 0, "set_aside": 0, "quarantined_records": 0}
    page.wait("the second version", "tables", lambda _: page.row(items)["schema_version"] == 2)
    row = page.row(items)
    assert row["sinks"][0]["merged"] == {one.table: one.sink_rows for one in running.status().tables}[items]
    assert row["sinks"][0]["state"].startswith("consistent")
    change = page.wait("the last change", "changes", is_newest_of(items, "price"))["changes"][0]
    assert (change["operation"], change["key"]) == ("update", "id=7")
    assert {cell["name"]: (cell["before"], cell["after"]) for cell in change["changed"]} == {
        "name": ("two", "three"),
        "price": ("NULL", "3"),
    }
    history = page.get(f"/api/v1/schema/{items}").document
    assert history["events"][0]["ddl"] == "ALTER TABLE items ADD COLUMN price INT"
    assert [one["name"] for one in history["events"][0]["difference"]["added"]] == ["price"]

    def records(found: Any) -> int:
        return sum(one["records"] for one in found[0]["batches"] if one["number"] not in batches)

    (sink,) = page.wait("all batches", "sinks", lambda found: records(found) >= 402)
    assert all(one[stage] >= 0 for one in sink["batches"] for stage in STAGES)
    checks = page.wait("the checks", "checks", lambda found: found["ended_ms"] is not None and not found["running"], 90)
    assert "kafka" in checks["checked"]
    for view in ("", "tables", "changes", "snapshots", "schema", "sinks", "checks", "problems", f"schema/{items}", "sign-in"):
        answer = page.get(f"/{view}")
        assert answer.status == 200, (view, answer.text)


def test_the_status_and_the_page_are_true_while_either_process_is_gone(running: Pipeline, page: PageClient) -> None:
    """A table that was never applied has unmerged rows, and no merge job lives: nothing is caught up."""
    running.wait("both", lambda _: running.settled().merge.caught_up is True)
    assert running.settled().producer(0).state == "reading"

    running.kill("merge")
    page.wait("the killed merge job", "overview", lambda found: found["sinks"][0]["word"] == "dead")
    assert any("tidemark merge" in one["advice"] for one in page.json("problems"))
    fill(running, "unmerged", 5)
    running.wait_for_log()
    running.wait("its lock to go", lambda status: status.merge.state == "not_running")
    status = running.settled()
    (unmerged,) = [table for table in status.tables if table.table.endswith(".unmerged")]
    assert (status.merge.caught_up, status.merge.alive, unmerged.applied) == (False, False, None)
    assert unmerged.behind is not None
    assert unmerged.behind >= 5
    assert "records behind" in status.merge.reason

    running.start("merge")
    running.wait("it to have merged all", lambda _: running.settled().merge.caught_up is True)
    page.wait("the merge job again", "overview", lambda found: found["sinks"][0]["word"] == "running", 90)
    assert running.stop("run") == 0
    running.wait("the merge job to be caught up", lambda _: running.settled().merge.state == "caught_up")
    assert running.settled().producer(0).state == "not_running"
    running.start("run")
    running.wait("the producer", lambda status: status.producer(0).state == "reading")
    running.sql("INSERT INTO unmerged VALUES (9, 9)")
    running.wait_for_sink("unmerged")


def test_a_table_without_primary_key_is_not_read_but_its_changes_flow(running: Pipeline) -> None:
    """After the tests of the page: the sink needs a person from now on."""
    running.sql("CREATE TABLE keyless (a INT, b INT)", "INSERT INTO keyless VALUES (1, 1)")
    ident = running.request_snapshot("keyless")
    answer = running.wait_for_answer(
        ident, lambda notification: notification.data.get("status") == "NO_PRIMARY_KEY"
    )
    assert answer.data["scanned_collection"] == f"{running.database}.keyless"
    assert "primary key" in str(answer.data).lower(), answer
    running.sql("INSERT INTO keyless VALUES (2, 2)", "UPDATE keyless SET b = 3 WHERE a = 2")
    running.wait_for_log()
    changes = RecordReader(running.settings).changes(running.database, "keyless")
    changes.sort(key=lambda change: change.position)  # records without key lie in any partition
    assert [(change.key, change.op) for change in changes] == [(None, "c"), (None, "c"), (None, "u")]


def test_half_of_the_changes_were_in_the_lake_as_soon_as_a_reader_saw_them(running: Pipeline) -> None:
    """The bounds of both differ by one at most: commit and reader look at the clock a moment apart."""
    running.sql("CREATE TABLE fresh (id INT PRIMARY KEY)", "INSERT INTO fresh VALUES (-1)")
    running.wait_for_sink("fresh", consistent=False)
    committed: dict[int, float] = {}
    with Versions(running.settings.sink.table_path(running.database, "fresh")) as versions, running.connect() as connection:
        for number in range(CHANGES):
            with connection.cursor() as cursor:
                cursor.execute(f"INSERT INTO fresh VALUES ({number})")
            committed[number] = time.time()
            time.sleep(0.15)
        running.wait_for_sink("fresh", consistent=False)
    readable = versions.readable()
    waits = sorted(readable[number] - at for number, at in committed.items())
    status = running.status()
    (table,) = (one for one in status.tables if one.table == f"{running.database}.fresh")
    delay = status.to_lake(table)
    assert delay is not None
    assert not delay.unknown
    assert delay.samples == CHANGES + 1, "each change was counted once"
    assert abs(BOUNDS_S.index(delay.p50_s) - bisect_left(BOUNDS_S, waits[CHANGES // 2])) <= 1, (delay, waits)


def test_a_snapshot_pauses_resumes_and_ends_complete(running: Pipeline) -> None:
    fill(running, "long_one", LONG)
    full_name = f"{running.database}.long_one"
    ident = running.request_snapshot("long_one")

    def rows(status: Status) -> int:
        return sum(table.rows_read for table in status.tables if table.table == full_name)

    running.wait("a part", lambda status: rows(status) > 0)
    pause = running.send(signals.PAUSE_SNAPSHOT, {})
    running.wait_for_answer(pause, lambda notification: notification.type == "ACCEPTED")
    running.wait_for_answer(ident, lambda notification: notification.type == "PAUSED")
    running.wait("the pause", lambda status: status.paused)
    at_rest = -1
    while at_rest != (read := rows(running.status())):  # windows in flight are drained
        at_rest = read
        time.sleep(1.5)
    assert at_rest < LONG
    running.kill("run")  # a pause outlives the producer
    running.start("run")
    time.sleep(3)
    assert rows(running.status()) == at_rest
    running.send(signals.RESUME_SNAPSHOT, {})
    running.wait_for_answer(ident, lambda notification: notification.type == "RESUMED")
    running.wait_for_snapshot("long_one")
    running.wait_for_sink("long_one")
    assert running.assert_equal("long_one").rows == LONG


def test_rows_that_a_ddl_changed_without_logging_them_are_not_called_wrong_before_they_were_read_again(
    mysql80: Database, make_pipeline: MakePipeline
) -> None:
    """MODIFY rounds every time on the server; the log has no row of that, the snapshot that it starts is paused."""
    snapshot = {"mode": "initial", "merge": "producer", "readers": 1, "chunk_rows": 100, "max_rows_per_s": ROWS_PER_S}
    pipeline = make_pipeline(mysql80, new_database(mysql80), snapshot=snapshot, spark=spark_section(trigger_s=3))
    values = ",".join(f"({number}, '2024-01-01 00:00:00.25')" for number in range(LONG))
    pipeline.sql("CREATE TABLE timed (id INT PRIMARY KEY, ts TIMESTAMP(6) NOT NULL, v INT)", f"INSERT INTO timed (id, ts) VALUES {values}")
    pipeline.start("merge", "run")
    pipeline.wait_for_snapshot("timed")
    pipeline.wait_for_sink("timed")
    pipeline.sql("ALTER TABLE timed MODIFY ts TIMESTAMP NOT NULL")
    pipeline.wait("the snapshot by itself", lambda status: status.tables[0].snapshot == "running")
    pause = pipeline.send(signals.PAUSE_SNAPSHOT, {})
    pipeline.wait_for_answer(pause, lambda notification: notification.type == "ACCEPTED")
    pipeline.sql("UPDATE timed SET v = 1 WHERE id < 9")
    pipeline.wait_for_sink("timed")
    (blamed,) = verify(pipeline.settings, patience_s=5.0).tables
    assert blamed.differing > 0, "they do differ: who does not ask for what is on its way calls them wrong"
    with AwaitedRows(pipeline.settings) as awaited:
        (report,) = verify(pipeline.settings, patience_s=5.0, awaited=awaited).tables
    assert report.differing == 0
    assert "they are not judged yet: its snapshot is" in str(report.not_compared)
    pipeline.send(signals.RESUME_SNAPSHOT, {})
    report = pipeline.assert_equal("timed").tables[0]  # it waits by itself
    assert report.sink_rows == LONG


def test_a_snapshot_stops_when_it_is_asked_to(running: Pipeline) -> None:
    fill(running, "stopped_one", LONG)
    full_name = f"{running.database}.stopped_one"

    def state(status: Status, *names: str) -> bool:
        return any(table.snapshot in names for table in status.tables if table.table == full_name)

    with running.connect() as connection, connection.cursor() as cursor:
        cursor.execute("LOCK TABLES stopped_one WRITE")  # no chunk can be read: the stop comes in the middle of it
        ident = running.request_snapshot("stopped_one")
        running.wait("its start", lambda status: state(status, "queued", "running"))
        running.send(signals.STOP_SNAPSHOT, {"data-collections": [full_name], "type": "INCREMENTAL"})
        running.wait_for_log()
    running.wait_for_answer(ident, lambda notification: notification.type == "ABORTED")
    running.wait("its end", lambda status: state(status, "cancelled", "stopped"))
    # What was not read is missing in the sink, and verify says so.
    again = running.request_snapshot("stopped_one")
    running.wait_for_answer(again, lambda notification: notification.type == "COMPLETED")
    running.wait_for_sink("stopped_one")
    running.assert_equal("stopped_one")


def test_tables_come_go_and_change_their_names_while_rows_flow(running: Pipeline) -> None:
    running.sql(
        "CREATE TABLE kept (id INT PRIMARY KEY, v VARCHAR(20) DEFAULT 'x')",
        "CREATE TABLE dropped (id INT PRIMARY KEY, v INT)",
        "CREATE TABLE old_name (id INT PRIMARY KEY, v INT)",
        "CREATE TABLE again (id INT PRIMARY KEY, v INT)",
        "CREATE TABLE silent (id INT PRIMARY KEY, v INT)",
    )
    running.sql("INSERT INTO silent VALUES (1, 1), (2, 2)")
    for table in ("dropped", "old_name", "again"):
        running.sql(f"INSERT INTO {table} VALUES (1, 1), (2, 2), (3, 3)")
    writers = [Writer(running, "kept"), Writer(running, "again", 100)]
    running.wait("rows", lambda _: all(writer.written > 20 for writer in writers))
    running.sql(
        "DROP TABLE dropped",
        "RENAME TABLE old_name TO new_name",
        "INSERT INTO new_name VALUES (4, 4)",
        "RENAME TABLE silent TO silent_too",  # and nobody writes to it
        "ALTER TABLE kept ADD COLUMN more INT NOT NULL DEFAULT 7, MODIFY v VARCHAR(40)",
    )
    running.sql("DROP TABLE again", "CREATE TABLE again (id INT PRIMARY KEY, w VARCHAR(10) DEFAULT 'new')")
    running.sql("CREATE TABLE born (id INT PRIMARY KEY)", "INSERT INTO born VALUES (1)")
    seen = [writer.written for writer in writers]
    running.wait(
        "more rows",
        lambda _: all(writer.written > then + 20 for writer, then in zip(writers, seen, strict=True)),
    )
    for writer in writers:
        writer.stop()
    running.wait_for_log()  # what is to be read again is asked for where the log shows it
    running.wait("their snapshots", lambda status: not status.snapshot_running)
    running.wait_for_sink("kept", "new_name", "silent_too", "again", "born", consistent=False)
    gone = [running.settings.sink.table_path(running.database, table) for table in ("dropped", "old_name")]
    running.wait("tables that are gone to be empty", lambda _: not any(DeltaTable(path).to_pyarrow_table().num_rows for path in gone))
    report = running.verify("kept", "new_name", "silent_too", "again", "born", "dropped", "old_name")
    assert report.ok, report.to_text()
    assert {table.table.split(".")[1] for table in report.tables} >= {
        "kept", "new_name", "silent_too", "again", "born",
    }  # fmt: skip


def test_a_second_instance_fences_the_first(running: Pipeline) -> None:
    second = running.spawn("run", running.folder / "second.log")
    try:
        status, said = running.wait_for_end("run")
        assert status == 1
        # Kafka fences it, or the source gives its replication id to the newcomer first.
        last = said.splitlines()[-1]
        assert "taken over" in last or "server id" in last, said
        running.sql("INSERT INTO first VALUES (1000, 1000)")
        running.wait_for_log()
        assert second.status is None
    finally:
        second.kill()
    running.start("run")
    running.sql("INSERT INTO first VALUES (1001, 1001)")
    running.wait_for_sink("first")
    running.assert_equal("first")
    keys = [change.key for change in RecordReader(running.settings).changes(running.database, "first")]
    assert keys.count({"id": 1000}) == 1


def jvm_of(pid: int) -> int:
    """The child of a merge job."""
    parents: dict[int, str] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # of another process, that ends meanwhile
            parents[int(path.parent.name)] = path.read_text().rpartition(")")[2].split()[1]
    (child,) = [child for child, parent in parents.items() if parent == str(pid)]
    return child


def started(pipeline: Pipeline) -> int:
    """How often the merge job has started."""
    return pipeline.log_path("merge").read_text(encoding="utf-8").count("merge.started")


@pytest.mark.parametrize("whole", [False, True])
def test_a_merge_job_whose_jvm_is_ended_says_so_and_ends_well_when_it_was_to_end(whole: bool, running: Pipeline) -> None:
    """As a machine without memory does, in the middle of the work; and as systemd stops all processes of a unit."""
    if not running.running("merge"):
        starts = started(running)
        running.start("merge")
        running.wait("its start", lambda _: started(running) > starts)
    running.wait("its start", lambda _: started(running) > 0)
    time.sleep(3)  # the query runs
    pid = running.pid("merge")
    jvm = jvm_of(pid)
    if whole:
        os.kill(pid, signal.SIGTERM)
    os.kill(jvm, signal.SIGTERM if whole else signal.SIGKILL)
    status, said = running.wait_for_end("merge")
    assert status == (0 if whole else 1), said
    if not whole:
        assert "Spark's JVM ended with status -9" in said.splitlines()[-1], said
        assert "py4j" not in said, said
