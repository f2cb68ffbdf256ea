"""Snapshots in one view at a start, `consistency: one_transaction`.

Money is moved between two tables all the time: only rows of one and the same position sum up to what there is.
"""

from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pymysql
import pytest
from confluent_kafka.admin import AdminClient
from structlog.testing import capture_logs

import tidemark
from devservers.processes import GuardedProcess
from mysqlio.connection import connect
from mysqlio.information_schema import read_table_schema
from mysqlio.server_access import ServerAccess
from mysqlio.server_facts import current_position
from mysqlio.signal_table import SignalTable
from producer.snapshot import blocking, view
from producer.snapshot.view import open_view
from producer.snapshot.watermark import commit_barrier
from schemas.errors import RetriableSourceError, SourceError
from schemas.settings import Settings
from tests.integration.views import (
    ACCOUNTS,
    MONEY,
    ask,
    bank,
    business,
    consumed,
    ended,
    mark,
    note,
    progress,
    reads,
    reported,
    sequences,
    settings_of,
    stored,
    wait_for,
)
from tests.support.golden import load
from tests.support.producers import Source, running
from tests.support.servers import database, own_database
from tests.support.topics import read_topic
from tidemark.api.observe import Observer


@pytest.fixture
def source(request, kafka, fresh_database) -> Iterator[Source]:
    server = database(getattr(request, "param", "mysql80"))
    created = Source(server, fresh_database(server), kafka.bootstrap_servers)
    yield created
    created.connection.close()


def require_one_position(source: Source, tables: tuple[str, ...] = ("t", "u")) -> str:
    """The rows read are those of one position, and per partition the log is before and behind them in order; it."""
    rows = {table: reads(source.records(table)) for table in tables}
    (position,) = sequences([record for found in rows.values() for record in found])
    total = sum(record.value["after"]["v"] for found in rows.values() for record in found)
    assert total == MONEY * ACCOUNTS * len(tables), "the rows are not those of one moment"
    for table in tables:
        for partition in (0, 1):
            records = [r for r in source.records(table) if r.partition == partition and r.value is not None]
            versions = [record.value["source"]["sequence"] for record in records]
            assert versions == sorted(versions), "the order of records is not that of the log"
    return position


def test_rows_of_a_view_are_in_the_topics_of_their_tables_whatever_the_delimiter(source: Source) -> None:
    source.execute("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1), (2)")
    settings = settings_of(source)
    settings = replace(settings, kafka=replace(settings.kafka, topic_delimiter="_"))
    with running(settings) as run:
        run.until(lambda: ended(run), "the table is read")
        ask(source, "again", ["t"], merge="spark")
        run.until(lambda: ended(run, "again"), "it is read once more")
    found = {topic: len(read_topic(source.bootstrap_servers, topic)) for topic in topics_of(source)}
    changes = f"{source.name}_{source.schema}_t"
    assert found.get(changes) == 2, found
    rows = read_topic(source.bootstrap_servers, f"{source.name}-snapshot_{source.schema}_t", raw=True)
    assert sum(b'"op":"r"' in record.value for record in rows) == 2
    assert not [topic for topic in found if "." in topic], "rows are in topics of names that nobody reads"


def topics_of(source: Source) -> set[str]:
    client = AdminClient({"bootstrap.servers": source.bootstrap_servers})
    return {topic for topic in client.list_topics(timeout=30).topics if source.schema in topic}


@pytest.mark.parametrize(
    ("source", "mode"),
    [("mysql80", "minimal"), ("mysql80", "extended"), ("mysql57", "minimal"), ("mysql97", "minimal"), ("mariadb114", "minimal"), ("mariadb114", "none")],
    indirect=["source"],
)
def test_a_start_in_one_transaction_reads_one_position_and_the_log_continues_from_there(source, mode):
    bank(source)
    with business(source) as wait_for_progress:
        wait_for_progress()
        with running(settings_of(source, locking_mode=mode)) as run:
            run.until(lambda: ended(run), "the tables are read")
            wait_for_progress()
    with running(settings_of(source, locking_mode=mode)) as run:
        run.caught_up(source)
        assert progress(run) == {"t": ("done", ACCOUNTS), "u": ("done", ACCOUNTS)}
    position = require_one_position(source)
    for table in ("t", "u"):
        records = source.records(table)
        assert consumed(records) == stored(source, table), table
        changes = [record for record in records if record.value is not None and record.value["op"] != "r"]
        assert changes, "nothing was written meanwhile: this proves nothing"
        assert min(sequences(changes)) > position, "the log began before the snapshot"


def test_rows_for_the_merge_job_have_that_position_and_are_complete(source):
    bank(source)
    with business(source) as wait_for_progress, running(settings_of(source, merge="spark")) as run:
        run.until(lambda: ended(run), "the tables are read")
        wait_for_progress()
    with running(settings_of(source, merge="spark")) as run:
        run.caught_up(source)
    for table in ("t", "u"):
        topic = read_topic(source.bootstrap_servers, f"{source.name}-snapshot.{source.schema}.{table}")
        rows = [record for record in topic if "op" in record.value]
        markers = [record.value for record in topic if "type" in record.value]
        (position,) = sequences(rows)
        complete = [marker for marker in markers if marker["type"] == "complete"]
        assert {(m["position"], m["first_bound"], m["whole_table"], m["rows"]) for m in complete} == {
            (position, position, True, ACCOUNTS)
        }
        assert {marker["partition"] for marker in complete} == {0, 1}
        for marker in markers:
            later = [record for record in rows if record.value["source"]["sequence"] < marker["horizon"]]
            before = [r for r in topic if r.value is marker]
            assert not [r for r in later if r.partition == marker["partition"] and r.offset > before[0].offset]
        merged = sorted([*rows, *source.changes(table)], key=lambda record: record.value["source"]["sequence"])
        assert consumed(merged) == stored(source, table)


def test_rows_are_marked_as_debezium_marks_them(source):
    scenario = load("snapmark", "snapmark")
    for statement in scenario.before:
        if not statement.startswith(("DROP", "USE", "CREATE DATABASE")):
            source.execute(statement)
    with running(settings_of(source, partitions=1)) as run:
        run.until(lambda: ended(run), "the tables are read")
        source.execute("INSERT INTO a VALUES (2)")
        run.caught_up(source)
    for table in ("a", "b", "c_empty", "d"):
        theirs = [record.value for record in scenario.changes if record.table == table]
        ours = [record.value for record in source.records(table)]
        assert [mark(value) for value in ours] == [mark(value) for value in theirs]
        positions = {(value["source"]["file"], value["source"]["pos"]) for value in ours if value["op"] == "r"}
        assert len(positions) <= 1
    theirs = [record.value for record in scenario.records if record.topic == "snapmark-notif"]
    assert [note(kind, data) for _, kind, data in reported(source)] == [
        note(value["type"], value["additional_data"]) for value in theirs
    ]


def test_without_a_lock_on_mysql_a_quiet_moment_is_found_and_else_it_is_refused_with_a_clear_error(source, monkeypatch):
    bank(source)
    with business(source, clerks=1, pause_s=0.05), running(settings_of(source, locking_mode="none")) as run:
        run.until(lambda: ended(run), "the tables are read")
        run.caught_up(source)
    require_one_position(source)
    busy = replace(settings_of(source, locking_mode="none", lock_timeout_ms=300), name=f"{source.name}-busy")
    refused = pytest.raises(SourceError, match=r"no moment without another commit was found within 0\.3 s")
    with monkeypatch.context() as patched:

        def never_alone(*arguments: Any) -> None:
            commit_barrier(*arguments)
            source.execute("UPDATE t SET v = v + 1 WHERE id = 1")

        patched.setattr(view, "commit_barrier", never_alone)
        with refused, running(busy):
            pass
    blind = replace(busy, name=f"{source.name}-blind", source=replace(busy.source, signal_table=None))
    with pytest.raises(SourceError, match="needs a signal table to find the position"), running(blind):
        pass


@contextmanager
def user_with(source: Source, *grants: str) -> Iterator[Settings]:
    """A user who may read the log and the tables, and what else is granted."""
    name = f"u{random.randrange(1 << 30)}"
    everywhere = ("REPLICATION SLAVE", "REPLICATION CLIENT", "XA_RECOVER_ADMIN")
    source.execute(
        f"CREATE USER {name} IDENTIFIED WITH mysql_native_password BY 'pw'",
        f"GRANT {', '.join(everywhere)} ON *.* TO {name}",
        f"GRANT SELECT, INSERT, CREATE ON {source.schema}.* TO {name}",
        *(f"GRANT {grant} TO {name}" for grant in grants),
    )
    settings = settings_of(source)
    yield replace(settings, source=replace(settings.source, user=name, password="pw"))
    source.execute(f"DROP USER {name}")


def test_without_the_privilege_for_the_global_lock_tables_are_locked_and_else_it_is_refused_with_a_clear_error(source):
    bank(source)
    words = r"snapshot\.locking_mode minimal or extended needs a lock, .*GRANT RELOAD"
    with user_with(source) as settings, pytest.raises(SourceError, match=words), running(settings):
        pass
    with user_with(source, f"LOCK TABLES ON {source.schema}.*") as settings:
        with capture_logs() as logged, business(source) as wait_for_progress, running(settings) as run:
            run.until(lambda: ended(run), "the tables are read")
            wait_for_progress()
        assert "snapshot.no_global_lock" in [entry["event"] for entry in logged]
        with running(settings) as run:
            run.caught_up(source)
    position = require_one_position(source)
    for table in ("t", "u"):
        assert consumed(source.records(table)) == stored(source, table)
        assert min(sequences(source.changes(table))) == position


def opened(settings: Settings, tables: list[tuple[str, str]]) -> Any:
    names = settings.source.signal_names
    assert names is not None
    signal_table = SignalTable(*names)
    with closing(connect(ServerAccess.of(settings.source))) as connection:
        signal_table.ensure(connection)
    return open_view(lambda: connect(ServerAccess.of(settings.source)), tables, settings.snapshot, signal_table, read_table_schema)


def test_a_lock_that_is_not_to_be_had_is_given_up_and_holds_up_nobody(source):
    bank(source)
    settings = settings_of(source, lock_timeout_ms=1000)
    with source.server.connect(database=source.schema) as other, other.cursor() as cursor:
        cursor.execute("LOCK TABLES t WRITE")
        with pytest.raises(RetriableSourceError, match="within 1 s"):
            opened(settings, [(source.schema, "t")])
        source.execute("UPDATE u SET v = v WHERE id = 1")
        cursor.execute("UNLOCK TABLES")
    with closing(opened(settings_of(source), [(source.schema, "t"), (source.schema, "gone")])) as view:
        assert list(view.tables) == [(source.schema, "t")]
        source.execute("UPDATE t SET v = 7 WHERE id = 1")  # minimal: the lock is gone
    with closing(opened(settings_of(source, locking_mode="extended"), [(source.schema, "t")])):
        source.execute("SET SESSION lock_wait_timeout = 1")
        with pytest.raises(pymysql.MySQLError, match="timeout"):
            source.execute("UPDATE t SET v = 8 WHERE id = 1")
    source.execute("SET SESSION lock_wait_timeout = 60", "UPDATE t SET v = 9 WHERE id = 1")


def test_a_view_waits_for_prepared_xa_transactions_and_refuses_engines_without_views(source):
    source.execute("CREATE TABLE t (id INT PRIMARY KEY)", "CREATE TABLE m (id INT PRIMARY KEY) ENGINE=MyISAM")
    tables = [(source.schema, "t")]
    with source.server.connect(database=source.schema) as other, other.cursor() as cursor:
        cursor.execute("XA START 'view'")
        cursor.execute("INSERT INTO t VALUES (1)")
        cursor.execute("XA END 'view'")
        cursor.execute("XA PREPARE 'view'")
        for mode in ("minimal", "none"):
            with pytest.raises(RetriableSourceError, match="prepared XA"):
                opened(settings_of(source, locking_mode=mode), tables)
        cursor.execute("XA ROLLBACK 'view'")
    for mode in ("minimal", "none"):
        with pytest.raises(SourceError, match=r"m \(MyISAM\) have no consistent reads"):
            opened(settings_of(source, locking_mode=mode), [*tables, (source.schema, "m")])
    opened(settings_of(source, locking_mode="extended"), [*tables, (source.schema, "m")]).close()


@pytest.mark.parametrize("name", ["mysql80", "mariadb114"])
def test_statements_in_any_character_set_may_stand_around_a_view(name: str, fresh_database: Callable[..., str]) -> None:
    server = own_database(name, "latin1")  # other suites have the server print their logs as UTF-8
    schema = fresh_database(server)
    with server.connect(database=schema) as connection, server.connect(database=schema, charset="latin1") as latin1:
        start = current_position(connection)
        with latin1.cursor() as cursor:
            cursor.execute("CREATE TABLE t (id INT COMMENT 'grüße')")
        events = view._events_between(connection, start, current_position(connection))
        assert any("CREATE TABLE t" in info for _, info in events or ())
        assert view._rows(connection, "SELECT 'ü'") == [("ü",)], "and nothing else is read otherwise"


def test_a_table_altered_before_its_rows_are_read_has_the_snapshot_restarted(source, monkeypatch):
    bank(source)
    begin, altered = blocking.BlockingSnapshots._begin, []

    def begin_behind_a_ddl(self: Any, view: Any, task: Any) -> Any:
        if task.table.endswith(".u") and not altered:
            altered.append(1)
            source.execute("ALTER TABLE u ADD COLUMN n INT DEFAULT 5", "UPDATE t SET v = v + 1 WHERE id = 3")
        return begin(self, view, task)

    monkeypatch.setattr(blocking.BlockingSnapshots, "_begin", begin_behind_a_ddl)
    with running(settings_of(source)) as run:
        run.until(lambda: ended(run) and altered, "the tables are read")
        run.caught_up(source)
        assert progress(run) == {"t": ("done", ACCOUNTS), "u": ("done", ACCOUNTS)}
    assert altered
    (position,) = sequences(reads(source.records("u")))
    assert {record.value["after"]["n"] for record in reads(source.records("u"))} == {5}
    assert len(sequences(reads(source.records("t")))) == 2, "one view each time, for all tables"
    assert max(sequences(reads(source.records("t")))) == position
    assert consumed(source.records("t")) == stored(source, "t")

STANDING_STILL = """
import sys, time
import producer.snapshot.blocking as blocking
import producer.stream.view_publication as views
from tidemark.cli import main
marked = blocking.marked
def slowly(*arguments, **options):
    for number, piece in enumerate(marked(*arguments, **options)):
        if number == 3:
            time.sleep(600)
        yield piece
blocking.marked, views.VIEW_INTERVAL_S = slowly, 0
sys.exit(main(["run", "--config", sys.argv[1]]))
"""


def test_killed_in_the_middle_it_is_restarted_and_no_record_is_wrong(source, tmp_path):
    source.execute("CREATE TABLE t (id INT PRIMARY KEY, v BIGINT NOT NULL, note VARCHAR(255))")
    source.execute("INSERT INTO t VALUES (0, 0, REPEAT('x', 200))")
    for power in range(14):
        source.execute(f"INSERT INTO t SELECT id + {1 << power}, 0, note FROM t")
    source.execute("CREATE TABLE u LIKE t")
    settings = settings_of(source)
    config = tmp_path / "tidemark.json"
    named = ("host", "port", "user", "password", "tables", "signal_table")
    document = {
        "name": settings.name,
        "source": {name: getattr(settings.source, name) for name in named},
        "kafka": {"bootstrap_servers": source.bootstrap_servers, "partitions": 2},
        "format": {"type": "json"},
        "snapshot": {"consistency": "one_transaction", "merge": "producer", "chunk_rows": 1000},
    }
    config.write_text(json.dumps(document))
    (tmp_path / "slowly.py").write_text(STANDING_STILL)
    child = GuardedProcess.spawn(
        [sys.executable, str(tmp_path / "slowly.py"), str(config)],
        tmp_path / "run.log",
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(tidemark.__file__).parents[1])},
    )
    try:
        with Observer(settings) as observer:
            # more than the first row, which is committed alone
            wait_for(lambda: any(table.rows_read > 1 for table in observer.read().tables), "rows are read")
            assert observer.read().snapshot_running
    finally:
        child.kill()
    before = reads(source.records("t"))
    assert 0 < len(before) < 1 << 14, "it was not killed in the middle"
    gone, changed = before[0].key["id"], before[1].key["id"]
    source.execute(f"DELETE FROM t WHERE id = {gone}", f"UPDATE t SET v = 7 WHERE id = {changed}")
    with running(settings) as run:
        run.until(lambda: ended(run), "the tables are read")
        run.caught_up(source)
        assert progress(run)["t"] == ("done", (1 << 14) - 1)
    records = source.records("t")
    assert len(sequences(reads(records))) == 2
    assert consumed(records) == stored(source, "t")
    for partition in (0, 1):
        found = [r for r in records if r.partition == partition and r.value is not None]
        versions = [record.value["source"]["sequence"] for record in found]
        assert versions == sorted(versions)
