"""Foreign keys that change rows below the log: the sink follows, on servers that do not log those rows."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pymysql
import pytest
from pymysql.cursors import DictCursor
from structlog.testing import capture_logs

from devservers import start_database
from producer.snapshot import watermark
from producer.snapshot.followed_rows import MANY_PARENTS
from producer.snapshot.turns import Turns
from producer.snapshot.watermark import LowWatermark, end_of_binlog
from schemas.settings import Settings
from schemas.topics import snapshot_topic
from tests.support.mirror import Mirror, read_records
from tests.support.producers import SIGNAL, Running, Source, running
from tests.support.servers import database, new_database, own_database
from tests.support.topics import read_topic

SILENT = ("mysql80", "mariadb114")
NATIVE = "innodb_native_foreign_keys"
SCHEMA = """
CREATE TABLE p (id INT PRIMARY KEY, code BIGINT UNIQUE, v INT);
CREATE TABLE c_gone (id INT PRIMARY KEY, p INT NOT NULL, v INT,
    FOREIGN KEY (p) REFERENCES p (id) ON DELETE CASCADE ON UPDATE CASCADE);
CREATE TABLE c_null (id INT PRIMARY KEY, p INT, v INT,
    FOREIGN KEY (p) REFERENCES p (id) ON DELETE SET NULL ON UPDATE SET NULL);
CREATE TABLE c_two (id INT PRIMARY KEY, a INT, b BIGINT,
    FOREIGN KEY (a) REFERENCES p (id) ON DELETE SET NULL ON UPDATE CASCADE,
    FOREIGN KEY (b) REFERENCES p (code) ON DELETE CASCADE ON UPDATE CASCADE);
CREATE TABLE pair (p INT, n INT, v INT, PRIMARY KEY (p, n),
    FOREIGN KEY (p) REFERENCES p (id) ON DELETE CASCADE ON UPDATE CASCADE);
CREATE TABLE leaf (id INT PRIMARY KEY, p INT, n INT,
    FOREIGN KEY (p, n) REFERENCES pair (p, n) ON DELETE CASCADE ON UPDATE CASCADE);
CREATE TABLE grand (id INT PRIMARY KEY, c INT NOT NULL, FOREIGN KEY (c) REFERENCES c_gone (id) ON DELETE CASCADE);
CREATE TABLE tree (id INT PRIMARY KEY, up INT, v INT, FOREIGN KEY (up) REFERENCES tree (id) ON DELETE CASCADE)
"""
TABLES = ("p", "c_gone", "c_null", "c_two", "pair", "leaf", "grand", "tree")
KEYS = 12
# a key twice, no such parent, a child that holds its parent, deadlocks
FORBIDDEN = (1048, 1062, 1205, 1213, 1451, 1452, 1761, 3008)


@pytest.fixture(params=SILENT)
def source(request: pytest.FixtureRequest, kafka: Any, fresh_database: Callable[..., str]) -> Iterator[Source]:
    server = database(request.param)
    created = Source(server, fresh_database(server), kafka.bootstrap_servers)
    yield created
    created.connection.close()


def settings_of(source: Source, mode: str = "initial", tables: tuple[str, ...] = (), **snapshot: Any) -> Settings:
    settings = source.settings(**({"tables": list(tables)} if tables else {}))
    return replace(settings, snapshot=replace(settings.snapshot, mode=mode, readers=2, chunk_rows=50, **snapshot))


def rows_of(source: Source, table: str) -> list[dict[str, Any]]:
    schema, _, name = table.rpartition(".")
    database = schema or source.schema
    with source.server.connect(database=database) as connection, connection.cursor(DictCursor) as cursor:
        cursor.execute(f"SELECT * FROM `{name}`")
        return list(cursor.fetchall())


def settled(run: Running, source: Source, tables: tuple[str, ...]) -> dict[str, Mirror]:
    """The mirrors once everything that is in the log now was followed to its end."""
    run.caught_up(source)
    ledger = run.producer.coordinator.shared.ledger
    names = [tuple(table.split(".")) if "." in table else (source.schema, table) for table in tables]
    found: dict[tuple[str, str], Mirror] = {}
    records: dict[tuple[str, str], Any] = {}

    def idle() -> bool:
        return not ledger.followed and not ledger.windows and all(task.state.final for task in list(ledger.tasks.values()))

    def swept() -> bool:
        records.update(read_records(source.bootstrap_servers, source.name, names))
        found.update({name: Mirror(*both) for name, both in records.items()})
        return not any(mirror.waits for mirror in found.values())

    run.until(idle, "everything was followed")
    # what the ledger has let go of is in a commit that may not be committed yet: a later one is
    source.execute(SIGNAL.replace("TABLE", "TABLE IF NOT EXISTS"), "INSERT INTO tidemark_signal VALUES (LEFT(UUID(), 42), 'log', '{}')")
    run.caught_up(source)
    run.until(lambda: idle() and swept(), "everything was swept")
    for seed in (1, 2, 3):
        for name, both in records.items():
            assert ordered(Mirror(*both, seed).rows) == ordered(found[name].rows), f"batches of seed {seed} give other rows of {name}"
    return dict(zip(tables, (found[name] for name in names), strict=True))


def ordered(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(str(sorted(row.items())) for row in rows)


def assert_mirrored(run: Running, source: Source, *tables: str) -> dict[str, Mirror]:
    mirrors = settled(run, source, tables)
    for table, mirror in mirrors.items():
        assert ordered(mirror.rows) == ordered(rows_of(source, table)), f"{table} differs"
    return mirrors


class Load(threading.Thread):
    """Random changes of all tables; what the rules forbid is rolled back."""

    def __init__(self, source: Source, seed: int, changes: int) -> None:
        super().__init__()
        self._source, self._rng, self._changes = source, random.Random(seed), changes
        self.done = 0
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            with self._source.server.connect(database=self._source.schema) as connection:
                connection.autocommit(False)
                with connection.cursor() as cursor:
                    for _ in range(self._changes):
                        self._transaction(connection, cursor)
        except BaseException as error:  # noqa: BLE001 - raised by the test's own thread
            self.failure = error

    def _transaction(self, connection: Any, cursor: Any) -> None:
        try:
            for _ in range(self._rng.choice((1, 1, 2, 4))):
                cursor.execute(self._statement())
            if self._rng.random() < 0.1:
                connection.rollback()
            else:
                connection.commit()
                self.done += 1
        except pymysql.MySQLError as error:
            if error.args[0] not in FORBIDDEN:
                raise
            connection.rollback()

    def _statement(self) -> str:
        key = self._rng.randint(1, KEYS)
        row = self._rng.randint(1, 60)
        n = self._rng.randint(1, 4)
        return self._rng.choice(
            (
                f"INSERT INTO p VALUES ({key}, {key * 10**17}, 0)",
                f"INSERT INTO p VALUES ({key}, {key * 10**17}, 1)",
                f"DELETE FROM p WHERE id = {key}",
                f"UPDATE p SET id = {self._rng.randint(1, KEYS)} WHERE id = {key}",
                f"UPDATE p SET v = v + 1 WHERE id = {key}",
                f"UPDATE p SET code = {self._rng.randint(1, KEYS) * 10**17} WHERE id = {key}",
                f"REPLACE INTO p VALUES ({key}, {key * 10**17}, 2)",
                f"INSERT INTO c_gone VALUES ({row}, {key}, 0)",
                f"INSERT INTO c_gone VALUES ({row}, {key}, 1)",
                f"UPDATE c_gone SET p = {key} WHERE id = {row}",
                f"DELETE FROM c_gone WHERE id = {row}",
                f"INSERT INTO c_null VALUES ({row}, {key}, 0)",
                f"UPDATE c_null SET p = {key} WHERE id = {row}",
                f"DELETE FROM c_null WHERE id = {row}",
                f"INSERT INTO c_two VALUES ({row}, {key}, {self._rng.randint(1, KEYS) * 10**17})",
                f"DELETE FROM c_two WHERE id = {row}",
                f"INSERT INTO pair VALUES ({key}, {n}, 0)",
                f"UPDATE pair SET n = {self._rng.randint(1, 4)} WHERE p = {key} AND n = {n}",
                f"DELETE FROM pair WHERE p = {key} AND n = {n}",
                f"INSERT INTO leaf VALUES ({row}, {key}, {n})",
                f"INSERT INTO leaf VALUES ({row}, {self._rng.randint(1, KEYS)}, {n})",
                f"INSERT INTO grand VALUES ({row}, {self._rng.randint(1, 60)})",
                f"INSERT INTO tree VALUES ({row}, NULL, 0)",
                f"INSERT INTO tree VALUES ({row}, {self._rng.randint(1, 60)}, 0)",
                f"DELETE FROM tree WHERE id = {row}",
            )
        )


def test_every_rule_is_followed_under_load(source: Source) -> None:
    source.execute(*SCHEMA.split(";"))
    with running(settings_of(source)) as run:
        loads = [Load(source, seed, 500) for seed in (1, 2)]
        for load in loads:
            load.start()
        for load in loads:
            load.join()
            assert load.failure is None, load.failure
        assert min(load.done for load in loads) > 100
        mirrors = assert_mirrored(run, source, *TABLES)
    swept = {table for table, mirror in mirrors.items() if mirror.sweeps}
    assert swept >= {"c_gone", "c_null", "c_two", "pair", "leaf"}


def parent_and_child(child: str = "c", action: str = "ON DELETE CASCADE", parent: str = "p") -> tuple[str, ...]:
    key = f"CONSTRAINT fk FOREIGN KEY (p) REFERENCES {parent} (id) {action}"
    return (
        f"CREATE TABLE IF NOT EXISTS {parent} (id INT PRIMARY KEY)",
        f"INSERT INTO {parent} VALUES (1), (2), (3)",
        f"CREATE TABLE {child} (id INT PRIMARY KEY, p INT, {key})",
        f"INSERT INTO {child} VALUES (1, 1), (2, 2), (3, 3), (4, NULL)",
    )


def initial_is_read(run: Running) -> None:
    run.until(run.producer.coordinator.requests.initial_ended, "the tables are read")


def test_children_elsewhere_and_parents_that_are_not_captured_are_followed(
    source: Source, fresh_database: Callable[..., str]
) -> None:
    other = fresh_database(source.server)
    source.execute(*parent_and_child(f"{other}.c", parent=f"{source.schema}.p"), *parent_and_child("c", "ON DELETE SET NULL", "hidden"))
    names = (rf"{source.schema}\.p", rf"{source.schema}\.c", rf"{other}\..*")
    with running(settings_of(source, tables=names)) as run:
        initial_is_read(run)
        source.execute("DELETE FROM p WHERE id = 2", "DELETE FROM hidden WHERE id > 1")
        mirrors = assert_mirrored(run, source, "c", f"{other}.c")
    assert [len(mirror.rows) for mirror in mirrors.values()] == [4, 3]


def test_a_session_that_checked_no_keys_changed_no_children(source: Source) -> None:
    source.execute(*parent_and_child())
    with running(settings_of(source)) as run:
        initial_is_read(run)
        source.execute("SET foreign_key_checks = 0", "DELETE FROM p WHERE id = 2", "SET foreign_key_checks = 1")
        mirrors = assert_mirrored(run, source, "p", "c")
    assert not mirrors["c"].sweeps
    assert len(mirrors["c"].rows) == 4


def test_what_is_to_be_followed_survives_a_crash(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    source.execute(*parent_and_child())
    with running(settings_of(source)) as run:
        initial_is_read(run)
        with monkeypatch.context() as patched:
            patched.setattr(Turns, "start_next_window", lambda _turns: None)  # no reader gets to it
            source.execute("DELETE FROM p WHERE id = 2")
            run.caught_up(source)
    with capture_logs() as logged, running(settings_of(source)) as run:
        mirrors = assert_mirrored(run, source, "p", "c")
    assert len(mirrors["c"].sweeps) > 0
    levels = {one["log_level"] for one in logged if one["event"] == "snapshot.children_read"}
    assert levels == {"debug"}, "one a second, under load"


def test_many_parents_have_their_children_read_whole(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    source.execute(*parent_and_child())
    monkeypatch.setattr("producer.snapshot.child_rows.MAX_VALUES", 1)
    with running(settings_of(source)) as run:
        initial_is_read(run)
        source.execute("DELETE FROM p WHERE id > 1")
        mirrors = assert_mirrored(run, source, "p", "c")
        requests = run.producer.coordinator.shared.ledger.requests.values()
        assert [request.reason for request in requests][1:] == [MANY_PARENTS]
    assert not mirrors["c"].sweeps


def test_many_children_have_their_table_read_whole(
    source: Source, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As many as are read by themselves, then one more: nobody has to do anything, the log and the request say why."""
    source.execute(*parent_and_child(action="ON UPDATE CASCADE"), "INSERT INTO c VALUES (5, 2), (6, 2)")
    monkeypatch.setattr("producer.snapshot.scope.MAX_KEY_ROWS", 3)
    with running(settings_of(source)) as run:
        initial_is_read(run)
        requests = run.producer.coordinator.shared.ledger.requests
        source.execute("UPDATE p SET id = 8 WHERE id = 2")
        sweeps = len(assert_mirrored(run, source, "p", "c")["c"].sweeps)
        assert (list(requests), sweeps > 0) == (["initial"], True)
        source.execute("INSERT INTO c VALUES (7, 8)", "UPDATE p SET id = 9 WHERE id = 8")
        mirrors = assert_mirrored(run, source, "p", "c")
        (reason,) = (request.reason for request in list(requests.values())[1:])
    assert len(mirrors["c"].sweeps) == sweeps
    assert "could not be read" in reason
    assert f"{source.schema}.c: more than 3 children of the parents that changed" in reason
    assert "snapshot.children_failed" in "".join(capsys.readouterr())


def test_a_foreign_key_is_followed_from_when_it_is_made_and_a_trace_of_an_unknown_one_has_the_table_read(
    source: Source,
) -> None:
    source.execute(*parent_and_child(action=""))
    source.execute("ALTER TABLE c DROP FOREIGN KEY fk")
    settings = settings_of(source)
    with running(settings) as run:
        initial_is_read(run)
        source.execute("ALTER TABLE c ADD CONSTRAINT later FOREIGN KEY (p) REFERENCES p (id) ON DELETE CASCADE")
        source.execute("DELETE FROM p WHERE id = 1")
        assert assert_mirrored(run, source, "p", "c")["c"].sweeps
        source.execute("ALTER TABLE c DROP FOREIGN KEY later")
    source.execute("ALTER TABLE c ADD CONSTRAINT short FOREIGN KEY (p) REFERENCES p (id) ON DELETE CASCADE")
    source.execute("DELETE FROM p WHERE id = 2", "ALTER TABLE c DROP FOREIGN KEY short")
    with running(settings) as run:
        mirrors = assert_mirrored(run, source, "p", "c")
    assert len(mirrors["c"].rows) == 2


def test_a_foreign_key_by_another_column_or_dropped_with_its_type_is_not_asked_for_by_the_old_one(source: Source) -> None:
    source.execute(*parent_and_child())
    with running(settings_of(source)) as run:
        initial_is_read(run)
        source.execute("DELETE FROM p WHERE id = 3")
        assert_mirrored(run, source, "p", "c")
        source.execute("ALTER TABLE c CHANGE p parent_id INT", "DELETE FROM p WHERE id = 2")
        assert len(assert_mirrored(run, source, "p", "c")["c"].rows) == 2
        source.execute(
            "ALTER TABLE c DROP FOREIGN KEY fk, MODIFY parent_id VARCHAR(20)",
            "INSERT INTO p VALUES (12)",
            "INSERT INTO c VALUES (12, '12')",
            "DELETE FROM p WHERE id = 12",
        )
        assert len(assert_mirrored(run, source, "p", "c")["c"].rows) == 3


def test_a_column_that_went_has_the_children_read_whole(source: Source) -> None:
    """A parent's children are asked for, and are not read before the column has another name."""
    source.execute(*parent_and_child())
    with running(settings_of(source)) as run:
        initial_is_read(run)
        source.execute("DELETE FROM p WHERE id = 3", "ALTER TABLE c DROP FOREIGN KEY fk, CHANGE p was INT")
        assert len(assert_mirrored(run, source, "p", "c")["c"].rows) == 3


def test_a_server_that_logs_them_is_not_followed(kafka: Any, fresh_database: Callable[..., str]) -> None:
    server = database("mysql97")
    source = Source(server, fresh_database(server), kafka.bootstrap_servers)
    source.execute(*parent_and_child())
    with running(settings_of(source)) as run:
        initial_is_read(run)
        source.execute("DELETE FROM p WHERE id = 2")
        mirrors = assert_mirrored(run, source, "p", "c")
    assert not mirrors["c"].sweeps
    assert len(mirrors["c"].rows) == 3
    source.connection.close()


def test_what_the_server_did_not_log_before_it_was_started_is_followed(kafka: Any, tmp_path: Path) -> None:
    """As after an upgrade to 9.6, where the log was not read to its end before it."""
    with start_database("mysql97", tmp_path, {NATIVE: "ON"}) as server:
        source = Source(server, new_database(server), kafka.bootstrap_servers)
        source.execute(*parent_and_child())
        with running(settings_of(source)) as run:
            initial_is_read(run)
            run.caught_up(source)
        source.execute("DELETE FROM p WHERE id = 2")
        source.connection.close()
        server.stop()
        server.options = {**server.options, NATIVE: "OFF"}
        server.restart()
        again = Source(server, source.schema, kafka.bootstrap_servers)
        again.name = source.name
        with running(settings_of(again)) as run:
            first = assert_mirrored(run, again, "p", "c")["c"].sweeps
            assert first, "nothing was cascaded in silence"
            again.execute("DELETE FROM p WHERE id = 3")
            assert assert_mirrored(run, again, "p", "c")["c"].sweeps == first
        with running(settings_of(again)) as run:
            assert run.producer.cascades is None, "all that is left to read is logged"
        again.connection.close()


def test_children_that_are_not_followed_are_named(source: Source, capsys: pytest.CaptureFixture[str]) -> None:
    source.execute(*parent_and_child())
    with running(settings_of(source, follow_cascades=False)) as run:
        initial_is_read(run)
        source.execute("DELETE FROM p WHERE id = 2")
        mirrors = settled(run, source, ("p", "c"))
    assert len(mirrors["c"].rows) == 4, "nobody told"
    said = "".join(capsys.readouterr())
    assert "cascades.not_followed" in said
    assert f"{source.schema}.c" in said


def test_on_an_idle_source_the_horizon_is_reported_when_it_has_moved(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sweep waits for it; nothing else may ever be written to the log."""
    source.execute(*parent_and_child())
    monkeypatch.setattr(Turns, "start_next_window", lambda _turns: None)
    with running(settings_of(source, "no_data")) as run:
        reader, shared = run.producer.reader, run.producer.coordinator.shared
        ledger = shared.ledger
        source.execute("DELETE FROM p WHERE id = 2")
        run.until(lambda: bool(ledger.windows), "a window is registered")
        source.execute("INSERT INTO p VALUES (9)")
        run.caught_up(source)

        def is_delayed() -> bool:
            published = reader._checkpoints._markers._schedule.last
            return published is not None and published[1] < published[0] == reader.committed.position

        run.until(is_delayed, "a heartbeat has the horizon that the window keeps back")
        with shared.changed:
            ledger.followed.forget(next(iter(ledger.followed.values())))
        boundary = reader.committed.position
        run.until(lambda: reader._checkpoints._markers._schedule.last == (boundary, boundary), "the horizon has moved to the boundary")
        assert reader.committed.position == boundary


def test_children_found_by_a_text_are_read_whole_when_it_changes_and_not_when_it_stays(source: Source) -> None:
    """A child may spell it otherwise: only the server can compare."""
    source.execute(
        "CREATE TABLE p (name VARCHAR(9) PRIMARY KEY, v INT) CHARACTER SET utf8mb4",
        "CREATE TABLE c (id INT PRIMARY KEY, p VARCHAR(9), FOREIGN KEY (p) REFERENCES p (name) ON DELETE CASCADE"
        " ON UPDATE CASCADE) CHARACTER SET utf8mb4",
        "INSERT INTO p VALUES ('a', 0), ('b', 0), ('c', 0)",
        "INSERT INTO c VALUES (1, 'a'), (2, 'B'), (3, 'c')",
    )
    with running(settings_of(source)) as run:
        initial_is_read(run)
        requests = run.producer.coordinator.shared.ledger.requests
        source.execute("UPDATE p SET v = 1")
        run.caught_up(source)
        assert list(requests) == ["initial"]
        source.execute("DELETE FROM p WHERE name = 'b'", "UPDATE p SET name = 'd' WHERE name = 'c'")
        mirrors = assert_mirrored(run, source, "p", "c")
        assert len(requests) > 1
    assert ordered(mirrors["c"].rows) == ordered([{"id": 1, "p": "a"}, {"id": 3, "p": "d"}])


def test_a_row_that_two_foreign_keys_ask_for_is_not_read_twice_at_one_position(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a changelog it would be there twice. Two readers stand at the same end of the log, each for another foreign key."""
    rule = "REFERENCES p (id) ON UPDATE CASCADE"
    source.execute(
        "CREATE TABLE p (id INT PRIMARY KEY)",
        "INSERT INTO p VALUES (1), (2)",
        f"CREATE TABLE c (id INT PRIMARY KEY, owner INT, sitter INT, FOREIGN KEY (owner) {rule}, FOREIGN KEY (sitter) {rule})",
        "INSERT INTO c VALUES (1, 2, 2), (2, 1, 2), (3, 2, 1)",
    )
    both = threading.Barrier(2, timeout=2)

    def end_for_both(*arguments: Any) -> LowWatermark:
        end = end_of_binlog(*arguments)
        with suppress(threading.BrokenBarrierError):
            both.wait()
        return end

    with running(settings_of(source)) as run:
        initial_is_read(run)
        monkeypatch.setattr(watermark, "end_of_binlog", end_for_both)
        source.execute("UPDATE p SET id = 9 WHERE id = 2")
        mirrors = assert_mirrored(run, source, "p", "c")
    assert len(mirrors["c"].rows) == 3
    rows = read_topic(source.bootstrap_servers, snapshot_topic(source.name, source.schema, "c"))
    read = Counter((str(record.key), record.value["source"]["sequence"]) for record in rows if record.value.get("op") == "r")
    assert sum(read.values()) > len(mirrors["c"].rows), "no reader read what a foreign key asked for"
    assert max(read.values()) == 1, read


def test_a_source_that_nothing_is_written_to_is_followed_as_well(source: Source) -> None:
    source.execute(*parent_and_child())
    settings = settings_of(source)
    with running(replace(settings, source=replace(settings.source, read_only=True, signal_table=None))) as run:
        initial_is_read(run)
        source.execute("DELETE FROM p WHERE id = 2")
        assert assert_mirrored(run, source, "p", "c")["c"].sweeps


def test_a_parent_that_is_not_captured_may_have_its_columns_elsewhere(
    kafka: Any, fresh_database: Callable[..., str]
) -> None:
    """The TABLE_MAP of a log that names no columns is the same before and after."""
    server = own_database("mysql80", "nameless")
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET GLOBAL binlog_row_metadata = 'MINIMAL'")
    source = Source(server, fresh_database(server), kafka.bootstrap_servers)
    source.execute(
        "CREATE TABLE hidden (id INT NOT NULL PRIMARY KEY, v INT NOT NULL)",
        "INSERT INTO hidden VALUES (1, 11), (2, 12), (3, 13)",
        "CREATE TABLE c (id INT PRIMARY KEY, p INT, CONSTRAINT fk FOREIGN KEY (p) REFERENCES hidden (id) ON DELETE CASCADE)",
        "INSERT INTO c VALUES (1, 1), (2, 2), (3, 3)",
    )
    with running(settings_of(source, tables=(rf"{source.schema}\.c",))) as run:
        initial_is_read(run)
        source.execute("DELETE FROM hidden WHERE id = 3")
        assert len(assert_mirrored(run, source, "c")["c"].rows) == 2
        source.execute("ALTER TABLE hidden MODIFY v INT NOT NULL FIRST", "DELETE FROM hidden WHERE id = 2")
        assert len(assert_mirrored(run, source, "c")["c"].rows) == 1
    source.connection.close()
