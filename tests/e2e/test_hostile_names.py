"""Names and values that SQL, Kafka, Avro, Spark or a file system would take for something else, all the way."""

from __future__ import annotations

import json
import re
from typing import Any

import pymysql
import pytest

from devservers import Database
from tests.e2e.conftest import MakePipeline
from tests.e2e.pipeline import SIGNAL_TABLE, Pipeline, create_signal_table
from tests.support.servers import database as server_named
from tests.support.servers import unique_name

TABLES = (
    "x%s; DROP TABLE `victim`; --", "a b'\"", "Case", "case", "..", "_hi/d\\en", "dot.ted?*[x]", "ünï\t{0}表$", "*",
)  # fmt: skip
COLUMNS = (
    "sel ect", "100%", "c%s", "o'clock", 'say "x"', "back`tick", "semi;", "x) ; DROP TABLE victim; --", "dot.ted", "ünï", "*", "from",
)  # fmt: skip
KEY = "k%`y"
VALUES = ("'; DROP TABLE victim; --", "%s", "%", "\\", '"', "\\'", "a\0b", "", "表 'x'", "0x41", "?", "`", "{}", "$1")


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def pattern(database: str, table: str) -> str:
    return re.escape(f"{database}.{table}")


@pytest.mark.parametrize("name", ["mysql80", pytest.param("mariadb114", marks=pytest.mark.slow)])
def test_names_and_values_of_every_kind_arrive_as_they_are(name: str, make_pipeline: MakePipeline) -> None:
    server = server_named(name)
    database = unique_name("h%s 1.2% `x\"'; --")
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {quoted(database)} CHARACTER SET utf8mb4")
    try:
        _arrive(_pipeline(server, database, make_pipeline))
    finally:
        with server.connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"DROP DATABASE {quoted(database)}")


def _pipeline(server: Database, database: str, make_pipeline: MakePipeline) -> Pipeline:
    with server.connect(database=database) as connection, connection.cursor() as cursor:
        create_signal_table(connection)
        columns = ", ".join(f"{quoted(column)} VARCHAR(40)" for column in COLUMNS)
        for table in (*TABLES, "victim"):
            key = f"{quoted(KEY)} VARCHAR(40) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
            cursor.execute(f"CREATE TABLE {quoted(table)} ({key}, {columns}, PRIMARY KEY ({quoted(KEY)}))")
        _insert(connection, TABLES[0], VALUES)
        for table in (*TABLES[1:], "victim"):
            _insert(connection, table, VALUES[:2])
        connection.commit()
    source = {
        "host": server.host, "port": server.port, "user": server.user, "password": server.password,
        "tables": [rf"{re.escape(database)}\..*"], "signal_table": f"{quoted(database)}.{SIGNAL_TABLE}",
    }  # fmt: skip
    snapshot = {"mode": "initial", "readers": 2, "chunk_rows": 4}
    return make_pipeline(server, database, source=source, snapshot=snapshot)


def _insert(connection: pymysql.Connection[Any], table: str, keys: tuple[str, ...]) -> None:
    marks = ", ".join(["%s"] * (1 + len(COLUMNS)))
    statement = f"INSERT INTO {quoted(table).replace('%', '%%')} VALUES ({marks})"
    with connection.cursor() as cursor:
        for number, key in enumerate(keys):
            cursor.execute(statement, (key, *(VALUES[(number + index) % len(VALUES)] for index in range(len(COLUMNS)))))


def _arrive(pipeline: Pipeline) -> None:
    pipeline.start("run", "merge")
    pipeline.wait_for_snapshot(*TABLES)
    first, last = (quoted(COLUMNS[index]) for index in (0, -1))
    for table in TABLES:
        pipeline.sql(f"UPDATE {quoted(table)} SET {first} = CONCAT({quoted(KEY)}, '%s')", f"DELETE FROM {quoted(table)} LIMIT 1")
    for table in TABLES[:2]:
        pipeline.sql(
            f"ALTER TABLE {quoted(table)} ADD COLUMN `ne%w; col` INT NOT NULL DEFAULT 7, MODIFY {last} VARCHAR(80)",
            f"INSERT INTO {quoted(table)} ({quoted(KEY)}) VALUES ('after %d')",
        )
    late = "late %d `table`"
    pipeline.sql(f"CREATE TABLE {quoted(late)} (`i%d` INT PRIMARY KEY)", f"INSERT INTO {quoted(late)} VALUES (1)")

    # A signal for some rows of such a table; and one that would do more.
    chosen = {"data-collection": pattern(pipeline.database, TABLES[0]), "filter": f"{quoted(KEY)} <> '%s;'"}
    asked = {"data-collections": [chosen["data-collection"]], "type": "incremental", "additional-conditions": [chosen]}
    ident = pipeline.send("execute-snapshot", asked)
    pipeline.wait_for_answer(ident, lambda answer: answer.type == "COMPLETED")
    for number, smuggled in enumerate(("1=1; DROP TABLE victim", "1=1) OR (SELECT 1", "1=1 -- x", "1=1 /*! OR 1 */", "'a", "(1")):
        refused = {**asked, "additional-conditions": [{**chosen, "filter": smuggled}]}
        ident = pipeline.send("execute-snapshot", json.dumps(refused), f"bad-{number}")
        pipeline.wait_for_answer(ident, lambda answer: answer.type == "REJECTED")

    pipeline.wait_for_sink(*TABLES, "victim")
    pipeline.wait_for_sink(late, consistent=False)
    report = pipeline.verify()
    assert report.ok, report.to_text()
    assert len(report.tables) == len(TABLES) + 2, report.to_text()
    assert report.rows == len(VALUES) - 1 + (len(TABLES) - 1) + 2 + 2 + 1
