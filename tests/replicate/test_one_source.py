"""A task on real servers: one source, one target, the rows of both compared."""

from __future__ import annotations

import time

import pytest

from producer.stream.handlers.schema_change_records import DescribingServer
from schemas.notifications import SIGNAL as SIGNAL_ANSWER
from schemas.settings import from_mapping
from spark_jobs.replicate.apply.row_writer import RowWriter
from spark_jobs.replicate.loading import SourceTopics
from spark_jobs.replicate.order.stream_reader import _SourceRecords
from spark_jobs.replicate.task import TaskAttempt
from tests.e2e.topics import Notifications
from tests.integration.test_ordered_stream import mapping_of, written
from tests.replicate.task_scene import COLUMNS, Died, catch_up, eventual, rows_of, task_of
from tests.support.producers import SIGNAL, running
from tests.support.producing import RunningProducer
from tests.support.servers import database, unique_name


def test_a_loaded_and_followed_source_is_equal(source, registry):
    target = database("mariadb114")
    settings = from_mapping(mapping_of(source, registry.url))
    source.execute(SIGNAL, *(f"CREATE TABLE {table} ({COLUMNS})" for table in ("a", "b")))
    rows = ",".join(f"({number}, 1, 'x')" for number in range(300))
    source.execute(f"INSERT INTO a VALUES {rows}")
    task = task_of(source, registry.url, target)
    with running(settings) as run, written(source, keys=100):
        time.sleep(1)
        catch_up(task)
        source.execute("ALTER TABLE b ADD COLUMN x INT NOT NULL DEFAULT 7", "CREATE TABLE c (id INT PRIMARY KEY)", "INSERT INTO c VALUES (1)")
        time.sleep(1)
    with running(settings) as run:
        run.caught_up(source)
        catch_up(task)
    for table in ("a", "b", "c"):
        assert rows_of(target, source.schema, table) == rows_of(source.server, source.schema, table), table


def test_a_table_that_is_altered_while_its_source_starts_is_altered_once(source, registry, monkeypatch):
    """Its description has the column, and the statement is behind the position at which reading begins."""
    describe, altered = DescribingServer.create_statement, list[str]()

    def describe_later(server, database, table):
        if table == "a" and not altered:
            altered.append(table)
            source.execute("ALTER TABLE a ADD COLUMN x INT NOT NULL DEFAULT 7")
        return describe(server, database, table)

    monkeypatch.setattr(DescribingServer, "create_statement", describe_later)
    source.execute(SIGNAL, f"CREATE TABLE a ({COLUMNS})", "INSERT INTO a VALUES (1, 1, 'x')")
    target = database("mysql97")
    with RunningProducer(from_mapping(mapping_of(source, registry.url))) as run:
        run.wait_until("it has committed", lambda start: start.reader is not None and start.reader.committed.stream is not None)
        catch_up(task_of(source, registry.url, target))
    assert rows_of(target, source.schema, "a") == [(1, 1, "x", 7)]
    assert "was altered while the producer started" in run.waited[0]


def test_statements_on_tables_that_are_not_published_are_not_run(source, registry, fresh_database):
    """The target has tables and databases of these names that are its own."""
    target, other, later = database("mariadb114"), f"{source.schema}_other", f"{source.schema}_later"
    mapping = mapping_of(source, registry.url)
    settings = from_mapping({**mapping, "source": {**mapping["source"], "tables": [rf"{source.schema}\.(a|c)", rf"{later}\..*"]}})
    source.execute(SIGNAL, f"CREATE TABLE a ({COLUMNS})", "INSERT INTO a VALUES (1, 1, 'x')", f"CREATE DATABASE {other}")
    own = [f"CREATE DATABASE {source.schema}", f"CREATE DATABASE {other}", f"CREATE TABLE {source.schema}.b (id INT)"]
    try:
        with target.connect() as connection, connection.cursor() as cursor:
            for statement in (*own, f"CREATE TABLE {other}.mine (id INT)"):
                cursor.execute(statement)
        with running(settings) as run:
            run.caught_up(source)
            source.execute("CREATE TABLE b (id INT PRIMARY KEY)", f"CREATE TABLE {other}.mine (id INT)")
            run.caught_up(source)
            catch_up(task_of(source, registry.url, target))
            source.execute("ALTER TABLE b ADD COLUMN v INT", "DROP TABLE b", f"DROP DATABASE {other}")
            source.execute(f"CREATE DATABASE {later} CHARACTER SET latin1", f"ALTER DATABASE {later} CHARACTER SET greek")
            source.execute("CREATE TABLE d (id INT PRIMARY KEY)", "RENAME TABLE d TO e", f"RENAME TABLE a TO {later}.a")
            run.caught_up(source)
            catch_up(task_of(source, registry.url, target))
            source.execute(f"CREATE TABLE {later}.t (v VARCHAR(10))")
            run.caught_up(source)
        catch_up(task_of(source, registry.url, target))
        with target.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_COLLATION FROM information_schema.TABLES "
                           "WHERE TABLE_SCHEMA LIKE %s ORDER BY 1, 2", (f"{source.schema}%",))  # fmt: skip
            tables = cursor.fetchall()
            cursor.execute(f"SHOW COLUMNS FROM {source.schema}.b")
            assert len(cursor.fetchall()) == 1
        assert [one[:2] for one in tables] == [(source.schema, "b"), (later, "a"), (later, "t"), (other, "mine")]
        assert tables[2][2] == "greek_general_ci"
        assert rows_of(target, later, "a") == [(1, 1, "x")]
    finally:
        for server in (target, source.server):
            for schema in (other, later):
                with server.connect() as connection, connection.cursor() as cursor:
                    cursor.execute(f"DROP DATABASE IF EXISTS {schema}")


@pytest.mark.parametrize("order", ["source", "global"])
def test_a_transaction_larger_than_memory_should_hold_is_applied_in_slices(source, registry, monkeypatch, order):
    """In the order of its log, over partitions of several tables; each start dies within it, and the next one continues.

    In the order of all sources it waits on disk until it has ended; here its parts are in Kafka transactions of their own.
    """
    target = database("mariadb114")
    group = unique_name("group")
    settings = from_mapping(mapping_of(source, registry.url, group=group))
    source.execute(SIGNAL, *(f"CREATE TABLE {table} ({COLUMNS}, UNIQUE KEY (v))" for table in ("a", "b")))
    apply = {"driver_rows": 300, "max_delay_ms": 0, "workers": 1}
    task = eventual(task_of(source, registry.url, target, order=order, group=group, apply=apply))
    slices, write, left = [], RowWriter.write, [0]

    def dying(writer, rows, loading):
        left[0] -= 1
        if left[0] < 0:
            raise Died
        write(writer, rows, loading)

    monkeypatch.setattr("kafkaio.committed_reader._AT_ONCE", 50)
    pop = _SourceRecords.pop
    monkeypatch.setattr(_SourceRecords, "pop", lambda records: slices.append(pop(records)) or slices[-1])
    monkeypatch.setattr(RowWriter, "write", dying)
    with running(settings) as run:
        run.caught_up(source)
        left[0] = 10
        catch_up(task)
        assert not rows_of(target, source.schema, "a"), "the tables are there: the source was waited for"
        if order == "global":
            monkeypatch.setattr("kafkaio.transactional_writer.LONGEST_SHARE", 0.0)
        source.execute("BEGIN")
        for begin in range(0, 4000, 500):
            rows = ",".join(f"({number}, {number}, REPEAT('x', 100))" for number in range(begin, begin + 500))
            source.execute(f"INSERT INTO a VALUES {rows}", f"INSERT INTO b VALUES {rows}", f"UPDATE a SET id = id + 100000 WHERE id % 7 = 3 AND id < {begin}")
            source.execute(f"DELETE FROM b WHERE id % 5 = 1 AND id < {begin}")
            for table in ("a", "b"):  # values that must be given up before other rows get them
                within = f"BETWEEN {begin} AND {begin + 499}"
                source.execute(
                    f"UPDATE {table} SET v = v + 1000000 WHERE v {within} AND id % 11 = 5",
                    f"INSERT INTO {table} SELECT id + 500000, v - 1000000, w FROM {table} WHERE id {within} AND v >= 1000000",
                )
        source.execute("COMMIT")
        run.caught_up(source)
        deaths = 0
        for attempt in range(100):
            left[0] = 7
            monkeypatch.setattr("spark_jobs.replicate.order.stream_reader.SLICE_BYTES", 5_000 + attempt * 7_777 % 40_000)
            try:
                catch_up(task)
                break
            except Died:
                deaths += 1
    assert deaths > 3
    assert sum(1 for one in slices if one.open) > 3
    assert any(one.commit.open for one in slices) == (order == "global")
    for table in ("a", "b"):
        assert rows_of(target, source.schema, table) == rows_of(source.server, source.schema, table), table


def test_the_history_of_a_producer_without_a_group_drops_and_creates_nothing_of_others(source, registry):
    """It does not say which tables are captured; and a database that was dropped then is one of the target now."""
    target, gone = database("mariadb114"), f"{source.schema}_gone"
    mapping = mapping_of(source, registry.url)
    tables = {**mapping["source"], "tables": [rf"{source.schema}\.a", rf"{gone}\..*"]}
    source.execute(SIGNAL, f"CREATE TABLE a ({COLUMNS})", "INSERT INTO a VALUES (1, 1, 'x')")
    without = {name: value for name, value in mapping.items() if name != "order"}
    with running(from_mapping({**without, "source": tables})) as run:
        run.caught_up(source)
        source.execute("CREATE TABLE b (id INT PRIMARY KEY)", f"CREATE DATABASE {gone}", f"CREATE TABLE {gone}.t (id INT PRIMARY KEY)")
        source.execute(f"INSERT INTO {gone}.t VALUES (1)", f"DROP DATABASE {gone}")
        run.caught_up(source)
    try:
        with target.connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {gone}")
            cursor.execute(f"CREATE TABLE {gone}.mine (id INT)")
        with running(from_mapping({**mapping, "source": tables})) as run:
            run.caught_up(source)
            catch_up(task_of(source, registry.url, target))
        with target.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA LIKE %s ORDER BY 1, 2",
                           (f"{source.schema}%",))  # fmt: skip
            assert list(cursor.fetchall()) == [(source.schema, "a"), (gone, "mine")]
        assert rows_of(target, source.schema, "a") == [(1, 1, "x")]
    finally:
        with target.connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"DROP DATABASE IF EXISTS {gone}")


def test_a_start_that_may_have_asked_for_the_rows_asks_by_another_name(source, registry, monkeypatch):
    """The producer has read the tables already, and refuses a second request of one name."""
    target, ask = database("mariadb114"), SourceTopics.ask
    source.execute(SIGNAL, f"CREATE TABLE a ({COLUMNS})", "INSERT INTO a VALUES (1, 1, 'x'), (2, 2, 'y')")
    task = task_of(source, registry.url, target)

    def ask_and_die(*arguments):
        ask(*arguments)
        raise Died

    settings = from_mapping(mapping_of(source, registry.url))
    with running(settings) as run:
        run.caught_up(source)
        with monkeypatch.context() as patch:
            patch.setattr(SourceTopics, "ask", ask_and_die)
            with pytest.raises(Died):
                catch_up(task)
        run.until(lambda: "COMPLETED" in {one.type for one in Notifications(settings).read()}, "the rows are read")
        batch = TaskAttempt._batch

        def behind_the_answer(attempt, paused):
            if attempt.figures.apply_s:
                return batch(attempt, paused)
            run.until(lambda: sum(one.aggregate_type == SIGNAL_ANSWER for one in Notifications(settings).read()) == 2, "both are answered")
            return []

        monkeypatch.setattr(TaskAttempt, "_batch", behind_the_answer)
        catch_up(task)
    assert rows_of(target, source.schema, "a") == [(1, 1, "x"), (2, 2, "y")]
