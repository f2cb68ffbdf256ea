"""Random ALTERs: the log and the server have the same columns after each."""

from __future__ import annotations

import random

import pymysql
import structlog

from tests.catalog.logged_source import Source
from tests.catalog.server_log import end_of_log

log = structlog.get_logger(__name__)

SEED = 20240602

STEPS = 24

TYPES = (
    "INT",
    "BIGINT UNSIGNED",
    "SMALLINT",
    "TINYINT UNSIGNED",
    "DECIMAL(12,3)",
    "FLOAT",
    "FLOAT(8,2)",
    "DOUBLE",
    "BIT(7)",
    "YEAR",
    "DATE",
    "TIME(2)",
    "DATETIME(4)",
    "TIMESTAMP(1) NULL",
    "CHAR(7)",
    "VARCHAR(30)",
    "VARCHAR(9) CHARACTER SET latin1",
    "TEXT",
    "MEDIUMTEXT CHARACTER SET ascii",
    "BINARY(5)",
    "VARBINARY(20)",
    "BLOB",
    "ENUM('a','b,c','d''e')",
    "SET('x','y')",
    "JSON",
)

DEFAULTS = {
    "INT": "-3",
    "BIGINT UNSIGNED": "18446744073709551615",
    "SMALLINT": "7",
    "DECIMAL(12,3)": "-1.25",
    "FLOAT": "0.1",
    "DOUBLE": "1e100",
    "BIT(7)": "b'101'",
    "YEAR": "2024",
    "DATE": "'2024-02-29'",
    "TIME(2)": "'-01:02:03.25'",
    "DATETIME(4)": "'2024-02-29 01:02:03.25'",
    "TIMESTAMP(1) NULL": "'2024-02-29 01:02:03.5'",
    "CHAR(7)": "'ab'",
    "VARCHAR(30)": "'it''s é'",
    "BINARY(5)": "'ab'",
    "VARBINARY(20)": "X'00FF00'",
    "ENUM('a','b,c','d''e')": "'d''e'",
    "SET('x','y')": "'x,y'",
}


class RandomTable:
    """Makes ALTERs of a table whose columns it knows."""

    def __init__(self, randomness: random.Random) -> None:
        self.random = randomness
        self.columns = ["id"]
        self.made = 0

    def definition(self) -> str:
        kind = self.random.choice(TYPES)
        default = DEFAULTS.get(kind)
        if default is not None and self.random.random() < 0.6:
            kind += f" DEFAULT {default}"
        elif "NULL" not in kind and self.random.random() < 0.2:
            kind += " NOT NULL"
        return kind + self.random.choice(["", " COMMENT 'a, (b'", " /* note, */"])

    def position(self) -> str:
        return self.random.choice(["", " FIRST", f" AFTER `{self.random.choice(self.columns)}`"])

    def clause(self) -> str:
        others = [name for name in self.columns if name != "id"]
        action = self.random.choice(["add", "add", "add", "drop", "modify", "change", "default", "index"])
        if action == "add" or len(others) < 2:
            self.made += 1
            name = self.random.choice(
                [f"c{self.made}", f"c {self.made}", f"c-{self.made}`x".replace("`", "")]
            )
            clause = f"ADD COLUMN `{name}` {self.definition()}{self.position()}"
            self.columns.append(name)
            return clause
        name = self.random.choice(others)
        if action == "drop":
            self.columns.remove(name)
            return f"DROP `{name}`"
        if action == "modify":
            return f"MODIFY `{name}` {self.definition()}"
        if action == "change":
            self.made += 1
            new = f"n{self.made}"
            self.columns[self.columns.index(name)] = new
            return f"CHANGE COLUMN `{name}` `{new}` {self.definition()}"
        return f"ALTER `{name}` DROP DEFAULT" if action == "default" else f"COMMENT='{name}'"


def test_random_alters_leave_log_and_server_agreed(source: Source) -> None:
    log.info("random_alters.begin", seed=SEED)
    table = RandomTable(random.Random(SEED))
    source.run("CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT)")
    failed = 0
    for _ in range(STEPS):
        before = list(table.columns)
        statement = f"ALTER TABLE t {table.clause()}"
        position = end_of_log(source.user)
        try:
            source.run(statement)
        except pymysql.MySQLError:
            table.columns = before
            failed += 1
            continue
        source.run("INSERT INTO t () VALUES ()", "DELETE FROM t")
        version, (change,) = source.replay(position)
        schema = source.read("t")
        assert version.schema == schema, statement
        assert (change.kind, change.table) == ("alter", "t")
        assert [
            c.name for c in change.added if c.name not in {column.name for column in schema.columns}
        ] == []
    log.info("random_alters.done", refused=failed)
    assert failed < STEPS // 3
