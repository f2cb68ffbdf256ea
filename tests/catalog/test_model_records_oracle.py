"""Random ALTERs on real servers: the model made of the statements is that of SHOW CREATE TABLE, every time."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pymysql
import pytest

from producer.catalog.model_records import TableModels
from producer.catalog.statements import parse_statement
from schemas.schema_changes import TableModel
from tests.support.servers import database

STATEMENTS = (50, pytest.param(150, marks=pytest.mark.slow))
SEED = 41
INTEGERS = {"TINYINT", "SMALLINT", "MEDIUMINT", "INT", "BIGINT"}
TYPES = (
    "int", "INT UNSIGNED", "bigint unsigned", "smallint", "varchar(20)", "VARCHAR(7) CHARACTER SET latin1",
    "varchar(9) COLLATE utf8mb4_bin", "char(3)", "decimal(10,2)", "DECIMAL(20,0) UNSIGNED", "datetime(3)", "datetime",
    "time(6)", "date", "enum('a','it''s','x,y')", "set('a','b')", "text", "longtext", "blob", "varbinary(8)", "binary(4)",
    "double", "float", "bit(8)", "year",
)  # fmt: skip
OPTIONS = ("", " NOT NULL", " NULL", " COMMENT 'a, ''quoted'' (comment) FIRST AFTER'")
CHARSETS = ("latin1", "utf8mb4", "gbk")


class Generator:
    """ALTERs that may or may not be allowed; the server decides."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._number = 0

    def statement(self, columns: list[str]) -> str:
        clauses = [self._clause(columns) for _ in range(self._random.choice([1, 1, 1, 2, 3]))]
        # These contradict each other and what else the statement says: which one wins differs between servers.
        charsets = [clause for clause in clauses if clause.startswith(("CONVERT", "DEFAULT"))]
        clauses = charsets[:1] or clauses
        return f"ALTER TABLE `t` {', '.join(clauses)}"

    def _clause(self, columns: list[str]) -> str:
        pick = self._random.choice
        column, other = pick(columns), pick(columns)
        position = pick(["", "", " FIRST", f" AFTER `{other}`"])
        kind = f"{pick(TYPES)}{pick(OPTIONS)}"
        return pick(
            [
                lambda: f"ADD COLUMN {self._new()} {kind}{position}",
                lambda: f"ADD {self._new()} {kind}{position}",
                lambda: f"ADD COLUMN ({self._new()} {kind}, {self._new()} int DEFAULT 5)",
                lambda: f"DROP COLUMN `{column}`",
                lambda: f"DROP {column}",
                lambda: f"MODIFY COLUMN `{column}` {kind}{position}",
                lambda: f"CHANGE COLUMN `{column}` {self._new()} {kind}{position}",
                lambda: f"RENAME COLUMN `{column}` TO {self._new()}",
                lambda: f"ADD INDEX {self._new()} (`{column}`)",
                lambda: f"ALTER COLUMN `{column}` SET DEFAULT 7",
                lambda: f"ALTER COLUMN `{column}` DROP DEFAULT",
                lambda: f"DROP PRIMARY KEY, ADD PRIMARY KEY (`{column}`, `{other}`)",
                lambda: f"CONVERT TO CHARACTER SET {pick(CHARSETS)}",
                lambda: f"DEFAULT CHARACTER SET = {pick(CHARSETS)}",
                lambda: f"COMMENT = '{self._new()}, DROP COLUMN a'",
                lambda: "ENGINE=InnoDB",
            ]
        )()

    def _new(self) -> str:
        self._number += 1
        return self._random.choice([f"c{self._number}", f"`c {self._number}`"])


def facts(model: TableModel | None) -> Any:
    """What a statement's text and SHOW CREATE TABLE say in the same words."""
    assert model is not None
    columns = [
        (
            column.name,
            column.type_name,
            column.charset,
            None if column.type_name.split()[0] in INTEGERS or column.type_name == "YEAR" else column.length,
            column.scale,
            column.optional,
            column.members,
        )
        for column in model.columns
    ]
    return model.charset, set(model.primary_key), columns


@pytest.mark.parametrize("statements", STATEMENTS)
@pytest.mark.parametrize("name", ["mysql80", "mariadb114"])
def test_statements_lead_to_what_the_server_shows(name: str, statements: int, fresh_database: Callable[[Any], str]) -> None:
    server = database(name)
    schema = fresh_database(server)
    generator = Generator(SEED)
    asked: list[str] = []
    with server.connect(database=schema) as connection, connection.cursor() as cursor:

        def shown() -> str:
            cursor.execute("SHOW CREATE TABLE t")
            return str(cursor.fetchone()[1])

        def ask(_database: str, table: str) -> str:
            asked.append(table)
            return shown()

        models = TableModels(server.flavour, ask, lambda _database: "utf8mb4")
        create = "CREATE TABLE t (id INT, a VARCHAR(5) NOT NULL, b TEXT, PRIMARY KEY (id))"
        cursor.execute("SET sql_mode = ''")
        cursor.execute(create)
        models.apply(parse_statement(create, schema, server.flavour))
        done = 0
        for _ in range(20 * statements):
            server_model = TableModels(server.flavour, lambda *_: None, lambda _: "utf8mb4").define(schema, shown())
            assert server_model is not None
            sql = generator.statement([column.name for column in server_model.columns])
            try:
                cursor.execute(sql)
            except pymysql.err.MySQLError:
                continue  # not allowed: it is in no log
            (change,) = models.apply(parse_statement(sql, schema, server.flavour))
            expected = TableModels(server.flavour, lambda *_: None, lambda _: "utf8mb4").define(schema, shown())
            ours, theirs = facts(change.table), facts(expected)
            different = [pair for pair in zip(ours[2], theirs[2], strict=False) if pair[0] != pair[1]]
            assert ours == theirs, f"seed {SEED}, statement {done}: {sql}: {different}"
            done += 1
            if done == statements:
                break
    assert done == statements
    assert asked == []  # every one of them was understood
