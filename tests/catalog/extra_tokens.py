"""DDL statements with one more token somewhere, and what the server makes of them: no token may be passed over.

The target `clauses` of `make fuzz` runs it. A statement
that the server accepts is in its log. The parser has to say that it does not understand it, or to make the same tables of it, with
the same rows where it says that no row changed.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from typing import Any, Final

import pymysql

from devservers import Database
from mysqlio.information_schema import TableFacts, read_databases, read_rules, read_table_facts
from producer.binlog.events import QueryEvent
from producer.catalog import TrackedTables
from producer.catalog.effects import EFFECTS, DdlChange, parse_ddl
from producer.catalog.model import state_of
from schemas.types.semantic_types import column_default
from tests.catalog.comparable_schemas import comparable, comparable_collation, comparable_keys
from tests.catalog.logged_source import catalog_of
from tests.catalog.server_log import end_of_log, parsed_since

HERE, THERE = "clauses_here", "clauses_there"
Table = tuple[str, str]

SETUP: Final = (
    f"DROP DATABASE IF EXISTS {THERE}",
    f"CREATE DATABASE {THERE} CHARACTER SET latin1",
    f"CREATE DATABASE IF NOT EXISTS {HERE} CHARACTER SET utf8mb4",
    f"ALTER DATABASE {HERE} CHARACTER SET utf8mb4",
    f"USE {HERE}",
    (
        "CREATE TABLE t (id INT PRIMARY KEY, a VARCHAR(10) NOT NULL DEFAULT 'q', b TEXT, c INT UNSIGNED DEFAULT 5, t INT, "
        "UNIQUE u (c), KEY k (a)) CHARSET latin1"
    ),
    "INSERT INTO t VALUES (1, 'a', 'x', 1, 1), (2, 'b', NULL, 2, NULL)",
    "CREATE TABLE u (id INT PRIMARY KEY, c INT, a VARCHAR(10) CHARACTER SET utf8mb4)",
    "INSERT INTO u VALUES (1, 2, 'ä')",
    (
        "CREATE TABLE p (id INT PRIMARY KEY, c INT) PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (10), "
        "PARTITION p1 VALUES LESS THAN (100))"
    ),
    "INSERT INTO p VALUES (1, 1), (20, 2)",
    f"CREATE TABLE {THERE}.t (id INT PRIMARY KEY, c INT, z VARCHAR(5))",
    f"INSERT INTO {THERE}.t VALUES (7, 7, 'z')",
)
CLAUSES: Final = (
    "ADD n INT", "ADD COLUMN n INT NOT NULL DEFAULT 5 AFTER a", "ADD n VARCHAR ( 9 ) CHARACTER SET latin1 FIRST",
    "ADD ( n INT , m INT UNSIGNED )", "ADD COLUMN IF NOT EXISTS n INT", "ADD n ENUM ( 'x' , 'y' ) DEFAULT 'x'",
    "ADD n INT AS ( id + 1 ) VIRTUAL", "ADD n DATETIME DEFAULT CURRENT_TIMESTAMP", "ADD n INT REFERENCES u ( id ) ON DELETE SET NULL",
    "ADD n DECIMAL ( 9 , 2 ) DEFAULT -1.5 COMMENT 'x, y'", "ADD n TIMESTAMP NULL", "ADD n INT CHECK ( n > 1 )",
    "DROP b", "DROP COLUMN b", "DROP COLUMN IF EXISTS b", "DROP b , DROP t", "DROP c , ADD c INT",
    "MODIFY a VARCHAR ( 20 ) NOT NULL", "MODIFY COLUMN b LONGTEXT AFTER id", "MODIFY c BIGINT DEFAULT 7 FIRST",
    "MODIFY COLUMN IF EXISTS c BIGINT UNSIGNED",
    "CHANGE a n VARCHAR ( 20 )", "CHANGE COLUMN b t2 TEXT FIRST", "CHANGE t b2 INT , CHANGE b t LONGTEXT",
    "RENAME COLUMN a TO n", "RENAME COLUMN b TO t , RENAME COLUMN t TO b", "RENAME INDEX k TO k2", "RENAME TO t2", "RENAME AS t2",
    f"RENAME {THERE} . t2", "RENAME = t2",
    "ALTER c SET DEFAULT 9", "ALTER COLUMN a DROP DEFAULT", "ALTER COLUMN c SET INVISIBLE", "ALTER INDEX k INVISIBLE",
    "ADD INDEX ( b ( 5 ) )", "ADD UNIQUE KEY n ( a , c DESC ) USING BTREE", "ADD CONSTRAINT n UNIQUE ( a )",
    "ADD FULLTEXT INDEX n ( b ) COMMENT 'x'", "ADD CONSTRAINT n FOREIGN KEY ( t ) REFERENCES u ( id )", "ADD CONSTRAINT n CHECK ( c > 0 )",
    "DROP PRIMARY KEY", "DROP PRIMARY KEY , ADD PRIMARY KEY ( c )", "DROP INDEX u", "DROP KEY k", "DROP CONSTRAINT u",
    "DROP CONSTRAINT IF EXISTS n", "DROP FOREIGN KEY n", "DROP CHECK n",
    "CONVERT TO CHARACTER SET utf8mb4", "CONVERT TO CHARSET utf8mb4 COLLATE utf8mb4_bin", "DEFAULT CHARACTER SET utf8mb4",
    "CHARSET = utf8mb4 COLLATE = utf8mb4_bin", "COLLATE latin1_bin", "COMMENT = 'x'", "ENGINE = InnoDB", "AUTO_INCREMENT = 5",
    "ROW_FORMAT = DYNAMIC , ADD n INT", "FORCE", "ORDER BY a", "ORDER BY a , c DESC", "DISABLE KEYS", "ALGORITHM = COPY , DROP b",
    "ADD n INT PARTITION BY HASH ( id ) PARTITIONS 2", "ADD SYSTEM VERSIONING", "DROP SYSTEM VERSIONING",
    "ADD n DATE NOT NULL , ADD m DATE NOT NULL , ADD PERIOD FOR o ( n , m )", "ADD n INT , LOCK = SHARED",
    "DROP b PARTITION BY KEY ( id )",
)  # fmt: skip
OF_PARTITIONS: Final = (
    "DROP PARTITION p0", "DROP PARTITION IF EXISTS p0 , p1", "TRUNCATE PARTITION p0 , p1", "TRUNCATE PARTITION ALL",
    "ANALYZE PARTITION p0", "REBUILD PARTITION ALL", "CHECK PARTITION p0 QUICK", "REMOVE PARTITIONING", "ADD n INT REMOVE PARTITIONING",
    "ADD PARTITION ( PARTITION p2 VALUES LESS THAN ( 1000 ) )", "PARTITION BY HASH ( id ) PARTITIONS 3",
    "REORGANIZE PARTITION p0 , p1 INTO ( PARTITION p2 VALUES LESS THAN ( 100 ) )", "EXCHANGE PARTITION p0 WITH TABLE q",
    "CONVERT PARTITION p0 TO TABLE n", "CONVERT TABLE q TO PARTITION p2 VALUES LESS THAN ( 1000 )",
)  # fmt: skip
STATEMENTS: Final = (
    *(f"ALTER TABLE t {clause}" for clause in CLAUSES),
    *(f"ALTER TABLE p {clause}" for clause in OF_PARTITIONS),
    f"ALTER TABLE {THERE} . t DROP z", f"ALTER TABLE {HERE} . t DROP t",
    "CREATE TABLE n ( id INT PRIMARY KEY , a VARCHAR ( 9 ) , KEY ( a ) ) CHARSET latin1",
    "CREATE TABLE n ( id INT , a TEXT ) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COMMENT 'x' PARTITION BY HASH ( id )",
    "CREATE TABLE IF NOT EXISTS t ( id INT )", "CREATE OR REPLACE TABLE t ( id INT PRIMARY KEY , a INT )",
    "CREATE TABLE n LIKE u", "CREATE TABLE n ( LIKE u )", "CREATE TABLE n SELECT id , c FROM t",
    "CREATE TABLE n ( x INT ) AS SELECT id FROM t", "CREATE TABLE n ( a INT UNIQUE , CHECK ( a > 1 ) )",
    f"CREATE TABLE {THERE} . n ( id INT NOT NULL , a CHAR ( 5 ) , UNIQUE n ( id ) )",
    "RENAME TABLE t TO n", f"RENAME TABLE u TO {THERE} . u", "RENAME TABLE t TO n , u TO t , n TO u", "RENAME TABLE IF EXISTS t TO n",
    "DROP TABLE t", "DROP TABLE t , u", "DROP TABLE IF EXISTS t CASCADE", f"DROP TABLE {THERE} . t", "TRUNCATE t", "TRUNCATE TABLE u",
    "CREATE INDEX n ON t ( b ( 9 ) )", "CREATE UNIQUE INDEX n ON t ( a DESC ) COMMENT 'x'", "DROP INDEX k ON t",
    "CREATE INDEX n USING BTREE ON t ( a ) ALGORITHM = INPLACE LOCK = NONE",
    f"ALTER DATABASE {HERE} CHARACTER SET latin1", f"ALTER DATABASE {THERE} COLLATE utf8mb4_bin", f"DROP DATABASE {THERE}",
    f"CREATE DATABASE IF NOT EXISTS {THERE} CHARACTER SET utf8mb4", f"DROP SCHEMA IF EXISTS {THERE}",
    "CREATE VIEW v AS SELECT id FROM t", "CREATE OR REPLACE VIEW v AS SELECT id FROM t", "DROP VIEW IF EXISTS v",
    "CREATE SEQUENCE s", "DROP SEQUENCE IF EXISTS s", "CREATE OR REPLACE SEQUENCE u START WITH 5",
    "CREATE TRIGGER x AFTER INSERT ON t FOR EACH ROW SET @a = 1", "DROP TRIGGER IF EXISTS x", "ANALYZE TABLE t", "OPTIMIZE TABLE t",
)  # fmt: skip
TOKENS: Final = (
    "t .", f"{HERE} . t .", f"{HERE} .", f"{THERE} .", "u .", ".", ",", "(", ")", "=", ";", "*", "a", "b", "`c`", '"a"', "t", "u", "n", "'x'",
    "5", "-1", "NULL", "NOT NULL", "NOT", "DEFAULT", "DEFAULT 3", "DEFAULT NULL", "UNIQUE", "PRIMARY", "PRIMARY KEY", "KEY", "INDEX",
    "COMMENT 'y'", "CHARACTER SET utf8mb4", "CHARSET ascii", "COLLATE latin1_bin", "BINARY", "UNSIGNED", "ZEROFILL", "INVISIBLE",
    "VISIBLE", "AUTO_INCREMENT", "ON UPDATE CURRENT_TIMESTAMP", "STORED", "COMPRESSED", "IF EXISTS", "IF NOT EXISTS", "COLUMN", "FIRST",
    "AFTER a", "AFTER id", "RESTRICT", "CASCADE", "WAIT 1", "NOWAIT", "ONLINE", "IGNORE", "TABLE", "TABLES", "TO", "AS", "TEMPORARY",
    "OR REPLACE", "LIKE u", "SELECT 1 AS z", "AS SELECT 2 AS z", "START TRANSACTION", "ENGINE = MyISAM", "FORCE", ", FORCE",
    ", ALGORITHM = COPY", ", DROP b", ", ADD w INT", "ADD w INT ,", ", COMMENT 'z'", ", RENAME TO r", ", ORDER BY a", "USING BTREE",
    "KEY_BLOCK_SIZE = 1", "REFERENCES u ( id )", "ON DELETE CASCADE", "CHECK ( 1 )", "CONSTRAINT", "CONSTRAINT y", "DESC", "( 3 )",
    "PARTITION BY HASH ( id )", "PARTITION", "REMOVE PARTITIONING", "WITH SYSTEM VERSIONING", "WITHOUT SYSTEM VERSIONING", "PERIOD",
    "/* b */", "/*! FIRST */", "/*!50000 NOT NULL */", "/*!99999 UNIQUE */", "/*M! FIRST */", "/*M!100000 INVISIBLE */", "-- b\n",
    "# b\n", "/*!*/", "ENFORCED", "NOT ENFORCED", "WITHOUT VALIDATION", "ALL", "LOCAL", "DEFINER = CURRENT_USER", "SERIAL DEFAULT VALUE",
    ", DEFAULT CHARSET latin1", "CHARSET = utf8mb4", ", CONVERT TO CHARACTER SET utf8mb4", "PERSISTENT", "GENERATED ALWAYS", "IGNORED",
)  # fmt: skip

LIKELY: Final = (
    "t .", f"{HERE} . t .", f"{HERE} .", "/* b */", "-- b\n", "# b\n", "/*! FIRST */", "COLUMN", "IF EXISTS", "IF NOT EXISTS", "FIRST",
    "AFTER id", "NOT NULL", "DEFAULT NULL", ", DROP b", ", ADD w INT", ", FORCE", "COMMENT 'y'", "WAIT 1", "NOWAIT", ", RENAME TO r",
    "PARTITION BY HASH ( id )", "RESTRICT", "CHARSET = utf8mb4", "UNSIGNED", "DESC", "KEY_BLOCK_SIZE = 1", ";", "`c`", "a",
)  # fmt: skip
"""Tokens that are legal in many statements."""


def with_one_more(rng: random.Random) -> str:
    """A statement with a token, or a few that belong together, put somewhere; names are quoted or qualified at times."""
    words = rng.choice(STATEMENTS).split(" ")
    kept = [f"`{word}`" if word.isalpha() and word.islower() and rng.random() < 0.15 else word for word in words]
    at = rng.randrange(1, len(kept) + 1)
    token = rng.choice(LIKELY if rng.random() < 0.4 else TOKENS)
    return " ".join([*kept[:at], token, *kept[at:]])


class ClauseFuzzer:
    """Two databases of a server, altered by one statement at a time and made again."""

    def __init__(self, server: Database, seed: int) -> None:
        self.server, self.rng = server, random.Random(f"clauses {server.name} {seed}")
        self.user, self.reader = server.connect(), server.connect()
        for connection, zone in ((self.user, "+05:30"), (self.reader, "+00:00")):
            with connection.cursor() as cursor:
                cursor.execute(f"SET SESSION sql_mode = '', time_zone = '{zone}', lock_wait_timeout = 5, foreign_key_checks = 0")
        self.rules = read_rules(self.reader)
        self.counts: Counter[str] = Counter()
        self.plain = [statement for statement in STATEMENTS if self.rng.random() < 0.3]
        self.set_up()

    def close(self) -> None:
        self.user.close()
        self.reader.close()

    def execute(self, *statements: str) -> None:
        with self.user.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def set_up(self) -> None:
        """Make the databases as they are before each statement."""
        with self.user.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE IF NOT EXISTS {HERE}")
            cursor.execute("SELECT table_name, table_type FROM information_schema.tables WHERE table_schema = %s", (HERE,))
            for name, kind in cursor.fetchall():
                word = {"VIEW": "VIEW", "SEQUENCE": "SEQUENCE"}.get(kind, "TABLE")
                cursor.execute(f"DROP {word} IF EXISTS {HERE}.`{name}`")
        self.execute(*SETUP, "CREATE TABLE q LIKE p", "ALTER TABLE q REMOVE PARTITIONING", "INSERT INTO q VALUES (2, 3)")
        self.facts, self.rows = self.look()
        self.databases = read_databases(self.reader)

    def look(self) -> tuple[dict[Table, TableFacts], dict[Table, list[dict[str, Any]]]]:
        """All tables of both databases, and their rows."""
        facts, rows = {}, {}
        with self.reader.cursor(pymysql.cursors.DictCursor) as cursor:
            cursor.execute(
                "SELECT table_schema AS d, table_name AS t FROM information_schema.tables WHERE table_schema IN (%s, %s) "
                "AND table_type IN ('BASE TABLE', 'SYSTEM VERSIONED')",
                (HERE, THERE),
            )
            for name in [(row["d"], row["t"]) for row in cursor.fetchall()]:
                found = read_table_facts(self.reader, *name)
                assert found is not None
                facts[name] = found
                cursor.execute(f"SELECT * FROM `{name[0]}`.`{name[1]}`")
                rows[name] = sorted(cursor.fetchall(), key=repr)
        return facts, rows

    def attempt(self) -> str:
        """One statement; the words of a misreading, "" for none. The first ones are as they are."""
        statement = self.plain.pop() if self.plain else with_one_more(self.rng)
        try:
            changes = parse_ddl(statement, HERE, self.server.flavour)
        except Exception as error:  # noqa: BLE001 - that is what is looked for
            return f"{error!r} of {statement!r}"
        is_unclear = any(change.is_unclear for change in changes)
        if is_unclear and self.rng.random() < 0.9:
            self.counts["unclear"] += 1
            return ""
        position = end_of_log(self.user)
        try:
            self.execute(statement)
        except pymysql.MySQLError:
            self.counts["refused"] += 1
            if statement.startswith("DROP"):
                self.set_up()  # some of several tables may be gone
            return ""
        self.counts["accepted"] += 1
        events = [event for event in parsed_since(position) if isinstance(event, QueryEvent)]
        try:
            wrong = self.compare(events)
        finally:
            self.set_up()
        return wrong and f"{statement!r} on {self.server.name}: {wrong}"

    def compare(self, events: list[QueryEvent]) -> str:
        """What the texts made of the tables, against the server; "" if all is the same."""
        tracked = TrackedTables(self.rules, lambda _database, _table: True)
        for one in self.facts.values():
            tracked.adopt(state_of(one))
        tracked.adopt_databases(self.databases)
        catalog = catalog_of(self.server, tracked, self.server.connect)
        changes: list[DdlChange] = []
        for event in events:
            mode = event.sql_mode
            changes += catalog.apply(parse_ddl(event.sql, event.database, self.server.flavour, sql_mode=mode))
        self.counts["accepted and unclear"] += any(change.is_unclear for change in changes)
        tables, rows = self.look()
        # A foreign key has an index if none fits, which nothing depends on but the names of later ones.
        only_unique = any("REFERENCES" in event.sql for event in events)
        wrong = [self.differs(tracked, name, tables.get(name), only_unique=only_unique) for name in {*self.facts, *tables}]
        wrong += [self.rows_differ(name, changes, tables, rows) for name in self.facts]
        charsets = read_databases(self.reader)
        for name, charset in tracked.charsets().items():
            if name in (HERE, THERE) and charset != charsets.get(name):
                wrong.append(f"database {name} is {charset}, on the server {charsets.get(name)}")
        return "; ".join(text for text in wrong if text)

    def differs(self, tracked: TrackedTables, name: Table, facts: TableFacts | None, *, only_unique: bool) -> str:
        """How a table that is followed by text differs from the server's."""
        state = tracked.state(*name)
        if state is None:
            self.counts["states lost"] += facts is not None
            return ""
        if facts is None:
            return f"{name} is gone on the server"
        if facts.refusal or facts.unsupported:
            return f"{name} is refused: {facts.refusal}, {facts.unsupported}"
        self.counts["states"] += 1
        found = (comparable(state.schema, state.uncertain), state.charset, comparable_collation(state.collation))
        real = (comparable(facts.schema, state.uncertain), facts.charset, comparable_collation(facts.collation))
        keys = [[key for key in comparable_keys(one.keys) if key.unique or not only_unique] for one in (state, facts)]
        if found != real:
            return f"{name} is {found}, on the server {real}"
        return "" if keys[0] == keys[1] else f"{name} has keys {keys[0]}, on the server {keys[1]}"

    def rows_differ(
        self, name: Table, changes: list[DdlChange], facts: dict[Table, TableFacts], rows: dict[Table, list[dict[str, Any]]]
    ) -> str:
        """How the rows of a table differ that the texts do not change."""
        mine = [change for change in changes if name in ((change.database, change.table), (change.new_database, change.new_table))]
        mine += [change for change in changes if change.kind == "drop_database" and change.database == name[0]]
        mine += [change for change in changes if change.is_suspected and not change.table and change.database == name[0]]
        if max((EFFECTS.index(change.effect) for change in mine), default=0) > EFFECTS.index("fill"):
            return ""
        if any(change.kind == "rename" for change in mine):
            return ""
        if name not in facts:
            return f"{name} is gone, and only {mine} say so"
        before, after = self.rows[name], rows[name]
        added = {column.name: column for column in facts[name].schema.columns if before and column.name not in before[0]}
        if len(before) != len(after):
            return f"{name} has {len(after)} rows, had {len(before)}, by {mine}"
        shared = [key for key in before[0] if key in after[0]]
        old = sorted([[row[key] for key in shared] for row in before], key=repr)
        new = sorted([[row[key] for key in shared] for row in after], key=repr)
        if old != new:
            return f"{name} has other values, by {mine}"
        for column in added.values():
            if column.filled_by != "expression" and column_default(column) is None and any(row[column.name] is not None for row in after):
                return f"{name}.{column.name} is not NULL in old rows, by {mine}"
        return ""


def fuzz(server: Database, seed: int, seconds: float) -> tuple[int, Counter[str], list[str]]:
    """Statements for so many seconds: how many, what became of them, and the misreadings."""
    fuzzer = ClauseFuzzer(server, seed)
    deadline, count, wrong = time.monotonic() + seconds, 0, []
    try:
        while time.monotonic() < deadline:
            count += 1
            if words := fuzzer.attempt():
                wrong.append(words)
    finally:
        fuzzer.close()
    return count, fuzzer.counts, wrong
