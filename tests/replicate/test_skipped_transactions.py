"""`apply.skip_transactions` on real servers: exactly these transactions are not applied."""

from __future__ import annotations

from typing import Any

import pytest
from structlog.testing import capture_logs

from schemas.errors import ConfigError
from schemas.settings import from_mapping
from spark_jobs.replicate.apply.apply_target import ApplyTarget
from tests.e2e.topics import RecordReader
from tests.integration.test_ordered_stream import mapping_of
from tests.replicate.task_scene import COLUMNS, Died, catch_up, rows_of, task_of
from tests.support.producers import SIGNAL, Source, running
from tests.support.servers import database

NEVER = "0000.0000000009.000000000009"


@pytest.mark.parametrize("name", ["mysql80", "mariadb114"])
@pytest.mark.parametrize("order", ["source", "global"])
def test_exactly_the_named_transactions_are_not_applied(name, order, kafka, registry, fresh_database, monkeypatch):
    """By GTID and by position: rows, a statement, a truncate; with starts that die."""
    server, target = database(name), database("mariadb114" if name == "mysql80" else "mysql97")
    source = Source(server, fresh_database(server), kafka.bootstrap_servers)
    source.execute(SIGNAL, *(f"CREATE TABLE {table} ({COLUMNS})" for table in ("a", "b")), "INSERT INTO b VALUES (1, 1, NULL)")
    settings, more = from_mapping(mapping_of(source, registry.url, group=source.name)), {}
    if order == "global":
        more = {"order": "global", "group": source.name}
    apply = {"driver_rows": 2, "max_delay_ms": 0}
    with running(settings) as run:
        run.caught_up(source)
        catch_up(task_of(source, registry.url, target, apply=apply, **more))
        source.execute("INSERT INTO a VALUES (1, 1, NULL)")
        source.execute("BEGIN", "INSERT INTO a VALUES (2, 1, NULL), (3, 1, NULL)", "UPDATE a SET v = 9, id = 100 WHERE id = 1", "COMMIT")
        source.execute("INSERT INTO a VALUES (4, 1, NULL)", "CREATE TABLE gone (id INT PRIMARY KEY)", "TRUNCATE TABLE b")
        source.execute("BEGIN", "INSERT INTO a VALUES (5, 1, NULL)", "INSERT INTO b VALUES (6, 1, NULL)", "COMMIT")
        source.execute("INSERT INTO a VALUES (7, 1, NULL)")
        run.caught_up(source)
    reader = RecordReader(settings)
    blocks = {}
    for table in ("a", "b"):
        for *_, value in reader.records(f"{source.name}.{source.schema}.{table}"):
            if value is not None:
                blocks[table, value["op"], (value["after"] or {}).get("id")] = value["source"]
    (created,) = [value for *_, value in reader.records(source.name) if "gone" in (value["ddl"] or "")]
    skipped = [
        blocks["a", "c", 2]["gtid"],
        created["source"]["sequence"][:28],
        blocks["b", "t", None]["gtid"],
        blocks["a", "c", 5]["sequence"],
        NEVER,
    ]
    task = task_of(source, registry.url, target, apply={**apply, "skip_transactions": skipped}, **more)
    deaths, left, execute_many = 0, [0], ApplyTarget.execute_many

    def dying(*arguments: Any) -> None:
        left[0] -= 1
        if not left[0]:
            raise Died
        execute_many(*arguments)

    with monkeypatch.context() as patch, capture_logs() as logs:
        patch.setattr(ApplyTarget, "execute_many", dying)
        for start in range(9):
            left[0] = 1 + start
            try:
                catch_up(task)
                break
            except Died:
                deaths += 1
    assert deaths
    assert [row[0] for row in rows_of(target, source.schema, "a")] == [1, 4, 7]
    assert rows_of(target, source.schema, "b") == [(1, 1, None)]
    with target.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SHOW TABLES FROM " + source.schema)
        assert ("gone",) not in cursor.fetchall()
    read = {one["transaction"] for one in logs if one["event"] == "apply.transaction_skipped"}
    assert read == set(skipped) - {NEVER}
    assert NEVER in next(one["transactions"] for one in reversed(logs) if one["event"] == "apply.skipped_transactions_not_read")
    catch_up(task_of(source, registry.url, target, apply=apply, **more))  # a transaction that was passed stays so
    assert [row[0] for row in rows_of(target, source.schema, "a")] == [1, 4, 7]
    source.connection.close()


@pytest.mark.parametrize(
    ("name", "sources", "message"),
    [
        ("12", 1, "apply.skip_transactions: '12' is neither a GTID nor a position of one transaction"),
        ("9b9b1c1e-5b0f-11ee-8c99-0242ac120002:1-5", 1, "is neither a GTID nor a position"),
        ("0-1-0", 1, "is neither a GTID nor a position"),
        ("0-1-20", 2, "apply.skip_transactions: 0-1-20 may be a transaction of each source: give a GTID of MySQL"),
    ],
)
def test_a_name_of_no_transaction_is_refused(name: str, sources: int, message: str, source, registry):
    others = [source][: sources - 1]
    with pytest.raises(ConfigError, match=message):
        task_of(source, registry.url, database("mariadb114"), *others, apply={"skip_transactions": [name]})
