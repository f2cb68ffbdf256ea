"""DDL texts: which tables change, and what that does to rows that leave no events."""

from __future__ import annotations

import random

import pytest

from producer.catalog.effects import DdlChange, parse_ddl
from producer.catalog.statements import QueryKind, classify_query
from producer.catalog.statements.clauses import Copy, DatabaseCharset


def effects(sql: str, flavour: str = "mysql") -> list[tuple[str, str, str]]:
    return [
        (change.kind, f"{change.database}.{change.table}", change.effect)
        for change in parse_ddl(sql, "db", flavour)
    ]


def only(sql: str, flavour: str = "mysql") -> DdlChange:
    (change,) = parse_ddl(sql, "db", flavour)
    return change


@pytest.mark.parametrize(
    "clause",
    [
        "ADD COLUMN a INT NOT NULL DEFAULT 5",
        "ADD a INT",
        "ADD a INT NULL DEFAULT NULL FIRST",
        "ADD a VARCHAR(10) DEFAULT 'it''s' AFTER `b`",
        "ADD a VARCHAR(10) DEFAULT \"abc\" COMMENT 'x, y (z'",
        "ADD COLUMN (a INT, b DECIMAL(10,2) NOT NULL DEFAULT -1.5)",
        "ADD a INT, ADD b ENUM('x','y,z') NOT NULL DEFAULT 'y,z'",
        "ADD a SET('x','y') DEFAULT 'x,y'",
        "ADD a BOOLEAN NOT NULL DEFAULT TRUE",
        "ADD a BIT(8) NOT NULL DEFAULT b'101'",
        "ADD a DOUBLE DEFAULT 1.5e3",
        "ADD a DATE DEFAULT '2020-02-29'",
        "ADD a DATETIME(3) DEFAULT '2020-02-29 10:11:12.123'",
        "ADD a TIME DEFAULT '-10:11:12'",
        "ADD a YEAR DEFAULT 1999",
        "ADD a TIMESTAMP NULL",
        "ADD a BINARY(4) NOT NULL DEFAULT 'ab'",
        "ADD a VARBINARY(4) DEFAULT X'00FF'",
        "ADD a CHAR(4) CHARACTER SET latin1 COLLATE latin1_bin DEFAULT 'ab' INVISIBLE",
        "ADD a INT DEFAULT 5 REFERENCES other (id) ON DELETE SET NULL ON UPDATE CASCADE",
        "ADD a INT DEFAULT 5 CHECK (a > (1 + 2)), ALGORITHM=INSTANT, LOCK=NONE",
        "ADD a INT /*!80000 DEFAULT 3 */ -- note\n",
        "ADD a JSON",
        "ADD a INT UNIQUE",
        "ADD a GEOMETRY",
    ],
)
def test_adding_a_column_with_a_known_constant_fills_it(clause: str) -> None:
    assert effects(f"ALTER TABLE t {clause}") == [("alter", "db.t", "fill")]


@pytest.mark.parametrize(
    "clause",
    [
        "ADD a INT NOT NULL",  # the server's implicit default
        "ADD a INT DEFAULT (1 + 2)",
        "ADD a VARCHAR(36) DEFAULT (UUID())",
        "ADD a VARCHAR(36) DEFAULT uuid()",
        "ADD a DATETIME DEFAULT CURRENT_TIMESTAMP",
        "ADD a DATETIME(6) DEFAULT NOW(6) ON UPDATE NOW(6)",
        "ADD a TIMESTAMP",  # perhaps NOT NULL DEFAULT CURRENT_TIMESTAMP, perhaps not
        "ADD a TIMESTAMP NULL DEFAULT '2020-01-01 00:00:00'",  # of which time zone?
        "ADD a INT DEFAULT 1.5",
        "ADD a DECIMAL(4,1) DEFAULT 1e2",
        "ADD a FLOAT(10,2) DEFAULT 1.005",
        "ADD a DATE DEFAULT '20200229'",
        "ADD a DATE DEFAULT '0000-00-00'",
        "ADD a DATETIME DEFAULT '2020-02-29 10:11:12.5'",
        "ADD a YEAR DEFAULT 99",
        "ADD a ENUM('x','y') DEFAULT 'X'",
        "ADD a SET('x','y') DEFAULT 'y,x'",
        "ADD a VARBINARY(4) DEFAULT 'é'",
        "ADD a VARCHAR(4) DEFAULT 'a\\\\b'",  # depends on NO_BACKSLASH_ESCAPES
        "ADD a VARCHAR(4) DEFAULT _latin1'ab'",
        "ADD a VARCHAR(4) DEFAULT X'4142'",
        "ADD a VARCHAR(4) DEFAULT 5",
        "ADD a INT AS (b + 1)",
        "ADD a INT GENERATED ALWAYS AS (b + 1) STORED",
        "ADD a INT AUTO_INCREMENT UNIQUE",
        "ADD a INT PRIMARY KEY",
        "ADD a GEOMETRY NOT NULL",
        "ADD a SOMETHING NEW",
        "ADD a INT WHATEVER 5",
        "ADD PRIMARY KEY (a)",
        "ADD CONSTRAINT pk PRIMARY KEY (a)",
        "DROP PRIMARY KEY, ADD PRIMARY KEY (a, b)",
        "DROP INDEX `primary`",
        "DROP COLUMN a, ADD COLUMN a INT",
        "RENAME COLUMN a TO b",
        "CHANGE a b INT",
        "MODIFY a BIGINT",
        "DROP a",
        "CONVERT TO CHARACTER SET utf8mb4",
        "DROP PARTITION p0, p1",
        "TRUNCATE PARTITION ALL",
        "DISCARD TABLESPACE",
        "IMPORT TABLESPACE",
        "FROBNICATE",
    ],
)
def test_what_may_change_stored_values_wants_a_snapshot(clause: str) -> None:
    assert effects(f"ALTER TABLE t {clause}")[:1] == [("alter", "db.t", "snapshot")]


@pytest.mark.parametrize(
    "clause",
    [
        "ADD INDEX (a)",
        "ADD UNIQUE KEY k (a, b DESC), DROP INDEX j",
        "ADD FULLTEXT INDEX (a), ADD SPATIAL KEY (g)",
        "ADD CONSTRAINT fk FOREIGN KEY (a) REFERENCES x.y (id)",
        "ADD CONSTRAINT c CHECK (a > 1)",
        "DROP FOREIGN KEY fk, DROP CHECK c",
        "ALTER COLUMN a SET DEFAULT 7, ALTER b DROP DEFAULT",
        "ALTER INDEX k INVISIBLE",
        "RENAME INDEX a TO b",
        "COMMENT 'a, b', ENGINE=InnoDB ROW_FORMAT=DYNAMIC",
        "DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
        "AUTO_INCREMENT = 5, FORCE",
        "ADD PARTITION (PARTITION p3 VALUES LESS THAN (30))",
        "REORGANIZE PARTITION p0, p1 INTO (PARTITION p VALUES LESS THAN (20))",
        "PARTITION BY HASH (id) PARTITIONS 4",
        "REMOVE PARTITIONING",
        "ORDER BY a",
        "DISABLE KEYS",
    ],
)
def test_what_keeps_all_values_has_no_effect(clause: str) -> None:
    assert effects(f"ALTER TABLE t {clause}") == [("alter", "db.t", "none")]


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("CREATE TABLE t (a INT)", [("create", "db.t", "floor")]),
        ("CREATE TABLE IF NOT EXISTS `x-y`.`t``1` LIKE u", [("create", "x-y.t`1", "none")]),
        ("CREATE TABLE t (LIKE u)", [("create", "db.t", "floor")]),
        ("CREATE OR REPLACE TABLE t (a INT)", [("create", "db.t", "floor")]),
        ("CREATE TABLE t (a INT) START TRANSACTION", [("create", "db.t", "floor")]),
        ("CREATE TABLE t (a INT AS (b + 1), KEY (a)) ENGINE=InnoDB", [("create", "db.t", "floor")]),
        ("CREATE TABLE t AS SELECT 1", [("create", "db.t", "snapshot")]),
        ("CREATE TABLE t (a INT) IGNORE SELECT 1 AS a", [("create", "db.t", "snapshot")]),
        ("CREATE TABLE t (SELECT 1)", [("create", "db.t", "snapshot")]),
        ("CREATE TEMPORARY TABLE t (a INT)", [("other", "db.", "none")]),
        ("CREATE VIEW v AS SELECT 1", [("other", "db.", "none")]),
        ("DROP TABLE IF EXISTS a, b.c RESTRICT", [("drop", "db.a", "floor"), ("drop", "b.c", "floor")]),
        ("DROP TABLE `a` /* generated by server */", [("drop", "db.a", "floor")]),
        ("DROP TEMPORARY TABLE a", [("other", "db.", "none")]),
        ("DROP /*!40005 TEMPORARY */ TABLE IF EXISTS `a`", [("other", "db.", "none")]),
        ("DROP SCHEMA IF EXISTS `x`", [("drop_database", "x.", "floor")]),
        ("TRUNCATE `a`", [("truncate", "db.a", "floor")]),
        ("TRUNCATE TABLE x.a", [("truncate", "x.a", "floor")]),
        ("ALTER IGNORE TABLE t ADD UNIQUE (a)", [("alter", "db.t", "snapshot")]),
        (
            "ALTER TABLE t EXCHANGE PARTITION p WITH TABLE x.u WITHOUT VALIDATION",
            [("alter", "db.t", "snapshot"), ("alter", "x.u", "snapshot")],
        ),
        ("ALTER TABLE t RENAME TO x.u", [("alter", "db.t", "none"), ("rename", "db.t", "snapshot")]),
        ("ALTER DATABASE d CHARACTER SET utf8mb4", [("other", "d.", "none")]),
        ("/* hello */ alter table t add a int # x", [("alter", "db.t", "fill")]),
        ('ALTER TABLE "t" ADD "a" INT', [("alter", "db.t", "fill")]),
        ("GRANT ALL ON *.* TO x", [("other", "db.", "none")]),
        ("", [("other", "db.", "none")]),
    ],
)
def test_each_statement_names_its_tables(sql: str, expected: list[tuple[str, str, str]]) -> None:
    assert effects(sql) == expected


def test_renames_go_in_the_order_of_the_statement() -> None:
    changes = parse_ddl("RENAME TABLE a TO tmp, x.b TO a, tmp TO x.b", "db")
    assert [(c.database, c.table, c.new_database, c.new_table) for c in changes] == [
        ("db", "a", "db", "tmp"),
        ("x", "b", "db", "a"),
        ("db", "tmp", "x", "b"),
    ]
    assert {change.effect for change in changes} == {"snapshot"}


def test_mariadb_comments_count_on_mariadb_only() -> None:
    sql = "ALTER TABLE t ADD a INT /*M!100000 DEFAULT 5 */"
    assert only(sql, "mariadb").added[0].default == "5"
    assert only(sql, "mysql").added[0].default is None


def test_mariadb_clauses() -> None:
    assert effects("ALTER ONLINE TABLE IF EXISTS t WAIT 5 ADD COLUMN IF NOT EXISTS a INT", "mariadb") == [
        ("alter", "db.t", "fill")
    ]
    assert effects("SET STATEMENT max_statement_time=5 FOR ALTER TABLE t ADD a INT", "mariadb") == [
        ("alter", "db.t", "fill")
    ]
    assert effects("ALTER TABLE t CONVERT PARTITION p TO TABLE u", "mariadb") == [
        ("alter", "db.t", "snapshot"),
        ("alter", "db.u", "snapshot"),
    ]
    assert effects("ALTER TABLE t CONVERT TABLE x.u TO PARTITION p VALUES LESS THAN (5)", "mariadb") == [
        ("alter", "db.t", "snapshot"),
        ("drop", "x.u", "floor"),
    ]
    assert effects("CREATE OR REPLACE DATABASE x CHARACTER SET latin1", "mariadb") == [
        ("drop_database", "x.", "floor"),
        ("other", "x.", "none"),
    ]


def test_mariadb_may_keep_other_default_bytes_than_it_was_given() -> None:
    sql = "ALTER TABLE t ADD a VARBINARY(4) NOT NULL DEFAULT X'{}'"
    assert [effects(sql.format(digits), "mariadb")[0][2] for digits in ("007F", "00FF")] == ["fill", "snapshot"]
    assert effects(sql.format("00FF"), "mysql")[0][2] == "fill"


def test_added_columns_have_their_defaults() -> None:
    added = only(
        "ALTER TABLE t ADD (a INT NOT NULL DEFAULT -5, b TEXT, c INT DEFAULT (1+1), d CHAR(3) DEFAULT 'x  ')"
    ).added
    assert [(c.name, c.default, c.default_is_expression, c.nullable is not False) for c in added] == [
        ("a", "-5", False, False),
        ("b", None, False, True),
        ("c", None, True, True),
        ("d", "x  ", False, True),
    ]


def test_a_string_without_backslash_escapes_is_read_too() -> None:
    assert effects("ALTER TABLE t ADD a VARCHAR(3) DEFAULT 'a\\', ADD b INT") == [
        ("alter", "db.t", "snapshot")
    ]
    assert [
        column.name for column in only("ALTER TABLE t ADD a VARCHAR(3) DEFAULT 'a\\', ADD b INT").added
    ] == ["a", "b"]


def test_backslashes_count_as_the_session_had_it() -> None:
    sql = "ALTER TABLE t ADD a VARCHAR(3) DEFAULT 'a\\\\b'"
    read = [parse_ddl(sql, "db", sql_mode=mode)[0] for mode in (0, 1 << 20)]
    assert [(change.added[0].default, change.effect) for change in read] == [("a\\b", "fill"), ("a\\\\b", "fill")]
    patterns = "ALTER TABLE t ADD a VARCHAR(9) DEFAULT '\\%\\_'"
    assert parse_ddl(patterns, "db", sql_mode=0)[0].added[0].default == "\\%\\_"  # these two keep their backslash


def test_names_are_folded_where_the_server_folds_them() -> None:
    (change,) = parse_ddl("RENAME TABLE A TO X.B", "Db", lower_case_names=True)
    assert (change.database, change.table, change.new_database, change.new_table) == ("db", "a", "x", "b")
    (change,) = parse_ddl("CREATE TABLE a LIKE X.B", "db", lower_case_names=True)
    assert change.clauses == (Copy("x", "b"),)
    (change,) = parse_ddl("ALTER DATABASE X CHARACTER SET latin1", "db", lower_case_names=True)
    assert change.clauses == (DatabaseCharset("x", "latin1", None, is_new=False),)


@pytest.mark.parametrize(
    ("sql", "kind"),
    [
        ("BEGIN", QueryKind.BEGIN),
        ("begin /* x */", QueryKind.BEGIN),
        ("START TRANSACTION READ WRITE", QueryKind.BEGIN),
        ("COMMIT", QueryKind.COMMIT),
        ("ROLLBACK", QueryKind.ROLLBACK),
        ("ROLLBACK TO `s`", QueryKind.ROLLBACK),
        ("SAVEPOINT `s`", QueryKind.SAVEPOINT),
        ("RELEASE SAVEPOINT `s`", QueryKind.SAVEPOINT),
        ("XA START X'78',X'',1", QueryKind.XA),
        ("/* app */ INSERT INTO t VALUES (1)", QueryKind.DML),
        ("-- note\nupdate t set a = 1", QueryKind.DML),
        ("/*!50000 delete */ from t", QueryKind.DML),
        ("replace into t values (1)", QueryKind.DML),
        ("LOAD DATA INFILE 'x' INTO TABLE t", QueryKind.DML),
        ("WITH c AS (SELECT 1) UPDATE t SET a = 1", QueryKind.DML),
        ("(SELECT f())", QueryKind.DML),
        ("CALL p()", QueryKind.DML),
        ("SET STATEMENT a=1 FOR DELETE FROM t", QueryKind.DML),
        ("CREATE TABLE `insert` (a INT)", QueryKind.OTHER),
        ("ALTER TABLE t ADD a INT", QueryKind.OTHER),
        ("FLUSH TABLES", QueryKind.OTHER),
        ("", QueryKind.OTHER),
    ],
)
def test_query_events_are_classified_by_their_first_words(sql: str, kind: QueryKind) -> None:
    assert classify_query(sql) is kind


def test_random_texts_never_raise_and_never_lose_an_altered_table() -> None:
    randomness = random.Random(7)
    text = (
        "ADD DROP COLUMN MODIFY CHANGE a `b` ( ) , INT VARCHAR DEFAULT NOT NULL 'x' \" 5 -- /* */ /*! RENAME "
        "TO . PARTITION KEY PRIMARY FIRST AFTER CONVERT ALTER SET ; = \\ ENUM AS EXCHANGE WITH TABLE LIKE "
        "SELECT IF EXISTS"
    )
    pieces = text.split(" ")
    for _ in range(4000):
        tail = " ".join(randomness.choices(pieces, k=randomness.randrange(12)))
        changes = parse_ddl(f"ALTER TABLE x.t {tail}", "db")
        assert (changes[0].database, changes[0].table) == ("x", "t")
        for head in ("CREATE TABLE", "DROP", "RENAME TABLE", "TRUNCATE", "CREATE OR"):
            parse_ddl(f"{head} {tail}", "db")
            classify_query(tail)


@pytest.mark.parametrize("flavour", ["mysql", "mariadb"])
def test_a_vector_is_a_column_like_others(flavour: str) -> None:
    (added,) = parse_ddl("ALTER TABLE t ADD a VECTOR(3)", "db", flavour)
    assert added.effect == "fill"
